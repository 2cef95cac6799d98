"""H7 where the extension commits: no file is lost with an acknowledgement, and what refuses a COMMIT is still told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import duckdb
import pytest

from services.applier.apply.destination import table_schema
from services.applier.model.task import Limits
from services.applier.worker import worker_state
from shared.config.catalogs import ResolvedLake
from shared.config.model import CommitChoice
from shared.contracts.messages import CommitPath, Outcome, Progress
from shared.contracts.upkeep import StepOutcome, UpkeepStep
from shared.lake.attached.pool import LakePool
from tests.lake.conftest import MakeRig
from tests.lake.rig import ApplyRig, lake_on
from tests.lake.test_upkeep import inlined, live
from tests.lake.test_upkeep_steps import run
from tests.servers.postgres import Postgres
from tests.servers.proxy import Proxy
from tests.torture.faults.catalogs import OURS

pytestmark = pytest.mark.parametrize("make_lake", ["postgres"], indirect=True)


@pytest.fixture
def proxy(postgres: Postgres) -> Iterator[Proxy]:
    with Proxy(postgres.port, postgres.host) as proxy:
        yield proxy


@pytest.fixture(params=["disk", "s3"])
def place(request: pytest.FixtureRequest, postgres: Postgres, proxy: Proxy, tmp_path: Path) -> Iterator[ResolvedLake]:
    """An empty place for a lake with its catalog behind the proxy."""
    database = postgres.lend_database()
    s3 = request.getfixturevalue("s3") if request.param == "s3" else None
    yield lake_on(f"postgres:{postgres.dsn(database, port=proxy.port)}", s3, tmp_path)
    worker_state.forget()
    postgres.take_back(database)


def seeded(make_rig: MakeRig, place: ResolvedLake, commit: CommitChoice = "auto") -> ApplyRig:
    made = make_rig(limits=Limits(commit=commit))
    made.sql(
        "CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, v STRUCT(x INTEGER))",
        "INSERT INTO src.main.t SELECT i, 'a', {'x': i} FROM range(200) r(i)",
    )
    made.add("a", lake=place)
    assert [each.outcome for each in made.seed()] == [Outcome.APPLIED]
    return made


@pytest.fixture
def rig(make_rig: MakeRig, place: ResolvedLake) -> ApplyRig:
    return seeded(make_rig, place)


def altered(rig: ApplyRig) -> Progress:
    """A change that only the extension commits: a field within a column came with rows."""
    before = rig.head
    rig.sql("ALTER TABLE src.main.t ADD COLUMN v.y INTEGER", "UPDATE src.main.t SET v = {'x': -1, 'y': 1} WHERE id < 9")
    (progress,) = rig.changes(before, "a")
    return progress


def compacted(rig: ApplyRig) -> None:
    """Upkeep's first step, which has to succeed."""
    answer, (step,) = run(rig, UpkeepStep.COMPACT)
    assert answer.outcome is Outcome.ALREADY_APPLIED, answer.error
    assert step.outcome is StepOutcome.DONE, step.reason


LOST, CUT = "nobody hears of it", "it never arrives"


@pytest.fixture(params=[LOST, CUT])
def ambush(request: pytest.FixtureRequest, proxy: Proxy) -> Iterator[Callable[[], None]]:
    """Has the next COMMIT of ours go wrong, which has to have happened by the end."""

    def lay() -> None:
        if request.param == LOST:
            proxy.lose_commits(1, holds=OURS)
        else:
            proxy.cut_commits(1, None, holds=OURS)

    yield lay
    met = (1, 0, 0) if request.param == LOST else (0, 1, 0)
    assert (proxy.commits_lost, proxy.commits_cut, proxy.commits_arrived) == met


def test_a_commit_of_the_extensions_loses_no_file_and_comes_once(rig: ApplyRig, ambush: Callable[[], None]) -> None:
    ambush()
    answer = altered(rig)
    assert (answer.outcome, answer.commit) == (Outcome.APPLIED, CommitPath.EXTENSION), answer.error
    assert rig.rows("a") == rig.expected("a")
    assert rig.commits("a") == 2


def test_nor_does_a_seed_that_the_extension_commits(rig: ApplyRig, ambush: Callable[[], None]) -> None:
    """Over a table of its owner's, which he gave up."""
    rig.write("a", "DROP TABLE dst.main.t", "CREATE TABLE dst.main.t AS SELECT 1::BIGINT AS id")
    rig.add("a", generation=2, replace=True)
    ambush()
    (answer,) = rig.seed("a")
    assert (answer.outcome, answer.commit) == (Outcome.APPLIED, CommitPath.EXTENSION), answer.error
    assert rig.rows("a") == rig.expected("a")


def test_nor_do_rows_that_upkeep_moved(rig: ApplyRig, ambush: Callable[[], None]) -> None:
    change(rig, 50)
    assert live(rig) == (2, 1)
    ambush()
    compacted(rig)
    assert live(rig) == (1, 0)
    assert rig.rows("a") == rig.expected("a")


def test_nor_do_rows_that_upkeep_flushed(make_rig: MakeRig, place: ResolvedLake, ambush: Callable[[], None]) -> None:
    rig = seeded(make_rig, place, "extension")
    worker_state.forget()
    rig.write("a", "CALL dst.set_option('data_inlining_row_limit', 50, table_name => 't')")
    change(rig, 9)
    assert inlined(rig) == (9, 9)
    ambush()
    compacted(rig)
    assert inlined(rig) == (0, 0)
    assert rig.rows("a") == rig.expected("a")


def change(rig: ApplyRig, count: int) -> None:
    """So many rows get another value."""
    position = rig.head
    rig.sql(f"UPDATE src.main.t SET v = {{'x': -2}} WHERE id < {count}")
    rig.changes(position, "a")


@pytest.mark.parametrize("place", ["disk"], indirect=True)
def test_a_rival_that_was_quicker_only_means_another_try(rig: ApplyRig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which of both it was, a COMMIT does not tell here: the next try does."""
    real, rivals = table_schema.columns_there, [("a", "DELETE FROM dst.main.t WHERE id = 3")]

    def columns_there(*given: object) -> object:
        if rivals:
            rig.write(*rivals.pop())
        return real(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(table_schema, "columns_there", columns_there)
    answer = altered(rig)
    assert (answer.outcome, answer.commit) == (Outcome.APPLIED, CommitPath.EXTENSION), answer.error
    assert not rivals
    assert rig.rows("a") == rig.expected("a")


@pytest.mark.parametrize("place", ["disk"], indirect=True)
def test_a_pool_lends_a_lake_for_one_commit_and_forgets_it(rig: ApplyRig, place: ResolvedLake) -> None:
    with closing(LakePool(10)) as pool:
        with pool.for_one_commit(place) as lake, closing(lake.cursor()) as con:
            lake.begin(con)
            con.execute("INSERT INTO lake.main.t SELECT 1000, 'a', {'x': 1}")
            assert lake.keep_files(con)
            con.execute("COMMIT")
            with pytest.raises(duckdb.Error, match="LocalFileSystem has been disabled"):
                con.execute("FROM lake.main.t").fetchall()
        assert len(pool) == 0
        with pool.use(place, read_only=False) as lake, closing(lake.cursor()) as con:
            lake.begin(con)
            assert not lake.keep_files(con), "others use this instance"
            assert con.execute("SELECT count(*) FROM lake.main.t").fetchall() == [(201,)]
