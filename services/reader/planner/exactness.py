"""Up to where each destination is exact, by what was counted of the source."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from services.reader.planner.catch_up import CatchUp
from services.reader.planner.change_index import ChangeIndex
from services.reader.planner.counted_changes import CountedStep
from services.reader.planner.destination_state import DestinationState
from services.reader.planner.scheduling import Rules, SourceState
from services.reader.planner.source_problems import is_cut_off
from shared.contracts.ranges import Range


class Exactness:
    """What is known of the source, and what follows for the destinations. Used by one thread.

    ``tracked``, ``dirty`` and ``waiting`` are the planner's own collections: a destination that has something to do
    becomes dirty, unless it waits in a queue already.
    """

    def __init__(
        self,
        rules: Rules,
        tracked: Mapping[str, DestinationState],
        dirty: dict[str, None],
        waiting: Collection[str],
        remembered_line: int | None = None,
    ) -> None:
        self._rules = rules
        self._tracked = tracked
        self._dirty = dirty
        self._waiting = waiting
        self._remembered_line = remembered_line
        self._behind: set[str] = set()
        self._catch_up = CatchUp()
        self.index: ChangeIndex | None = None
        self.observed: SourceState | None = None
        self.gone: set[int] = set()
        """Snapshots that expired, at or above the oldest that the last look saw."""

    # -- events ------------------------------------------------------------------------------------------------------

    def observe(self, observed: SourceState) -> bool:
        """A look at the source's metadata. Returns whether it shows another history than the look before."""
        before, self.observed = self.observed, observed
        is_undone = before is not None and (before.history != observed.history or observed.head < before.head)
        self.gone = {snapshot for snapshot in self.gone if snapshot >= observed.oldest}
        if self.index is None:
            self._count_from(self._first_line(observed))
        elif is_undone or is_void(self.index, before, observed):
            self._count_from(observed.head)
        return is_undone

    def counted(self, step: CountedStep) -> None:
        """The range above the line was counted."""
        index = self._known_index()
        if step.range.after != index.line:
            return
        index.extend(step)
        self._know_only_tracked(index, step)
        self._carry_on(step)
        self._relieve(index)

    def counted_below(self, step: CountedStep) -> None:
        """A range under the floor was counted."""
        index = self._known_index()
        if step.range.through == index.floor:
            index.extend_down(step)
            self._know_only_tracked(index, step)
            self._settle_all()
            self._relieve(index)

    def expired(self, snapshot: int) -> None:
        """``snapshot`` was expired: no destination can continue from it."""
        self.gone.add(snapshot)
        self._dirty.update((tracked.name, None) for tracked in self._running() if tracked.exact == snapshot)
        self._catch_up.drop(snapshot)
        if self.observed is not None and self.index is not None and self.index.line == snapshot:
            self._count_from(self.observed.head)

    def forget(self, name: str) -> None:
        """The destination was removed."""
        self._behind.discard(name)

    # -- questions ---------------------------------------------------------------------------------------------------

    def above(self) -> Range | None:
        """The range between the line and the head that is still to be counted."""
        if self.index is None or self.observed is None or self.observed.head <= self.index.line:
            return None
        return Range(self.index.line, self.observed.head)

    def below(self) -> Range | None:
        """The next range below the floor that has to be counted for some destination."""
        if self.index is None or self.observed is None or not self._behind:
            return None
        behind = {tracked.exact for tracked in self._running() if tracked.name in self._behind}
        readable = (exact for exact in behind - self.gone if exact >= self.observed.oldest)
        return self._catch_up.next(readable, self.index.floor)

    # -- destinations ------------------------------------------------------------------------------------------------

    def settle(self, tracked: DestinationState) -> bool:
        """Move on for free over steps that do not touch the destination; whether one does."""
        if self.index is None or not tracked.is_seeded or is_cut_off(tracked, self.observed):
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

    def _carry_on(self, step: CountedStep) -> None:
        """Settle all destinations after ``step`` was counted above the line, and trim what none of them needs.

        A destination at the line needs no search in the index: there may be fifty thousand of them.
        """
        line, through, rows, of_any = step.range.after, step.range.through, step.rows, step.of_any > 0
        needed, floor, dirty, waiting = through, self._known_index().floor, self._dirty, self._waiting
        born, reshaped = (0, 0) if self.observed is None else (self.observed.born, self.observed.reshaped)
        for name, each in self._tracked.items():
            if each.exact != line or each.position is None or each.parked is not None:
                # A newer step changes nothing for those whose next step is known and which are in flight or in a queue.
                # To search the index for each costs 130 ms where fifty thousand lag.
                if each.waits_since is None or each.exact < floor or each.parked or (each.position or -1) < born:
                    if self.settle(each) or self._lacks_columns(each):
                        dirty[name] = None
                elif each.in_flight is None and name not in waiting:
                    dirty[name] = None
            elif of_any or each.spec.routing_value in rows:
                each.waits_since = step.oldest_touch
                dirty[name] = None
            else:
                each.exact = through
                if each.position < reshaped and self._lacks_columns(each):
                    dirty[name] = None
                continue
            if each.exact < needed and each.is_running and each.is_seeded:
                needed = each.exact
        self._known_index().trim(needed)

    def _settle_all(self) -> None:
        for name, each in self._tracked.items():
            if self.settle(each) or self._lacks_columns(each):
                self._dirty[name] = None

    def _lacks_columns(self, tracked: DestinationState) -> bool:
        """Whether a quiet destination has to be woken to follow the source's columns: the next look at an idle source
        may be a minute away."""
        if self.observed is None or not tracked.is_running or tracked.in_flight is not None:
            return False
        return tracked.name not in self._waiting and self.observed.reshapes.lacking(tracked) is not None

    def _running(self) -> Iterator[DestinationState]:
        return (tracked for tracked in self._tracked.values() if tracked.is_running and tracked.is_seeded)

    # -- the index ---------------------------------------------------------------------------------------------------

    def _first_line(self, observed: SourceState) -> int:
        """Where counting begins: where an earlier life stopped, if that is still there, else at the head."""
        line = self._remembered_line
        return (
            line if line is not None and max(observed.oldest, observed.born) <= line <= observed.head else observed.head
        )

    def _count_from(self, line: int) -> None:
        """Begin a new index; the old one speaks of what is no longer so, or can't be continued."""
        self.index = ChangeIndex(line, self._rules.segment_rows)
        self._settle_all()

    def _relieve(self, index: ChangeIndex) -> None:
        """Limit the index's counts: those of destinations that are exact at its line are not needed.

        If such a destination is found further back later (its lake was restored, or it returned with an old cursor),
        the index is started again, once; counts since then cover it and are kept while it lags.
        """
        if index.is_heavy:
            index.thin({each.value: each.exact for each in self._tracked.values() if each.exact < index.line})

    def _know_only_tracked(self, index: ChangeIndex, step: CountedStep) -> None:
        if step.is_partial:
            index.keep_known(each.value for each in self._tracked.values())

    def _known_index(self) -> ChangeIndex:
        if self.index is None:
            raise LookupError("nothing can be counted before the source was polled")
        return self.index


def is_void(index: ChangeIndex, before: SourceState | None, observed: SourceState) -> bool:
    """Whether the counts speak of another table, of a history that was undone, or end where nothing is retained."""
    other_table = before is not None and (before.lake, before.table) != (observed.lake, observed.table)
    return other_table or observed.head < index.line or index.line < observed.oldest
