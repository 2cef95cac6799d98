"""Which item a destination gets next."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from services.reader.planner import compaction
from services.reader.planner.change_index import ChangeIndex
from services.reader.planner.destination_state import DestinationState
from services.reader.planner.reshapes import UNCHANGED, Reshapes
from shared.contracts.messages import Destination, ItemKind, SeedMode
from shared.contracts.positions import UNSPELLED, Vector
from shared.contracts.ranges import NOT_SEEDED
from shared.contracts.upkeep import Compaction
from shared.lake.columns.followed import Break

NEAR_OLDEST = 0.1
"""A quiet position in the oldest tenth of what is retained is moved on before expiry reaches it."""


@dataclass(frozen=True, slots=True)
class LogState:
    """A log by its partitions: the oldest offsets that are retained, those up to which items are planned, and those
    behind the newest records. ``spelled``: the vectors at whose integers an item may end."""

    oldest: Vector
    head: Vector
    newest: Vector
    spelled: Mapping[int, Vector]
    skips: bool = False
    """Whether a destination goes on at ``oldest`` where records before it are gone (``source.on_gap``)."""

    def end(self, position: int, begin: Vector) -> Vector:
        """The end of an item up to ``position`` from ``begin``: up to the head where its own vector does not follow."""
        vector = self.spelled.get(position)
        return vector if vector is not None and vector.covers(begin) else self.head


@dataclass(frozen=True, slots=True)
class SourceState:
    """The source at its head, from metadata alone.

    ``born`` is the snapshot that created the table, ``first`` the oldest retained snapshot with it, ``oldest`` the
    lake's oldest retained one. ``lake`` and ``table`` identify lake and table.
    """

    head: int
    oldest: int
    born: int
    first: int
    lake: str
    table: str
    at: datetime
    """When ``head`` was committed, by the catalog's own clock."""
    history: int = 0
    """Counts how often the known history was replaced, as by a restore from a backup."""
    breaks: tuple[Break, ...] = ()
    """Positions from which the table's columns are not followed to the head, under each policy."""
    reshapes: Reshapes = UNCHANGED
    """The snapshots that changed the table's columns."""
    notice: str | None = None
    """Why the table is expensive to read, and the statement that corrects it."""
    log: LogState | None = None
    """Of a source that spells its positions."""

    @property
    def reshaped(self) -> int:
        """The newest snapshot that changed the table's columns."""
        return self.reshapes.newest


@dataclass(frozen=True, slots=True)
class Rules:
    """What the configuration says of planning."""

    max_rows_in_flight: int = 2_000_000
    segment_rows: int = 500_000
    advance_after_s: float = 3600.0
    confirm_within_s: float = 120.0
    advances_at_once: int = 50
    """Of ``evolution``: a column that is added makes one for each quiet destination, and changes go first."""
    compaction: Compaction = field(default_factory=Compaction)

    @property
    def advance_pause_s(self) -> float:
        """A source that is expired to the bone must not make every quiet destination commit at every poll."""
        return self.advance_after_s / 60


@dataclass(frozen=True, slots=True)
class Draft:
    """An item that has no name yet. ``rows`` None: not counted."""

    kind: ItemKind
    expected: int = NOT_SEEDED
    after: int = NOT_SEEDED
    through: int = 0
    rows: int | None = None
    pinned: bool = False
    expected_at: str = UNSPELLED
    through_at: str = UNSPELLED
    """The source's own spelling of both."""
    after_at: str = UNSPELLED
    """Of ``after``, where records before it are skipped."""
    read_at: str = UNSPELLED
    """Where reading begins, where an applier read up to there and found nothing of the destination's."""
    keeps: bool = False
    """Of a seed: rows of records before ``through`` stay."""


def choose(
    tracked: DestinationState, observed: SourceState | None, index: ChangeIndex | None, rules: Rules, now_s: float
) -> Draft | None:
    """The next item of ``tracked``; None where there is nothing to do, or not yet.

    TLA: ``Probe``, ``Seed``, ``Changes``, ``Advance``, ``Drop``.
    """
    if tracked.in_flight is not None or now_s < tracked.not_before_s:
        return None
    if tracked.spec.drop:
        return None if tracked.dropped or tracked.parked is not None else Draft(ItemKind.DROP)
    if not tracked.is_running:
        return None
    if tracked.position is None:
        return Draft(ItemKind.PROBE, through=index.line if index is not None else 0)
    if observed is None or index is None:
        return None
    if tracked.position == NOT_SEEDED:
        return _seed(tracked, observed)
    position = tracked.position
    changes, advance = _changes(tracked, position, index), _advance(tracked, position, observed, index, rules, now_s)
    return changes or advance if observed.log is None else advance or changes  # of a busy topic there is always more


def _seed(tracked: DestinationState, observed: SourceState) -> Draft | None:
    if tracked.spec.seed_at is not None:
        return Draft(ItemKind.SEED, through=tracked.spec.seed_at, pinned=True)
    match tracked.spec.seed_mode:
        case SeedMode.REPLAY:
            return Draft(ItemKind.SEED, through=observed.first, pinned=True)
        case SeedMode.LATEST:
            return Draft(ItemKind.SEED, through=observed.head, rows=0)
        case SeedMode.SCAN:
            return Draft(ItemKind.SEED, through=observed.head, rows=tracked.seed_rows) if tracked.is_sized else None


