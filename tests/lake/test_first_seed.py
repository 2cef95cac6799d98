"""A first seed that Viaduck commits itself leaves a lake as DuckLake's extension would, row by row of its catalog."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from services.applier.apply import direct_seed
from services.applier.model.task import Limits, SourceTable, Task
from services.applier.worker.task_run import run_task
from shared.config.catalogs import ResolvedLake
from shared.config.model import CommitChoice
from shared.contracts.layout import TableLayout
from shared.contracts.messages import CommitPath, ItemKind, Outcome, Progress
from shared.lake.engine import connect
from shared.lake.new_catalog import TABLES
from tests.lake.conftest import MakeRig
from tests.lake.rig import EVERY_CATALOG, ApplyRig, MakeLake
from tests.lake.test_direct_twins import COLUMNS, VALUES

MORE_COLUMNS = {
    "nest": 'STRUCT(a STRUCT(x INTEGER, y VARCHAR)[], "Q q" MAP(VARCHAR, STRUCT(z DOUBLE)))',
    "ns": "TIMESTAMP_NS",
    "us": "USMALLINT",
    "odd name": "VARCHAR(10)",
}

CHANCE = re.compile(
    r"[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}|\d{4}-\d\d-\d\d[ T]\d\d:\d\d:[0-9.]+(\+00(:00)?)?|[0-9a-f]{32}"
)
"""What no two commits share: uuids, moments and tokens."""

BY_EXTENSION_ONLY = {"ducklake_inlined_data_tables"}
"""The extension makes a table for inlined rows of each table, and rows of a destination are never inlined."""


NEVER_COUNTED = {("ducklake_file_column_stats", "24"), ("ducklake_table_column_stats", "24")}
"""The INTERVAL: COPY tells nothing of its NULLs, and the extension says that it has none."""


def catalog_rows(lake: ResolvedLake) -> dict[str, list[str]]:
    """The rows of each of a catalog's own tables, without what is drawn by chance and the order of tables' ids."""
    con = connect()
    try:
        kind = "sqlite" if lake.sqlite_file is not None else "postgres"
        con.execute(f"ATTACH '{lake.sqlite_file or lake.conninfo}' AS c (TYPE {kind}, READ_ONLY)")
        schema = "main" if lake.sqlite_file is not None else lake.schema
        return {
            table: [_even(table, row) for row in con.execute(f'SELECT * FROM c."{schema}".{table}').fetchall()]
            for table in TABLES
            if table not in BY_EXTENSION_ONLY
        }
    finally:
        con.close()


def _even(table: str, row: Sequence[Any]) -> str:
    shown = [int(value) if isinstance(value, bool) else str(value) for value in row]
    if (table, shown[2 if "file" in table else 1]) in NEVER_COUNTED:
        shown = shown[:2]
    text = CHANCE.sub("*", repr(shown)).replace('"commit": "direct"', '"commit": "extension"')
    return re.sub(r"/[ab]-data/", "/data/", text)


def seed(rig: ApplyRig, lake: ResolvedLake, commit: CommitChoice, **changed: Any) -> Progress:
    """Seed the destination ``d`` in that lake."""
    rig.add("d", "a", lake=lake, **changed)
    source = SourceTable(rig.source, "main", "t", rig.routing)
    target = rig.target("d", ItemKind.SEED, item="item-of-both")
    (result,) = run_task(Task(ItemKind.SEED, source, (target,), replace(Limits(), commit=commit))).results
    return result.progress


@pytest.fixture
def wide(make_rig: MakeRig) -> ApplyRig:
    """A source of all types, most values NULL."""
    rig = make_rig()
    declared = {**COLUMNS, **MORE_COLUMNS}
    rig.sql("CREATE TABLE src.main.t (" + ", ".join(f'"{name}" {kind}' for name, kind in declared.items()) + ")")
    drawn = ", ".join(values[-1] for values in VALUES.values())
    rig.sql(
        f"INSERT INTO src.main.t (id, tenant, {', '.join(VALUES)}) VALUES (1, 'a', {drawn}), (2, 'b', {drawn})",
        "INSERT INTO src.main.t (id, tenant, f) VALUES (3, 'a', 'nan')",
    )
    return rig


def lakes(make_lake: MakeLake, rig: ApplyRig, *statements: str) -> tuple[ResolvedLake, ResolvedLake]:
    """Two lakes that are there already, in which the same was done."""
    both = make_lake("a", rig.folder / "a-data"), make_lake("b", rig.folder / "b-data")
    for name, lake in zip("ab", both, strict=True):
        rig.add(name, "nobody", lake=lake)
        rig.write(name, *statements)
        del rig.destinations[name]
    return both


@EVERY_CATALOG
@pytest.mark.parametrize(
    ("before", "schema", "table"),
    [
        ((), "main", "t"),
        (("CREATE TABLE dst.main.other (i INTEGER)", "INSERT INTO dst.main.other VALUES (1)"), "main", "t"),
        (("CREATE SCHEMA dst._viaduck", 'CREATE SCHEMA dst."Sales"'), "sales", "T-1"),
        (('CREATE SCHEMA dst."new ""schema"" of \'sales\'"',), "new \"schema\" of 'sales'", "tàble 1; --"),
    ],
    ids=["empty", "beside-another", "schemas-there", "strange-names"],
)
def test_the_catalog_is_the_one_that_the_extension_leaves(
    wide: ApplyRig, make_lake: MakeLake, before: tuple[str, ...], schema: str, table: str
) -> None:
    ours, theirs = lakes(make_lake, wide, *before)
    done = seed(wide, ours, "auto", schema_name=schema, table=table)
    assert (done.outcome, done.commit, done.error) == (Outcome.APPLIED, CommitPath.DIRECT, None)
    assert seed(wide, theirs, "extension", schema_name=schema, table=table).commit is CommitPath.EXTENSION
    found, wanted = catalog_rows(ours), catalog_rows(theirs)
    differ = {n: (set(rows) - set(wanted[n]), set(wanted[n]) - set(rows)) for n, rows in found.items()}
    assert {name: both for name, both in differ.items() if any(both)} == {}
