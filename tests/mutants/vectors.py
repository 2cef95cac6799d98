"""Mistakes with positions that are vectors: two of them may have one sum."""

from __future__ import annotations

import re

from services.applier.apply import fence
from shared.contracts.positions import Vector
from tests.mutants.mistake import Mistake, put

DECIDE = "tests/fast/applier/apply/test_decide.py"


def _compare_sums() -> None:
    put(Vector, "covers", lambda self, other: self.records >= other.records)


def _fence_by_sum() -> None:
    """The statement compares the integer alone, as that of a lake does."""
    right = fence._set_cursor

    class Connection:
        def __init__(self, con: object) -> None:
            self.con = con

        def execute(self, sql: str, bound: list[object]) -> object:
            expected = str(bound[-1]).partition("/")[2]
            plain = re.sub(re.escape("coalesce(source_position, '') || '/' || "), "", sql)
            return self.con.execute(plain, [*bound[:-1], expected])  # type: ignore[attr-defined]

    def careless(con: object, *rest: object) -> None:
        right(Connection(con), *rest)  # type: ignore[arg-type]

    put(fence, "_set_cursor", careless)


MISTAKES = (
    Mistake("sums-for-vectors", "a vector covers whatever has no greater sum", _compare_sums,
            (DECIDE, "-k", "passed_each_of_them")),
    Mistake("fence-by-sum", "the fence compares sums of offsets", _fence_by_sum,
            ("tests/lake/test_spelled_cursors.py", "-k", "expects_another_vector and sqlite")),
)  # fmt: skip
