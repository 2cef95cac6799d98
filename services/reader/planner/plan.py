"""The reader's mind: events in, actions out. It knows no clock, no broker and no lake.

What is true of the source comes as a ``SourceState`` and as counted ``Step``s, what is true of a destination as answers
to items. Both may be late, doubled or lost: an item that rests on old news is refused by the destination's own cursor.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping

from services.reader.planner.actions import Action, Park, Send
from services.reader.planner.answers import Next, accept, overhear
from services.reader.planner.catch_up import CatchUp
from services.reader.planner.change_index import Ledger
from services.reader.planner.counted_changes import Step
from services.reader.planner.destination_state import Tracked
from services.reader.planner.in_flight_limits import MOST_UPKEEPS, Candidate, Hold
from services.reader.planner.scheduling import (
    Draft,
    Rules,
    SourceState,
    choose,
    is_near_oldest,
    needs_size,
    needs_upkeep,
    upkeep,
)
from services.reader.planner.source_problems import cannot_begin, contradiction, is_cut_off, judge
from services.reader.planner.timers import Timers
from services.reader.planner.waiting_queue import Waiting
from shared.contracts.messages import DesiredState, Destination, ItemKind, Problem, Progress, Seen
from shared.contracts.ranges import NOT_SEEDED, Range
from shared.runtime.backoff import delay_s

MOST_RESEND_DOUBLINGS = 4

MOST_A_TURN = 1_000
"""Destinations that one turn goes through: at a start with fifty thousand, answers must be heard in between."""

SETTLES_WITHIN_S = 10.0
"""The topics are not ordered among each other, nor files read by all at once: an applier may get the item that tries a
mended destination before it knows what was mended."""


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
        self._tracked: dict[str, Tracked] = {}
        self._dirty: dict[str, None] = {}
        self._behind: set[str] = set()
        self._unsized: set[str] = set()
        self._gone: set[int] = set()
        self._parks: list[Park] = []
        self._catch_up = CatchUp()
        self._timers = Timers()
        self._waiting = Waiting()
        self._hold = Hold(rules)
        self.ledger: Ledger | None = None
        self.sight: SourceState | None = None

    # -- events of destinations --------------------------------------------------------------------------------------

    def destination(self, spec: Destination, now_s: float) -> None:
        """Somebody wants ``spec``. Whatever is new about it, a running one is probed and tried again.

        Where its data is to go, what is in flight is awaited: a seed that came after the drop would bring it back.

        TLA: ``Destination``.
        """
        known = self._tracked.get(spec.destination)
        if known is not None and known.spec == spec:
            return
        if known is not None and known.spec.generation == spec.generation and spec.state is not DesiredState.RUNNING:
            known.spec, known.parked, known.trouble, known.attempts = spec, None, None, 0
            self._dirty[spec.destination] = None
            return
        awaited = known.in_flight if known is not None and spec.drop else None
        if known is not None and awaited is None:
            self._release(known)
        settles_s = 0.0 if known is None else now_s + SETTLES_WITHIN_S
        self._tracked[spec.destination] = Tracked(spec, now_s, settles_s=settles_s, in_flight=awaited)
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
            self._release(known)

    def progress(self, progress: Progress, now_s: float) -> bool:
        """An item was answered; ours, or one that somebody else sent or that we gave up. Whether that was news.

        Old answers may come by the thousand: one that says nothing new moves nothing and wakes nobody.
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
        """The topics were made anew: nobody will answer what was sent before."""
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
        if self.ledger is None:
            self._count_from(self._first_line(sight))
        elif is_undone or is_void(self.ledger, before, sight):
            self._count_from(sight.head)
        for tracked in self._tracked.values():
            if tracked.is_running and (problem := contradiction(tracked, before, sight)) is not None:
                self._park(tracked, problem)
            elif is_undone and tracked.is_running:
                self._ask_anew(tracked)
            self._look_at(tracked, sight, now_s)

    def counted(self, step: Step) -> None:
        """The range above the line was counted."""
        ledger = self._known_ledger()
        if step.range.after != ledger.line:
            return
        ledger.extend(step)
        self._settle_all()
        ledger.trim(min((t.exact for t in self._running()), default=ledger.line))
        self._relieve(ledger)

    def counted_below(self, step: Step) -> None:
        """A range under the floor was counted."""
        ledger = self._known_ledger()
        if step.range.through == ledger.floor:
            ledger.extend_down(step)
            self._settle_all()
            self._relieve(ledger)

    def expired(self, snapshot: int) -> None:
        """``snapshot`` is no longer there, so nobody can go on from it."""
        self._gone.add(snapshot)
        self._dirty.update((tracked.name, None) for tracked in self._running() if tracked.exact == snapshot)
        self._catch_up.drop(snapshot)
        if self.sight is not None and self.ledger is not None and self.ledger.line == snapshot:
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
    def tracked(self) -> Mapping[str, Tracked]:
        return self._tracked

    @property
    def rows_in_flight(self) -> int:
        return self._hold.rows

    @property
    def wants_sizes(self) -> bool:
        """Whether seeds wait for ``sized``."""
        return self.sight is not None and bool(self._unsized)

    def above(self) -> Range | None:
        """The range between the line and the head that is still to be counted."""
        if self.ledger is None or self.sight is None or self.sight.head <= self.ledger.line:
            return None
        return Range(self.ledger.line, self.sight.head)

    def below(self) -> Range | None:
        """The next range under the floor that somebody needs counted."""
        if self.ledger is None or self.sight is None or not self._behind:
            return None
        behind = {tracked.exact for tracked in self._running() if tracked.name in self._behind}
        readable = (exact for exact in behind - self._gone if exact >= self.sight.oldest)
        return self._catch_up.next(readable, self.ledger.floor)

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
        self._hold.admit(
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
        draft = choose(tracked, self.sight, self.ledger, self._rules, now_s)
        return None if draft is None else (tracked, draft)

    def _send(self, candidate: Candidate, now_s: float) -> Send:
        tracked, draft = candidate
        if needs_upkeep(tracked, self._rules) and self._hold.upkeeps < MOST_UPKEEPS:
            draft = upkeep(tracked)
        item, until_s = self._new_id(), now_s + self._patience_s(tracked)
        tracked.in_flight = self._hold.take(item, tracked, draft, until_s)
        if draft.kind is ItemKind.UPKEEP:
            tracked.applies = 0  # whatever comes of it: one that fails must not stand before every change
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

    def _look_at(self, tracked: Tracked, sight: SourceState, now_s: float) -> None:
        """Wake whoever has to be parked, may be seeded, or whose quiet position should move."""
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

    def _ask_anew(self, tracked: Tracked) -> None:
        """Its cursor tells of which history its position speaks; what was concluded and sent since was of another."""
        self._release(tracked)
        tracked.position, tracked.exact = None, NOT_SEEDED
        self._dirty[tracked.name] = None

    def _settle(self, tracked: Tracked) -> bool:
        """Move on for free over steps that do not touch the destination; whether one does."""
        if self.ledger is None or not tracked.is_seeded or is_cut_off(tracked, self.sight):
            return False
        if not self.ledger.knows(tracked.exact, tracked.value):
            self.ledger.forget()
        if tracked.exact < self.ledger.floor:
            self._behind.add(tracked.name)
            return False
        self._behind.discard(tracked.name)
        tracked.exact, step = self.ledger.settle(tracked.exact, tracked.value)
        tracked.waits_since = None if step is None else step.oldest_touch
        return step is not None

    def _settle_all(self) -> None:
        self._dirty.update((tracked.name, None) for tracked in self._tracked.values() if self._settle(tracked))

    def _follow(self, tracked: Tracked, next: Next, now_s: float) -> None:
        if next is Next.BACK_OFF:
            tracked.attempts += 1
            self._wait(tracked, delay_s(tracked.attempts, self._jitter()), now_s)
        elif next is Next.GO_ON:
            tracked.attempts, tracked.trouble = 0, None

    def _wait(self, tracked: Tracked, seconds: float, now_s: float) -> None:
        tracked.not_before_s = now_s + seconds
        self._timers.at(tracked.not_before_s, tracked.name)

    def _give_up(self, tracked: Tracked, now_s: float) -> None:
        """Forget an item that nobody answered; the next may do the same again, which the cursor makes harmless."""
        if tracked.in_flight is not None and now_s >= tracked.in_flight.until_s:
            self._release(tracked)
            tracked.resends += 1

    def _patience_s(self, tracked: Tracked) -> float:
        """Longer each time: a slow seed must not be sent again and again."""
        return self._rules.confirm_within_s * (1 << min(tracked.resends, MOST_RESEND_DOUBLINGS))

    def _release(self, tracked: Tracked) -> None:
        if tracked.in_flight is not None:
            self._hold.give_back(tracked.in_flight)
            tracked.in_flight = None

    def _judge(self, tracked: Tracked) -> None:
        """Park whoever can't go on, but ask its cursor first: an answer that was lost may have told that it can."""
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

    def _park(self, tracked: Tracked, problem: Problem) -> None:
        tracked.parked, tracked.told_at = problem, None
        self._parks.append(Park(tracked.name, tracked.spec.generation, tracked.position, problem))

    # -- the ledger --------------------------------------------------------------------------------------------------

    def _running(self) -> Iterator[Tracked]:
        return (tracked for tracked in self._tracked.values() if tracked.is_running and tracked.is_seeded)

    def _first_line(self, sight: SourceState) -> int:
        """Where counting begins: where an earlier life stopped, if that is still there, else at the head."""
        line = self._remembered_line
        return line if line is not None and max(sight.oldest, sight.born) <= line <= sight.head else sight.head

    def _count_from(self, line: int) -> None:
        """Begin a new ledger; an old one speaks of what is no longer so, or can't be continued."""
        self.ledger = Ledger(line, self._rules.segment_rows)
        self._settle_all()

    def _relieve(self, ledger: Ledger) -> None:
        """Keep the ledger's counts within bounds: those of destinations that are exact at its line are not needed.

        One that is found further back after that (its lake was restored, or it came back with a cursor of long ago) has
        the ledger begun anew, once: what is counted after that knows of it, and it is kept for as long as it lags.
        """
        if ledger.is_heavy:
            ledger.thin({each.value: each.exact for each in self._tracked.values() if each.exact < ledger.line})

    def _known_ledger(self) -> Ledger:
        if self.ledger is None:
            raise LookupError("nothing can be counted before the source was seen")
        return self.ledger


def is_void(ledger: Ledger, before: SourceState | None, sight: SourceState) -> bool:
    """Whether the counts speak of another table, of a history that was undone, or end where nothing is retained."""
    other_table = before is not None and (before.lake, before.table) != (sight.lake, sight.table)
    return other_table or sight.head < ledger.line or ledger.line < sight.oldest
