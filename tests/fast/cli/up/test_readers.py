"""The readers of several pipelines: one process each, and what a reload changes."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from services.cli.runtime import ports
from services.cli.runtime.ports import is_free
from services.cli.up.process_specs import InForce
from services.cli.up.readers import Readers, hearing
from services.cli.up.supervisor import Spec
from shared.config.deployment import load_all
from shared.config.model import Config
from shared.contracts.messages import PipelineDocument
from shared.kafka.publisher import Publisher
from shared.kafka.settings import BOOTSTRAP, KafkaSettings
from shared.kafka.topics import Topics
from shared.runtime.own_address import OWN_PORT, PEERS, listen
from shared.runtime.process import SUPERVISED
from tests.fast.shared.config.test_deployment import document, write
from tests.fast.shared.kafka.conftest import broker, publisher, settings
from tests.fast.waiting import eventually
from tests.signed import ENVIRON

__all__ = ["broker", "publisher", "settings"]

STANDING_IN = """
import json, os, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
name, port = sys.argv[1], int(os.environ["VIADUCK_HTTP_PORT"])
if Path(sys.argv[2], f"{name}.refuses").exists():
    raise SystemExit(2)
class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        checks = {"broker": None, "source": "away" if name == "bad" else None}
        metrics = f'# TYPE x gauge\\nx{{pipeline="{name}"}} 1\\n'
        self.wfile.write((metrics if self.path == "/metrics" else json.dumps({"checks": checks})).encode())
    def log_message(self, *_): pass
HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("good.yaml", "bad.yaml"):
        write(tmp_path, name)
    return tmp_path


def standing_in(folder: Path) -> Callable[[InForce, Config, Callable[[], int]], Spec]:
    """What a reader is here; it refuses while the folder says so."""

    def spec(_: InForce, config: Config, port: Callable[[], int]) -> Spec:
        command = (sys.executable, "-S", "-c", STANDING_IN, config.pipeline, str(folder))
        return Spec(config.pipeline, command, lambda: {OWN_PORT: str(port())})

    return spec


@pytest.fixture
def readers(folder: Path) -> Iterator[Readers]:
    made = Readers(load_all([folder], {}), standing_in(folder))
    yield made
    made.stop()


def soon(readers: Readers, holds: Callable[[], object]) -> None:
    def tick() -> object:
        readers.supervisor.tick()
        return holds()

    eventually(tick)


def fine(readers: Readers, *names: str) -> Callable[[], bool]:
    return lambda: all(readers.checks().get(f"reader of {name}", "") is None for name in names)


def pid(readers: Readers, name: str) -> int:
    found = readers.supervisor[name].pid
    assert found is not None
    return found


def test_each_source_is_named_by_its_pipeline_and_all_metrics_are_on_one_page(readers: Readers) -> None:
    soon(readers, fine(readers, "good", "bad"))
    assert readers.checks() == {
        "source (bad)": "away", "reader of bad": None, "source (good)": None, "reader of good": None,
    }  # fmt: skip
    assert {'x{pipeline="good"} 1.0', 'x{pipeline="bad"} 1.0'} <= set(readers.exposition().splitlines())


def test_a_reader_that_dies_comes_back_and_the_other_is_left_alone(readers: Readers) -> None:
    soon(readers, fine(readers, "good", "bad"))
    good, bad = pid(readers, "good"), pid(readers, "bad")
    os.kill(bad, signal.SIGKILL)
    soon(readers, lambda: readers.supervisor["bad"].pid not in (bad, None))
    assert pid(readers, "good") == good


def test_a_reader_that_refuses_ends_nobody_is_shown_and_is_tried_again(readers: Readers, folder: Path) -> None:
    (folder / "bad.refuses").touch()
    soon(readers, lambda: readers.supervisor["bad"].exit_code == 2)
    soon(readers, fine(readers, "good"))
    assert readers.checks()["reader of bad"] == "does not answer"
    good = pid(readers, "good")
    (folder / "bad.refuses").unlink()
    readers.reload()
    soon(readers, fine(readers, "good", "bad"))
    assert pid(readers, "good") == good


def test_a_new_file_gets_a_reader_and_a_file_that_went_loses_its(readers: Readers, folder: Path) -> None:
    soon(readers, fine(readers, "good", "bad"))
    good, bad = pid(readers, "good"), pid(readers, "bad")
    (folder / "bad.yaml").unlink()
    write(folder, "new.yaml")
    readers.reload()
    soon(readers, fine(readers, "good", "new"))
    assert pid(readers, "good") == good
    assert set(readers.checks()) == {"source (good)", "reader of good", "source (new)", "reader of new"}
    soon(readers, lambda: not Path(f"/proc/{bad}").exists())


