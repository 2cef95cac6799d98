"""Two pipelines of one ``viaduck up``, from a folder: what one source does is of no account to the other's tenants."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from viaduck_client import Rejected

from services.cli.runtime.client import Control
from services.cli.up.process_specs import APPLIER, CONTROL, READER, SERVICES
from shared.config.catalogs import ResolvedLake
from shared.config.pipeline_files import PipelineFiles
from shared.kafka.embedded import EmbeddedBroker
from shared.kafka.settings import BOOTSTRAP
from shared.lake.catalog.reader import CatalogReader
from shared.lake.connection.engine import connect
from tests.e2e.phases import phase
from tests.e2e.test_up import Up, viaduck
from tests.fast.asking import HTTP
from tests.fast.waiting import eventually
from tests.prepared import command_of
from tests.servers.ports import free_port
from tests.signed import ENVIRON

FILE = """
pipeline: {name}
source: {{catalog: "sqlite:../{name}/source.sqlite", data_path: "../{name}/data", table: "t"}}
routing: {{field: "company", key_columns: ["id"]}}
poll: {{interval_seconds: 0.3}}
destinations:
  - {{id: "a", routing_value: "a", catalog: "sqlite:../{name}/a.sqlite", data_path: "../{name}/a"}}
  - {{id: "b", routing_value: "b", catalog: "sqlite:../{name}/b.sqlite", data_path: "../{name}/b"}}
"""

WITHIN_S = 120.0


class Two:
    """Both pipelines' sources, and the command that runs on their files."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.files, self.port = folder, folder / "files", free_port()
        self.files.mkdir()
        for name in ("events", "orders"):
            (folder / name).mkdir()
            (self.files / f"{name}.yaml").write_text(FILE.format(name=name))
        with (self.files / "events.yaml").open("a") as file:
            file.write(f"server: {{port: {self.port}}}\n")
        self.rows = 0
        self.control = Control(f"http://127.0.0.1:{self.port}", timeout_s=10.0, keep_alive=False)

    def catalog(self, name: str) -> Path:
        return self.folder / name / "source.sqlite"

    def change(self, name: str) -> int:
        """Rows of both tenants come, move and go. Returns the source's snapshot after it."""
        con = connect()
        data = self.folder / name / "data"
        con.execute(f"ATTACH 'ducklake:sqlite:{self.catalog(name)}' AS s (DATA_PATH '{data}', META_JOURNAL_MODE 'WAL')")
        con.execute("CREATE TABLE IF NOT EXISTS s.main.t (id BIGINT, company VARCHAR, n BIGINT)")
        first, self.rows = self.rows, self.rows + 10
        con.execute(f"INSERT INTO s.main.t SELECT i, CASE i % 2 WHEN 0 THEN 'a' ELSE 'b' END, 0"
                    f" FROM range({first}, {self.rows}) r(i)")  # fmt: skip
        con.execute(f"UPDATE s.main.t SET company = 'a', n = n + 1 WHERE id = {first + 1}")
        con.execute(f"DELETE FROM s.main.t WHERE id = {first + 2}")
        (head,) = con.execute("SELECT max(snapshot_id) FROM ducklake_snapshots('s')").fetchall()[0]
        con.close()
        return int(head)

    def rename(self, name: str) -> int:
        """A column gets another name, and no row changes. Returns the source's snapshot after it."""
        con = connect()
        con.execute(f"ATTACH 'ducklake:sqlite:{self.catalog(name)}' AS s (META_JOURNAL_MODE 'WAL')")
        con.execute("ALTER TABLE s.main.t RENAME COLUMN n TO moves")
        (head,) = con.execute("SELECT max(snapshot_id) FROM ducklake_snapshots('s')").fetchall()[0]
        con.close()
        return int(head)

    def columns(self, name: str, tenant: str) -> tuple[str, ...]:
        """What a tenant's table has."""
        with closing(CatalogReader(ResolvedLake(f"sqlite:{self.folder / name / tenant}.sqlite"))) as lake:
            found = lake.table("main", "t", lake.head().snapshot)
        return () if found is None else found.column_names

    def is_exact(self, name: str, head: int) -> bool:
        """Whether both of a pipeline's destinations are known to be exact at ``head`` or later."""
        try:
            found = self.control.destinations(name)
        except Exception:
            return False
        return len(found) == 2 and all((status["known_through"] or -1) >= head for status in found)

    def wait_until_exact(self, name: str, head: int) -> None:
        eventually(lambda: self.is_exact(name, head), WITHIN_S)

    def holds(self, name: str, head: int) -> bool:
        """Whether the lakes of both of a pipeline's destinations say so themselves, whoever else is there.

        The last commit of a ``change`` is of the tenant a alone.
        """
        return all(_through(self.folder / name / f"{tenant}.sqlite") >= head - (tenant == "b") for tenant in "ab")

    def differences(self) -> list[str]:
        """Which destinations of which pipelines do not hold their slice of the source, and what else they hold."""
        found = []
        for name in ("events", "orders"):
            with closing(connect()) as con:
                for each in ("source", "a", "b"):
                    catalog = self.folder / name / f"{each}.sqlite"
                    con.execute(f"ATTACH 'ducklake:sqlite:{catalog}' AS {each} (READ_ONLY)")
                for each in ("a", "b"):
                    wanted = f"SELECT * FROM source.main.t WHERE company = '{each}'"
                    held = f"SELECT * FROM {each}.main.t"
                    rows = con.execute(f"({wanted} EXCEPT ALL {held}) UNION ALL ({held} EXCEPT ALL {wanted})")
                    found += [f"{each} of {name}: {row}" for row in rows.fetchall()]
        return found

    def shows(self, sample: str) -> bool:
        """Whether ``/metrics`` does."""
        return sample in HTTP.get(f"http://127.0.0.1:{self.port}/metrics", timeout=10.0).text

    def problems(self) -> dict[str, str]:
        """What ``/readyz`` complains of."""
        checks = HTTP.get(f"http://127.0.0.1:{self.port}/readyz", timeout=10.0).json()["checks"]
        return {name: wrong for name, wrong in checks.items() if wrong}


