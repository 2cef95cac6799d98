"""What the owner of a destination's lake has made of its table's columns since Viaduck last looked at them.

Names and types don't tell: a column that was dropped and added again has them both, and the rows have lost its values.
A column is its field id, and the catalog keeps the versions that ended for as long as the table lives. Whatever changed
after the newest commit of ours that looked at the columns was no change of ours. Where that commit's stamp is gone,
nothing is known, and nothing is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from shared.contracts.errors import DestinationError
from shared.contracts.messages import Destination
from shared.lake.columns.followed import ColumnEvolution, whose
from shared.lake.columns.history import Field, Versions, changed, fields_at
from shared.lake.connection.query import Value
from shared.lake.sql import ident, path

NEWEST_LOOK = (
    "SELECT k.snapshot_id FROM {}ducklake_snapshot_changes k WHERE k.author = 'viaduck'"
    " AND k.commit_extra_info LIKE :stamped ESCAPE '!' AND k.commit_extra_info NOT LIKE :maintenance"
    " AND k.commit_extra_info NOT LIKE :rewound AND (k.commit_extra_info NOT LIKE :advance"
    " OR k.commit_extra_info LIKE :direct OR k.commit_extra_info LIKE :altered)"
    " ORDER BY k.snapshot_id DESC LIMIT 1"
)
"""The newest commit to a destination that looked at its table's columns. Upkeep and rewinds don't, nor does an advance
by the extension unless the source's columns changed."""

LOOKS: dict[str, Value] = {
    "maintenance": '%"kind": "maintenance"%',
    "rewound": '%"rewound": true%',
    "advance": '%"kind": "advance"%',
    "direct": '%"commit": "direct"%',
    "altered": '%"columns": [%',
}


@dataclass(frozen=True)
class Altered:
    """A table that its owner has altered: its columns as we ``left`` them, and those that it has."""

    left: tuple[Field, ...]
    have: tuple[Field, ...]


@dataclass(frozen=True)
class Loss:
    """A column of a table whose rows don't show what they show at the source. ``added``: the owner's own, that the
    source has with another default."""

    column: Field
    added: bool


def altered_since(versions: Versions, looked: int | None, at: int) -> Altered | None:
    """What became of a table's columns between our newest ``looked`` and snapshot ``at``; None for nothing, and where
    that is not known."""
    if looked is None or not changed(versions, looked, at):
        return None
    return Altered(fields_at(versions, looked), fields_at(versions, at))


def require_kept(
    destination: Destination, altered: Altered | None, evolution: ColumnEvolution | None, source: Sequence[Field]
) -> None:
    """Raises ``table_mismatch`` where rows have lost the values of a column. ``source``: its columns where they did not
    change (``evolution`` is None) since the destination's position; none of a source without field ids."""
    lost = None if altered is None else loss(altered, evolution, tuple(source))
    if lost is not None:
        raise _lost(destination, lost)


def loss(altered: Altered, evolution: ColumnEvolution | None, source: tuple[Field, ...]) -> Loss | None:
    """The first column of a table whose rows have lost their values, by whose the source's are."""
    if evolution is not None:
        theirs = whose(altered.have, evolution.then, evolution.now)
        return None if theirs is None else _lost_of(altered, evolution.then, theirs, evolution.now)
    if source:
        return _lost_of(altered, source, source[: len(altered.have)], source)
    then, theirs = _numbered(altered.left), _numbered(altered.have)
    return _lost_of(altered, then, theirs, theirs + then[len(theirs) :])


def _lost_of(altered: Altered, then: Sequence[Field], theirs: Sequence[Field], now: Sequence[Field]) -> Loss | None:
    """``then`` and ``now`` are the source's, ``theirs`` those of them that the table's columns are, in order."""
    left = altered.left
    if _names(left) != _names(then[: len(left)]):
        return None  # the table was another one than is thought: nothing is proven by it
    stays = {field.id: field for field in now}
    own = {its.id: mine for its, mine in zip(theirs, altered.have, strict=False)}
    for was, its in zip(left, then, strict=False):
        mine = own.get(its.id)
        if its.id in stays and (mine is None or mine.id != was.id):
            return Loss(was, added=False)
    known = {field.id for field in left}
    new = (mine for its, mine in own.items() if mine.id not in known and its in stays and _differs(mine, stays[its]))
    return next((Loss(mine, added=True) for mine in new), None)


def _differs(mine: Field, its: Field) -> bool:
    return mine.default != its.default


def _numbered(fields: Sequence[Field]) -> tuple[Field, ...]:
    """By their places, as those of a source that gives its columns no ids."""
    return tuple(replace(field, id=place) for place, field in enumerate(fields))


def _names(fields: Sequence[Field]) -> list[str]:
    return [field.name.lower() for field in fields]


def _lost(destination: Destination, lost: Loss) -> DestinationError:
    where, name = f"{destination.schema_name}.{destination.table}", lost.column.name
    if lost.added:
        table = path(destination.schema_name, destination.table)
        return DestinationError(
            "table_mismatch",
            f"the owner of {where} has added its column {name} with another default than the source's, which older rows"
            " show",
            f"in the destination's lake: ALTER TABLE {table} DROP COLUMN {ident(name)}; then resume: Viaduck adds it",
        )
    return DestinationError(
        "table_mismatch",
        f"the owner of {where} has dropped its column {name}, so rows have lost values that the source has",
        "reseed the destination: no statement brings the values back, not even where another column has the name",
    )
