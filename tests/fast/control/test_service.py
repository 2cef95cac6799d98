"""The control service as a process, over the embedded broker, with a real source and a real registry."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from shared.contracts.digest import digest
from shared.contracts.messages import DeadLetter, Destination, Outcome, PipelineDocument, Progress
from shared.contracts.reports import Frontier
from shared.kafka.embedded import EmbeddedBroker
from shared.kafka.follower import Follower
from shared.kafka.publisher import Publisher
from shared.kafka.record import Record
from shared.kafka.settings import BOOTSTRAP, KafkaSettings
from shared.kafka.topics import Topics, ensure
from tests import prepared
from tests.fast.asking import HTTP
from tests.fast.control.examples import frontier, problem, progress
from tests.fast.control.files import destination, make_source, write
from tests.fast.waiting import eventually
from tests.servers.ports import free_port
from tests.signed import ENVIRON, SIGNING

START_WITHIN_S = 60.0
BROKEN = b"of a version that is not known here"


@dataclass
class Running:
    """A control process, and the other end of its topics."""

    folder: Path
    bootstrap: str
    port: int = field(default_factory=free_port)
    process: prepared.Prepared | None = None
    kept: dict[str, Destination | None] = field(default_factory=dict)
    letters: list[DeadLetter] = field(default_factory=list)
    pipeline_store: list[PipelineDocument] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.settings = KafkaSettings(self.bootstrap, embedded=True, signing=SIGNING)
        self.topics = Topics(self.settings.prefix)
        ensure(self.settings)
        self.publisher = Publisher(self.settings, "test")
        topics = [self.topics.destinations, self.topics.dead_letter, self.topics.pipelines]
        self.follower = Follower(self.settings, "test", topics)
        self.follower.start(self._hear)

    def _hear(self, record: Record) -> None:
        if record.topic == self.topics.dead_letter:
            self.letters.append(DeadLetter.from_bytes(record.value or b""))
        elif record.topic == self.topics.pipelines:
            self.pipeline_store.append(PipelineDocument.from_bytes(record.value or b""))
        elif record.value != BROKEN:
            name = (record.key or "").split("/")[1]
            said = Destination.from_bytes(record.value or b"")
            self.kept[name] = None if said.removed else said

    def write(self, *ids: str, **sections: Any) -> Path:
        server = {"server": {"port": self.port}}
        return write(self.folder, [destination(each) for each in ids], **{**server, **sections})

    def start(self, *ids: str, **sections: Any) -> None:
        self.run(self.write(*ids, **sections))

    def run(self, place: Path) -> None:
        """Start it with a file, or with a folder of files."""
        environ, log = {**os.environ, **ENVIRON, BOOTSTRAP: self.bootstrap}, self.folder / "log"
        self.process = prepared.start(("control", "-c", str(place)), environ, log, log, prepared.CONTROL)

    def serving(self, *ids: str, **sections: Any) -> None:
        self.start(*ids, **sections)
        eventually(lambda: self.get("/healthz") is not None, START_WITHIN_S)

    def serving_folder(self, folder: Path) -> None:
        self.run(folder)
        eventually(lambda: self.get("/healthz") is not None, START_WITHIN_S)

    def get(self, path: str) -> Any:
        """The JSON of an answer; None where there is none."""
        try:
            return HTTP.get(f"http://127.0.0.1:{self.port}{path}").json()
        except httpx.HTTPError:
            return None

    def said(self, pipeline: str) -> list[PipelineDocument]:
        """What it published of a pipeline that came over REST."""
        return [each for each in self.pipeline_store if each.pipeline == pipeline]

    def status(self, id: str) -> Any:
        return self.get(f"/v1/pipelines/events/destinations/{id}")

    def say(self, message: Progress | Frontier) -> None:
        self.publisher.send(self.topics.progress, message.key, message.to_bytes())

    def end(self, number: int = signal.SIGTERM) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(START_WITHIN_S)

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait(START_WITHIN_S)
        self.follower.stop()
        self.publisher.close()


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("source")
    make_source(folder)
    return folder


@pytest.fixture
def control(tmp_path: Path) -> Iterator[Running]:
    broker = EmbeddedBroker()
    running = Running(tmp_path, broker.bootstrap)
    yield running
    running.close()


def from_source(source: Path) -> dict[str, Any]:
    return {"source": {"catalog": f"sqlite:{source}/source.sqlite", "table": "events"}}


def test_a_file_becomes_messages_and_answers_become_status(control: Running, source: Path) -> None:
    control.serving("a", "b", **from_source(source))
    eventually(lambda: control.kept.keys() == {"a", "b"})
    assert control.status("a")["state"] == "seeding"

    control.say(progress(position=15, rows_applied=7))
    eventually(lambda: control.status("a")["position"] == 15)
    control.say(frontier(head=17, revision=digest_of(control)))
    eventually(lambda: control.status("a")["known_through"] == 17)
    assert control.get("/v1/pipelines/events")["caught_up"]

    control.publisher.send(control.topics.progress, "events/a", b"garbage")
    eventually(lambda: [letter.by for letter in control.letters] == ["control"])
    damaged = progress(Outcome.PARKED, position=15, error=problem("destination_damaged", retryable=False))
    control.say(damaged)
    eventually(lambda: generation(control, "a") == 2)
    ready = {"status": "ready", "checks": {"broker": None, "registry": None}, "look_age_seconds": {"source": None}}
    assert control.get("/readyz") == ready
    assert 'viaduck_dead_letters_total{pipeline="events",topic="viaduck.progress"} 1.0' in metrics(control)

    control.write("b", **from_source(source))
    assert control.process is not None
    control.process.send_signal(signal.SIGHUP)
    eventually(lambda: control.kept["a"] is None)
    assert control.status("a")["status"] == 404

    began = time.monotonic()
    assert control.end() == 143
    assert time.monotonic() - began < 5.0
    assert "Traceback" not in control.log()


def digest_of(control: Running) -> str:
    return digest((each.destination, each.generation, each.revision) for each in control.kept.values() if each)


def generation(control: Running, name: str) -> int:
    message = control.kept[name]
    return 0 if message is None else message.generation


def metrics(control: Running) -> str:
    return HTTP.get(f"http://127.0.0.1:{control.port}/metrics").text


def test_a_process_that_was_killed_goes_on_where_it_was(control: Running, source: Path) -> None:
    control.serving("a", **from_source(source))
    eventually(lambda: control.kept.keys() == {"a"})
    control.say(progress(Outcome.PARKED, error=problem("destination_damaged")))
    eventually(lambda: generation(control, "a") == 2)
    control.end(signal.SIGKILL)

    control.kept.clear()
    control.serving("a", **from_source(source))
    eventually(lambda: control.kept.keys() == {"a"})
    assert generation(control, "a") == 2


def test_it_serves_while_the_source_is_away_and_takes_the_file_over_when_it_comes(control: Running) -> None:
    control.serving("a")
    eventually(lambda: "file_destinations_delayed" in control.log())
    assert control.get("/v1/pipelines/events")["destinations"] == {"total": 0}
    assert control.get("/healthz") == {"status": "ok"}
    make_source(control.folder / "elsewhere")  # a lake without its table would be a mistake in the file
    (control.folder / "elsewhere" / "source.sqlite").rename(control.folder / "source.sqlite")
    eventually(lambda: control.kept.keys() == {"a"}, START_WITHIN_S)


REFUSED: list[tuple[dict[str, Any], int, str]] = [
    (
        {"routing": {"field": "compny"}},
        2,
        "routing.field: the source table has no column compny; did you mean company?",
    ),
    (
        {"server": {"port": 1, "token_env": "NO_SUCH_TOKEN"}},
        2,
        "server.token_env: the environment variable NO_SUCH_TOKEN",
    ),
    ({"registry": {"url": "postgresql://u:s3cret@127.0.0.1:1/r"}}, 3, "registry: "),
]


@pytest.mark.parametrize(("sections", "code", "said"), REFUSED, ids=["source", "token", "registry"])
def test_what_it_can_not_begin_with_is_said_in_a_line_and_an_exit_code(
    control: Running, source: Path, sections: dict[str, Any], code: int, said: str
) -> None:
    control.start("a", **{**from_source(source), **sections})
    assert control.process is not None
    assert control.process.wait(START_WITHIN_S) == code
    assert said in control.log()
    assert "Traceback" not in control.log()
    assert "s3cret" not in control.log()


def test_a_port_that_is_taken_is_named(control: Running, source: Path) -> None:
    control.serving("a", **from_source(source))
    second = subprocess.run(
        [sys.executable, "-m", "services.cli.main", "control", "-c", str(control.folder / "viaduck.yaml")],
        env={**os.environ, **ENVIRON, BOOTSTRAP: control.bootstrap},
        capture_output=True,
        text=True,
        timeout=START_WITHIN_S,
        check=False,
    )
    assert second.returncode == 3
    assert f"can't listen on 127.0.0.1:{control.port}" in second.stderr


def test_a_registry_that_was_lost_is_rebuilt_from_the_topics(control: Running, source: Path) -> None:
    control.serving("a", **from_source(source))
    base = f"http://127.0.0.1:{control.port}/v1/pipelines/events/destinations"
    for name in ("b", "gone"):
        entry = {"routing_value": name, "catalog": f"sqlite:lakes/{name}.sqlite"}
        eventually(lambda e=entry, n=name: httpx.put(f"{base}/{n}?check=false", json=e).status_code == 201)  # type: ignore[misc]
    assert httpx.post(f"{base}/b/reseed").status_code == 202
    assert httpx.post(f"{base}/b/pause").status_code == 200
    control.say(progress(id="gone", generation=4, position=9))
    assert httpx.delete(f"{base}/gone").status_code == 204
    control.publisher.send(control.topics.destinations, "events/broken", BROKEN)
    eventually(lambda: generation(control, "b") == 2 and control.kept["gone"] is None)
    assert control.get("/v1/pipelines/events")["rebuilt"] is None
    control.end(signal.SIGKILL)
    for file in (control.folder / ".viaduck").glob("registry.sqlite*"):
        file.unlink()

    control.serving("a", **from_source(source))
    eventually(lambda: (control.status("b") or {}).get("state") == "paused")
    assert (control.status("b")["generation"], control.status("b")["managed_by"]) == (2, "api")
    assert "registry_rebuilt" in control.log()
    rebuilt = control.get("/v1/pipelines/events")["rebuilt"]
    assert (rebuilt["destinations"], rebuilt["unreadable"]) == (2, ["broken"])
    assert "tokens" in rebuilt["not_recovered"]
    entry = {"routing_value": "gone", "catalog": "sqlite:lakes/gone.sqlite"}
    eventually(lambda: httpx.put(f"{base}/gone?check=false", json=entry).status_code == 201)
    assert control.status("gone")["generation"] == 5
