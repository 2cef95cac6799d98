"""Mistakes with changes of the source's columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from services.applier.apply import evolve, feed, source_columns
from services.reader.planner.reshapes import Reshapes
from shared.lake import column_identity, evolution, followed_columns
from shared.lake.catalog import TableInfo
from shared.lake.column_history import Field
from shared.lake.column_mapping import columns_as_of
from tests.mutants.mistake import Mistake, put

EVOLUTION = "tests/lake/test_evolution.py"


def _columns_first() -> None:
    right = evolve.pending_steps

    def pending_steps(con: Any, alias: str, destination: Any, *rest: Any) -> tuple[Any, ...]:
        evolve.evolve(con, alias, destination, right(con, alias, destination, *rest))
        return ()

    put(evolve, "pending_steps", pending_steps)


def _columns_by_name() -> None:
    put(source_columns, "evolution", lambda *_: None)


def _narrow_types_stay() -> None:
    put(evolution, "_widened", lambda *_: ())


def _every_policy_follows() -> None:
    put(followed_columns, "first_not_allowed", lambda *_: None)


def _routed_by_name() -> None:
    put(TableInfo, "identified", TableInfo.column)


def _any_spelling() -> None:
    put(column_identity, "keeps_texts", lambda *_: True)


def _exact_by_rows() -> None:
    put(Reshapes, "lacking", lambda *_: None)


def _appended_by_name() -> None:
    def by_name(then: Sequence[Field], now: Sequence[Field]) -> str:
        ids = {field.name.lower(): field.id for field in then}
        return columns_as_of(then, [replace(field, id=ids.get(field.name.lower(), field.id)) for field in now])

    put(feed, "columns_as_of", by_name)


MISTAKES = (
    Mistake("columns-first", "columns are changed before touched keys are deleted", _columns_first,
            (EVOLUTION, "-k", "together and key and sqlite")),
    Mistake("columns-by-name", "a column is its name and type", _columns_by_name,
            (EVOLUTION, "-k", "together and dropped and sqlite")),
    Mistake("narrow-types-stay", "types that become wider are left out", _narrow_types_stay,
            (EVOLUTION, "-k", "without_any_row and widened and sqlite")),
    Mistake("every-policy-follows", "a destination's policy is not asked", _every_policy_follows,
            (EVOLUTION, "-k", "policy_decides and freeze-widened and sqlite")),
    Mistake("routed-by-name", "a routing column that is renamed is gone", _routed_by_name,
            (EVOLUTION, "-k", "without_any_row and routing and sqlite")),
    Mistake("any-spelling", "a routing column may have any wider type", _any_spelling,
            (EVOLUTION, "-k", "spelled_otherwise and sqlite")),
    Mistake("exact-by-rows", "a destination with the columns that were is exact where its rows are", _exact_by_rows,
            ("tests/fast/reader/planner/test_frontier.py", "-k", "columns")),
    Mistake("appended-by-name", "appended rows of older runs are mapped by names", _appended_by_name,
            (EVOLUTION, "-k", "appended and True and another and sqlite")),
)  # fmt: skip
