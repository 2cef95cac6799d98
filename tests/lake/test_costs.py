"""What an apply, a reading and a poll cost, in counts that do not depend on the machine: a regression shows at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import duckdb
import pytest

from services.applier.model.task import Target
from services.applier.worker import worker_state
from services.reader.planner.scheduling import SourceState
from services.reader.source.lake_source import LakeSource
from shared.config.model import CommitChoice
from shared.contracts.messages import ItemKind, Outcome, Progress
from shared.contracts.ranges import Range
from shared.lake.catalog.reader import CatalogReader
from shared.lake.connection.attach import attach
from shared.lake.connection.engine import connect
from shared.lake.connection.query import Question
from shared.lake.connection.statements import Postgres as StatementsOnPostgres
from shared.lake.connection.statements import Row
from tests.fast.reader.lakes import config
from tests.lake.conftest import MakeRig
from tests.lake.rig import ApplyRig
from tests.servers.postgres import Postgres

ON_POSTGRES = pytest.mark.parametrize("make_lake", ["postgres"], indirect=True)
"""Which counts the statements that reach it."""

APPLY, ADVANCE = {"direct": 3, "extension": 44}, {"direct": 3, "extension": 23}
"""Statements to a destination's catalog by who commits, BEGIN and all, where its rows are in files and twenty of them
change."""

BY_BOTH_PATHS = pytest.mark.parametrize("commit", APPLY)

READING = 32
"""Statements to the source's catalog, for however many destinations read together."""

ROWS_OF_AN_ATTACH = 600
"""Of Postgres's own catalog: DuckLake's tables and their columns. All of a new database's are some 4,900."""

DAILY = 100
"""Applies after which a destination has upkeep."""

TENANTS = ("a", "b", "c", "d")


@pytest.fixture
def rig(make_rig: MakeRig) -> ApplyRig:
    """Tenants in one table whose rows are in files, seeded, and with one apply behind them."""
    made = make_rig()
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


def touch(rig: ApplyRig, number: int) -> int:
    """Change twenty rows of each tenant in one commit; returns the head before it."""
    before, rows = rig.head, 20 * len(TENANTS)
    rig.sql(f"UPDATE src.main.t SET v = 'touched' WHERE id >= {number * rows} AND id < {(number + 1) * rows}")
    return before


def changes(rig: ApplyRig, position: int, names: Sequence[str]) -> list[Target]:
    """Items from ``position`` to the head; made beforehand, since a rig looks for the head in the source itself."""
    return [rig.target(name, ItemKind.CHANGES, expected=position, after=position) for name in names]


class Counter:
    """Counts statements by lake."""

    def __init__(self, postgres: Postgres, rig: ApplyRig) -> None:
        self._postgres, self._rig = postgres, rig

    def during(self, work: Callable[[], object], *lakes: str) -> list[int]:
        self._postgres.count_statements()
        work()
        return [self._postgres.statements(self.database(lake)) for lake in lakes]

    def database(self, lake: str) -> str:
        resolved = self._rig.source if lake == "source" else self._rig.lake(lake)
        return dict(word.split("=", 1) for word in resolved.conninfo.split())["dbname"].strip("'")


@pytest.fixture
def sent(postgres: Postgres, rig: ApplyRig) -> Counter:
    return Counter(postgres, rig)


@ON_POSTGRES
@BY_BOTH_PATHS
def test_an_apply_is_one_snapshot_so_many_statements_and_nobody_elses_business(
    rig: ApplyRig, sent: Counter, commit: CommitChoice
) -> None:
    position, head, commits = touch(rig, 1), rig.head, rig.commits("a")
    answers = []
    for_a, for_b = sent.during(lambda: answers.extend(rig.changes(position, "a")), "a", "b")
    assert [answer.outcome for answer in answers] == [Outcome.APPLIED]
    assert for_a <= APPLY[commit]
    assert for_b == 0, "who is not touched hears nothing at all"
    assert rig.commits("a") == commits + 1
    assert rig.head == head, "reading leaves no snapshot in the source"


