"""What was done to a destination, told by how it was and how it is: for the audit trail. Values in, values out."""

from __future__ import annotations

from typing import Any, TypeAlias

from pydantic import TypeAdapter

from services.control.model.lifecycle import Declared, Registered
from shared.contracts.messages import DesiredState

Changes: TypeAlias = dict[str, tuple[Any, Any]]
"""What it was and what it is, by the name of what changed."""

_DECLARED = TypeAdapter(Declared)

HIDDEN = frozenset({"identity", "written", "laid_out", "left", "damage"})
"""A digest without meaning for a reader; and fields that repeat what others say, or what an earlier entry said."""


def deed(before: Registered | None, after: Registered) -> str:
    """One word or two."""
    if after.removed:
        return "removed"
    if before is None or before.removed or before.removing:
        return "added" if before is None else "added again"
    if after.generation != before.generation:
        return _new_life(before, after)
    if after.is_damaged is not before.is_damaged:
        return "damaged by upkeep" if after.is_damaged else "resumed"
    if after.desired is not before.desired:
        return _switched(before, after)
    return "changed" if after.declared != before.declared or after.managed_by != before.managed_by else "tried again"


def changes(before: Registered | None, after: Registered) -> Changes:
    was, now = _shown(before), _shown(after)
    return {name: (was.get(name), now[name]) for name in now if was.get(name) != now[name]}


def _new_life(before: Registered, after: Registered) -> str:
    if after.removing:
        return "dropping"
    if after.declared != before.declared:
        return "changed"
    if after.seed_at is not None:
        return "rewound"
    return "reseeded" if after.replace else "adopted"


def _switched(before: Registered, after: Registered) -> str:
    if after.desired is not DesiredState.RUNNING:
        return str(after.desired)
    return "resumed" if before.desired is DesiredState.PAUSED else "restarted"


def _shown(held: Registered | None) -> dict[str, Any]:
    if held is None:
        return {}
    declared = _DECLARED.dump_python(held.declared, mode="json")
    return {name: value for name, value in declared.items() if name not in HIDDEN} | {
        "generation": held.generation,
        "state": held.desired.value,
        "managed_by": held.managed_by,
        "seed_at": held.seed_at,
        "seed_from": held.seed_from,
    }
