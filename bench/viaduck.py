"""Viaduck over a benchmark's lakes: its configuration file, and the process tree of ``viaduck up``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import yaml

from bench.lakes import Lake
from bench.workload import KEY_COLUMN, ROUTING_FIELD, TABLE
from services.cli.ports import free_port
from services.cli.running import RunningViaduck

PIPELINE = "bench"
POLL_S = 0.5
PATIENCE_S = 300.0

JOB_SECONDS = re.compile(r'^viaduck_job_seconds_sum\{.*?phase="(\w+)".*?\} (\S+)', re.MULTILINE)
POLLS = re.compile(r"^viaduck_polls_total\{.*?\} (\S+)", re.MULTILINE)


@contextmanager
def running_viaduck(root: Path, source: Lake, destinations: Mapping[str, Lake]) -> Iterator[RunningViaduck]:
    """``viaduck up`` on a file for these lakes, ready; ``destinations`` is by tenant."""
    port = free_port()
    file = root / "viaduck.yaml"
    file.write_text(yaml.safe_dump(_config(source, destinations, port)))
    with RunningViaduck(file, f"http://127.0.0.1:{port}", PIPELINE, root / "viaduck.log") as viaduck:
        viaduck.wait_until("starting", viaduck.ready, PATIENCE_S)
        yield viaduck


def wait_caught_up(viaduck: RunningViaduck, head: int) -> None:
    viaduck.wait_until(f"reaching snapshot {head}", lambda: viaduck.caught_up(head), PATIENCE_S, every_s=0.1)


def phase_seconds(viaduck: RunningViaduck) -> dict[str, float]:
    """Seconds that jobs have spent so far, by phase."""
    return {phase: float(seconds) for phase, seconds in JOB_SECONDS.findall(viaduck.metrics())}


def polls(viaduck: RunningViaduck) -> float:
    return sum(float(count) for count in POLLS.findall(viaduck.metrics()))


def _config(source: Lake, destinations: Mapping[str, Lake], port: int) -> dict[str, object]:
    return {
        "pipeline": PIPELINE,
        "source": {"catalog": source.catalog, "data_path": source.data_path, "table": TABLE},
        "routing": {"field": ROUTING_FIELD, "key_columns": [KEY_COLUMN]},
        "poll": {"interval_seconds": POLL_S},
        "server": {"port": port},
        "state_dir": "state",
        "destinations": [
            {"id": tenant, "routing_value": tenant, "catalog": lake.catalog, "data_path": lake.data_path}
            for tenant, lake in destinations.items()
        ],
    }
