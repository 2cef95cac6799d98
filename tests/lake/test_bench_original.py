"""The driver of the original script: it starts a checkout's program and knows by the lakes when that is done.

The original is not at hand: a stand-in does its work, from the same configuration file.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.lakes import PostgresLakes
from bench.original import COMMAND, Times, checks, measure, running_original
from bench.outcome import Size
from bench.setting import Setting
from bench.workload import Workload
from shared.config.loading import load
from shared.contracts.errors import DependencyError
from tests.servers.postgres import Postgres

ROOT = Path(__file__).resolve().parents[2]
TINY = Workload("tiny", tenants=3, seeded=300, commits=2, inserts=60, updates=30, deletes=10, touched_tenants=3)

STAND_IN = """
import os, sys, time
from contextlib import closing
from pathlib import Path
import yaml
from bench.single_process import SingleProcess, SourceTable
from bench.workload import committed
from shared.config.catalogs import ResolvedLake
from shared.lake.connection.attach import attach
from shared.lake.connection.engine import connect

assert sys.argv[1:2] == ["--config"] and Path("viaduck").is_dir()
document = yaml.safe_load(Path(sys.argv[2]).read_text())
with closing(connect()) as con:
    def open_lake(alias, entry):
        lake = ResolvedLake(os.environ[entry["postgres_uri_env"]], data_path=entry["data_path"])
        attach(con, alias, lake, read_only=False, create=True)
    open_lake("source", document["source"])
    for entry in document["destinations"]:
        open_lake(entry["id"], entry)
    table = SourceTable("source", "main", "events", document["routing"]["field"], *document["routing"]["key_columns"])
    alone = SingleProcess(con, table, {entry["routing_value"]: entry["id"] for entry in document["destinations"]})
    con.execute("CREATE TABLE source.main._viaduck_state (destination_id VARCHAR, last_snapshot_id BIGINT)")
    def tell(head):
        con.execute("BEGIN; DELETE FROM source.main._viaduck_state")
        for entry in document["destinations"]:
            con.execute("INSERT INTO source.main._viaduck_state VALUES (?, ?)", [entry["id"], head])
        con.execute("COMMIT")
        return head + 1
    seen = committed(con, "source")
    alone.seed(seen)
    seen = tell(seen)
    while True:
        if (head := committed(con, "source")) > seen:
            MISTAKE
            alone.apply_changes(head)
            seen = tell(head)
        time.sleep(0.05)
"""


@pytest.fixture
def setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Setting]:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PGPASSWORD", "")  # given back at the end
    with Postgres(settings=PostgresLakes.settings) as server:
        yield Setting(Size.QUICK, 1, tmp_path, PostgresLakes(tmp_path, server))


def checkout(folder: Path, program: str) -> Path:
    made = folder / "checkout"
    (made / "viaduck").mkdir(parents=True)
    (made / "viaduck" / "main.py").write_text(program)
    return made


def times_of(setting: Setting, program: str) -> Times:
    place = checkout(setting.folder, program)
    return measure(
        setting, TINY, lambda setting, stand: running_original(setting, stand, place, COMMAND, sys.executable)
    )


def test_a_script_is_timed_and_its_file_is_one_that_viaduck_reads_as_well(setting: Setting) -> None:
    found = times_of(setting, STAND_IN.replace("MISTAKE", "pass"))
    assert found.seed_s > 0
    assert [seconds > 0 for seconds in found.batches_s] == [True]
    assert (found.rows, found.differing) == (400, 0)
    uris = {"SOURCE_URI": "postgres:dbname=s"} | {f"DEST_{n}_URI": f"postgres:dbname=d{n}" for n in range(3)}
    config = load(setting.folder / "original.yaml", uris)
    assert [each.routing_value for each in config.destinations] == ["tenant000", "tenant001", "tenant002"]


def test_rows_that_a_script_gets_wrong_are_counted(setting: Setting) -> None:
    forgets = 'con.execute("DELETE FROM tenant001.main.events WHERE id = (SELECT min(id) FROM tenant001.main.events)")'
    assert times_of(setting, STAND_IN.replace("MISTAKE", forgets)).differing == 2


def test_a_script_that_gives_up_is_told_with_its_last_words(setting: Setting) -> None:
    with pytest.raises(DependencyError, match="no such luck"):
        times_of(setting, "raise SystemExit('no such luck')")


def test_both_are_held_against_the_shares_that_the_targets_name() -> None:
    original = Times(20.0, [5.0, 6.0, 90.0], rows=400, differing=7)
    seed, batch, exact = checks(original, Times(5.0, [1.0], rows=400), share=0.2)
    assert (seed.met, batch.met, exact.met) == (False, True, True)
    assert not checks(original, Times(5.0, [1.0], rows=400, differing=1), share=0.2)[-1].met
