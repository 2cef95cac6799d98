"""docs/quickstart.md on real servers: its statements, its file and its commands, and the output that it promises."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import psutil
import pytest

from shared.lake.connection.engine import connect
from tests.fast.waiting import eventually
from tests.servers.ports import free_port
from tests.servers.postgres import Postgres
from tests.servers.s3 import S3

PAGE = (Path(__file__).resolve().parents[2] / "docs/quickstart.md").read_text()
LAKES = ("source", "quacksworth", "mallardine")
WITHIN_S = 180.0
HEAD = 4
"""The source's snapshot after all that the page changes."""


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


class Reader:
    """Follows the page in a folder of its own; the servers, their passwords and control's port are this test's."""

    def __init__(self, folder: Path, postgres: Postgres, s3: S3) -> None:
        self._folder = folder
        self._port = free_port()
        words = f"host={postgres.host} port={postgres.port} user={postgres.user} password={postgres.password}"
        store = s3.properties(s3.admin)
        self._others = {
            "host=127.0.0.1 user=postgres password=quickstart": words,
            "KEY_ID 'viaduck', SECRET 'quickstart'": f"KEY_ID '{s3.admin.id}', SECRET '{s3.admin.secret}'",
            "S3_ACCESS_KEY_ID=viaduck": f"S3_ACCESS_KEY_ID={s3.admin.id}",
            "S3_SECRET_ACCESS_KEY=quickstart": f"S3_SECRET_ACCESS_KEY={s3.admin.secret}",
            "127.0.0.1:8333": store["s3_endpoint"],
        }
        (file,) = blocks("yaml")
        (folder / "viaduck.yaml").write_text(self._here(file) + f"server: {{port: {self._port}}}\n")

    def _here(self, text: str) -> str:
        for theirs, ours in self._others.items():
            text = text.replace(theirs, ours)
        return text

    def statements(self, number: int) -> None:
        """The statements of a block in one session; later ones begin with the secret and the lake of the first."""
        first, *_ = blocks("sql")
        again = [line for line in first.splitlines() if line.startswith(("CREATE SECRET", "ATTACH"))]
        text = first if number == 0 else "\n".join(again) + blocks("sql")[number]
        with closing(connect()) as con:
            for statement in self._here(text).split(";\n"):
                if statement.strip() and not statement.startswith("INSTALL"):
                    con.execute(statement)

    def environ(self) -> dict[str, str]:
        (exports,) = (block for block in blocks("bash") if "export SOURCE_CATALOG" in block)
        named = re.findall(r'(\w+)=(?:"([^"]*)"|(\S+))', self._here(exports.replace("export ", "")))
        return {**os.environ, **{name: quoted or plain for name, quoted, plain in named}, "COLUMNS": "120"}

    def starts(self, command: str) -> subprocess.Popen[str]:
        assert f"\n{command}\n" in PAGE
        arguments = [sys.executable, "-m", "services.cli.main", *command.split()[1:]]
        log = (self._folder / "log").open("a")
        with log:
            return subprocess.Popen(
                arguments, cwd=self._folder, env=self.environ(), stdout=subprocess.PIPE, stderr=log, text=True
            )

    def output(self, command: str) -> str:
        with self.starts(command) as process:
            said, _ = process.communicate(timeout=WITHIN_S)
        assert process.returncode == 0, (command, said, (self._folder / "log").read_text())
        return said

    def has_caught_up(self) -> bool:
        """What the page tells its reader to wait for: asking costs less than a command that asks."""
        try:
            control = httpx.get(f"http://127.0.0.1:{self._port}/v1/pipelines", timeout=10.0)
        except httpx.HTTPError:
            return False
        (pipeline,) = control.json()["items"]
        return bool(pipeline["caught_up"] and pipeline["source_snapshot"] == HEAD)

    def log(self) -> str:
        return (self._folder / "log").read_text()


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    with Postgres() as postgres, S3() as s3:
        for lake in LAKES:
            postgres.create_database(lake)
            s3.create_bucket(lake)
        yield Reader(tmp_path, postgres, s3)


def shape(text: str) -> list[list[str]]:
    """Words by line, without what differs from run to run: fractions and folders."""
    plain = re.sub(r"\d+\.\d+", "N", re.sub(r"/\S*/\.viaduck", "FOLDER", text))
    return [line.split() for line in plain.splitlines() if line.strip()]


def test_the_page_says_what_its_commands_say(reader: Reader) -> None:
    checked, once, status, verified = blocks("text")
    reader.statements(0)
    assert shape(reader.output("viaduck check -c viaduck.yaml")) == shape(checked)
    said = reader.output("viaduck up -c viaduck.yaml --once") + reader.log()
    assert shape(once)[0] in shape(said)
    with reader.starts("viaduck up -c viaduck.yaml") as up:
        try:
            reader.statements(1)
            eventually(reader.has_caught_up, WITHIN_S)
            assert _comes(reader, "viaduck status -c viaduck.yaml", status)
        finally:
            psutil.Process(up.pid).send_signal(signal.SIGTERM)
    assert shape(reader.output("viaduck verify -c viaduck.yaml")) == shape(verified)


def _comes(reader: Reader, command: str, expected: str) -> bool:
    deadline, said = time.monotonic() + WITHIN_S, ""
    while time.monotonic() < deadline:
        with reader.starts(command) as process:
            said, _ = process.communicate(timeout=WITHIN_S)
        if shape(said) == shape(expected):
            return True
        time.sleep(1)
    raise AssertionError(said)
