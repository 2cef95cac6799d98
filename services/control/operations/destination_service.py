"""Where operators' wishes are met: each is checked, decided on what is registered at that moment, and published.

May be used from several threads. Raises ``Refused`` for what the state of a destination does not allow,
``InvalidEntry`` for an entry that can't be used, ``DependencyError`` and ``ViaduckError`` for what does not answer;
then nothing changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

from sqlalchemy import Connection

from services.control.model import lifecycle
from services.control.model.conflicts import PipelineContext, UniquenessIndex
from services.control.model.lifecycle import Declared, Refused, Registered, Revision
from services.control.model.problems import FieldError, InvalidEntry
from services.control.operations import topic_rewind
from services.control.operations.destination_entry import Entry, EntryChecks, require_passed
from services.control.operations.destination_history import commits
from services.control.operations.long_operations import Kind, LongOperation, Operations, begun, look
from services.control.operations.preflight import PreflightFinding
from services.control.operations.reconciler import Reconciler
from services.control.store.audit_log import AuditLog
from services.control.view.destination_status import View, seen_of
from services.control.view.status_store import StatusStore
from shared.contracts.positions import SpelledPosition
from shared.lake.catalog.stamps import StampedCommit

Same = Callable[[Registered], bool]
"""Whether a destination is still at the version that the client has seen."""

Action = Callable[[Registered, Revision], Registered]

ACTIONS: dict[str, Action] = {
    "pause": lifecycle.pause,
    "resume": lifecycle.resume,
    "stop": lifecycle.stop,
    "restart": lifecycle.restart,
    "reseed": lifecycle.reseed,
}
LONG: dict[str, Kind] = {"reseed": "reseed", "rewind": "rewind", "drop": "drop"}
"""Actions that take longer than a request."""


def anything(_: Registered) -> bool:
    """For a client that named no version."""
    return True


@dataclass(frozen=True)
class Done:
    """What an action left behind. ``created``: it was not there before."""

    held: Registered
    created: bool = False
    operation: LongOperation | None = None


class DestinationService:
    """One pipeline's."""

    def __init__(
        self,
        reconciler: Reconciler,
        status_store: StatusStore,
        operations: Operations,
        audit_log: AuditLog,
        context: PipelineContext,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._open_log = topic_rewind.opening(context.environ)
        self._checks = EntryChecks(reconciler, context)
        self._reconciler = reconciler
        self._status_store = status_store
        self._context = context
        self._now = now
        self.operations = operations
        self.audit_log = audit_log

    @property
    def pipeline(self) -> str:
        return self._reconciler.config.pipeline

    # -- entries ------------------------------------------------------------------------------------------------------

    def put(
        self,
        destination: str,
        entry: Entry,
        author: str | None,
        same: Same = anything,
        *,
        check: bool,
        new: bool = False,
    ) -> Done:
        """Create or change a destination. ``new``: only create."""
        declared = self._checks.declared([(destination, entry)])[0]
        if check and self._is_news(declared):
            require_passed(self._checks.probe().findings(declared))
        before: dict[str, Registered | None] = {}

        def decide(held: Mapping[str, Registered], revision: Revision) -> list[Registered]:
            before["it"] = known = held.get(destination)
            if new and known is not None and not known.removed:
                raise Refused(
                    "precondition_failed", f"{destination} exists already", "leave If-None-Match out to change it"
                )
            return _changes_of([_declared(held, self._checks.uniqueness(held), declared, revision, same)], held)

        held = self._reconciler.change(decide, author)
        known = before["it"]
        return Done(held[destination], created=known is None or known.removed)

    def admit(
        self,
        destination: str,
        entry: Entry,
        author: str | None,
        prepare: Callable[[Declared], None],
        require: Callable[[Mapping[str, Registered]], None],
        appeared_at: datetime | None,
    ) -> Done:
        """Create a destination for a discovered routing value, checked like any other.

        ``prepare`` creates what must exist before the checks. ``require`` raises for what is registered at the
        moment of the change. ``appeared_at``: when it was discovered, if no operator asked for it;
        None otherwise.
        """
        declared = self._checks.declared([(destination, entry)])[0]
        free = partial(self._checks.uniqueness, policies=False)  # its rows come first; upkeep of the lake waits
        _require_free(self._reconciler.held, free(self._reconciler.held), declared)
        prepare(declared)
        require_passed(self._checks.probe().findings(declared))

        def decide(held: Mapping[str, Registered], revision: Revision) -> list[Registered]:
            require(held)
            _require_free(held, free(held), declared)
            return [
                replace(_declared(held, UniquenessIndex(()), declared, revision, anything), appeared_at=appeared_at)
            ]

        return Done(self._reconciler.change(decide, author)[destination], created=True)

    def is_foreign(self, declared: Declared) -> bool:
        """Whether a lake is there already in which a destination has no cursor. Raises ``ViaduckError``."""
        return self._checks.probe().is_foreign(declared)

    def put_all(
        self,
        entries: Sequence[tuple[str, Entry]],
        author: str | None,
        *,
        all_or_nothing: bool,
        one_failed: bool = False,
    ) -> list[Done | Refused | InvalidEntry]:
        """Create or change many in one transaction: what became of each, or with ``all_or_nothing`` would have.

        ``one_failed``: so has something that belongs to them and could not be given here.
        """
        outcomes: dict[int, Done | Refused | InvalidEntry] = {}
        declared: dict[int, Declared] = {}
        for number, found in enumerate(self._checks.each_declared(entries)):
            if isinstance(found, InvalidEntry):
                outcomes[number] = found
            else:
                declared[number] = found

        def decide(held: Mapping[str, Registered], revision: Revision) -> list[Registered]:
            after, taken, now = dict(held), self._checks.uniqueness(held), []
            taken.release(held[each.id].declared for each in declared.values() if each.id in held)
            for number, each in declared.items():
                try:
                    made = _declared(after, taken, each, revision, anything)
                except (Refused, InvalidEntry) as refusal:
                    outcomes[number] = refusal
                    continue
                known = held.get(each.id)
                outcomes[number] = Done(made, created=known is None or known.removed)
                after[each.id] = made
                taken.add(each)
                now.append(made)
            failed = one_failed or any(not isinstance(each, Done) for each in outcomes.values())
            return [] if all_or_nothing and failed else _changes_of(now, held)

        held = self._reconciler.change(decide, author)
        for number, outcome in outcomes.items():
            if isinstance(outcome, Done) and outcome.held.id in held:
                outcomes[number] = replace(outcome, held=held[outcome.held.id])
        return [outcomes[number] for number in range(len(entries))]

    def validate(self, destination: str, entry: Entry) -> list[PreflightFinding]:
        """All that can be known about a destination before it is made."""
        declared = self._checks.declared([(destination, entry)])[0]
        taken = self._checks.uniqueness(self._view.destinations)
        clashes = [PreflightFinding("duplicates", False, f"{path} {said}") for path, said in taken.clashes(declared)]
        clashes = clashes or [PreflightFinding("duplicates", True, "its routing value, lake and table are unique")]
        return [*clashes, *self._checks.probe().findings(declared)]

    # -- actions ------------------------------------------------------------------------------------------------------

    def act(self, destination: str, action: str, author: str | None, same: Same = anything) -> Done:
        """Pause, resume, stop, restart or reseed."""
        return self._act(destination, action, ACTIONS[action], author, same)

    def is_ours(self, destination: str) -> bool:
        """Whether a reseed replaces only what Viaduck wrote, as far as control knows: the present life has filled the
        table, or may replace what is in it already. Raises ``Refused``."""
        held, seen = _existing(self._reconciler.held, destination), self._view.seen.get(destination)
        filled = seen is not None and seen.generation == held.generation and seen.position is not None
        return held.replace or filled

    def act_all(self, ids: Iterable[str], action: str, author: str | None) -> tuple[int, int]:
        """Pause, resume, stop or restart many in one transaction: how many changed, and how many could not.

        A destination that was removed meanwhile, or is in a state that does not allow the action, stays as it is.
        """
        act, wanted, refused = ACTIONS[action], list(ids), 0
        if action in LONG:
            raise Refused("conflict", f"{action} is for one destination at a time", "each takes a scan of the source")
        changed: list[Registered] = []

        def decide(held: Mapping[str, Registered], revision: Revision) -> list[Registered]:
            nonlocal refused
            changed.clear()
            refused = 0
            for name in wanted:
                try:
                    known = _existing(held, name)
                    changed.extend([] if known.removing else [act(known, revision)])
                except Refused:
                    refused += 1
            return _changes_of(changed, held)

        before = self._reconciler.held
        after = self._reconciler.change(decide, author)
        return sum(after[each.id].version != before[each.id].version for each in changed if each.id in before), refused

    def reseed(self, destination: str, author: str | None, same: Same = anything, *, earliest: bool = False) -> Done:
        """Begin a new life that replaces what is there. ``earliest``: at a topic's oldest record, whatever its file
        says."""
        if earliest and self._reconciler.config.topic is None:
            raise Refused("invalid", "the source is a lake: only a topic has an earliest record", "leave `from` out")
        return self._act(destination, "reseed", partial(lifecycle.reseed, earliest=earliest), author, same)

    def rewind(self, destination: str, to: int | Mapping[int, int], author: str | None, same: Same = anything) -> Done:
        """Begin a new life at snapshot ``to`` of the source, or at these offsets by partition of a topic."""
        generation = _existing(self._reconciler.held, destination).generation
        position = self._position(destination, to)

        def act(held: Registered, revision: Revision) -> Registered:
            if position.spelled and held.generation != generation:
                raise Refused("conflict", f"{destination} began another life meanwhile", "look at it, then decide")
            return lifecycle.rewind(held, position, revision)

        return self._act(destination, "rewind", act, author, same)

    def _position(self, destination: str, to: int | Mapping[int, int]) -> SpelledPosition:
        """Where a life may begin. Raises ``Refused`` and ``InvalidEntry`` where it may not."""
        if isinstance(to, int):
            self._checks.require_retained(to)
            return SpelledPosition(to)
        seen, config = seen_of(self._view, destination), self._reconciler.config
        found = topic_rewind.position_of(config, seen, to, self._open_log)
        return SpelledPosition(found.records, found.text)

    def remove(self, destination: str, author: str | None, same: Same = anything, *, drop: bool) -> Done:
        """Forget a destination; with ``drop`` its table and cursor are taken away first."""

        def act(held: Registered, revision: Revision) -> Registered:
            if held.managed_by == "file":
                raise _declared_by_file(destination)
            return lifecycle.drop(held, revision) if drop else lifecycle.remove(held, revision)

        return self._act(destination, "drop" if drop else "remove", act, author, same, while_removing=True)

    def _act(
        self,
        destination: str,
        name: str,
        action: Action,
        author: str | None,
        same: Same,
        *,
        while_removing: bool = False,
    ) -> Done:
        begins: list[LongOperation] = []

        def decide(held: Mapping[str, Registered], revision: Revision) -> list[Registered]:
            known = _existing(held, destination)
            if known.removing and not while_removing:
                raise Refused("being_removed", f"{destination} is being removed", "wait for its operation")
            _require_same(known, same)
            return _changes_of([action(known, revision)], held)

        def begin(con: Connection, changed: Mapping[str, Registered]) -> None:
            """Together with the new generation, so that every generation has an operation to follow."""
            if name in LONG:
                begins.append(begun(LONG[name], changed[destination]))
                self.operations.add(con, begins[-1])

        after = self._reconciler.change(decide, author, begin)[destination]
        return Done(after, operation=begins[-1] if begins else None)

    def close_operations(self) -> None:
        """Keep how the operations ended that are over; done every now and then."""
        view = self._view
        looked = [self.now_of(each, view) for each in self.operations.open()]
        over = [each for each in looked if each.is_over]
        if over:
            self.operations.finish(over, self._now())

    def now_of(self, operation: LongOperation, view: View) -> LongOperation:
        """How far an operation is."""
        if operation.finished_at is not None:
            return operation
        held = self._reconciler.held.get(operation.destination)
        name = operation.destination
        return look(operation, held, view.seen.get(name), view.upkept.get(name))

    # -- what lakes say -----------------------------------------------------------------------------------------------

    def history(self, destination: str, limit: int, before: int | None) -> list[StampedCommit]:
        """The destination's own commits, the newest first, from its lake."""
        held = _existing(self._view.destinations, destination)
        return commits(self._reconciler.config, self._context.environ, held, limit, before)

    @property
    def _view(self) -> View:
        return self._status_store.view()

    def _is_news(self, declared: Declared) -> bool:
        """Whether its lake was not looked at before: a retry of the same PUT must not cost anything."""
        known = self._view.destinations.get(declared.id)
        return known is None or known.declared.lake != declared.lake or not known.declared.same_table(declared)


def _changes_of(now: Iterable[Registered], held: Mapping[str, Registered]) -> list[Registered]:
    return [each for each in now if each is not held.get(each.id)]


def _declared(
    held: Mapping[str, Registered], taken: UniquenessIndex, declared: Declared, revision: Revision, same: Same
) -> Registered:
    known = held.get(declared.id)
    if known is not None and not known.removed:
        if known.managed_by == "file":
            raise _declared_by_file(declared.id)
        if known.removing:
            raise Refused("being_removed", f"{declared.id} is being removed", "wait for its operation, then add it")
        _require_same(known, same)
    elif same is not anything:
        raise Refused("precondition_failed", f"there is no {declared.id} to change", "leave If-Match out to create it")
    _require_unique(taken, declared)
    if known is not None and not known.removed:  # by which column it is routed is for the file, maybe a newer one
        declared = replace(declared, routed_by=known.declared.routed_by)
    return lifecycle.declare(known, declared, "api", revision)


def _require_free(held: Mapping[str, Registered], taken: UniquenessIndex, declared: Declared) -> None:
    """Raises ``Refused`` if the id is taken, ``InvalidEntry`` if the routing value or the table is."""
    known = held.get(declared.id)
    if known is not None and not known.removed:
        hint = "PUT a destination with an id of your own and this routing value"
        raise Refused("conflict", f"there is a destination {declared.id} already", hint)
    _require_unique(taken, declared)


def _existing(held: Mapping[str, Registered], destination: str) -> Registered:
    known = held.get(destination)
    if known is None or known.removed:
        raise Refused("not_found", f"there is no destination {destination}", "GET …/destinations lists them")
    return known


def _require_same(known: Registered, same: Same) -> None:
    if not same(known):
        said = f"{known.id} is at version {known.version} now"
        raise Refused("precondition_failed", said, "GET it again, then decide")


def _declared_by_file(destination: str) -> Refused:
    return Refused(
        "declared_by_file", f"the file declares {destination}", "change the file, and send SIGHUP to control"
    )


def _require_unique(taken: UniquenessIndex, declared: Declared) -> None:
    """Raises ``InvalidEntry`` for a routing value, table or data path of another destination."""
    faults = [FieldError(path, said) for path, said in taken.clashes(declared)]
    if faults:
        raise InvalidEntry(faults)
