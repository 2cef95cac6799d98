"""Viaduck over a benchmark's lakes: its configuration file, and the process tree of ``viaduck up``."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from bench.lakes import VARIABLES, Lake
from bench.processes import since
from bench.workload import KEY_COLUMN, ROUTING_FIELD, TABLE
from services.cli.runtime.ports import free_port
from services.cli.runtime.running import RunningViaduck

PIPELINE = "bench"
FILE, LOG = "viaduck.yaml", "viaduck.log"
POLL_S = 0.5
PATIENCE_S = 900.0
ASK_EVERY_S = 0.5
"""How often control is asked. Its answers take of the cores that are measured; when a batch was done Postgres tells."""

LOOKS_FOR_PARKED = 10
"""How many looks at the whole there are to one at each destination."""

JOB_SECONDS = re.compile(r'^viaduck_job_seconds_sum\{.*?phase="(\w+)".*?\} (\S+)', re.MULTILINE)
COMMITS = re.compile(r'^viaduck_commits_total\{.*?path="(\w+)".*?\} (\S+)', re.MULTILINE)
POLLS = re.compile(r"^viaduck_polls_total\{.*?\} (\S+)", re.MULTILINE)


@dataclass(frozen=True)
class Options:
    """What a case has otherwise in its file. Without ``keyed`` the pipeline is append-only."""

    poll_s: float = POLL_S
    keyed: bool = True
    sections: Mapping[str, Any] = field(default_factory=dict)


DEFAULT = Options()


@contextmanager
def running_viaduck(
    root: Path, source: Lake, destinations: Mapping[str, Lake], options: Options = DEFAULT
) -> Iterator[RunningViaduck]:
    """``viaduck up`` on a file for these lakes, ready; ``destinations`` is by tenant."""
    port = free_port()
    file = write_file(root, source, destinations, options, port)
    with RunningViaduck(file, f"http://127.0.0.1:{port}", PIPELINE, root / LOG) as viaduck:
        viaduck.wait_until("starting", viaduck.ready, PATIENCE_S)
        yield viaduck


def write_file(
    root: Path, source: Lake, destinations: Mapping[str, Lake], options: Options = DEFAULT, port: int = 0
) -> Path:
    file = root / FILE
    file.write_text(yaml.safe_dump(_config(source, destinations, port, options)))
    return file


def wait_caught_up(viaduck: RunningViaduck, head: int) -> None:
    """Raises ``AssertionError`` as soon as somebody is parked: that one never will."""
    looks = itertools.count(1)

    def done() -> bool:
        if next(looks) % LOOKS_FOR_PARKED == 0:
            parked = [status for status in viaduck.destinations() if status["state"] == "parked"]
            assert not parked, f"{len(parked)} destinations are parked: {parked[0]}"
        return viaduck.caught_up(head)

    viaduck.wait_until(f"reaching snapshot {head}", done, PATIENCE_S, ASK_EVERY_S)


def wait_settled(viaduck: RunningViaduck, head: int) -> None:
    """Caught up, and everybody still is after a moment in which whatever else was under way could end."""
    wait_caught_up(viaduck, head)
    time.sleep(1.0)
    wait_caught_up(viaduck, head)


def phase_seconds(viaduck: RunningViaduck) -> dict[str, float]:
    """Seconds that jobs have spent so far, by phase."""
    return {phase: float(seconds) for phase, seconds in JOB_SECONDS.findall(viaduck.metrics())}


def phases_since(viaduck: RunningViaduck, before: Mapping[str, float]) -> dict[str, float]:
    return since(before, phase_seconds(viaduck))


def commits(viaduck: RunningViaduck) -> dict[str, float]:
    """How many there were at destinations so far, by who made them."""
    found: dict[str, float] = {}
    for path, count in COMMITS.findall(viaduck.metrics()):
        found[path] = found.get(path, 0.0) + float(count)
    return found


def polls(viaduck: RunningViaduck) -> float:
    return sum(float(count) for count in POLLS.findall(viaduck.metrics()))


def entry(tenant: str, lake: Lake, suffix: str = "") -> dict[str, str]:
    """A destination as REST takes it; ``suffix`` is the end of its id. The services must have been started after
    its lake was made, with its variable."""
    catalog = {"catalog": lake.catalog} if lake.variable is None else {"catalog_env": lake.variable}
    return {"id": f"{tenant}{suffix}", "routing_value": tenant, "data_path": lake.data_path, **catalog}


def _declared(tenant: str, lake: Lake) -> dict[str, str]:
    """A destination of the file."""
    shared = {} if lake.schema is None else {"metadata_schema": lake.schema}
    return {"id": tenant, "routing_value": tenant, "catalog": lake.catalog, "data_path": lake.data_path, **shared}


def _config(source: Lake, destinations: Mapping[str, Lake], port: int, options: Options) -> dict[str, Any]:
    return {
        "pipeline": PIPELINE,
        "source": {"catalog": source.catalog, "data_path": source.data_path, "table": TABLE},
        "routing": {"field": ROUTING_FIELD, "key_columns": [KEY_COLUMN] if options.keyed else []},
        "poll": {"interval_seconds": options.poll_s},
        "health": {"every_seconds": 0},  # it has a case of its own, and idle services are to be idle here
        "server": {"port": port, "allowed_variables": [f"{VARIABLES}*"]},
        "state_dir": "state",
        "destinations": [_declared(tenant, lake) for tenant, lake in destinations.items()],
        **options.sections,
    }
