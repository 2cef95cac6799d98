"""Which column a configured name means. A column is its field id, so it keeps its meaning when it is renamed.

A name means the column that has it; where none has it, the column that had it last and is still there under another
name; else the column that had it last of those which have got it since, as it was called before.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from shared.lake.columns.history import ColumnVersion, Field, Versions, fields_at, what_became_of

INTEGERS = re.compile(r"u?int(8|16|32|64)")
DECIMALS = re.compile(r"decimal\(\d{1,2}, ?(\d{1,2})\)")


@dataclass(frozen=True)
class Identifying:
    """The configured names of the routing column and the key columns."""

    routing: str
    keys: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return (self.routing, *self.keys)

    def ids(self, versions: Versions, at: int) -> frozenset[int]:
        found = (identified(versions, name, at) for name in self.names)
        return frozenset(field.id for field in found if field is not None)


def identified(versions: Versions, name: str, at: int) -> Field | None:
    """The column that a configured name means at a snapshot; None where there is none. Of an older snapshot than the
    newest that ``versions`` know of, it may only be what the column is called later."""
    now = fields_at(versions, at)
    named = next((field for field in now if _is(field.name, name)), None)
    if named is not None:
        return named
    there, known = {field.id: field for field in now}, _called(versions, name)
    sooner = [each for each in known if each.begin <= at]
    later = [each for each in known if each.begin > at]
    return next((there[each.id] for each in (*sooner, *later) if each.id in there), None)


def own_names(versions: Versions, name: str, at: int) -> frozenset[str]:
    """The names, in lower case, that mean the same column as ``name``, wherever the table's columns are looked at: no
    other column ever had one of them. None at all where another one ever had ``name`` itself."""
    meant = identified(versions, name, at)
    if meant is None:
        return frozenset()
    names = {each.name.lower() for each in versions if each.parent is None and each.id == meant.id}
    own = frozenset(each for each in names if {called.id for called in _called(versions, each)} == {meant.id})
    return own if name.lower() in own else frozenset()


def _called(versions: Versions, name: str) -> list[ColumnVersion]:
    """Whatever had that name, the last one first."""
    called = [each for each in versions if each.parent is None and _is(each.name, name)]
    return sorted(called, key=lambda each: -each.begin)


def replaced(versions: Versions, identifying: Identifying, since: int, at: int) -> str | None:
    """Why rows can't be told by the same columns as at snapshot ``since``; None if they can."""
    found = [_replaced(versions, name, since, at) for name in identifying.names]
    found.append(_respelled(versions, identifying.routing, since, at))
    return next((why for why in found if why is not None), None)


def _replaced(versions: Versions, name: str, since: int, at: int) -> str | None:
    then, now = identified(versions, name, since), identified(versions, name, at)
    if then is None:
        return f"there is no column {name}" if now is None else f"the column {name} was added"
    if now is None or now.id != then.id:
        return what_became_of(then, fields_at(versions, at)) or f"the column {name} is another one now"
    return None


def _respelled(versions: Versions, routing: str, since: int, at: int) -> str | None:
    then, now = identified(versions, routing, since), identified(versions, routing, at)
    if then is None or now is None or keeps_texts(then.type, now.type):
        return None
    return f"the routing column {now.name} was {then.declared} and is {now.declared} now, which spells values otherwise"


def keeps_texts(before: str, now: str) -> bool:
    """Whether all values of a type, in DuckLake's words, are spelled as before once they are of another."""
    if before == now or (INTEGERS.fullmatch(before) and INTEGERS.fullmatch(now)):
        return True
    then, after = DECIMALS.fullmatch(before), DECIMALS.fullmatch(now)
    return then is not None and after is not None and then[1] == after[1]


def _is(one: str, other: str) -> bool:
    return one.lower() == other.lower()
