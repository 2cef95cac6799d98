"""The planner of a reader: events in, actions out. It knows no clock, no broker and no lake.

What is true of the source comes as a ``SourceState`` and as counted ``Step``s, what is true of a destination as answers
to items. Both may be late, doubled or lost: an item that rests on old news is refused by the destination's own cursor.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping

from services.reader.planner.actions import Action, Park, Send
from services.reader.planner.answers import Next, accept, overhear
from services.reader.planner.catch_up import CatchUp
from services.reader.planner.change_index import ChangeIndex
from services.reader.planner.counted_changes import Step
from services.reader.planner.destination_state import DestinationState
from services.reader.planner.in_flight_limits import MOST_UPKEEPS, Candidate, InFlightLimits
from services.reader.planner.scheduling import (
    Draft,
    Rules,
    SourceState,
    choose,
    is_near_oldest,
    lowest_safe,
    needs_size,
    needs_upkeep,
    upkeep,
)
from services.reader.planner.source_problems import cannot_begin, contradiction, is_cut_off, is_same_table, judge
from services.reader.planner.timers import Timers
from services.reader.planner.waiting_queue import Waiting
from shared.contracts.digest import RunningDigest, Version
from shared.contracts.messages import DesiredState, Destination, ItemKind, Problem, Progress, Seen
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
        self._remembered_line = remembered_line
        self._tracked: dict[str, DestinationState] = {}
        self._dirty: dict[str, None] = {}
        self._behind: set[str] = set()
        self._unsized: set[str] = set()
        self._gone: set[int] = set()
        self._parks: list[Park] = []
        self._catch_up = CatchUp()
        self._timers = Timers()
        self._waiting = Waiting()
        self._limits = InFlightLimits(rules)
        self._revision = RunningDigest()
        self.index: ChangeIndex | None = None
        self.sight: SourceState | None = None

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
        self._behind.discard(name)
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
        if asked is None or asked.item != progress.item:
            if not overhear(tracked, progress, now_s):
                return False
        else:
            self._release(tracked)
            tracked.resends = 0
            self._follow(tracked, accept(tracked, asked, progress, now_s), now_s)
        self._settle(tracked)
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

    def saw(self, sight: SourceState, now_s: float) -> None:
        """A look at the source's metadata."""
        before, self.sight = self.sight, sight
        is_undone = before is not None and (before.history != sight.history or sight.head < before.head)
        self._gone = {snapshot for snapshot in self._gone if snapshot >= sight.oldest}
        if self.index is None:
            self._count_from(self._first_line(sight))
        elif is_undone or is_void(self.index, before, sight):
            self._count_from(sight.head)
        for tracked in self._tracked.values() if is_undone else self._worth_a_look(before, sight, now_s):
            if tracked.is_running and (problem := contradiction(tracked, before, sight)) is not None:
                self._park(tracked, problem)
            elif is_undone and tracked.is_running:
                self._ask_anew(tracked)
            self._look_at(tracked, sight, now_s)

    def counted(self, step: Step) -> None:
        """The range above the line was counted."""
        index = self._known_index()
        if step.range.after != index.line:
            return
        index.extend(step)
        self._know_only_tracked(index, step)
        self._carry_on(step)
        self._relieve(index)

    def counted_below(self, step: Step) -> None:
        """A range under the floor was counted."""
        index = self._known_index()
        if step.range.through == index.floor:
            index.extend_down(step)
            self._know_only_tracked(index, step)
            self._settle_all()
            self._relieve(index)

    def expired(self, snapshot: int) -> None:
        """``snapshot`` was expired: no destination can continue from it."""
        self._gone.add(snapshot)
        self._dirty.update((tracked.name, None) for tracked in self._running() if tracked.exact == snapshot)
        self._catch_up.drop(snapshot)
        if self.sight is not None and self.index is not None and self.index.line == snapshot:
            self._count_from(self.sight.head)

    def sized(self, rows: Mapping[str, int] | None) -> None:
        """What seeds will bring, by routing value; None where it was too much to count."""
        for tracked in (self._tracked[name] for name in self._unsized if name in self._tracked):
            tracked.sized = True
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
        return self.sight is not None and bool(self._unsized)

    def above(self) -> Range | None:
        """The range between the line and the head that is still to be counted."""
        if self.index is None or self.sight is None or self.sight.head <= self.index.line:
            return None
        return Range(self.index.line, self.sight.head)

    def below(self) -> Range | None:
        """The next range below the floor that has to be counted for some destination."""
        if self.index is None or self.sight is None or not self._behind:
            return None
        behind = {tracked.exact for tracked in self._running() if tracked.name in self._behind}
        readable = (exact for exact in behind - self._gone if exact >= self.sight.oldest)
        return self._catch_up.next(readable, self.index.floor)

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
        self._settle(tracked)
        if needs_size(tracked):
            self._unsized.add(name)
        draft = choose(tracked, self.sight, self.index, self._rules, now_s)
        return None if draft is None else (tracked, draft)

    def _send(self, candidate: Candidate, now_s: float) -> Send:
        tracked, draft = candidate
        if needs_upkeep(tracked, self._rules) and self._limits.upkeeps < MOST_UPKEEPS:
            draft = upkeep(tracked)
        item, until_s = self._new_id(), now_s + self._patience_s(tracked)
        tracked.in_flight = self._limits.take(item, tracked, draft, until_s)
        if draft.kind is ItemKind.UPKEEP:
            tracked.applies = 0  # whatever its outcome: a failing upkeep must not delay every change
        self._timers.at(until_s, tracked.name)
        return Send(
            item,
            tracked.name,
            tracked.spec.generation,
            draft,
            attempt=1 + tracked.attempts + tracked.resends,
            rows_applied=tracked.rows_applied,
            seen=self._seen_for(draft),
        )

    def _seen_for(self, draft: Draft) -> Seen | None:
        """What the item rests on beyond the cursor: that nothing changed between the position and where it begins."""
        if self.sight is None or draft.after <= draft.expected:
            return None
        return Seen(snapshot=self.sight.head, at=self.sight.at)

    # -- one destination ---------------------------------------------------------------------------------------------

    def _worth_a_look(self, before: SourceState | None, sight: SourceState, now_s: float) -> Iterable[DestinationState]:
        """The destinations about which a look at the source may say something new.

        All others, at the line or behind it, or waiting for their seed, cost a comparison: there may be fifty thousand.
        """
        if before is None or self.index is None or not is_same_table(before, sight) or self.index.line in self._gone:
            return self._tracked.values()
        lowest, old_s, gone = lowest_safe(sight), now_s - self._rules.advance_after_s, self._gone
        waiting, head = self._waiting.names, sight.head
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

    def _look_at(self, tracked: DestinationState, sight: SourceState, now_s: float) -> None:
        """Wake destinations that have to be parked, may be seeded, or whose untouched position should move."""
        if not tracked.is_running or tracked.in_flight is not None:
            return
        if judge(tracked, sight, self._gone) is not None:
            self._dirty[tracked.name] = None
        elif not tracked.is_seeded:
            if tracked.name not in self._waiting:
                self._dirty[tracked.name] = None
        elif tracked.position is not None and tracked.exact > tracked.position:
            is_old = now_s - tracked.since_s >= self._rules.advance_after_s
            if is_old or is_near_oldest(tracked.position, sight):
                self._dirty[tracked.name] = None

    def _ask_anew(self, tracked: DestinationState) -> None:
        """Its cursor names the history of its position; what was concluded and sent since belongs to another."""
        self._release(tracked)
        tracked.position, tracked.exact = None, NOT_SEEDED
        self._dirty[tracked.name] = None

    def _settle(self, tracked: DestinationState) -> bool:
        """Move on for free over steps that do not touch the destination; whether one does."""
        if self.index is None or not tracked.is_seeded or is_cut_off(tracked, self.sight):
            return False
        if not self.index.knows(tracked.exact, tracked.value):
            self.index.forget()
        if tracked.exact < self.index.floor:
            self._behind.add(tracked.name)
            return False
        self._behind.discard(tracked.name)
        tracked.exact, step = self.index.settle(tracked.exact, tracked.value)
        tracked.waits_since = None if step is None else step.oldest_touch
        return step is not None

    def _carry_on(self, step: Step) -> None:
        """Settle all destinations after ``step`` was counted above the line, and trim what none of them needs.

        A destination at the line needs no search in the index: there may be fifty thousand of them.
        """
        line, through, rows = step.range.after, step.range.through, step.rows
        needed, floor, dirty, waiting = through, self._known_index().floor, self._dirty, self._waiting.names
        born = 0 if self.sight is None else self.sight.born
        for name, each in self._tracked.items():
            if each.exact != line or each.position is None or each.parked is not None:
                # A newer step changes nothing for those whose next step is known and which are in flight or in a queue.
                # To search the index for each costs 130 ms where fifty thousand lag.
                if each.waits_since is None or each.exact < floor or each.parked or (each.position or -1) < born:
                    if self._settle(each):
                        dirty[name] = None
                elif each.in_flight is None and name not in waiting:
                    dirty[name] = None
            elif each.spec.routing_value in rows:
                each.waits_since = step.oldest_touch
                dirty[name] = None
            else:
                each.exact = through
                continue
            if each.exact < needed and each.is_running and each.is_seeded:
                needed = each.exact
        self._known_index().trim(needed)

    def _settle_all(self) -> None:
        self._dirty.update((tracked.name, None) for tracked in self._tracked.values() if self._settle(tracked))

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
        if self.sight is not None and (lost := cannot_begin(tracked, self.sight, self._gone)) is not None:
            self._park(tracked, lost)
            return
        problem = judge(tracked, self.sight, self._gone) if self.sight is not None else None
        if problem is None:
            tracked.is_suspect = tracked.is_suspect and not tracked.is_seeded
        elif tracked.is_suspect:
            tracked.is_suspect = False
            self._park(tracked, problem)
        else:
            tracked.is_suspect, tracked.position = True, None

    def _park(self, tracked: DestinationState, problem: Problem) -> None:
        tracked.parked, tracked.told_at = problem, None
        self._parks.append(Park(tracked.name, tracked.spec.generation, tracked.position, problem))

    # -- the ledger --------------------------------------------------------------------------------------------------

    def _running(self) -> Iterator[DestinationState]:
        return (tracked for tracked in self._tracked.values() if tracked.is_running and tracked.is_seeded)

    def _first_line(self, sight: SourceState) -> int:
        """Where counting begins: where an earlier life stopped, if that is still there, else at the head."""
        line = self._remembered_line
        return line if line is not None and max(sight.oldest, sight.born) <= line <= sight.head else sight.head

    def _count_from(self, line: int) -> None:
        """Begin a new ledger; an old one speaks of what is no longer so, or can't be continued."""
        self.index = ChangeIndex(line, self._rules.segment_rows)
        self._settle_all()

    def _relieve(self, index: ChangeIndex) -> None:
        """Limit the index's counts: those of destinations that are exact at its line are not needed.

        If such a destination is found further back later (its lake was restored, or it returned with an old cursor),
        the index is started again, once; counts since then cover it and are kept while it lags.
        """
        if index.is_heavy:
            index.thin({each.value: each.exact for each in self._tracked.values() if each.exact < index.line})

    def _know_only_tracked(self, index: ChangeIndex, step: Step) -> None:
        if step.is_partial:
            index.keep_known(each.value for each in self._tracked.values())

    def _known_index(self) -> ChangeIndex:
        if self.index is None:
            raise LookupError("nothing can be counted before the source was polled")
        return self.index


def version(tracked: DestinationState) -> Version:
    return tracked.name, tracked.spec.generation, tracked.spec.revision


def is_void(index: ChangeIndex, before: SourceState | None, sight: SourceState) -> bool:
    """Whether the counts speak of another table, of a history that was undone, or end where nothing is retained."""
    other_table = before is not None and (before.lake, before.table) != (sight.lake, sight.table)
    return other_table or sight.head < index.line or index.line < sight.oldest
