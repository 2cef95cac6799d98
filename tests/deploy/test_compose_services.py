"""Each service's command line is run as the image would run it: the compose file's commands, environment and file."""

from __future__ import annotations

import os
import re
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import yaml

from tests.servers.kafka import Kafka
from tests.servers.ports import free_ports
from tests.servers.postgres import Postgres
from tests.servers.s3 import S3

ROOT = Path(__file__).resolve().parents[2]
FILE = "/etc/viaduck/viaduck.yaml"
OURS = ("workload", "reader", "applier-1", "applier-2", "control")
READY_WITHIN_S = 240.0
ENDS_WITHIN_S = 30.0
PREPARED_WITHIN_S = 120.0
COMMITS_FOLLOWED = 6

pytestmark = pytest.mark.timeout(600)


@dataclass
class Stack:
    """The compose file's services on this machine: names of its network become the addresses of the test's servers."""

    folder: Path
    addresses: Mapping[str, str]
    environ: Mapping[str, str]
    ports: Mapping[str, int]
    services: Mapping[str, Any]
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def file(self) -> Path:
        return self.folder / "viaduck.yaml"

    def start(self, name: str) -> None:
        service = self.services[name]
        arguments = [str(self.file) if part == FILE else part for part in service["command"]]
        told = {key: self._here(str(value)) for key, value in service["environment"].items()}
        ports = {"VIADUCK_HTTP_PORT": str(self.ports[name])} if name in self.ports else {}
        with (self.folder / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                [sys.executable, "-m", "services.cli.main", *arguments],
                env={**os.environ, **told, **ports, **self.environ},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def ask(self, name: str, path: str) -> httpx.Response | None:
        token = {"Authorization": f"Bearer {self.environ['VIADUCK_TOKEN']}"}
        try:
            return httpx.get(f"http://127.0.0.1:{self.ports[name]}{path}", headers=token, timeout=5.0)
        except httpx.HTTPError:
            return None

    def wait_until_ready(self, name: str) -> None:
        deadline = time.monotonic() + READY_WITHIN_S
        while (answer := self.ask(name, "/readyz")) is None or answer.status_code != 200:
            assert self.running[name].poll() is None, self.log(name)
            assert time.monotonic() < deadline, (answer.text if answer is not None else "", self.log(name)[-2000:])
            time.sleep(0.3)

    def close(self) -> None:
        for process in self.running.values():
            for each in _family(process.pid):
                each.kill()
            process.wait()

    def _here(self, text: str) -> str:
        for name, address in self.addresses.items():
            text = text.replace(name, address)
        return text


def _family(pid: int) -> list[psutil.Process]:
    try:
        return [*psutil.Process(pid).children(recursive=True), psutil.Process(pid)]
    except psutil.NoSuchProcess:
        return []


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, kafka: Kafka, postgres: Postgres, s3: S3) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("compose")
    run = f"compose_{secrets.token_hex(4)}"
    for name in ("registry", "source", "lakes"):
        postgres.create_database(f"{run}_{name}")
    for name in ("source", "lakes"):
        s3.create_bucket(f"{run}-{name}".replace("_", "-"))
    names = ("reader", "applier-1", "applier-2", "control")
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    addresses = {
        "host=postgres": f"host={postgres.host} port={postgres.port}",
        "dbname=": f"dbname={run}_",
        "user=viaduck": f"user={postgres.user}",
        "s3:8333": f"127.0.0.1:{s3.port}",
        "s3://": f"s3://{run}-".replace("_", "-"),
        "kafka:9092": kafka.bootstrap,
        "/var/lib/viaduck": str(folder),
        **{f"{name}:{port}": f"127.0.0.1:{ports[name]}"
           for name, port in (("reader", 8001), ("applier-1", 8002), ("applier-2", 8002))},
    }  # fmt: skip
    environ = {
        "PGPASSWORD": postgres.password,
        "REGISTRY_URL": postgres.uri(f"{run}_registry"),
        "S3_ACCESS_KEY_ID": s3.admin.id,
        "S3_SECRET_ACCESS_KEY": s3.admin.secret,
        "VIADUCK_TOKEN": secrets.token_hex(8),
    }
    made = Stack(folder, addresses, environ, ports, yaml.safe_load((ROOT / "compose.yaml").read_text())["services"])
    text = made._here((ROOT / "deploy/viaduck.yaml").read_text())
    # A topic prefix of its own: the test's broker serves others too.
    made.file.write_text(re.sub(r"(kafka: \{)", rf"\1topic_prefix: {run}, ", text))
    yield made
    made.close()


def test_the_file_says_what_every_service_needs_and_the_environment_holds_it(stack: Stack) -> None:
    for name in ("prepare", *OURS):
        told = stack.services[name]["environment"]
        assert set(stack.environ) <= set(told), name


def test_all_services_start_together_follow_the_workload_and_end_in_time(stack: Stack) -> None:
    stack.start("prepare")
    assert stack.running["prepare"].wait(PREPARED_WITHIN_S) == 0, stack.log("prepare")
    for name in OURS:
        stack.start(name)
    for name in ("reader", "applier-1", "applier-2", "control"):
        stack.wait_until_ready(name)
    deadline = time.monotonic() + READY_WITHIN_S
    while behind := _behind(stack):
        assert time.monotonic() < deadline, behind
        time.sleep(0.5)

    asked = time.monotonic()
    for name in OURS:
        stack.running[name].send_signal(signal.SIGTERM)
    codes = {name: stack.running[name].wait(ENDS_WITHIN_S + 30) for name in OURS}
    assert time.monotonic() - asked < ENDS_WITHIN_S
    assert codes == dict.fromkeys(OURS, 143), {name: stack.log(name)[-1500:] for name in OURS}
    for secret in stack.environ.values():
        assert not [name for name in OURS if secret in stack.log(name)]


def _behind(stack: Stack) -> list[str]:
    """Destinations that are not known to be exact after several commits of the workload."""
    answer = stack.ask("control", "/v1/pipelines/flights/destinations?limit=1000")
    if answer is None or answer.status_code != 200:
        return ["control does not answer"]
    found = answer.json()["items"]
    assert len(found) == 16
    return [
        each["id"] for each in found if each["state"] != "running" or (each["known_through"] or 0) < COMMITS_FOLLOWED
    ]