@ON_POSTGRES
def test_a_range_is_read_once_for_all_whom_it_touches(rig: ApplyRig, sent: Counter) -> None:
    position = touch(rig, 1)
    one, three = changes(rig, position, TENANTS[:1]), changes(rig, position, TENANTS[1:])
    (for_one,) = sent.during(lambda: rig.run_targets(ItemKind.CHANGES, one), "source")
    (for_three,) = sent.during(lambda: rig.run_targets(ItemKind.CHANGES, three), "source")
    assert for_three <= for_one <= READING


class Turns(StatementsOnPostgres):
    """Counts how often it waits for its catalog."""

    waits = 0

    def rows(self, question: Question) -> Sequence[Row]:
        self.waits += 1
        return super().rows(question)

    def several(self, questions: Sequence[Question]) -> Sequence[Sequence[Row]]:
        self.waits += 1
        return super().several(questions)


@ON_POSTGRES
def test_what_a_reader_and_a_reading_have_to_know_of_a_source_takes_a_round_trip_each(rig: ApplyRig) -> None:
    before, end = touch(rig, 1), rig.sql("INSERT INTO src.main.t VALUES (100000, 'a', 'v')")
    with closing(CatalogReader(rig.source, turns := Turns(rig.source.conninfo))) as catalog:
        look = catalog.source_look("main", "t", end, [before], before)
        assert look is not None
        assert turns.waits == 1
        assert (list(look.times), [touch.snapshot for touch in look.touches]) == ([before], [before + 1, end])
        news = catalog.news(look.table.table_id, before + 1, [before])
        assert turns.waits == 2
        assert (news.head.snapshot, list(news.times), news.touches) == (end, [before], look.touches[1:])
        assert catalog.only_appended(look.table.table_id, Range(before + 1, end), news.touches)
        assert turns.waits == 3
        assert not catalog.only_appended(look.table.table_id, Range(before, end), look.touches)
        assert turns.waits == 3


@ON_POSTGRES
@BY_BOTH_PATHS
def test_an_advance_is_cheaper_and_an_idle_poll_is_one_statement(
    rig: ApplyRig, sent: Counter, commit: CommitChoice
) -> None:
    position = rig.head
    rig.sql("CREATE TABLE src.main.other (i INTEGER)")
    (for_a,) = sent.during(lambda: rig.run(ItemKind.ADVANCE, "a", expected=position, after=position), "a")
    assert for_a <= ADVANCE[commit]
    with closing(CatalogReader(rig.source)) as catalog:
        catalog.head()
        assert sent.during(catalog.head, "source") == [1]


@ON_POSTGRES
def test_a_head_that_was_seen_before_is_asked_for_what_is_retained_alone(
    rig: ApplyRig, sent: Counter, tmp_path: Path
) -> None:
    with closing(LakeSource(config(tmp_path), rig.source)) as source:
        seen, head, later = source.observe(source.head()), source.head(), list[SourceState]()
        assert sent.during(lambda: later.append(source.observe(head)), "source") == [1]
        assert later == [seen]


@ON_POSTGRES
@BY_BOTH_PATHS
def test_a_destination_keeps_one_connection_of_a_worker(rig: ApplyRig, sent: Counter, postgres: Postgres) -> None:
    """Of one that did not seed it: a table is made by the extension, over a connection of its own."""
    worker_state.forget()
    rig.changes(touch(rig, 1))
    with postgres.connect() as con:
        query = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s"
        assert con.execute(query, [sent.database("a")]).fetchall() == [(1,)]


@ON_POSTGRES
def test_a_reading_goes_on_where_its_connection_has_ended_meanwhile(
    rig: ApplyRig, sent: Counter, postgres: Postgres
) -> None:
    """As a pooler or a firewall ends one that is idle; nothing looks for that beforehand, which costs round trips."""
    rig.changes(touch(rig, 1))
    position = touch(rig, 2)
    with postgres.connect() as con:
        of_duckdb = (
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND query = 'DISCARD ALL'"
        )
        ended = con.execute(of_duckdb, [sent.database("source")]).fetchall()
    assert ended
    assert {answer.outcome for answer in rig.changes(position)} == {Outcome.APPLIED}
    assert all(rig.rows(name) == rig.expected(name) for name in TENANTS)


