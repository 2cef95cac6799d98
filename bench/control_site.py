"""A control under load: the real process, thousands of destinations in its registry, and services that keep talking."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import httpx
import yaml
from sqlalchemy.engine import make_url

from bench.alongside import alongside
from bench.workload import DECLARED, KEY_COLUMN, ROUTING_FIELD, SCHEMA, TABLE
from services.cli.runtime.ports import free_port
from services.control.model.lifecycle import Registered
from services.control.store.registry import DestinationRegistry
from shared.config.catalogs import ResolvedLake
from shared.contracts.digest import digest
from shared.contracts.messages import ItemKind, Outcome, Problem, Progress
from shared.contracts.reports import Frontier, Lagging
from shared.kafka.embedded import EmbeddedBroker
from shared.kafka.publisher import Publisher
from shared.kafka.settings import BOOTSTRAP, KafkaSettings
from shared.kafka.signing import KEY_FILE, Signing, own_key
from shared.kafka.topics import Topics, ensure
from shared.lake.connection.attach import attach
from shared.lake.connection.engine import connect
from shared.runtime.process import SUPERVISED

PIPELINE = "bench"
D = f"/v1/pipelines/{PIPELINE}/destinations"
READY_WITHIN_S = 120.0
LINES = 5_000
ANSWERS_PER_S = 100
LAGGING_SHARE, PARKED_SHARE = 0.1, 0.02
HEAD = 10_000

PROBLEM = Problem(
    type="access_denied",
    message="the catalog of this tenant refuses the role viaduck: permission denied for schema public, which belongs"
    " to another role",
    hint="grant it USAGE and CREATE on the schema, then resume the destination on the page or with viaduck destination",
    retryable=False,
)


@dataclass(frozen=True)
class Site:
    url: str
    pid: int
    """Of the control process."""


@contextmanager
def busy_control(folder: Path, count: int) -> Iterator[Site]:
    """Control with ``count`` destinations; an applier and a reader say something all the time."""
    port = free_port()
    file = _write(folder, port)
    with ExitStack() as closing_:
        broker = EmbeddedBroker()
        key = own_key(folder)
        environ = {**os.environ, BOOTSTRAP: broker.bootstrap, KEY_FILE: str(key), SUPERVISED: "1"}
        log = closing_.enter_context((folder / "control.log").open("ab"))
        command = [sys.executable, "-m", "services.cli.main", "control", "-c", str(file)]
        process = subprocess.Popen(command, env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        closing_.callback(_end, process)
        site = Site(f"http://127.0.0.1:{port}", process.pid)
        _wait_until_it_turns(site, process, folder)
        _register(site, folder, count)
        held = _held(folder)
        signing = Signing(key.read_bytes())
        settings = KafkaSettings(bootstrap=broker.bootstrap, embedded=True, signing=signing)
        ensure(settings)
        closing_.enter_context(_talking(settings, held))
        _wait_until_heard(site)
        yield site


def _write(folder: Path, port: int) -> Path:
    with closing(connect()) as con:
        lake = ResolvedLake(f"sqlite:{folder}/source.sqlite", data_path=f"{folder}/data/")
        attach(con, "lake", lake, read_only=False, create=True)
        con.execute(f"CREATE TABLE lake.{SCHEMA}.{TABLE} ({DECLARED})")
    file = folder / "viaduck.yaml"
    document = {
        "pipeline": PIPELINE,
        "source": {"catalog": "sqlite:source.sqlite", "schema": SCHEMA, "table": TABLE},
        "routing": {"field": ROUTING_FIELD, "key_columns": [KEY_COLUMN]},
        "registry": {"url": f"sqlite:///{folder}/registry.sqlite"},
        "server": {"port": port},
    }
    file.write_text(yaml.safe_dump(document))
    return file


def _wait_until_it_turns(site: Site, process: subprocess.Popen[bytes], folder: Path) -> None:
    deadline = time.monotonic() + READY_WITHIN_S
    while not _is_ready(site):
        if process.poll() is not None or time.monotonic() > deadline:
            raise TimeoutError(f"control does not answer; see {folder / 'control.log'}")
        time.sleep(0.1)


def _is_ready(site: Site) -> bool:
    try:
        return httpx.get(f"{site.url}/readyz", timeout=5.0).status_code == 200
    except httpx.HTTPError:
        return False


def name_of(number: int) -> str:
    return f"tenant-{number:05d}"


def _register(site: Site, folder: Path, count: int) -> None:
    for first in range(0, count, LINES):
        lines = [
            json.dumps({"id": name_of(n), "routing_value": f"Mieter {n:05d} GmbH & Söhne",
                        "catalog": f"sqlite:{folder}/lakes/{n}.sqlite"})
            for n in range(first, min(count, first + LINES))
        ]  # fmt: skip
        answer = httpx.post(
            f"{site.url}{D}:import", content="\n".join(lines).encode(), timeout=120.0,
            headers={"Content-Type": "application/x-ndjson"},
        )  # fmt: skip
        assert answer.json()["created"] == len(lines), answer.text[:500]


def _held(folder: Path) -> Mapping[str, Registered]:
    with closing(DestinationRegistry(make_url(f"sqlite:///{folder}/registry.sqlite"), PIPELINE)) as registry:
        return registry.destinations()


@contextmanager
def _talking(settings: KafkaSettings, held: Mapping[str, Registered]) -> Iterator[None]:
    with closing(Publisher(settings, "bench")) as publisher:
        voice = _Voice(publisher, Topics(settings.prefix).progress, held)
        voice.begin()
        with alongside("voice", voice.speak):
            yield


class _Voice:
    """What appliers and a reader say: each second some answers, and a frontier with a new head."""

    def __init__(self, publisher: Publisher, topic: str, held: Mapping[str, Registered]) -> None:
        self._publisher, self._topic, self._rng = publisher, topic, random.Random(4)
        self._names = sorted(held)
        self._revision = digest((each.id, each.generation, each.revision.id) for each in held.values())
        self._rows = dict.fromkeys(self._names, 1_000)
        self._head = HEAD
        parked = int(len(self._names) * PARKED_SHARE)
        self._parked, self._well = self._names[:parked], self._names[parked:]

    def begin(self) -> None:
        for name in self._names:
            self._answer(name, Outcome.PARKED if name in self._parked else Outcome.APPLIED)
        self._look()

    def speak(self, stopped: threading.Event) -> None:
        while not stopped.wait(1.0):
            self._head += 1
            for name in self._rng.sample(self._well, min(ANSWERS_PER_S, len(self._well))):
                self._answer(name, Outcome.APPLIED)
            self._look()

    def _answer(self, name: str, outcome: Outcome) -> None:
        self._rows[name] += 17
        answer = Progress(
            pipeline=PIPELINE, destination=name, item=f"{name}-{self._head}", kind=ItemKind.CHANGES, outcome=outcome,
            generation=1, position=self._head, through=self._head, rows_applied=self._rows[name],
            error=PROBLEM if outcome is Outcome.PARKED else None, at=datetime.now(UTC),
        )  # fmt: skip
        self._publisher.send(self._topic, answer.key, answer.to_bytes())

    def _look(self) -> None:
        late = self._rng.sample(self._names, int(len(self._names) * LAGGING_SHARE))
        lagging = {
            name: Lagging(known_through=self._head - 3, lag_seconds=self._rng.uniform(0.5, 90.0), in_flight=True)
            for name in [*late, *self._parked]
        }
        frontier = Frontier(
            pipeline=PIPELINE, instance="bench-0", cycle=self._head, page=0, pages=1, head=self._head,
            revision=self._revision, lagging=lagging, settled=False, at=datetime.now(UTC),
        )  # fmt: skip
        self._publisher.send(self._topic, frontier.key, frontier.to_bytes())


def _wait_until_heard(site: Site) -> None:
    """Until control knows of everybody's state."""
    deadline = time.monotonic() + READY_WITHIN_S
    while not _all_heard(httpx.get(f"{site.url}/v1/pipelines/{PIPELINE}", timeout=30.0).json()["destinations"]):
        if time.monotonic() > deadline:
            raise TimeoutError("control has not heard of every destination")
        time.sleep(0.5)


def _all_heard(states: Mapping[str, int]) -> bool:
    return states.get("parked", 0) == int(states["total"] * PARKED_SHARE) and not states.get("seeding")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def kinds_of_lists() -> Sequence[tuple[str, str]]:
    """(what it is called, its path and query)."""
    return (
        ("page", "/"),
        ("page, sorted", "/?sort=lag"),
        ("page, filtered", "/?state=parked&search=S%C3%B6hne"),
        ("REST", f"{D}?limit=100"),
        ("REST, sorted", f"{D}?limit=100&sort=-lag"),
        ("REST, filtered", f"{D}?limit=100&state=running&min_lag=30"),
    )