def test_only_a_reader_whose_own_file_changed_starts_anew(readers: Readers, folder: Path) -> None:
    soon(readers, fine(readers, "good", "bad"))
    good, bad = pid(readers, "good"), pid(readers, "bad")
    write(folder, "good.yaml", destinations=[])  # it hears of destinations over the broker
    write(folder, "bad.yaml", poll={"interval_seconds": 9})
    readers.reload()
    soon(readers, lambda: readers.supervisor["bad"].pid not in (bad, None))
    assert pid(readers, "good") == good


def test_files_with_mistakes_change_nothing(readers: Readers, folder: Path) -> None:
    soon(readers, fine(readers, "good", "bad"))
    before = pid(readers, "good"), pid(readers, "bad")
    (folder / "bad.yaml").write_text("{")
    (folder / "good.yaml").unlink()
    readers.reload()
    readers.supervisor.tick()
    assert (pid(readers, "good"), pid(readers, "bad")) == before


def test_a_reader_alone_says_plainly_source(tmp_path: Path) -> None:
    write(tmp_path, "good.yaml")
    made = Readers(load_all([tmp_path], {}), standing_in(tmp_path))
    try:
        soon(made, fine(made, "good"))
        assert made.checks() == {"source": None, "reader of good": None}
    finally:
        made.stop()


def test_readers_leave_the_ports_of_services_alone_that_are_about_to_listen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = range(15_000, 15_006)
    control, own, peer, other = few[:4]
    for name in ("good.yaml", "bad.yaml"):
        write(tmp_path, name, server={"port": control})
    monkeypatch.setenv(OWN_PORT, str(own))
    monkeypatch.setenv(PEERS, f"reader=http://127.0.0.1:{peer},applier=http://127.0.0.1:{other}")
    monkeypatch.setattr(ports, "BELOW_EPHEMERAL", few)
    monkeypatch.setattr(ports, "_bind", lambda *_: None)
    given = set[int]()

    def spec(_: InForce, config: Config, port: Callable[[], int]) -> Spec:
        given.add(port())
        return Spec(config.pipeline, (sys.executable, "-S", "-c", ""))

    for _ in range(10):
        Readers(load_all([tmp_path], {}), spec)
    assert given == set(few[4:])


def test_a_reader_whose_port_was_taken_meanwhile_starts_on_another_and_is_found_there(readers: Readers) -> None:
    soon(readers, fine(readers, "good", "bad"))
    bad = pid(readers, "bad")
    before = port_of(bad)
    os.kill(bad, signal.SIGKILL)
    eventually(lambda: is_free("127.0.0.1", before))
    with listen("127.0.0.1", before, "x"):
        soon(readers, lambda: readers.supervisor["bad"].pid not in (bad, None))
        soon(readers, fine(readers, "good", "bad"))
        assert port_of(pid(readers, "bad")) != before


def port_of(process: int) -> int:
    """What it was told as it started."""
    environ = Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
    return int(next(pair.partition(b"=")[2] for pair in environ if pair.startswith(OWN_PORT.encode())))


def test_what_comes_over_rest_gets_a_reader_and_loses_it_and_touches_no_other(readers: Readers, folder: Path) -> None:
    soon(readers, fine(readers, "good", "bad"))
    good = pid(readers, "good")
    copies = load_all([folder], {}).copies
    copies.write("put", document("put"), 1)
    readers.look()
    soon(readers, fine(readers, "good", "put"))
    put = pid(readers, "put")

    (folder / "good.yaml").write_text("{")  # nobody said to read it again
    copies.write("put", document("put", poll={"interval_seconds": 9}), 2)
    readers.look()
    soon(readers, lambda: readers.supervisor["put"].pid not in (put, None))
    soon(readers, fine(readers, "good", "put"))

    copies.remove("put")
    readers.look()
    assert set(readers.checks()) == {"source (bad)", "reader of bad", "source (good)", "reader of good"}
    assert pid(readers, "good") == good


@pytest.mark.parametrize("supervised", [False, True])
def test_on_their_own_they_hear_of_pipelines_from_the_broker(
    folder: Path, settings: KafkaSettings, publisher: Publisher, monkeypatch: pytest.MonkeyPatch, supervised: bool
) -> None:
    """Under `viaduck up` control writes the copies for all."""
    monkeypatch.setenv(BOOTSTRAP, settings.bootstrap)
    for name, value in ENVIRON.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv(SUPERVISED, "1" if supervised else "0")
    write(folder, "good.yaml", kafka={"topic_prefix": settings.prefix})
    deployment = load_all([folder], {})
    topic = Topics(settings.prefix).pipelines
    with hearing(deployment) as refresh:
        publisher.send(topic, "put", b"garbage")
        said = PipelineDocument(pipeline="put", version=1, document=document("put"))
        publisher.send(topic, said.pipeline, said.to_bytes())
        publisher.flush(10)
        if supervised:
            refresh()
            assert not deployment.copies_changed()
            return

        def settled() -> bool:
            refresh()
            return deployment.copies_changed()

        eventually(settled)
    assert deployment.with_copies({}).find("put") is not None