@ON_POSTGRES
def test_a_connection_is_used_again_however_long_it_was_idle(rig: ApplyRig, sent: Counter, postgres: Postgres) -> None:
    def backends(*settings: str) -> set[int]:
        """Of two looks with a moment between them."""
        seen = set()
        with closing(connect()) as con, postgres.connect() as watch:
            for setting in settings:
                con.execute(setting)
            attach(con, "lake", rig.lake("b"), read_only=True)
            for _ in range(2):
                con.execute("FROM lake.main.t LIMIT 1").fetchall()
                query = "SELECT pid FROM pg_stat_activity WHERE datname = %s"
                seen |= {pid for (pid,) in watch.execute(query, [sent.database("b")]).fetchall()}
                time.sleep(0.1)
        return seen

    worker_state.forget()
    assert len(backends("SET pg_pool_idle_timeout_millis = 20")) > len(backends()), "0 means never"
    with closing(connect()) as con:
        assert con.execute("SELECT current_setting('pg_pool_idle_timeout_millis')::INTEGER").fetchall() == [(0,)]


@ON_POSTGRES
def test_the_tables_of_inlined_deletes_are_as_ducklake_makes_them(
    rig: ApplyRig, sent: Counter, postgres: Postgres
) -> None:
    rig.write(
        "a",
        "CREATE TABLE dst.main.other AS SELECT i FROM range(100) r(i)",
        "DELETE FROM dst.main.other WHERE i = 7",
    )
    (other,) = rig.look("a", "SELECT table_id FROM ducklake_table_info('dst') WHERE table_name = 'other'")[0]
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
def test_an_apply_writes_one_file_of_rows_and_one_of_deletes(rig: ApplyRig) -> None:
    position, before = touch(rig, 1), set(files(rig, "a"))
    rig.changes(position, "a")
    assert sorted("delete" in name for name in set(files(rig, "a")) - before) == [False, True]


@pytest.mark.parametrize("make_lake", ["sqlite"], indirect=True)
def test_a_hundred_commits_are_two_hundred_files_at_most_and_one_after_upkeep(rig: ApplyRig) -> None:
    before = set(files(rig, "a"))
    for number in range(DAILY):
        position = rig.head
        rig.sql(f"UPDATE src.main.t SET v = 'again' WHERE id = {number * len(TENANTS)}")
        assert [answer.outcome for answer in rig.changes(position, "a")] == [Outcome.APPLIED]
    assert len(set(files(rig, "a")) - before) <= 2 * DAILY
    at = rig.head
    rig.run(ItemKind.UPKEEP, "a", expected=at, after=at, through=at)
    live = "SELECT count(*), count(delete_file) FROM ducklake_list_files('dst', 't')"
    assert rig.look("a", live) == [(1, 0)]
    assert rig.rows("a") == rig.expected("a")


def files(rig: ApplyRig, name: str) -> Iterator[str]:
    return (file.name for file in (rig.folder / f"{name}-data").rglob("*.parquet"))


@pytest.mark.parametrize("make_lake", ["sqlite"], indirect=True)
def test_a_change_reads_no_more_of_a_source_that_grew_by_forty_files(rig: ApplyRig) -> None:
    of_one, grown = bytes_read(rig, touch(rig, 1)), rig.head
    for file in range(1, 41):
        rig.sql(
            f"INSERT INTO src.main.t SELECT {file * 4000} + i, chr((97 + i % {len(TENANTS)})::INTEGER), 'v'"
            " FROM range(4000) r(i)"
        )
    rig.changes(grown)
    assert 0 < bytes_read(rig, touch(rig, 2)) <= of_one * 1.1
    assert rig.rows("a") == rig.expected("a")


@pytest.fixture
def texts(make_rig: MakeRig) -> ApplyRig:
    """Nine tenants, routed by text, three in each of the files, which no partitioning tells apart."""
    made = make_rig()
    made.sql(
        "CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, v VARCHAR)",
        "CALL src.set_option('data_inlining_row_limit', 0)",
        *(
            f"INSERT INTO src.main.t SELECT {file} * 100000 + i, 'tenant-' || ({file} // 3 * 3 + i % 3), md5('v' || i)"
            " FROM range(20000) r(i)"
            for file in range(9)
        ),
    )
    made.add("a", "tenant-7")
    return made


