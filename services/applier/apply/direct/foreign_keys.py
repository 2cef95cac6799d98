"""Whether a destination's table has rows of keys that went elsewhere, by a look that attaches no lake.

Most often it has none: a key moves between destinations, or is deleted without a value, once in many ranges.
"""

from __future__ import annotations

from services.applier.apply.cursor.decide import Decision, decide
from services.applier.apply.destination.foreign_keys import KeysOfRange
from services.applier.apply.direct.look import cursor_of, decline, look_for
from services.applier.apply.source.carry import FEW_ROWS
from services.applier.model.task import Target
from shared.lake.direct.eligibility import ExtensionReason, structure_refusal
from shared.lake.direct.lakes import DirectLake, DirectLakes
from shared.lake.direct.positions import Key, Touched, find_positions
from shared.lake.direct.structure import Structure
from shared.lake.pruning import PLAIN, may_prune


def has_none(lakes: DirectLakes, lake: DirectLake, target: Target, keys: KeysOfRange) -> bool:
    """Whether the table surely has no row of a key that ends elsewhere than at the target, and the cursor is where the
    item begins, as of one snapshot (``apply.foreign_keys`` says what follows of that); or there is no such key.

    Raises ``Declined``, or answers no, where the extension has to look, as for which keys, and for many of them.
    """
    rows = keys.elsewhere(target.destination.routing_value)
    if not 0 < rows.num_rows <= FEW_ROWS:
        return not rows.num_rows
    look = look_for(
        lakes,
        lake,
        target,
        lambda structure: structure_refusal(structure, None, spelled=target.is_spelled),
        lambda structure: _keys(structure, keys),
    )
    if decide(cursor_of(look.state, target), target.item) is not Decision.APPLY:
        return False
    with lake.instance.keys(lake.lake, look.data_path):
        wanted = _keys(look.structure, keys)
        return not find_positions(look.files, Touched(lake.con, rows), wanted, lake.known, nulls=False)


def _keys(structure: Structure, keys: KeysOfRange) -> tuple[Key, ...]:
    """Raises ``Declined`` where the table's columns are others than the keys', such as narrower ones."""
    there = {field.name.lower(): field for field in structure.fields}
    fields = [there[name.lower()] for name in keys.names if name.lower() in there]
    decline(None if tuple(field.declared for field in fields) == keys.types else ExtensionReason.SCHEMA_CHANGE)
    decline(ExtensionReason.KEY_DEFAULT if any(field.default is not None for field in fields) else None)
    return tuple(
        Key(field, may_prune(field.declared, PLAIN, harmless=harmless))
        for field, harmless in zip(fields, keys.harmless, strict=True)
    )
