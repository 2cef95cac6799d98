"""What a look costs does not grow with a lake's age, nor with those who share it: counted in rows, not in seconds."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import psycopg
import pytest

from services.applier.apply.cursor import fence
from services.applier.apply.maintenance import catalog_rows
from shared.contracts.messages import ItemKind, Outcome
from shared.lake.catalog.reader import CatalogReader
from shared.lake.catalog.stamps import LOOKED_BACK
from shared.lake.cursor import SCHEMA, cursor_name
from tests.lake.conftest import MakeRig
from tests.lake.rig import EITHER_PATH, ApplyRig
from tests.servers.postgres import Postgres

ON_POSTGRES = pytest.mark.parametrize("make_lake", ["postgres"], indirect=True)
"""Which counts the rows that it reads."""

SHARING, AGE = 1_000, 30_000
"""Other tenants of the lake, and snapshots that it has behind it."""

CURSOR = cursor_name("p", "a")


@pytest.fixture
def rig(make_rig: MakeRig) -> ApplyRig:
    made = make_rig()
    made.sql(
        "CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, v BIGINT)",
        "INSERT INTO src.main.t SELECT i, 'a', 0 FROM range(20) r(i)",
    )
    made.add("a")
    made.seed()
    return made


def apply(rig: ApplyRig, times: int) -> None:
    for _ in range(times):
        position = rig.head
        rig.sql("UPDATE src.main.t SET v = v + 1 WHERE id = 3")
        assert [each.outcome for each in rig.changes(position, "a")] == [Outcome.APPLIED]


def keep_up(rig: ApplyRig) -> None:
    at = rig.head
    (answer,) = rig.run(ItemKind.UPKEEP, "a", expected=at, after=at, through=at)
    assert (answer.outcome, answer.error) == (Outcome.ALREADY_APPLIED, None)


def cursor_rows(rig: ApplyRig) -> int:
    """Rows of the cursor that the catalog holds, dead and alive."""
    with closing(CatalogReader(rig.lake("a"))) as catalog:
        (name,) = catalog.inlined_into(SCHEMA, CURSOR)
    return int(rig.look("a", f"SELECT count(*) FROM __ducklake_metadata_dst.{name}")[0][0])


@EITHER_PATH
def test_upkeep_leaves_of_a_cursor_what_the_newest_snapshots_show(
    rig: ApplyRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every apply leaves a dead row, which every later one reads."""
    kept = 5
    monkeypatch.setattr(catalog_rows, "POSITIONS_KEPT", kept)
    for _ in range(2):
        apply(rig, 12)
        assert cursor_rows(rig) > 12
        keep_up(rig)
        assert 1 <= cursor_rows(rig) <= kept + 1
    newest = rig.commits("a")
    position = f"SELECT position FROM dst.{SCHEMA}.{CURSOR}"
    assert rig.look("a", position) == [(rig.head,)]
    assert rig.look("a", f"{position} AT (VERSION => {newest - 1})") == [(rig.head,)]
    apply(rig, 2)
    assert rig.rows("a") == rig.expected("a")


def test_a_position_knows_the_snapshot_that_committed_it(rig: ApplyRig) -> None:
    destination = rig.destinations["a"]
    for _ in range(3):
        apply(rig, 1)
        with closing(CatalogReader(rig.lake("a"))) as catalog:
            head = catalog.head().snapshot
        rig.con.execute("SELECT 1")
        found = rig.look("a", f"SELECT snapshot_id FROM dst.{SCHEMA}.{CURSOR}")
        assert found == [(head,)]
        keep_up(rig)
    assert fence.cursor_table("dst", destination).endswith(f'"{CURSOR}"')


def grow(rig: ApplyRig, postgres: Postgres) -> None:
    """Other tenants' tables, and a history that nobody has expired."""
    with psycopg.connect(rig.lake("a").conninfo, autocommit=True) as con:
        con.execute(
            "INSERT INTO ducklake_table (table_id, table_uuid, begin_snapshot, schema_id, table_name, path,"
            " path_is_relative) SELECT 1000 + i, gen_random_uuid(), 1, 0, 'other_' || i, 'x/', true"
            " FROM generate_series(1, %s) i",
            (SHARING,),
        )
        con.execute(
            "INSERT INTO ducklake_snapshot_changes (snapshot_id, changes_made, author, commit_extra_info)"
            " SELECT 100000 + i, '', 'viaduck', '{\"kind\": \"changes\", \"item\": \"' || i || '\"}'"
            " FROM generate_series(1, %s) i",
            (AGE,),
        )
        con.execute("ANALYZE")


def rows_read(rig: ApplyRig, work: Callable[[CatalogReader], object], table: str) -> int:
    """Rows of a table of the catalog that Postgres read for ``work``."""
    counted = (
        "SELECT coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) FROM pg_stat_user_tables WHERE relname = %s"
    )
    with psycopg.connect(rig.lake("a").conninfo, autocommit=True) as con:
        before = con.execute(counted, (table,)).fetchone()
        with closing(CatalogReader(rig.lake("a"))) as catalog:
            work(catalog)
        con.execute("SELECT pg_sleep(0.2), pg_stat_clear_snapshot()")  # its connection tells when it ends
        after = con.execute(counted, (table,)).fetchone()
    assert before is not None
    assert after is not None
    return int(after[0]) - int(before[0])


@ON_POSTGRES
def test_stamps_are_looked_up_by_their_snapshot_or_among_the_newest(rig: ApplyRig, postgres: Postgres) -> None:
    grow(rig, postgres)
    destination, changes = rig.destinations["a"], "ducklake_snapshot_changes"
    looks: dict[str, tuple[Callable[[CatalogReader], object], int]] = {
        "whose files were committed": (lambda catalog: catalog.stamp_at(2), 1),
        "the last drop": (lambda catalog: fence.dropped_generation_in(catalog, destination), 5),
        "a token": (lambda catalog: catalog.find_stamp("token"), LOOKED_BACK),
    }
    for name, (look, most) in looks.items():
        assert rows_read(rig, look, changes) <= most, name


@ON_POSTGRES
def test_whoever_shares_a_lake_is_not_sent_along(rig: ApplyRig, postgres: Postgres) -> None:
    """To ask for one table is answered with one row, however many there are."""
    grow(rig, postgres)
    asked = "SELECT coalesce(sum(rows), 0) FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid"
    database = psycopg.conninfo.conninfo_to_dict(rig.lake("a").conninfo)["dbname"]
    with closing(CatalogReader(rig.lake("a"))) as catalog, postgres.connect() as con:
        postgres.count_statements()
        assert catalog.has_table(SCHEMA, CURSOR)
        assert not catalog.has_table("main", "nobody's")
        assert catalog.table_id(SCHEMA, CURSOR) != catalog.table_id("main", "t")
        answered = con.execute(f"{asked} WHERE d.datname = %s AND s.query LIKE '%%ducklake_table%%'", (database,))
        found = answered.fetchone()
    assert found == (3,)