@pytest.mark.parametrize("make_lake", ["sqlite"], indirect=True)
def test_a_seed_by_text_reads_the_files_that_hold_its_tenant_and_the_routing_column_of_others(texts: ApplyRig) -> None:
    whole = sum(file.stat().st_size for file in (texts.folder / "source-data").rglob("*.parquet"))
    assert 0 < read_during(texts, lambda: texts.seed("a")) < whole * 0.4
    assert texts.rows("a") == texts.expected("a")


@pytest.mark.parametrize("make_lake", ["sqlite"], indirect=True)
def test_neither_a_seed_nor_a_change_tells_a_query_of_the_catalog_a_routing_value(texts: ApplyRig) -> None:
    seeded = queries(texts, lambda: texts.seed("a"))
    before = texts.head
    texts.sql("UPDATE src.main.t SET v = 'w' WHERE id % 100 < 10")
    changed = queries(texts, lambda: texts.changes(before, "a"))
    for lists in (seeded, changed):
        assert any("ducklake_data_file" in query for query in lists), "it is seen at all"
        assert [query for query in lists if "ducklake_data_file" in query and "tenant-7" in query] == []
    assert texts.rows("a") == texts.expected("a")


def queries(rig: ApplyRig, work: Callable[[], Sequence[Progress]]) -> list[str]:
    """All texts of statements that the source's instance runs meanwhile, those of DuckLake on its catalog too."""
    with logged(rig, "QueryLog") as con:
        assert {answer.outcome for answer in work()} == {Outcome.APPLIED}
        return [text for (text,) in con.execute("SELECT message FROM duckdb_logs WHERE type = 'QueryLog'").fetchall()]


def read_during(rig: ApplyRig, work: Callable[[], Sequence[Progress]]) -> int:
    """Bytes of the source's files."""
    query = "SELECT sum(bytes)::BIGINT FROM duckdb_logs_parsed('FileSystem') WHERE op = 'READ' AND contains(path, ?)"
    with logged(rig, "FileSystem") as con:
        assert {answer.outcome for answer in work()} == {Outcome.APPLIED}
        return int(con.execute(query, [str(rig.folder / "source-data")]).fetchall()[0][0])


@contextmanager
def logged(rig: ApplyRig, kind: str) -> Iterator[duckdb.DuckDBPyConnection]:
    """What the source's instance logs meanwhile, for queries on ``duckdb_logs``."""
    with worker_state.worker(rig.limits).pool.use(rig.source, read_only=True) as source:
        con = source.con
    con.execute("CALL enable_logging(?, level = 'trace')", [kind])
    try:
        yield con
    finally:
        con.execute("CALL disable_logging()")
        con.execute("CALL truncate_duckdb_logs()")


def bytes_read(rig: ApplyRig, position: int) -> int:
    """Of the source's files, while everybody's items from ``position`` to the head are done."""
    with worker_state.worker(rig.limits).pool.use(rig.source, read_only=True) as source:
        con = source.con
    con.execute("CALL enable_logging('FileSystem', level = 'trace')")
    try:
        answers = rig.changes(position)
    finally:
        con.execute("CALL disable_logging()")
    assert [answer.outcome for answer in answers] == [Outcome.APPLIED] * len(TENANTS)
    query = "SELECT sum(bytes)::BIGINT FROM duckdb_logs_parsed('FileSystem') WHERE op = 'READ' AND contains(path, ?)"
    (total,) = con.execute(query, [str(rig.folder / "source-data")]).fetchall()[0]
    con.execute("CALL truncate_duckdb_logs()")
    return int(total)


@ON_POSTGRES
def test_to_open_a_lake_reads_its_own_schema_and_not_the_catalog_of_the_whole_database(
    rig: ApplyRig, sent: Counter, postgres: Postgres
) -> None:
    """What is read stays in memory as long as the lake is open."""
    sent.during(lambda: rig.look("a", "SELECT 1"), "a")
    with postgres.connect() as con:
        read = "SELECT sum(rows) FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid WHERE d.datname = %s"
        ((rows,),) = con.execute(read, [sent.database("a")]).fetchall()
    assert rows < ROWS_OF_AN_ATTACH
