"""``viaduck up`` as a tree of real processes: what it does when one of them dies, and when it is told to end."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from services.cli.up.process_specs import BROKER, CONTROL, READER, SERVICES
from shared.kafka.embedded import EmbeddedBroker
from shared.kafka.settings import BOOTSTRAP
from shared.lake.connection.engine import connect
from tests.fast.waiting import eventually
from tests.prepared import command_of
from tests.servers.ports import free_port
from tests.signed import ENVIRON

FILE = """
source: {{catalog: "sqlite:source.sqlite", data_path: "data", table: "events"}}
routing: {{field: "company", key_columns: ["id"]}}
server: {{port: {port}}}
poll: {{interval_seconds: 0.5}}
destinations:
  - {{id: "a", routing_value: "a", catalog: "sqlite:a.sqlite", data_path: "a"}}
"""

WITHIN_S = 120.0


class Up:
    """A running command and its processes; each service is known by its name on its command line."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.log = file.parent / "up.log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "services.cli.main", "up", "-c", str(file)], stdout=log, stderr=log
            )

    def pid(self, name: str) -> int | None:
        mark = "shared.kafka.embedded" if name == BROKER else name
        for child in psutil.Process(self.process.pid).children():
            try:
                if mark in command_of(child):
                    return child.pid
            except psutil.Error:  # it has just ended
                continue
        return None

    def pids(self) -> dict[str, int | None]:
        return {name: self.pid(name) for name in (BROKER, *SERVICES)}

    def wait_until_all_run(self) -> dict[str, int | None]:
        eventually(lambda: all(self.pids().values()), WITHIN_S)
        return self.pids()

    def is_ready(self) -> bool:
        """Whether all services say so; each start of a broker has another address."""
        port = self.file.read_text().split("port: ")[1].split("}")[0]
        try:
            return httpx.get(f"http://127.0.0.1:{port}/readyz").status_code == 200
        except httpx.HTTPError:
            return False

    def left(self) -> list[str]:
        """Command lines of processes that still work on this folder."""
        lines = (" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"]))
        return [line for line in lines if str(self.file.parent) in line]


def connected_to(pid: int | None) -> set[str]:
    """The addresses to which a process has connections."""
    found = psutil.Process(pid).net_connections("inet")
    return {f"{each.raddr.ip}:{each.raddr.port}" for each in found if each.raddr}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    con = connect()
    lake = f"ducklake:sqlite:{tmp_path / 'source.sqlite'}"
    con.execute(f"ATTACH '{lake}' AS s (DATA_PATH '{tmp_path / 'data'}', META_JOURNAL_MODE 'WAL')")
    con.execute("CREATE TABLE s.main.events (id BIGINT, company VARCHAR)")
    con.execute("INSERT INTO s.main.events VALUES (1, 'a'), (2, 'b')")
    con.close()
    file = tmp_path / "viaduck.yaml"
    file.write_text(FILE.format(port=free_port()))
    return file


@pytest.fixture
def up(file: Path) -> Iterator[Up]:
    up = Up(file)
    yield up
    if up.process.poll() is None:
        up.process.terminate()
    up.process.wait(40)


def viaduck(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "services.cli.main", *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=WITHIN_S)
    except subprocess.TimeoutExpired as error:
        said = error.stderr or b""
        error.add_note(said.decode(errors="replace") if isinstance(said, bytes) else said)
        raise


def test_a_second_up_on_one_state_folder_is_refused_and_the_first_goes_on(up: Up) -> None:
    before = up.wait_until_all_run()
    second = viaduck("up", "-c", str(up.file))
    assert second.returncode == 2
    assert f"process {up.process.pid}" in second.stderr
    assert up.pids() == before


def test_a_killed_service_comes_back_and_the_others_are_left_alone(up: Up) -> None:
    before = up.wait_until_all_run()
    psutil.Process(before[CONTROL]).kill()
    eventually(lambda: up.pid(CONTROL) not in (before[CONTROL], None), WITHIN_S)
    after = up.pids()
    assert {name: after[name] for name in before if name != CONTROL} == {
        name: before[name] for name in before if name != CONTROL
    }


