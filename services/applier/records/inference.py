"""The types of columns that are not declared: a total order, so their join does not depend on the records' order."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import IntEnum

from services.applier.records.column_names import may_be_column


class InferredKind(IntEnum):
    """What a field's values are. The greater of two kinds is the type of a column that has met both.

    ``NOTHING``: null, or a number that neither BIGINT nor DOUBLE holds, of which no column is made.
    """

    NOTHING = 0
    BOOLEAN = 1
    BIGINT = 2
    DOUBLE = 3
    VARCHAR = 4
    JSON = 5


def join(kinds: Iterable[InferredKind]) -> InferredKind:
    return max(kinds, default=InferredKind.NOTHING)


def join_types(one: str, other: str) -> str:
    """The type of a column of which schemas tell two: what does not fit is rescued, as with any column."""
    if one == other:
        return one
    if one.startswith("DECIMAL") and other.startswith("DECIMAL"):
        return _join_decimals(one, other)
    kinds = [InferredKind[each] if each in InferredKind.__members__ else InferredKind.VARCHAR for each in (one, other)]
    return join(kinds).name


def _join_decimals(one: str, other: str) -> str:
    """Room for the digits of both, on either side of the point."""
    found = [re.fullmatch(r"DECIMAL\((\d+),(\d+)\)", each) for each in (one, other)]
    sizes = [(int(each[1]), int(each[2])) for each in found if each is not None]
    scale = max(size[1] for size in sizes)
    digits = max(size[0] - size[1] for size in sizes) + scale
    return f"DECIMAL({digits:d},{scale:d})" if digits <= 38 else InferredKind.VARCHAR.name


def new_columns(
    found: Iterable[tuple[str, InferredKind]], taken: Iterable[str], room: int
) -> list[tuple[str, InferredKind]]:
    """Of fields in the order of their first records, those that become columns, ``room`` at most.

    ``taken`` are the names of the columns that are there. Of names that differ by case alone the first one counts.
    """
    lower = {name.lower() for name in taken}
    chosen: list[tuple[str, InferredKind]] = []
    for name, kind in found:
        if len(chosen) >= room:
            break
        if kind is not InferredKind.NOTHING and may_be_column(name) and name.lower() not in lower:
            lower.add(name.lower())
            chosen.append((name, kind))
    return chosen
