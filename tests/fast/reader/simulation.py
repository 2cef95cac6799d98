"""A source, some destinations with cursors, an applier and a network that loses, doubles and reorders: in memory."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random

from services.reader.planner.actions import Park, Send
from services.reader.planner.counted_changes import CountedStep, nothing, segments
from services.reader.planner.frontier import known_through, reshapes_of
from services.reader.planner.in_flight_limits import MOST_UPKEEPS
from services.reader.planner.plan import Planner
from services.reader.planner.reshapes import Reshapes
from services.reader.planner.scheduling import Rules, SourceState
from shared.contracts.messages import DesiredState, Destination, ItemKind, LakeRef, Outcome, Problem, Progress, SeedMode
from shared.contracts.ranges import NOT_SEEDED, Range
from shared.contracts.upkeep import Compaction
from shared.lake.columns.followed import Break

RULES = Rules(max_rows_in_flight=30, segment_rows=10, confirm_within_s=20, compaction=Compaction(applies=2))
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


def spec(
    name: str,
    *,
    generation: int = 1,
    state: DesiredState = DesiredState.RUNNING,
    mode: SeedMode = SeedMode.SCAN,
    revision: str = "1",
    value: str | None = None,
    seed_at: int | None = None,
    seed_from: str | None = None,
    replace: bool = False,
    drop: bool = False,
) -> Destination:
    return Destination(
        seed_at=seed_at,
        seed_from=seed_from,
        replace=replace,
        drop=drop,
        pipeline="p",
        destination=name,
        generation=generation,
        routing_value=value or name,
        state=state,
        lake=LakeRef(catalog=f"sqlite:/{name}.sqlite"),
        table="t",
        seed_mode=mode,
        revision=revision,
    )


def source_state(
    head: int,
    *,
    oldest: int = 0,
    born: int = 1,
    lake: str = "lake",
    table: str = "table",
    at: datetime = EPOCH,
    history: int = 0,
    breaks: tuple[Break, ...] = (),
    reshaped: Sequence[int] = (),
) -> SourceState:
    """``reshaped``: the snapshots that changed the columns, each a second after the one before."""
    reshapes = Reshapes(tuple(reshaped), {each: EPOCH + timedelta(seconds=each) for each in reshaped})
    return SourceState(head, oldest, born, max(oldest, born), lake, table, at, history, breaks, reshapes)


def step(after: int, through: int, rows: Mapping[str, int] | None = None, *, pinned: bool = False) -> CountedStep:
    rows = rows or {}
    touched = EPOCH + timedelta(seconds=after + 1) if rows else None
    return CountedStep(Range(after, through), rows, sum(rows.values()), pinned, touched)


def answer(
    send: Send,
    outcome: Outcome,
    position: int | None = None,
    *,
    through: int | None = None,
    generation: int | None = None,
    error: Problem | None = None,
) -> Progress:
    return Progress(
        pipeline="p",
        destination=send.destination,
        item=send.item,
        kind=send.draft.kind,
        outcome=outcome,
        generation=generation or send.generation,
        position=position,
        through=through,
        error=error,
    )


@dataclass
class Cursor:
    generation: int
    position: int


@dataclass
class World:
    """What really is, beside what the planner believes. Every claim that must hold at each moment is asserted here."""

    append_only: bool = False
    rules: Rules = field(default_factory=lambda: RULES)
    history: list[dict[str, int]] = field(default_factory=lambda: [{}, {}])
    """Changed rows by routing value of each snapshot; snapshot 1 created the table."""
    reshaped: list[int] = field(default_factory=list)
    """Snapshots that changed the columns."""
    oldest: int = 0
    now_s: float = 0.0
    specs: dict[str, Destination] = field(default_factory=dict)
    cursors: dict[str, Cursor] = field(default_factory=dict)
    items: list[Send] = field(default_factory=list)
    answers: list[Progress] = field(default_factory=list)
    parks: list[Park] = field(default_factory=list)
    open: dict[str, Send] = field(default_factory=dict)
    """The last item of each destination that was not answered."""
    patience: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._ids = itertools.count(1)
        self._draw = Random(1)
        self.restart()

    @property
    def head(self) -> int:
        return len(self.history) - 1

    # -- the source --------------------------------------------------------------------------------------------------

    def commit(self, rows: Mapping[str, int]) -> None:
        self.history.append(dict(rows))

    def alter(self) -> None:
        """Change the columns, and no row."""
        self.history.append({})
        self.reshaped.append(self.head)

    def expire(self, oldest: int) -> None:
        self.oldest = min(max(self.oldest, oldest), self.head)

    def changed(self, name: str, range: Range) -> bool:
        value = self.specs[name].routing_value
        return any(value in rows for rows in self.history[range.after + 1 : range.through + 1])

    def reshapes_in(self, range: Range) -> bool:
        return any(range.after < each <= range.through for each in self.reshaped)

    def _counts(self, range: Range) -> list[CountedStep]:
        per_snapshot = [(s, sum(self.history[s].values())) for s in _snapshots(range)]
        cuts = segments(per_snapshot, range, self.rules.segment_rows) if self.append_only else [range]
        return [self._count(cut) for cut in cuts]

    def _count(self, range: Range) -> CountedStep:
        rows: dict[str, int] = {}
        for snapshot in _snapshots(range):
            for value, count in self.history[snapshot].items():
                rows[value] = rows.get(value, 0) + count
        if not rows:
            return nothing(range, pinned=self.append_only)
        return step(range.after, range.through, rows, pinned=self.append_only)

    # -- the reader --------------------------------------------------------------------------------------------------

    def restart(self) -> None:
        """The reader dies and comes back with nothing but the destinations topic."""
        self.planner = Planner(self.rules, lambda: f"item-{next(self._ids)}", self._draw.random)
        self.open = {}
        for each in self.specs.values():
            self.planner.destination(each, self.now_s)

    def want(self, wanted: Destination) -> None:
        self.specs[wanted.destination] = wanted
        self.open.pop(wanted.destination, None)
        self.planner.destination(wanted, self.now_s)

    def poll(self) -> None:
        planner = self.planner
        planner.observe(source_state(self.head, oldest=self.oldest, reshaped=self.reshaped), self.now_s)
        above = planner.above()
        for counted in self._counts(above) if above is not None else []:
            planner.counted(counted)
        if planner.wants_sizes:
            planner.sized(dict.fromkeys("abcde", 1))
        self.plan()

    def catch_up(self) -> None:
        below = self.planner.below()
        if below is not None and below.after < self.oldest:
            self.planner.expired(below.after)
        elif below is not None:
            self.planner.counted_below(self._counts(below)[-1])
        self.plan()

    def plan(self) -> None:
        for action in self.planner.plan(self.now_s):
            if isinstance(action, Park):
                self.parks.append(action)
            else:
                self._sent(action)
        self._check()

    def _sent(self, send: Send) -> None:
        tracked = self.planner.tracked[send.destination]
        earlier = self.open.get(send.destination)
        assert earlier is None or self.now_s >= self.patience[earlier.item], f"two in flight: {earlier} and {send}"
        assert tracked.spec.state is DesiredState.RUNNING
        assert tracked.parked is None
        assert send.draft.kind is not ItemKind.CHANGES or send.draft.rows, f"an item without rows: {send}"
        upkeeps = [each for each in self.open.values() if each.draft.kind is ItemKind.UPKEEP]
        assert len(upkeeps) <= MOST_UPKEEPS, f"too many at once: {upkeeps}"
        assert tracked.in_flight is not None
        self.patience[send.item] = tracked.in_flight.until_s
        self.open[send.destination] = send
        self.items.append(send)

    def _check(self) -> None:
        """Nothing is ever believed to be exact that is not, and the bound on rows in flight holds, of changes and of
        seeds."""
        rows: dict[bool, list[int]] = {False: [], True: []}
        for name, tracked in self.planner.tracked.items():
            cursor = self.cursors.get(name)
            if tracked.is_seeded and cursor is not None and cursor.generation == tracked.spec.generation:
                beyond = Range(cursor.position, max(tracked.exact, cursor.position))
                assert not self.changed(name, beyond), f"{name}: believed exact at {tracked.exact}, is {cursor}"
                known = min(known_through(tracked, reshapes_of(self.planner)), self._seen_head)
                beyond = Range(cursor.position, max(known, cursor.position))
                assert not self.reshapes_in(beyond), f"{name}: said to be exact at {known}, has the columns of {cursor}"
            if tracked.in_flight is not None:
                rows[tracked.in_flight.kind is ItemKind.SEED].append(tracked.in_flight.charge)
        for charges in rows.values():
            assert sum(charges) <= self.rules.max_rows_in_flight or len([r for r in charges if r]) == 1

    @property
    def _seen_head(self) -> int:
        """No frontier speaks of more."""
        return 0 if self.planner.observed is None else self.planner.observed.head

    # -- the applier and the network ---------------------------------------------------------------------------------

    def work(self, index: int, *, keep: bool = False) -> None:
        """One of the items arrives; with ``keep`` it will arrive again."""
        if self.items:
            index %= len(self.items)
            send = self.items[index] if keep else self.items.pop(index)
            self.answers.append(self._do(send))

    def hear(self, index: int, *, keep: bool = False) -> None:
        if self.answers:
            index %= len(self.answers)
            heard = self.answers[index] if keep else self.answers.pop(index)
            waited = self.open.get(heard.destination)
            if waited is not None and waited.item == heard.item:
                del self.open[heard.destination]
            self.planner.progress(heard, self.now_s)

    def lose(self, index: int) -> None:
        """An item vanishes; the broker may say so."""
        if self.items:
            lost = self.items.pop(index % len(self.items))
            if index % 2 and self.open.get(lost.destination) is lost:
                del self.open[lost.destination]
                self.planner.undelivered(lost.destination, lost.item, self.now_s)

    def fail(self, index: int) -> None:
        if self.items:
            send = self.items.pop(index % len(self.items))
            self.answers.append(answer(send, Outcome.FAILED))

    def _do(self, send: Send) -> Progress:
        """What the fence would do (tla/Fence.tla), with items of changes lifted to the head as the applier does."""
        cursor, draft = self.cursors.get(send.destination), send.draft
        if draft.kind is ItemKind.SEED:
            return self._seed(send, cursor)
        if cursor is None:
            outcome = Outcome.ALREADY_APPLIED if draft.kind is ItemKind.PROBE else Outcome.GAP
            return answer(send, outcome, NOT_SEEDED)
        if cursor.generation != send.generation:
            return answer(send, Outcome.FENCED, cursor.position, generation=cursor.generation)
        if draft.kind is ItemKind.PROBE or cursor.position >= draft.through:
            return answer(send, Outcome.ALREADY_APPLIED, cursor.position)
        if cursor.position != draft.expected:
            return answer(send, Outcome.GAP, cursor.position)
        return self._apply(send, cursor)

    def _seed(self, send: Send, cursor: Cursor | None) -> Progress:
        if cursor is not None and cursor.generation >= send.generation:
            outcome = Outcome.ALREADY_APPLIED if cursor.generation == send.generation else Outcome.FENCED
            return answer(send, outcome, cursor.position, generation=cursor.generation)
        through = send.draft.through if send.draft.pinned else self.head
        self.cursors[send.destination] = Cursor(send.generation, through)
        return answer(send, Outcome.APPLIED, through, through=through)

    def _apply(self, send: Send, cursor: Cursor) -> Progress:
        draft = send.draft
        assert draft.after >= cursor.position, f"rows would be applied twice: {send}"
        assert not self.changed(send.destination, Range(cursor.position, draft.after)), f"a change is lost by {send}"
        if draft.after < self.oldest:
            problem = Problem(type="history_expired", message="", hint="", retryable=False)
            return answer(send, Outcome.PARKED, error=problem)
        through = draft.through if draft.pinned or draft.kind is ItemKind.ADVANCE else self.head
        is_quiet = not self.changed(send.destination, Range(draft.after, through))
        if draft.kind is ItemKind.CHANGES and is_quiet and not self.reshapes_in(Range(cursor.position, through)):
            return answer(send, Outcome.EMPTY, cursor.position, through=through)
        cursor.position = through
        return answer(send, Outcome.APPLIED, through, through=through)

    # -- the end of the story ----------------------------------------------------------------------------------------

    def calm_down(self, done: Callable[[], bool], rounds: int = 400) -> None:
        """The network delivers everything and nothing fails any more, until ``done``."""
        for _ in range(rounds):
            self.poll()
            self.catch_up()
            while self.items:
                self.work(0)
            while self.answers:
                self.hear(0)
            self.plan()
            if done():
                return
            self.now_s += 30.0
        raise AssertionError("it never comes to rest")


def _snapshots(range_: Range) -> range:
    return range(range_.after + 1, range_.through + 1)
