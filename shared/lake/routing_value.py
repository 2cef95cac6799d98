"""How a routing value is spelled, so that equal values have one text, and which columns have no such spelling.

Destinations are declared, announced and planned by the text of their routing value; rows are compared by the value.
"""

from __future__ import annotations

import re

from shared.lake.types import QUOTED

FLOATING = ("FLOAT", "DOUBLE")

SEVERAL_SPELLINGS = re.compile(r"INTERVAL|TIME WITH TIME ZONE|TIMETZ|VARIANT|GEOMETRY")
"""One month equals thirty days; a moment has a spelling in every zone; the others have no equality of their own."""


def spelled(expression: str, declared: str) -> str:
    """SQL for the text of a routing value of the ``declared`` type. Both zeros of a floating type are one."""
    if declared.upper() in FLOATING:
        expression = f"CASE WHEN {expression} = 0 THEN 0 ELSE {expression} END"
    return f"CAST({expression} AS VARCHAR)"


def not_routed(column: str, declared: str) -> str | None:
    """Why no destination can be told by a column of this name and declared type; None if it can."""
    kind = QUOTED.sub("", declared).upper()
    is_floating_part = kind not in FLOATING and any(word in kind for word in FLOATING)
    if SEVERAL_SPELLINGS.search(kind.replace("TIMESTAMP WITH TIME ZONE", "")) is None and not is_floating_part:
        return None
    return (
        f"the routing column {column} is {declared}, of which equal values have several spellings;"
        " route by a column of another type, such as VARCHAR or BIGINT"
    )