def test_a_killed_broker_comes_back_and_the_services_find_the_new_one(up: Up) -> None:
    before = up.wait_until_all_run()
    psutil.Process(before[BROKER]).kill()
    eventually(lambda: not set(before.values()) & set(up.pids().values()) and up.pid(READER), WITHIN_S)
    after = up.wait_until_all_run()
    eventually(up.is_ready, WITHIN_S)
    address = (up.file.parent / ".viaduck" / "broker.address").read_text()
    assert all(address in connected_to(after[service]) for service in SERVICES)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_everything_within_thirty_seconds(up: Up, number: signal.Signals, code: int) -> None:
    up.wait_until_all_run()
    up.process.send_signal(number)
    began = time.monotonic()
    assert up.process.wait(40) == code
    assert time.monotonic() - began < 30
    assert up.left() == []


def test_no_process_outlives_an_up_that_is_killed_and_the_next_one_can_start(up: Up) -> None:
    up.wait_until_all_run()
    up.process.kill()
    up.process.wait()
    eventually(lambda: up.left() == [], 15)
    again = Up(up.file)
    try:
        again.wait_until_all_run()
    finally:
        again.process.terminate()
        again.process.wait(40)


def test_a_taken_port_is_told_before_anything_starts(file: Path) -> None:
    port = int(file.read_text().split("port: ")[1].split("}")[0])
    with socket.create_server(("127.0.0.1", port)):
        refused = viaduck("up", "-c", str(file))
    assert refused.returncode == 2
    assert f"server.port: can't listen on 127.0.0.1:{port}" in refused.stderr
    assert "started" not in refused.stderr


def test_a_configured_broker_that_can_not_be_reached_ends_with_3(file: Path) -> None:
    file.write_text(file.read_text() + 'kafka: {bootstrap_servers: "127.0.0.1:1"}\n')
    done = viaduck("up", "-c", str(file))
    assert done.returncode == 3
    assert "kafka: 127.0.0.1:1 can't be used" in done.stderr


def test_a_source_that_can_not_be_reached_ends_once_with_3(file: Path) -> None:
    file.write_text(file.read_text().replace("source.sqlite", "nowhere/source.sqlite"))
    done = viaduck("up", "-c", str(file), "--once")
    assert done.returncode == 3, done.stderr
    assert "source: " in done.stderr
    assert "Traceback" not in done.stderr


def test_a_file_that_the_source_proves_wrong_ends_with_2(file: Path) -> None:
    file.write_text(file.read_text().replace('"company"', '"compny"'))
    done = viaduck("up", "-c", str(file))
    assert done.returncode == 2, done.stderr
    assert "compny" in done.stderr


def test_time_that_is_over_ends_once_with_1_and_names_who_is_not_there(file: Path) -> None:
    done = viaduck("up", "-c", str(file), "--once", "--timeout", "0.1")
    assert done.returncode == 1
    assert "Not done in time:" in done.stderr


DIES = """
import sys
class Dies:
    def find_spec(self, name, path=None, target=None):
        if name == "services.applier.service":
            raise ImportError("planted")
sys.meta_path.insert(0, Dies())
"""
"""Python runs it when it starts."""


def test_once_ends_with_1_where_a_service_dies_at_every_start_and_names_it(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder := file.parent / "broken").mkdir()
    (folder / "sitecustomize.py").write_text(DIES)
    monkeypatch.setenv("PYTHONPATH", f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    done = viaduck("up", "-c", str(file), "--once")
    assert done.returncode == 1, done.stderr
    assert "The applier has died 4 times in a row, the last time with exit code 1. Its log says why." in done.stderr
    assert "fork_server_lost" in done.stderr, "it can't import that either; services start as programs"


def test_an_applier_ends_with_1_where_spark_starts_and_no_worker_of_it_ever_does(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/bin/false")
    broker = EmbeddedBroker()
    for name, value in {**ENVIRON, BOOTSTRAP: broker.bootstrap}.items():
        monkeypatch.setenv(name, value)
    done = viaduck("applier", "-c", str(file))
    assert done.returncode == 1, done.stderr
    assert "services.applier.worker.daemon's stdout" in done.stderr, "it is the workers of which it dies"
