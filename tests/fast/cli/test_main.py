"""The command line as a user meets it: real processes, exit codes, and what is on which stream."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fast.cli.fake_control import FakeControl, serving, status
from tests.prepared import started, viaduck
from tests.servers.ports import free_port

ERROR = {"type": "access_denied", "message": "no [right] here", "hint": "grant it", "retryable": False, "since": "…"}


@pytest.fixture
def control() -> Iterator[FakeControl]:
    destinations = [status("a"), status("b", "paused"), status("[red]c", "seeding", position=None, known_through=None)]
    with serving(FakeControl(destinations)) as control:
        yield control


@pytest.mark.parametrize(
    "arguments",
    [
        ("nonsense",),
        ("up",),
        ("up", "-c"),
        ("up", "-c", "x.yaml", "--timeout", "5"),
        ("up", "-c", "x.yaml", "--once", "--timeout", "soon"),
        ("up", "-c", "x.yaml", "--once", "--timeout", "-1"),
        ("status",),
        ("status", "-c", "x.yaml", "--url", "http://127.0.0.1:1"),
        ("status", "--url", "http://[::1"),
        ("destination", "show", "--url", "http://127.0.0.1:1"),
    ],
)
def test_wrong_usage_ends_with_2_and_a_message_on_standard_error(arguments: tuple[str, ...]) -> None:
    done = viaduck(*arguments)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert done.stderr.strip()
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["up", "reader", "applier", "control", "check", "status", "verify"])
def test_a_file_that_can_not_be_read_ends_every_command_with_2(command: str, tmp_path: Path) -> None:
    done = viaduck(command, "-c", str(tmp_path / "nowhere.yaml"))
    assert done.returncode == 2, done.stderr
    assert "nowhere.yaml" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("arguments", "code"), [(("nonsense",), 2), (("status", "--url", "http://127.0.0.1:1"), 3)])
def test_a_process_that_imports_the_command_line_itself_does_what_a_prepared_one_does(
    arguments: tuple[str, ...], code: int
) -> None:
    done, prepared = started(*arguments), viaduck(*arguments)
    assert (done.returncode, done.stdout, done.stderr) == (code, prepared.stdout, prepared.stderr)
    assert prepared.returncode == code


def test_a_control_that_does_not_answer_ends_with_3() -> None:
    done = viaduck("status", "--url", "http://127.0.0.1:1")
    assert (done.returncode, done.stdout) == (3, "")
    assert "http://127.0.0.1:1 does not answer" in done.stderr


def test_status_as_json_is_one_object_per_destination_and_nothing_else(control: FakeControl) -> None:
    done = viaduck("status", "--url", control.url, "--json")
    assert done.returncode == 0
    assert [json.loads(line) for line in done.stdout.splitlines()] == control.destinations


def test_status_shows_every_destination_as_it_is_called(control: FakeControl) -> None:
    done = viaduck("status", "--url", control.url, COLUMNS="200")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [["a", "running"], ["b", "paused"], ["[red]c", "seeding"]]
    assert "1,500" in lines[1]


def test_a_parked_destination_makes_status_end_with_1_and_shows_why(control: FakeControl) -> None:
    control.destinations.append(status("d", "parked", error=ERROR))
    done = viaduck("status", "--url", control.url, COLUMNS="200")
    assert done.returncode == 1
    assert "access_denied: no [right] here → grant it" in done.stdout


def test_one_destination_can_be_shown(control: FakeControl) -> None:
    done = viaduck("destination", "show", "b", "--url", control.url, "--json")
    assert (done.returncode, json.loads(done.stdout)) == (0, control.destinations[1])


def test_an_unknown_destination_ends_with_2_and_what_control_says(control: FakeControl) -> None:
    done = viaduck("destination", "show", "nobody", "--url", control.url)
    assert done.returncode == 2
    assert "no destination nobody (see the list)" in done.stderr


def test_a_shell_is_told_how_words_go_on() -> None:
    script = viaduck(_VIADUCK_COMPLETE="source_bash").stdout  # as --show-completion does for the shell that it finds
    assert "complete -o default -F _viaduck_completion viaduck" in script
    asked = {"_VIADUCK_COMPLETE": "complete_bash", "COMP_WORDS": "viaduck operation ", "COMP_CWORD": "2"}
    assert viaduck(**asked).stdout.split() == ["list", "show"]


def test_the_token_is_sent_and_not_shown(control: FakeControl) -> None:
    done = viaduck("status", "--url", control.url, VIADUCK_TOKEN="hunter2")
    assert set(control.tokens) == {"Bearer hunter2"}
    assert "hunter2" not in done.stdout + done.stderr


def test_help_needs_neither_spark_nor_kafka_nor_duckdb() -> None:
    code = (
        "import sys; sys.argv = ['viaduck', '--help']\n"
        "from services.cli.main import main\n"
        "try: main()\n"
        "except SystemExit as end: assert end.code == 0\n"
        "print(sorted({'pyspark', 'confluent_kafka', 'duckdb', 'sqlalchemy', 'httpx', 'fastapi'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("command", ["up", "reader", "applier", "control"])
def test_who_waits_for_a_broker_that_never_answers_ends_at_once_when_told_to(command: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        file = tmp_path / "viaduck.yaml"
        file.write_text(SILENT.format(broker=silent.getsockname()[1], port=free_port()))
        with (tmp_path / "log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "services.cli.main", command, "-c", str(file)], stdout=log, stderr=log
            )
        silent.settimeout(60)
        client, _ = silent.accept()
        with client:
            time.sleep(0.5)
            began = time.monotonic()
            process.send_signal(signal.SIGTERM)
            code = process.wait(60)
    said = (tmp_path / "log").read_text()
    assert code == 143, said
    assert "Traceback" not in said
    if command != "up":  # it looks once, for ten seconds at most, and has nothing that would end it sooner
        assert time.monotonic() - began < 5


SILENT = """
source: {{catalog: "sqlite:source.sqlite", data_path: "data", table: "events"}}
routing: {{field: "company", key_columns: ["id"]}}
server: {{port: {port}}}
reader: {{port: 0}}
applier: {{port: 0}}
kafka: {{bootstrap_servers: "127.0.0.1:{broker}", signing: "off"}}
"""
