"""Each service's command line is run as the image would run it: the compose file's commands, environment and file."""

from __future__ import annotations

import os
import re
import secrets
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import httpx
import psutil
import psycopg
import pytest
import yaml

from shared.lake.connection.engine import connect
from shared.lake.sql import literal
from tests.servers.kafka import Kafka
from tests.servers.ports import free_ports
from tests.servers.postgres import Postgres
from tests.servers.s3 import S3, Key

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
    secrets: Mapping[str, str]
    """What .env would hold."""
    ports: Mapping[str, int]
    services: Mapping[str, Any]
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def file(self) -> Path:
        return self.folder / "viaduck.yaml"

    def start(self, name: str) -> None:
        service = self.services[name]
        arguments = [str(self.file) if part == FILE else part for part in service["command"]]
        told = {
            key: self._here(interpolated(str(value), self.secrets)) for key, value in environment_of(service).items()
        }
        ports = {"VIADUCK_HTTP_PORT": str(self.ports[name])} if name in self.ports else {}
        with (self.folder / f"{name}.log").open("ab") as log:
            self.running[name] = subprocess.Popen(
                [sys.executable, "-m", "services.cli.main", *arguments],
                env={**os.environ, **told, **ports},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def ask(self, name: str, path: str) -> httpx.Response | None:
        token = {"Authorization": f"Bearer {self.secrets['VIADUCK_TOKEN']}"}
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


def interpolated(text: str, environ: Mapping[str, str]) -> str:
    """As compose does it; what has no default must be given."""

    def value(match: re.Match[str]) -> str:
        name, kind, rest = match.groups()
        return environ.get(name, rest) if kind == ":-" else environ[name]

    return re.sub(r"\$\{(\w+)(:[-?])([^}]*)\}", value, text)


def environment_of(service: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = service["environment"]
    return found


def prepare_databases(postgres: Postgres, script: str, run: str) -> None:
    """What the database's image does with the script when it starts first, under names of this run's own."""
    named = re.sub(
        r"\b(DATABASE|connect) (registry|source|lakes)\b", rf"\1 {run}_\2", script.replace("viaduck_", f"{run}_")
    )
    database = "postgres"
    for part in re.split(r"^\\connect (\w+)$", named, flags=re.MULTILINE):
        if re.fullmatch(r"\w+", part):
            database = part
            continue
        with closing(postgres.connect(database)) as con:
            for statement in filter(str.strip, part.split(";\n")):
                con.execute(statement.encode())


def _family(pid: int) -> list[psutil.Process]:
    try:
        return [*psutil.Process(pid).children(recursive=True), psutil.Process(pid)]
    except psutil.NoSuchProcess:
        return []


@pytest.fixture(scope="module")
def keys() -> dict[str, str]:
    """What .env would hold."""
    return {name: secrets.token_hex(16) for name in (
        "VIADUCK_TOKEN", "VIADUCK_SIGNING_KEY", "REGISTRY_PASSWORD", "SOURCE_PASSWORD", "LAKES_PASSWORD",
        "WORKLOAD_PASSWORD", "SOURCE_S3_SECRET_ACCESS_KEY", "WORKLOAD_S3_SECRET_ACCESS_KEY",
        "LAKES_S3_SECRET_ACCESS_KEY")}  # fmt: skip


@pytest.fixture(scope="module")
def store(keys: dict[str, str]) -> Iterator[S3]:
    """With the compose file's own identities, and the buckets that its own command makes."""
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text())
    with S3(interpolated(compose["configs"]["identities"]["content"], keys)) as made:
        service = compose["services"]["buckets"]
        command = [*service["entrypoint"], *(each.replace("s3:9333", made.master) for each in service["command"])]
        path = f"{sysconfig.get_path('scripts')}:{os.environ['PATH']}"
        subprocess.run(command, env={**os.environ, "PATH": path}, check=True, timeout=60)
        yield made


@pytest.fixture(scope="module")
def stack(
    tmp_path_factory: pytest.TempPathFactory, kafka: Kafka, postgres: Postgres, store: S3, keys: dict[str, str]
) -> Iterator[Stack]:
    folder = tmp_path_factory.mktemp("compose")
    run = f"compose_{secrets.token_hex(4)}"
    compose = yaml.safe_load((ROOT / "compose.yaml").read_text())
    prepare_databases(postgres, interpolated(compose["configs"]["databases"]["content"], keys), run)
    names = ("reader", "applier-1", "applier-2", "control")
    ports = dict(zip(names, free_ports(len(names)), strict=True))
    addresses = {
        "@postgres/": f"@{postgres.host}:{postgres.port}/{run}_",
        "//viaduck_": f"//{run}_",
        "s3:8333": f"127.0.0.1:{store.port}",
        "kafka:9092": kafka.bootstrap,
        "/var/lib/viaduck": str(folder),
        **{f"{name}:{port}": f"127.0.0.1:{ports[name]}"
           for name, port in (("reader", 8001), ("applier-1", 8002), ("applier-2", 8002))},
    }  # fmt: skip
    made = Stack(folder, addresses, keys, ports, compose["services"])
    text = made._here((ROOT / "deploy/viaduck.yaml").read_text())
    # A topic prefix of its own: the test's broker serves others too.
    made.file.write_text(re.sub(r"(kafka: \{)", rf"\1topic_prefix: {run}, ", text))
    yield made
    made.close()


def test_the_file_says_what_every_service_needs_and_the_environment_holds_it(stack: Stack) -> None:
    named = set(re.findall(r'\w+_env: "(\w+)"', stack.file.read_text()))
    assert {"SOURCE_CATALOG", "LAKES_CATALOG", "REGISTRY_URL", "VIADUCK_TOKEN"} < named
    for name in ("prepare", *OURS):
        assert named <= set(environment_of(stack.services[name])), name


def test_each_role_may_do_what_it_must_and_no_more(stack: Stack, postgres: Postgres) -> None:
    told = {key: stack._here(interpolated(str(value), stack.secrets))
            for key, value in environment_of(stack.services["reader"]).items()}  # fmt: skip
    for own, others in {
        "REGISTRY_URL": ("SOURCE_CATALOG", "LAKES_CATALOG"), "SOURCE_CATALOG": ("REGISTRY_URL", "LAKES_CATALOG"),
        "LAKES_CATALOG": ("REGISTRY_URL", "SOURCE_CATALOG"),
    }.items():  # fmt: skip
        with closing(psycopg.connect(told[own], autocommit=True)) as con:
            rights = con.execute("SELECT rolsuper, rolcreatedb, rolcreaterole FROM pg_roles WHERE rolname = user")
            assert rights.fetchone() == (False, False, False)
            if own == "SOURCE_CATALOG":
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    con.execute("CREATE TABLE public.t (i int)")
        for other in others:
            database = told[other].rpartition("/")[2]
            with pytest.raises(psycopg.OperationalError, match="permission denied for database"):
                psycopg.connect(told[own], dbname=database)


def can(key: Key, store: S3, statement: str) -> bool:
    with closing(connect()) as con:
        words = {"KEY_ID": key.id, "SECRET": key.secret, "ENDPOINT": f"127.0.0.1:{store.port}", "URL_STYLE": "path"}
        said = ", ".join(f"{name} {literal(value)}" for name, value in words.items())
        con.execute(f"CREATE SECRET (TYPE s3, {said}, USE_SSL false, REGION 'us-east-1')")
        try:
            con.execute(statement).fetchall()
        except duckdb.HTTPException as error:
            if "403" not in str(error):
                raise
            return False
        return True


def test_each_key_opens_the_bucket_that_it_must_and_no_other(store: S3, keys: dict[str, str]) -> None:
    who = {name: Key(f"viaduck-{name}", keys[f"{name.upper()}_S3_SECRET_ACCESS_KEY"])
           for name in ("workload", "lakes", "source")}  # fmt: skip
    found = {
        (name, deed, bucket)
        for deed, statement in {"write": "COPY (SELECT 1) TO 's3://{}/probe/{}.csv'",
                                "read": "FROM read_csv('s3://{}/probe/{}.csv')"}.items()
        for bucket, owner in (("source", "workload"), ("lakes", "lakes"))
        for name, key in who.items()
        if can(key, store, statement.format(bucket, owner if deed == "read" else name))
    }  # fmt: skip
    assert found == {("workload", "write", "source"), ("workload", "read", "source"), ("source", "read", "source"),
                     ("lakes", "write", "lakes"), ("lakes", "read", "lakes")}  # fmt: skip


def test_nobody_starts_with_a_token_that_everybody_knows() -> None:
    text = (ROOT / "compose.yaml").read_text()
    assert "VIADUCK_TOKEN: ${VIADUCK_TOKEN:?" in text
    with pytest.raises(KeyError):
        interpolated("${VIADUCK_TOKEN:?why}", {})


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
    for secret in stack.secrets.values():
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