def with_spelling(draft: Draft, tracked: DestinationState, observed: SourceState | None) -> Draft:
    """The draft with its ends as the source spells them. An item always ends where its vector does: its integer may be
    that of another vector too, which does not follow the destination's own. TLA: ``PlanRecords``."""
    if observed is None or observed.log is None or draft.kind in (ItemKind.PROBE, ItemKind.DROP):
        return draft
    if draft.kind is ItemKind.SEED:
        begin = _beginning(tracked.spec, draft, observed.log)
        keeps = tracked.spec.rewound_to is not None
        return replace(draft, through=begin.records, through_at=begin.text, keeps=keeps)
    begin = tracked.vector
    at = tracked.position_at if draft.expected != NOT_SEEDED else UNSPELLED
    if tracked.exact_at and draft.kind is not ItemKind.UPKEEP:
        return _beyond(replace(draft, after=draft.expected, expected_at=at), tracked, observed.log)
    if draft.kind is ItemKind.CHANGES and observed.log.skips and not begin.covers(observed.log.oldest):
        return _skipping(replace(draft, expected_at=at), begin.joined(observed.log.oldest), observed.log)
    end = begin if draft.kind is ItemKind.UPKEEP else observed.log.end(draft.through, begin)
    return replace(draft, through=end.records, expected_at=at, through_at=end.text)


def _beyond(draft: Draft, tracked: DestinationState, log: LogState) -> Draft:
    """The draft of a destination that is exact beyond its position: an advance goes there, and changes are read from
    there on. TLA: ``PlanRecords``."""
    exact = tracked.exact_vector
    end = exact if draft.kind is ItemKind.ADVANCE else log.end(draft.through, exact)
    read_at = UNSPELLED if draft.kind is ItemKind.ADVANCE else exact.text
    return replace(draft, through=end.records, through_at=end.text, read_at=read_at)


def _beginning(spec: Destination, draft: Draft, log: LogState) -> Vector:
    """Where a life begins."""
    if spec.rewound_to is not None:
        return spec.rewound_to
    return log.oldest if spec.seed_from == "earliest" else log.end(draft.through, Vector())


def _skipping(draft: Draft, after: Vector, log: LogState) -> Draft:
    """The draft from ``after`` on: what was not read before it is gone. The head may lie behind that.

    TLA: ``SkipRecords``.
    """
    end = log.end(draft.through, after).joined(after)
    return replace(draft, after=after.records, after_at=after.text, through=end.records, through_at=end.text)


def needs_size(tracked: DestinationState) -> bool:
    """Whether the rows that a seed of ``tracked`` will bring are still to be counted."""
    scans = tracked.spec.seed_mode is SeedMode.SCAN and tracked.spec.seed_at is None
    return scans and tracked.is_running and tracked.position == NOT_SEEDED and not tracked.is_sized


def _changes(tracked: DestinationState, position: int, index: ChangeIndex) -> Draft | None:
    ahead = index.ahead(tracked.exact, tracked.value)
    if ahead is None:
        return None
    return Draft(ItemKind.CHANGES, position, ahead.after, ahead.through, ahead.rows, ahead.pinned)


def _advance(
    tracked: DestinationState, position: int, observed: SourceState, index: ChangeIndex, rules: Rules, now_s: float
) -> Draft | None:
    exact = tracked.exact
    if exact <= position or exact < index.floor:
        return None
    quiet_s = now_s - tracked.since_s
    strands = may_strand(tracked, observed) and quiet_s >= rules.advance_pause_s
    has_old_columns = position < observed.reshaped <= exact
    if quiet_s < rules.advance_after_s and not strands and not has_old_columns:
        return None
    return Draft(ItemKind.ADVANCE, position, exact, exact, 0)


def needs_upkeep(tracked: DestinationState, rules: Rules) -> bool:
    """Whether its table should be compacted before anything else. One in trouble has other worries."""
    is_due = compaction.is_due(tracked.wear, rules.compaction.overridden(tracked.spec.upkeep))
    return is_due and tracked.is_running and tracked.is_seeded and not tracked.attempts


def upkeep(tracked: DestinationState) -> Draft:
    """The upkeep of a seeded destination."""
    position = tracked.position or 0
    return Draft(ItemKind.UPKEEP, position, position, position, 0)


def is_near_oldest(position: int, observed: SourceState) -> bool:
    """Whether expiry may soon take the snapshot of ``position``. Where snapshot 0 is still there nothing expires."""
    return observed.oldest > 0 and position - observed.oldest < NEAR_OLDEST * (observed.head - observed.oldest)


def may_strand(tracked: DestinationState, observed: SourceState) -> bool:
    """Whether expiry, or retention, may soon take what lies behind the destination's position."""
    if observed.log is None:
        return is_near_oldest(tracked.position or 0, observed)
    oldest, head, mine = observed.log.oldest.by_partition, observed.log.head.by_partition, tracked.vector.by_partition
    return any(
        oldest.get(each, 0) > 0
        and mine.get(each, 0) < exact
        and mine.get(each, 0) - oldest[each] < NEAR_OLDEST * (head.get(each, 0) - oldest[each])
        for each, exact in tracked.exact_vector.offsets
    )


def lowest_safe(observed: SourceState) -> float:
    """The lowest position of which neither expiry, nor a change of the table or its columns, makes anything necessary
    now."""
    near = observed.oldest + NEAR_OLDEST * (observed.head - observed.oldest) if observed.oldest > 0 else 0
    return max([near, observed.born, observed.reshaped, *(broken.last + 1 for broken in observed.breaks)])
