"""Mistakes with columns that Viaduck changes itself."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from shared.lake.columns.evolution import ColumnStep
from shared.lake.columns.history import Field
from shared.lake.connection.query import Question
from shared.lake.direct import batch, columns, rows, statistics
from shared.lake.direct.columns import Alteration
from shared.lake.direct.new_table import flat
from shared.lake.direct.state import ColumnStats
from tests.mutants.mistake import Mistake, put

TESTS = "tests/lake/test_direct_columns.py"
TWINS = "tests/lake/test_column_twins.py"


def _columns_never_end() -> None:
    put(columns, "_ended", lambda *_: Question("SELECT 1"))


def _versions_stay() -> None:
    put(batch.NextCommit, "schema_version", property(lambda self: self.state.snapshot.schema_version))


def _nothing_is_altered() -> None:
    made = rows.changes

    def without_alterations(names: Any, snapshot: int, said: str, stamp: Any) -> Question:
        return made(names, snapshot, re.sub(r"altered_table:\d+,", "", said), stamp)

    put(batch, "changes", without_alterations)


def _added_columns_know_their_rows() -> None:
    right = statistics.merged

    def merged(old: ColumnStats | None, new: Any, *, was_empty: bool) -> ColumnStats | None:
        return right(old, new, was_empty=was_empty or old is None)

    put(batch, "merged", merged)


def _ids_come_again() -> None:
    right = columns.altered

    def altered(have: Sequence[Field], steps: Sequence[ColumnStep], now: Sequence[Field], _: int) -> Alteration | None:
        return right(have, steps, now, max(field.id for field in flat(have)))

    put(columns, "altered", altered)


MISTAKES = (
    Mistake("columns-never-end", "a column is there beside what it became", _columns_never_end,
            (TESTS, "-k", "another_went and sqlite")),
    Mistake("versions-stay", "columns change in one version of the schema", _versions_stay,
            (TESTS, "-k", "open_is_used and another and sqlite")),
    Mistake("nothing-is-altered", "a snapshot does not say that it altered a table", _nothing_is_altered,
            (TWINS, "-k", "sqlite")),
    Mistake("added-columns-know-all", "bounds of a new column's first file are those of all rows",
            _added_columns_know_their_rows, (TESTS, "-k", "another_went and sqlite")),
    Mistake("ids-come-again", "a new column gets the id of one that went", _ids_come_again,
            (TESTS, "-k", "another_went and sqlite")),
)  # fmt: skip
