"""Mistakes with the layout of a destination's table."""

from __future__ import annotations

from services.applier.apply import transaction
from services.applier.apply.destination import seed_layout
from services.control.model import lifecycle
from shared.config import table_layout
from shared.lake.catalog.arrangement import UNARRANGED
from tests.mutants.mistake import Mistake, put

LAYOUT = "tests/lake/test_layout.py"


def _absent_bounds_stay() -> None:
    put(transaction, "forget_bounds", lambda *_: None)


def _over_the_owner_s() -> None:
    put(seed_layout, "arrangement", lambda *_: UNARRANGED)


def _any_lake_is_encrypted() -> None:
    put(transaction, "is_encrypted", lambda *_: True)


def _any_transform() -> None:
    put(table_layout, "TRANSFORMS", (*table_layout.TRANSFORMS, "lower"))


def _a_change_holds_at_once() -> None:
    put(lifecycle, "_laid_out", lambda *_: None)


MISTAKES = (
    Mistake("absent-bounds-stay", "bounds stay absent that one of a commit's files has not (H24)", _absent_bounds_stay,
            (LAYOUT, "-k", "stock_reader and sqlite")),
    Mistake("over-the-owner-s", "a seed sets its layout over the one that is there", _over_the_owner_s,
            (LAYOUT, "-k", "owner_is_left_alone")),
    Mistake("any-lake-is-encrypted", "a plain lake passes for an encrypted one", _any_lake_is_encrypted,
            ("tests/lake/test_layout.py::test_a_lake_that_was_made_plain_is_not_taken_for_an_encrypted_one[sqlite]",)),
    Mistake("any-transform", "functions pass for transforms of a partition", _any_transform,
            ("tests/fast/shared/config/test_table_layout.py",)),
    Mistake("layout-at-once", "a changed layout is told as one that holds", _a_change_holds_at_once,
            ("tests/fast/control/model/test_lifecycle.py", "-k", "reseed")),
)  # fmt: skip
