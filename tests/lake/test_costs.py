"""What an apply, a reading and a poll cost, in counts that do not depend on the machine: a regression shows at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing

import pytest

from services.applier import worker
from services.applier.task import Target
from shared.lake.attach import attach
from shared.lake.catalog import CatalogReader
from shared.lake.engine import connect
from shared.messages import ItemKind, Outcome
from tests.lake.bed import Bed
from tests.lake.conftest import MakeBed
from tests.servers.postgres import Postgres

ON_POSTGRES = pytest.mark.parametrize("make_lake", ["postgres"], indirect=True)
"""Which counts the statements that reach it."""

APPLY, ADVANCE = 44, 23
"""Statements to a destination's catalog, BEGIN and all, where its rows are in files and twenty of them change."""

READING = 34
"""Statements to the source's catalog, for however many destinations read together."""

ROWS_OF_AN_ATTACH = 600
"""Of Postgres's own catalog: DuckLake's tables and their columns. All of a new database's are some 4,900."""

DAILY = 100
"""Applies after which a destination has upkeep."""

TENANTS = ("a", "b", "c", "d")


@pytest.fixture
def bed(make_bed: MakeBed) -> Bed:
    """Tenants in one table whose rows are in files, seeded, and with one apply behind them."""
    made = make_bed()
    made.sql(
        "CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, v VARCHAR)",
        "CALL src.set_option('data_inlining_row_limit', 0)",
        f"INSERT INTO src.main.t SELECT i, chr((97 + i % {len(TENANTS)})::INTEGER), 'v' FROM range(4000) r(i)",
    )
    for name in TENANTS:
        made.add(name)
    made.seed()
    made.changes(touch(made, 0))
    return made


def touch(bed: Bed, number: int) -> int:
    """Change twenty rows of each tenant in one commit; returns the head before it."""
    before, rows = bed.head, 20 * len(TENANTS)
    bed.sql(f"UPDATE src.main.t SET v = 'touched' WHERE id >= {number * rows} AND id < {(number + 1) * rows}")
    return before


def changes(bed: Bed, position: int, names: Sequence[str]) -> list[Target]:
    """Items from ``position`` to the head; made beforehand, since a bed looks for the head in the source itself."""
    return [bed.target(name, ItemKind.CHANGES, expected=position, after=position) for name in names]


class Counter:
    """Counts statements by lake."""

    def __init__(self, postgres: Postgres, bed: Bed) -> None:
        self._postgres, self._bed = postgres, bed

    def during(self, work: Callable[[], object], *lakes: str) -> list[int]:
        self._postgres.count_statements()
        work()
        return [self._postgres.statements(self.database(lake)) for lake in lakes]

    def database(self, lake: str) -> str:
        resolved = self._bed.source if lake == "source" else self._bed.lake(lake)
        return dict(word.split("=", 1) for word in resolved.conninfo.split())["dbname"].strip("'")


@pytest.fixture
def sent(postgres: Postgres, bed: Bed) -> Counter:
    return Counter(postgres, bed)


@ON_POSTGRES
def test_an_apply_is_one_snapshot_so_many_statements_and_nobody_elses_business(bed: Bed, sent: Counter) -> None:
    position, head, commits = touch(bed, 1), bed.head, bed.commits("a")
    answers = []
    for_a, for_b = sent.during(lambda: answers.extend(bed.changes(position, "a")), "a", "b")
    assert [answer.outcome for answer in answers] == [Outcome.APPLIED]
    assert for_a <= APPLY
    assert for_b == 0, "who is not touched hears nothing at all"
    assert bed.commits("a") == commits + 1
    assert bed.head == head, "reading leaves no snapshot in the source"


@ON_POSTGRES
def test_a_range_is_read_once_for_all_whom_it_touches(bed: Bed, sent: Counter) -> None:
    position = touch(bed, 1)
    one, three = changes(bed, position, TENANTS[:1]), changes(bed, position, TENANTS[1:])
    (for_one,) = sent.during(lambda: bed.run_targets(ItemKind.CHANGES, one), "source")
    (for_three,) = sent.during(lambda: bed.run_targets(ItemKind.CHANGES, three), "source")
    assert for_three <= for_one <= READING


@ON_POSTGRES
def test_an_advance_is_cheaper_and_an_idle_poll_is_one_statement(bed: Bed, sent: Counter) -> None:
    position = bed.head
    bed.sql("CREATE TABLE src.main.other (i INTEGER)")
    (for_a,) = sent.during(lambda: bed.run(ItemKind.ADVANCE, "a", expected=position, after=position), "a")
    assert for_a <= ADVANCE
    with closing(CatalogReader(bed.source)) as catalog:
        catalog.head()
        assert sent.during(catalog.head, "source") == [1]


@ON_POSTGRES
def test_a_destination_keeps_one_connection_of_a_worker(bed: Bed, sent: Counter, postgres: Postgres) -> None:
    bed.changes(touch(bed, 1))
    with postgres.connect() as con:
        query = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s"
        assert con.execute(query, [sent.database("a")]).fetchall() == [(1,)]


