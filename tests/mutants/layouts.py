"""Mistakes with the layout of a destination's table."""

from __future__ import annotations

from services.applier.apply import transaction
from services.applier.apply.destination import first_file, seed_layout
from services.control.model import lifecycle
from shared.config import table_layout
from shared.lake.catalog.arrangement import UNARRANGED
from tests.mutants.mistake import Mistake, put

LAYOUT = "tests/lake/test_layout.py"


def _any_file_first() -> None:
    put(transaction, "insert_first", lambda *_: ())


def _first_rows_twice() -> None:
    right = first_file.insert_others
    put(transaction, "insert_others", lambda con, table, reading, number, _: right(con, table, reading, number, (-1,)))
    put(transaction, "require_all", lambda *_: None)


def _over_the_owner_s() -> None:
    put(seed_layout, "arrangement", lambda *_: UNARRANGED)


def _any_lake_is_encrypted() -> None:
    put(transaction, "is_encrypted", lambda *_: True)


def _any_transform() -> None:
    put(table_layout, "TRANSFORMS", (*table_layout.TRANSFORMS, "lower"))


def _a_change_holds_at_once() -> None:
    put(lifecycle, "_laid_out", lambda *_: None)


MISTAKES = (
    Mistake("any-file-first", "a partitioned seed begins with any partition (H24)", _any_file_first,
            (LAYOUT, "-k", "stock_reader and sqlite")),
    Mistake("first-rows-twice", "rows of a partitioned seed's first file are inserted again", _first_rows_twice,
            (LAYOUT, "-k", "stock_reader and append and sqlite")),
    Mistake("over-the-owner-s", "a seed sets its layout over the one that is there", _over_the_owner_s,
            (LAYOUT, "-k", "owner_is_left_alone")),
    Mistake("any-lake-is-encrypted", "a plain lake passes for an encrypted one", _any_lake_is_encrypted,
            ("tests/lake/test_layout.py::test_a_lake_that_was_made_plain_is_not_taken_for_an_encrypted_one[sqlite]",)),
    Mistake("any-transform", "functions pass for transforms of a partition", _any_transform,
            ("tests/fast/shared/config/test_table_layout.py",)),
    Mistake("layout-at-once", "a changed layout is told as one that holds", _a_change_holds_at_once,
            ("tests/fast/control/model/test_lifecycle.py", "-k", "reseed")),
)  # fmt: skip
