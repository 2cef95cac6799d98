"""The planner of a reader: events in, actions out. It knows no clock, no broker and no lake.

What is true of the source comes as a ``SourceState`` and as counted ``CountedStep``s, what is true of a destination as
answers to items. Both may be late, doubled or lost: an item that rests on old news is refused by the destination's own
cursor.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping

from services.reader.planner.actions import Action, Park, Send
from services.reader.planner.answers import Next, accept, overhear
from services.reader.planner.change_index import ChangeIndex
from services.reader.planner.compaction import ASKED
from services.reader.planner.counted_changes import CountedStep
from services.reader.planner.destination_state import DestinationState
from services.reader.planner.exactness import Exactness
from services.reader.planner.in_flight_limits import MOST_UPKEEPS, Candidate, InFlightLimits
from services.reader.planner.scheduling import (
    Draft,
    Rules,
    SourceState,
    choose,
    lowest_safe,
    may_strand,
    needs_size,
    needs_upkeep,
    upkeep,
    with_spelling,
)
from services.reader.planner.source_problems import cannot_begin, contradiction, is_same_table, judge
from services.reader.planner.timers import Timers
from services.reader.planner.waiting_queue import WaitingQueue
from shared.contracts.digest import RunningDigest, Version
from shared.contracts.messages import DesiredState, Destination, ItemKind, Problem, Progress, Seen
from shared.contracts.positions import UNSPELLED
from shared.contracts.ranges import NOT_SEEDED, Range
from shared.runtime.backoff import delay_s

MOST_RESEND_DOUBLINGS = 4

MOST_A_TURN = 500
"""Destinations that one turn goes through: at a start with fifty thousand, answers must be heard in between."""

SETTLES_WITHIN_S = 10.0
"""Topics are not ordered among each other, and the services read changed files at different times: an applier may get
the retry of a corrected destination before the correction."""


class Planner:
    """Plans the destinations of one reader's share. Used by one thread."""

    def __init__(
        self,
        rules: Rules,
        new_id: Callable[[], str],
        jitter: Callable[[], float],
        remembered_line: int | None = None,
    ) -> None:
        """``jitter`` gives numbers in [0, 1). A ``remembered_line`` is where an earlier life of this reader stopped."""
        self._rules = rules
        self._new_id = new_id
        self._jitter = jitter
        self._tracked: dict[str, DestinationState] = {}
        self._dirty: dict[str, None] = {}
        self.record_bytes = 0
        """Of a record of a topic, by the last answer that told; 0 before the first."""
        self._unsized: set[str] = set()
        self._parks: list[Park] = []
        self._timers = Timers()
        self._waiting = WaitingQueue()
        self._limits = InFlightLimits(rules)
        self._revision = RunningDigest()
        self._exactness = Exactness(rules, self._tracked, self._dirty, self._waiting.names, remembered_line)

    # -- events of destinations --------------------------------------------------------------------------------------

    def destination(self, spec: Destination, now_s: float) -> None:
        """Adopt ``spec``. If it is new in any way, a running destination is probed and tried again.

        Before a drop, work in flight is awaited: a seed that runs after the drop would bring the data back.

        TLA: ``Destination``.
        """
        known = self._tracked.get(spec.destination)
        if known is not None and known.spec == spec:
            return
        if known is not None:
            self._revision.remove(version(known))
        if known is not None and known.spec.generation == spec.generation and spec.state is not DesiredState.RUNNING:
            known.spec, known.parked, known.trouble, known.attempts = spec, None, None, 0
            self._revision.add(version(known))
            self._dirty[spec.destination] = None
            return
        awaited = known.in_flight if known is not None and spec.drop else None
        if known is not None and awaited is None:
            self._release(known)
        settles_s = 0.0 if known is None else now_s + SETTLES_WITHIN_S
        tracked = self._tracked[spec.destination] = DestinationState(
            spec, now_s, settles_s=settles_s, in_flight=awaited
        )
        self._revision.add(version(tracked))
        self._dirty[spec.destination] = None

    def forget(self, name: str) -> None:
        """The destination was removed."""
        known = self._tracked.pop(name, None)
        self._waiting.discard(name)
        self._exactness.forget(name)
        self._unsized.discard(name)
        self._dirty.pop(name, None)
        self._timers.forget(name)
        if known is not None:
            self._revision.remove(version(known))
            self._release(known)

    def progress(self, progress: Progress, now_s: float) -> bool:
        """Take in an answer, also to an item that was given up or is of another reader. Returns whether it was new.

        Old answers may come in thousands: an answer without news changes nothing and wakes no destination.
        """
        tracked = self._tracked.get(progress.destination)
        if tracked is None:
            return False
        asked = tracked.in_flight
        if progress.record_bytes is not None:
            self.record_bytes = progress.record_bytes
        if asked is None or asked.item != progress.item:
            if not overhear(tracked, progress, now_s):
                return False
        else:
            self._release(tracked)
            tracked.resends = 0
            self._follow(tracked, accept(tracked, asked, progress, now_s), now_s)
        self._exactness.settle(tracked)
        self._dirty[tracked.name] = None
        return True

    def undelivered(self, name: str, item: str, now_s: float) -> None:
        """The broker did not take an item."""
        tracked = self._tracked.get(name)
        if tracked is not None and tracked.in_flight is not None and tracked.in_flight.item == item:
            self._release(tracked)
            tracked.resends += 1
            self._wait(tracked, delay_s(tracked.resends, self._jitter()), now_s)

    def renewed(self) -> None:
        """The topics were created again: items in flight get no answer."""
        for tracked in self._tracked.values():
            if tracked.in_flight is not None:
                self._release(tracked)
                self._dirty[tracked.name] = None

    # -- events of the source ----------------------------------------------------------------------------------------

    def observe(self, observed: SourceState, now_s: float) -> None:
        """A look at the source's metadata."""
        before = self.observed
        is_undone = self._exactness.observe(observed)
        for tracked in self._tracked.values() if is_undone else self._worth_a_look(before, observed, now_s):
            if tracked.is_running and (problem := contradiction(tracked, before, observed)) is not None:
                self._park(tracked, problem)
            elif is_undone and tracked.is_running:
                self._ask_anew(tracked)
            self._look_at(tracked, observed, now_s)

    def counted(self, step: CountedStep) -> None:
        """The range above the line was counted."""
        self._exactness.counted(step)

    def counted_below(self, step: CountedStep) -> None:
        """A range under the floor was counted."""
        self._exactness.counted_below(step)

    def expired(self, snapshot: int) -> None:
        """``snapshot`` was expired: no destination can continue from it."""
        self._exactness.expired(snapshot)

    def sized(self, rows: Mapping[str, int] | None) -> None:
        """What seeds will bring, by routing value; None where it was too much to count."""
        for tracked in (self._tracked[name] for name in self._unsized if name in self._tracked):
            tracked.seed_rows = None if rows is None else rows.get(tracked.value, 0)
            self._dirty[tracked.name] = None
        self._unsized.clear()

    # -- questions ---------------------------------------------------------------------------------------------------

    @property
    def tracked(self) -> Mapping[str, DestinationState]:
        return self._tracked

    @property
    def revision(self) -> str:
        """The digest of which destinations are tracked, each in which life and version."""
        return str(self._revision)

    @property
    def rows_in_flight(self) -> int:
        return self._limits.rows

    @property
    def wants_sizes(self) -> bool:
        """Whether seeds wait for ``sized``."""
        return self.observed is not None and bool(self._unsized)

    @property
    def observed(self) -> SourceState | None:
        """What the last look at the source found."""
        return self._exactness.observed

    @property
    def index(self) -> ChangeIndex | None:
        """What was counted of it."""
        return self._exactness.index

    def above(self) -> Range | None:
        """The range between the line and the head that is still to be counted."""
        return self._exactness.above()

    def below(self) -> Range | None:
        """The next range below the floor that has to be counted for some destination."""
        return self._exactness.below()

    def next_due_s(self) -> float | None:
        """When ``plan`` should be asked again though nothing happened."""
        return 0.0 if self._dirty else self._timers.next_due_s()

    # -- actions -----------------------------------------------------------------------------------------------------

    def plan(self, now_s: float) -> list[Action]:
        """What is to be published now; ``next_due_s`` tells where that is not all. TLA: ``Plan``."""
        for name in self._timers.pop_due(now_s):
            self._dirty[name] = None
            self._wake_again(name, now_s)
        for name in list(itertools.islice(self._dirty, MOST_A_TURN)):
            del self._dirty[name]
            self._line_up(name, now_s)
        sent: list[Action] = []
        self._limits.admit(
            self._waiting,
            lambda name: self._candidate(name, now_s),
            lambda candidate: sent.append(self._send(candidate, now_s)),
        )
        parks, self._parks = self._parks, []
        return [*parks, *sent]

    def _wake_again(self, name: str, now_s: float) -> None:
        """Ask to be woken for whatever else it waits for."""
        tracked = self._tracked.get(name)
        if tracked is None:
            return
        waits = [tracked.not_before_s, *([tracked.in_flight.until_s] if tracked.in_flight is not None else [])]
        later = [due_s for due_s in waits if due_s > now_s]
        if later:
            self._timers.at(min(later), name)

    def _line_up(self, name: str, now_s: float) -> None:
        candidate = self._candidate(name, now_s)
        if candidate is None:
            self._waiting.discard(name)
        else:
            self._waiting.put(*candidate)

    def _candidate(self, name: str, now_s: float) -> Candidate | None:
        tracked = self._tracked.get(name)
        if tracked is None:
            return None
        self._give_up(tracked, now_s)
        self._judge(tracked)
        self._exactness.settle(tracked)
        if needs_size(tracked):
            self._unsized.add(name)
        draft = choose(tracked, self.observed, self.index, self._rules, now_s)
        return None if draft is None else (tracked, draft)

    def _send(self, candidate: Candidate, now_s: float) -> Send:
        tracked, draft = candidate
        if needs_upkeep(tracked, self._rules) and self._limits.upkeeps < MOST_UPKEEPS:
            draft = upkeep(tracked)
        draft = with_spelling(draft, tracked, self.observed)
        item, until_s = self._new_id(), now_s + self._patience_s(tracked)
        tracked.in_flight = self._limits.take(item, tracked, draft, until_s)
        if draft.kind is ItemKind.UPKEEP:
            tracked.wear = ASKED
        self._timers.at(until_s, tracked.name)
        return Send(
            item,
            tracked.name,
            tracked.spec.generation,
            draft,
            attempt=1 + tracked.attempts + tracked.resends,
            rows_applied=tracked.rows_applied,
            seen=self._seen_for(draft),
            routed_by=tracked.spec.routed_by,
        )

    def _seen_for(self, draft: Draft) -> Seen | None:
        """What the item rests on beyond the cursor: that nothing changed between the position and where it begins."""
        if self.observed is None or self.observed.log is not None or draft.after <= draft.expected:
            return None
        return Seen(snapshot=self.observed.head, at=self.observed.at)

    # -- one destination ---------------------------------------------------------------------------------------------

    def _worth_a_look(
        self, before: SourceState | None, observed: SourceState, now_s: float
    ) -> Iterable[DestinationState]:
        """The destinations about which a look at the source may say something new.

        All others, at the line or behind it, or waiting for their seed, cost a comparison: there may be fifty thousand.
        """
        if (
            before is None
            or self.index is None
            or observed.log is not None
            or not is_same_table(before, observed)
            or self.index.line in self._exactness.gone
        ):
            return self._tracked.values()
        lowest, old_s, gone = lowest_safe(observed), now_s - self._rules.advance_after_s, self._exactness.gone
        waiting, head = self._waiting.names, observed.head
        return [
            each
            for each in self._tracked.values()
            if (
                each.position is None
                or not lowest <= each.position <= head
                or each.exact in gone
                or (each.since_s <= old_s and each.exact > each.position)
            )
            and (each.in_flight is None or (each.position or 0) > head)
            and (each.is_seeded or each.name not in waiting)
        ]

    def _look_at(self, tracked: DestinationState, observed: SourceState, now_s: float) -> None:
        """Wake destinations that have to be parked, may be seeded, or whose untouched position should move."""
        if not tracked.is_running or tracked.in_flight is not None:
            return
        if judge(tracked, observed, self._exactness.gone) is not None:
            self._dirty[tracked.name] = None
        elif not tracked.is_seeded:
            if tracked.name not in self._waiting:
                self._dirty[tracked.name] = None
        elif tracked.position is not None and tracked.exact > tracked.position:
            is_old = now_s - tracked.since_s >= self._rules.advance_after_s
            if is_old or may_strand(tracked, observed) or tracked.position < observed.reshaped:
                self._dirty[tracked.name] = None

    def _ask_anew(self, tracked: DestinationState) -> None:
        """Its cursor names the history of its position; what was concluded and sent since belongs to another."""
        self._release(tracked)
        tracked.position, tracked.exact, tracked.exact_at = None, NOT_SEEDED, UNSPELLED
        self._dirty[tracked.name] = None

    def _follow(self, tracked: DestinationState, following: Next, now_s: float) -> None:
        if following is Next.BACK_OFF:
            tracked.attempts += 1
            self._wait(tracked, delay_s(tracked.attempts, self._jitter()), now_s)
        elif following is Next.GO_ON:
            tracked.attempts, tracked.trouble = 0, None

    def _wait(self, tracked: DestinationState, seconds: float, now_s: float) -> None:
        tracked.not_before_s = now_s + seconds
        self._timers.at(tracked.not_before_s, tracked.name)

    def _give_up(self, tracked: DestinationState, now_s: float) -> None:
        """Forget an item without an answer. The next may do the same again, which the cursor makes harmless."""
        if tracked.in_flight is not None and now_s >= tracked.in_flight.until_s:
            self._release(tracked)
            tracked.resends += 1

    def _patience_s(self, tracked: DestinationState) -> float:
        """Longer each time: a slow seed must not be sent again and again."""
        return self._rules.confirm_within_s * (1 << min(tracked.resends, MOST_RESEND_DOUBLINGS))

    def _release(self, tracked: DestinationState) -> None:
        if tracked.in_flight is not None:
            self._limits.give_back(tracked.in_flight)
            tracked.in_flight = None

    def _judge(self, tracked: DestinationState) -> None:
        """Park a destination that cannot continue, but probe its cursor first: a lost answer may have moved it."""
        if (
            self.observed is not None
            and (lost := cannot_begin(tracked, self.observed, self._exactness.gone)) is not None
        ):
            self._park(tracked, lost)
            return
        problem = judge(tracked, self.observed, self._exactness.gone) if self.observed is not None else None
        if problem is None:
            tracked.is_suspect = tracked.is_suspect and not tracked.is_seeded
        elif tracked.is_suspect:
            tracked.is_suspect = False
            self._park(tracked, problem)
        else:
            tracked.is_suspect, tracked.position = True, None

    def _park(self, tracked: DestinationState, problem: Problem) -> None:
        tracked.parked, tracked.told_at = problem, None
        spec, at = tracked.spec, tracked.position_at if tracked.position is not None else UNSPELLED
        self._parks.append(Park(tracked.name, spec.generation, tracked.position, problem, at))


def version(tracked: DestinationState) -> Version:
    return tracked.name, tracked.spec.generation, tracked.spec.revision