@ON_POSTGRES
def test_a_connection_is_used_again_however_long_it_was_idle(bed: Bed, sent: Counter, postgres: Postgres) -> None:
    def backends(*settings: str) -> set[int]:
        """Of two looks with a moment between them."""
        seen = set()
        with closing(connect()) as con, postgres.connect() as watch:
            for setting in settings:
                con.execute(setting)
            attach(con, "lake", bed.lake("b"), read_only=True)
            for _ in range(2):
                con.execute("FROM lake.main.t LIMIT 1").fetchall()
                query = "SELECT pid FROM pg_stat_activity WHERE datname = %s"
                seen |= {pid for (pid,) in watch.execute(query, [sent.database("b")]).fetchall()}
                time.sleep(0.1)
        return seen

    worker.forget()
    assert len(backends("SET pg_pool_idle_timeout_millis = 20")) > len(backends()), "0 means never"
    with closing(connect()) as con:
        assert con.execute("SELECT current_setting('pg_pool_idle_timeout_millis')::INTEGER").fetchall() == [(0,)]


@ON_POSTGRES
def test_the_tables_of_inlined_deletes_are_as_ducklake_makes_them(bed: Bed, sent: Counter, postgres: Postgres) -> None:
    bed.write(
        "a",
        "CREATE TABLE dst.main.other AS SELECT i FROM range(100) r(i)",
        "DELETE FROM dst.main.other WHERE i = 7",
    )
    (other,) = bed.look("a", "SELECT table_id FROM ducklake_table_info('dst') WHERE table_name = 'other'")[0]
    with postgres.connect(sent.database("a")) as con:
        columns = con.execute(
            "SELECT table_name, array_agg(column_name || ' ' || data_type ORDER BY ordinal_position)"
            " FROM information_schema.columns WHERE table_name LIKE 'ducklake_inlined_delete_%' GROUP BY 1"
        ).fetchall()
    made = dict(columns)
    theirs = made.pop(f"ducklake_inlined_delete_{other}")
    assert len(made) == 2, "of the data and of the cursor"
    assert set(map(tuple, made.values())) == {tuple(theirs)}


@pytest.mark.parametrize("make_lake", ["sqlite"], indirect=True)
def test_an_apply_writes_one_file_of_rows_and_one_of_deletes(bed: Bed) -> None:
    position, before = touch(bed, 1), set(files(bed, "a"))
    bed.changes(position, "a")
    assert sorted("delete" in name for name in set(files(bed, "a")) - before) == [False, True]


@pytest.mark.parametrize("make_lake", ["sqlite"], indirect=True)
def test_a_hundred_commits_are_two_hundred_files_at_most_and_one_after_upkeep(bed: Bed) -> None:
    before = set(files(bed, "a"))
    for number in range(DAILY):
        position = bed.head
        bed.sql(f"UPDATE src.main.t SET v = 'again' WHERE id = {number * len(TENANTS)}")
        assert [answer.outcome for answer in bed.changes(position, "a")] == [Outcome.APPLIED]
    assert len(set(files(bed, "a")) - before) <= 2 * DAILY
    at = bed.head
    bed.run(ItemKind.UPKEEP, "a", expected=at, after=at, through=at)
    live = "SELECT count(*), count(delete_file) FROM ducklake_list_files('dst', 't')"
    assert bed.look("a", live) == [(1, 0)]
    assert bed.rows("a") == bed.expected("a")


def files(bed: Bed, name: str) -> Iterator[str]:
    return (file.name for file in (bed.folder / f"{name}-data").rglob("*.parquet"))


@pytest.mark.parametrize("make_lake", ["sqlite"], indirect=True)
def test_a_change_reads_no_more_of_a_source_that_grew_by_forty_files(bed: Bed) -> None:
    of_one, grown = bytes_read(bed, touch(bed, 1)), bed.head
    for file in range(1, 41):
        bed.sql(
            f"INSERT INTO src.main.t SELECT {file * 4000} + i, chr((97 + i % {len(TENANTS)})::INTEGER), 'v'"
            " FROM range(4000) r(i)"
        )
    bed.changes(grown)
    assert 0 < bytes_read(bed, touch(bed, 2)) <= of_one * 1.1
    assert bed.rows("a") == bed.expected("a")


def bytes_read(bed: Bed, position: int) -> int:
    """Of the source's files, while everybody's items from ``position`` to the head are done."""
    with worker.worker(bed.limits).pool.use(bed.source, read_only=True) as source:
        con = source.con
    con.execute("CALL enable_logging('FileSystem', level = 'trace')")
    try:
        answers = bed.changes(position)
    finally:
        con.execute("CALL disable_logging()")
    assert [answer.outcome for answer in answers] == [Outcome.APPLIED] * len(TENANTS)
    query = "SELECT sum(bytes)::BIGINT FROM duckdb_logs_parsed('FileSystem') WHERE op = 'READ' AND contains(path, ?)"
    (total,) = con.execute(query, [str(bed.folder / "source-data")]).fetchall()[0]
    con.execute("CALL truncate_duckdb_logs()")
    return int(total)


@ON_POSTGRES
def test_to_open_a_lake_reads_its_own_schema_and_not_the_catalog_of_the_whole_database(
    bed: Bed, sent: Counter, postgres: Postgres
) -> None:
    """What is read stays in memory as long as the lake is open."""
    sent.during(lambda: bed.look("a", "SELECT 1"), "a")
    with postgres.connect() as con:
        read = "SELECT sum(rows) FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid WHERE d.datname = %s"
        ((rows,),) = con.execute(read, [sent.database("a")]).fetchall()
    assert rows < ROWS_OF_AN_ATTACH