def _through(catalog: Path) -> int:
    """Up to which snapshot of the source the newest commit of a destination's lake goes."""
    with closing(CatalogReader(ResolvedLake(f"sqlite:{catalog}"))) as lake:
        stamped = lake.history('"viaduck"', 1, None)
    return int(json.loads(stamped[0].extra_info)["through"]) if stamped else -1


@pytest.fixture
def two(tmp_path: Path) -> Two:
    return Two(tmp_path)


@pytest.fixture
def up(two: Two) -> Iterator[Up]:
    two.change("events")
    up = Up(two.files)
    yield up
    if up.process.poll() is None:
        up.process.terminate()
    up.process.wait(40)


def reader_of(up: Up, pipeline: str) -> psutil.Process | None:
    for child in psutil.Process(up.process.pid).children(recursive=True):
        try:
            if command_of(child)[-2:] == ["--pipeline", pipeline]:
                return child
        except psutil.Error:  # it has just ended
            continue
    return None


def test_a_source_that_is_missing_and_one_that_breaks_is_only_its_own_pipelines_trouble(two: Two, up: Up) -> None:
    # orders has no source yet: events is exact, and moves on
    two.wait_until_exact("events", two.change("events"))
    two.wait_until_exact("events", two.change("events"))
    eventually(lambda: list(two.problems()) == ["source (orders)"], WITHIN_S)
    other = reader_of(up, "events")

    two.wait_until_exact("orders", two.change("orders"))
    eventually(lambda: two.problems() == {}, WITHIN_S)

    # its catalog breaks away, and its reader dies
    away = two.catalog("orders").rename(two.folder / "orders" / "away.sqlite")
    dead = reader_of(up, "orders")
    assert dead is not None
    dead.kill()
    two.wait_until_exact("events", two.change("events"))
    eventually(lambda: list(two.problems()) == ["source (orders)"], WITHIN_S)
    two.wait_until_exact("events", two.change("events"))
    assert other is not None
    assert reader_of(up, "events") == other
    assert two.control.pipelines() == ["events", "orders"]

    away.rename(two.catalog("orders"))
    two.wait_until_exact("orders", two.change("orders"))
    two.wait_until_exact("events", two.change("events"))
    for name in ("events", "orders"):
        eventually(partial(two.shows, f'viaduck_dest_lag_snapshots{{destination="a",pipeline="{name}"}} 0.0'), WITHIN_S)
        assert two.shows(f'viaduck_dest_last_snapshot_id{{destination="b",pipeline="{name}"}} ')

    # a file that got a mistake is left out by who has to start again, and the other pipeline goes on
    good = (two.files / "orders.yaml").read_text()
    (two.files / "orders.yaml").write_text("{")
    for service in (CONTROL, APPLIER):
        psutil.Process(up.pid(service)).kill()
    two.wait_until_exact("events", two.change("events"))
    assert two.control.pipelines() == ["events"]
    (two.files / "orders.yaml").write_text(good)
    two.wait_until_exact("orders", two.change("orders"))

    # a file that goes takes its destinations along, and a file that comes back brings them
    (two.files / "orders.yaml").rename(two.folder / "orders.yaml")
    up.process.send_signal(signal.SIGHUP)
    eventually(lambda: two.control.pipelines() == ["events"] and reader_of(up, "orders") is None, WITHIN_S)
    (two.folder / "orders.yaml").rename(two.files / "orders.yaml")
    up.process.send_signal(signal.SIGHUP)
    eventually(lambda: two.is_exact("orders", 0), WITHIN_S)
    two.wait_until_exact("orders", two.change("orders"))

    up.process.terminate()
    assert up.process.wait(40) == 143
    assert up.left() == []
    assert two.differences() == []


