"""How far a source lake may be expired: over all pipelines that read it, and all of their destinations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from services.control.view.destination_status import State, View
from services.control.view.pipeline_retention import PipelineRetention
from services.control.view.retention import HeldSnapshot, holds, needs
from shared.lake.upkeep.retained import Retained

MOST_UNKNOWN = 100


@dataclass(frozen=True)
class Lowest:
    """What needs the oldest snapshot of a lake, and when that was committed, if the last look told."""

    pipeline: str
    held: HeldSnapshot
    at: datetime | None


@dataclass(frozen=True)
class UnknownNeed:
    """A destination whose position is unknown; without ``destination``, all of a pipeline."""

    pipeline: str
    destination: str | None = None
    state: State | None = None


@dataclass(frozen=True)
class LakeRetention:
    """One source lake; ``retained`` is None for a pipeline whose source was not looked at yet."""

    pipelines: tuple[str, ...]
    retained: Retained | None
    lowest: Lowest | None
    unknown: tuple[UnknownNeed, ...]
    """Up to ``MOST_UNKNOWN``."""
    unknown_count: int
    looked_at: datetime | None

    @property
    def may_expire_through(self) -> int | None:
        """The newest snapshot that nothing needs; the head is never one. None while a position is unknown."""
        if self.retained is None or self.unknown_count:
            return None
        return (self.retained.head if self.lowest is None else self.lowest.held.snapshot) - 1


@dataclass(frozen=True)
class _PipelinePart:
    """What one pipeline contributes."""

    pipeline: str
    view: View
    known: PipelineRetention
    ignored: frozenset[str]

    def lowest(self, retained: Retained) -> Lowest | None:
        held = [each for each in holds(self.view, retained, self.known.begun) if not self._ignores(each.destination)]
        if not held:
            return None
        looked = self.known.lowest
        at = looked.at if looked is not None and looked.id == held[0].snapshot else None
        return Lowest(self.pipeline, held[0], at)

    def unknown(self) -> list[UnknownNeed]:
        """Those whose position is unknown; while destinations of the file may be missing, the whole pipeline."""
        if not self.view.in_force:
            return [UnknownNeed(self.pipeline)]
        found = (need for need in needs(self.view) if not need.is_known and not self._ignores(need.destination))
        return [UnknownNeed(self.pipeline, need.destination, need.state) for need in found]

    def _ignores(self, destination: str) -> bool:
        return destination in self.ignored or f"{self.pipeline}/{destination}" in self.ignored


def by_lake(
    views: Mapping[str, View], elsewhere: Iterable[str] = (), ignored: frozenset[str] = frozenset()
) -> list[LakeRetention]:
    """One for each source lake. ``elsewhere``: pipelines of which nothing is known here, each a lake of its own.

    ``ignored``: destinations, each as its id or ``PIPELINE/ID``, that hold nothing.
    """
    parts: dict[str, list[_PipelinePart]] = {}
    blind = [_blind(name) for name in views if views[name].retention is None]
    for name, view in views.items():
        if view.retention is not None:
            parts.setdefault(view.retention.retained.lake, []).append(
                _PipelinePart(name, view, view.retention, ignored)
            )
    return [*map(_joined, parts.values()), *blind, *(_blind(name) for name in elsewhere)]


def _joined(parts: Sequence[_PipelinePart]) -> LakeRetention:
    newest = max(parts, key=lambda part: part.known.looked_at).known
    found = [lowest for part in parts if (lowest := part.lowest(newest.retained)) is not None]
    unknown = [each for part in parts for each in part.unknown()]
    return LakeRetention(
        pipelines=tuple(sorted(part.pipeline for part in parts)),
        retained=newest.retained,
        lowest=min(found, key=lambda each: each.held.snapshot, default=None),
        unknown=tuple(unknown[:MOST_UNKNOWN]),
        unknown_count=len(unknown),
        looked_at=newest.looked_at,
    )


def _blind(pipeline: str) -> LakeRetention:
    return LakeRetention((pipeline,), None, None, (UnknownNeed(pipeline),), 1, None)