def test_once_waits_for_every_pipeline_and_its_code_is_that_of_the_worst(two: Two) -> None:
    heads = {"events": two.change("events"), "orders": two.change("orders")}
    both = viaduck("up", "-c", str(two.files), "--once")
    assert both.returncode == 0, both.stderr
    for name, head in heads.items():
        assert f"{name}: 2 destinations are exact at snapshot {head} or later" in both.stderr

    two.catalog("orders").rename(two.folder / "away.sqlite")
    head = two.rename("events")
    one = viaduck("up", "-c", str(two.files / "events.yaml"), "-c", str(two.files / "orders.yaml"), "--once")
    assert one.returncode == 3, one.stderr
    assert f"events: 2 destinations are exact at snapshot {head} or later" in one.stderr
    assert {two.columns("events", tenant) for tenant in "ab"} == {("id", "company", "moves")}
    assert "orders: source: " in one.stderr


# -- over REST --------------------------------------------------------------------------------------------------------


def document(two: Two, name: str) -> dict[str, Any]:
    """A pipeline as its file would say it, with whole paths."""
    found: dict[str, Any] = yaml.safe_load(FILE.format(name=name).replace("../", f"{two.folder}/"))
    return found


def ended(up: Up) -> None:
    up.process.terminate()
    assert up.process.wait(40) == 143
    assert up.left() == []


@pytest.mark.parametrize("place", ["a folder", "one file"])
def test_what_is_put_runs_beside_a_file_survives_a_restart_and_goes_alone(two: Two, place: str) -> None:
    (two.files / "orders.yaml").unlink()
    files = two.files if place == "a folder" else two.files / "events.yaml"
    for name in ("events", "orders"):
        two.change(name)
    up = Up(files)
    try:
        with phase("a pipeline is put"):
            _is_put(two, up, same_reader=place == "a folder")
        with phase("everything starts again, with an empty broker, while both sources moved on"):
            ended(up)
            heads = {name: two.change(name) for name in ("events", "orders")}
            up = Up(files)
            for name, head in heads.items():
                two.wait_until_exact(name, head)
            assert two.control.pipelines() == ["events", "orders"]
            assert two.control.pipeline("orders")["version"] == 1
        with phase("it is removed, and put again"):
            _goes_and_comes_back(two, up)
            ended(up)
        with phase("all is proven"):
            _are_proven(files)
        with phase("its table is a file's now, which goes first"):
            taken = '  - {id: "c", routing_value: "c", catalog: "sqlite:../orders/a.sqlite", data_path: "../orders/a"}'
            declared = (two.files / "events.yaml").read_text()
            (two.files / "events.yaml").write_text(declared.replace("server:", f"{taken}\nserver:"))
            before = len(up.log.read_text())
            up = Up(files)
            head = two.change("events")
            eventually(lambda: two.holds("events", head), WITHIN_S)
            assert "lake and table are those of destinations[2]" in str(two.control.pipeline("orders")["refused"])
            assert "pipeline_refused" in up.log.read_text()[before:]
            assert "process_died" not in up.log.read_text(), "it keeps no service from starting"
            ended(up)
    finally:
        if up.process.poll() is None:
            up.process.terminate()
        up.process.wait(40)


def _is_put(two: Two, up: Up, *, same_reader: bool) -> None:
    """It is refused with a mistake, and taken without: no service starts again for it."""
    two.wait_until_exact("events", two.change("events"))
    first = reader_of(up, "events")
    services = {name: up.pid(name) for name in (APPLIER, CONTROL)}

    with pytest.raises(Rejected) as refused:
        two.control.put_pipeline("orders", {**document(two, "orders"), "routing": {"field": "compny"}})
    assert [each["path"] for each in refused.value.problem["fields"]] == ["routing.field"]
    assert two.control.pipelines() == ["events"]

    assert two.control.put_pipeline("orders", document(two, "orders"))["managed_by"] == "api"
    two.wait_until_exact("orders", two.change("orders"))
    two.wait_until_exact("events", two.change("events"))
    two.wait_until_exact("orders", two.change("orders"))
    eventually(lambda: two.problems() == {}, WITHIN_S)
    assert {name: up.pid(name) for name in services} == services
    if same_reader:
        assert reader_of(up, "events") == first


def _goes_and_comes_back(two: Two, up: Up) -> None:
    two.control.remove_pipeline("orders")
    assert two.control.pipelines() == ["events"]
    eventually(lambda: reader_of(up, "orders") is None, WITHIN_S)
    two.change("orders")
    two.wait_until_exact("events", two.change("events"))

    # another beginning: its tables are taken over anew
    two.control.put_pipeline("orders", document(two, "orders"))
    two.wait_until_exact("orders", two.change("orders"))
    assert {each["generation"] for each in two.control.destinations("orders")} == {2}


def _are_proven(files: Path) -> None:
    proof = viaduck("verify", "-c", str(files), "--json")
    assert proof.returncode == 0, proof.stderr
    proven = [json.loads(line) for line in proof.stdout.splitlines()]
    assert [(each["pipeline"], each["destination"]) for each in proven] == [
        ("events", "a"), ("events", "b"), ("orders", "a"), ("orders", "b"),
    ]  # fmt: skip


class Apart:
    """The services of ``two`` one by one: each has folder, state and file of its own, and a broker beside them."""

    def __init__(self, two: Two) -> None:
        self.two, self.broker = two, EmbeddedBroker()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def folder(self, service: str) -> Path:
        return self.two.folder / service

    def start(self, service: str) -> None:
        folder = self.folder(service)
        folder.mkdir(exist_ok=True)
        ports = {"server": {"port": self.two.port}, "reader": {"port": 0}, "applier": {"port": 0}}
        sections = {**document(self.two, "events"), **ports, "state_dir": str(self.two.folder / f"state of {service}")}
        (folder / "events.yaml").write_text(yaml.safe_dump(sections))
        command = [sys.executable, "-m", "services.cli.main", service, "-c", str(folder)]
        environ = {**os.environ, **ENVIRON, BOOTSTRAP: self.broker.bootstrap}
        with (self.two.folder / f"{service}.log").open("ab") as log:
            self.processes[service] = subprocess.Popen(command, env=environ, stdout=log, stderr=log)

    def end(self, service: str, number: signal.Signals = signal.SIGTERM) -> None:
        process = self.processes.pop(service)
        process.send_signal(number)
        process.wait(40)

    def copies(self) -> list[list[str]]:
        return [PipelineFiles(self.two.folder / f"state of {service}").names() for service in SERVICES]

    def close(self) -> None:
        for service in list(self.processes):
            self.end(service)


def test_services_that_run_apart_hear_of_what_is_put_and_start_again_without_control(two: Two) -> None:
    for name in ("events", "orders"):
        two.change(name)
    with closing(Apart(two)) as apart:
        for service in SERVICES:
            apart.start(service)
        two.wait_until_exact("events", two.change("events"))
        two.control.put_pipeline("orders", document(two, "orders"))
        two.wait_until_exact("orders", two.change("orders"))
        two.wait_until_exact("events", two.change("events"))
        assert apart.copies() == [["orders"]] * len(SERVICES)

        # control is away while the others start again: they go on with what they have
        for service in SERVICES:
            apart.end(service)
        for service in (READER, APPLIER):
            apart.start(service)
        heads = {name: two.change(name) for name in ("events", "orders")}
        eventually(lambda: all(two.holds(name, head) for name, head in heads.items()), WITHIN_S)

        apart.start(CONTROL)
        for name, head in heads.items():
            two.wait_until_exact(name, head)
        two.control.remove_pipeline("orders")
        eventually(lambda: apart.copies() == [[]] * len(SERVICES), WITHIN_S)
        two.wait_until_exact("events", two.change("events"))
