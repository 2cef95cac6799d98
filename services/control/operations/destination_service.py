"""Where operators' wishes are met: each is checked, decided on what is registered at that moment, and published.

May be used from several threads. Raises ``Refused`` for what the state of a destination does not allow,
``InvalidEntry`` for an entry that can't be used, ``DependencyError`` and ``ViaduckError`` for what does not answer;
then nothing changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from sqlalchemy import Connection

from services.control.model import lifecycle
from services.control.model.conflicts import Neighbour, UniquenessIndex
from services.control.model.declared import digest_of
from services.control.model.lifecycle import Declared, Refused, Registered, Revision
from services.control.operations.destination_entry import Entry, declare_entry
from services.control.operations.input_validation import FieldError, InvalidEntry
from services.control.operations.long_operations import Kind, Operation, Operations, begun, look
from services.control.operations.preflight import Finding, Probe
from services.control.operations.reconciler import Reconciler
from services.control.store.audit_log import Trail
from services.control.store.tokens import Tokens
from services.control.view.destination_status import View
from services.control.view.status_store import StatusStore
from shared.config.declared import Lakes
from shared.config.path_overlap import Claim, claim_of
from shared.contracts.errors import DependencyError, ViaduckError
from shared.lake.catalog import CatalogReader, Stamped
from shared.lake.failure import LakeAbsent
from shared.lake.source import SourceLook, canonical_values

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

Same = Callable[[Registered], bool]
"""Whether it is still the version that the asker has seen."""


def anything(_: Registered) -> bool:
    """The asker does not mind."""
    return True


@dataclass(frozen=True)
class Done:
    """What an action left behind. ``created``: it was not there before."""

    held: Registered
    created: bool = False
    operation: Operation | None = None


class DestinationService:
    """One pipeline's."""

    def __init__(
        self,
        keeper: Reconciler,
        board: StatusStore,
        operations: Operations,
        trail: Trail,
        tokens: Tokens,
        environ: Mapping[str, str],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        neighbours: Callable[[], Iterable[Neighbour]] = tuple,
    ) -> None:
        """``neighbours``: the destinations of the pipelines beside this one."""
        self._neighbours = neighbours
        self._keeper = keeper
        self._board = board
        self._environ = environ
        self._now = now
        self.operations = operations
        self.trail = trail
        self.tokens = tokens

    @property
    def pipeline(self) -> str:
        return self._keeper.config.pipeline

    # -- entries ------------------------------------------------------------------------------------------------------

    def put(
        self, id: str, entry: Entry, author: str | None, same: Same = anything, *, check: bool, new: bool = False
    ) -> Done:
        """Create or change a destination. ``new``: only create."""
        declared = self._declared([(id, entry)])[0]
        if check and self._is_news(declared):
            _raise_failed(self._probe().findings(declared))
        before: dict[str, Registered | None] = {}

        def decide(held: Mapping[str, Registered], revision: Revision) -> list[Registered]:
            before["it"] = known = held.get(id)
            if new and known is not None and not known.removed:
                raise Refused("precondition_failed", f"{id} is there already", "leave If-None-Match out to change it")
            return _changed([_declare(held, self._taken(held), declared, revision, same)], held)

        held = self._keeper.change(decide, author)
        known = before["it"]
        return Done(held[id], created=known is None or known.removed)

    def admit(
        self,
        id: str,
        entry: Entry,
        author: str | None,
        prepare: Callable[[Declared], None],
        require: Callable[[Mapping[str, Registered]], None],
        appeared_at: datetime | None,
    ) -> Done:
        """Create a destination for a routing value that was seen, checked like any other.

        ``prepare`` makes what must be there before anything is looked at. ``require`` raises for what is held at the
        moment of the change, whoever else changed it. ``appeared_at``: when it did so by itself
        None if it was asked for.
        """
        declared = self._declared([(id, entry)])[0]
        _require_free(self._keeper.held, self._taken(self._keeper.held), declared)
        prepare(declared)
        _raise_failed(self._probe().findings(declared))

        def decide(held: Mapping[str, Registered], revision: Revision) -> list[Registered]:
            require(held)
            _require_free(held, self._taken(held), declared)
            return [replace(_declare(held, UniquenessIndex(()), declared, revision, anything), appeared_at=appeared_at)]

        return Done(self._keeper.change(decide, author)[id], created=True)

    def is_strange(self, declared: Declared) -> bool:
        """Whether a lake is there already in which a destination has no cursor. Raises ``ViaduckError``."""
        return self._probe().is_strange(declared)

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
        for number, found in enumerate(self._each_declared(entries)):
            if isinstance(found, InvalidEntry):
                outcomes[number] = found
            else:
                declared[number] = found

        def decide(held: Mapping[str, Registered], revision: Revision) -> list[Registered]:
            after, taken, now = dict(held), self._taken(held), []
            for number, each in declared.items():
                try:
                    made = _declare(after, taken, each, revision, anything)
                except (Refused, InvalidEntry) as refusal:
                    outcomes[number] = refusal
                    continue
                known = held.get(each.id)
                outcomes[number] = Done(made, created=known is None or known.removed)
                after[each.id] = made
                taken.add(each)
                now.append(made)
            failed = one_failed or any(not isinstance(each, Done) for each in outcomes.values())
            return [] if all_or_nothing and failed else _changed(now, held)

        held = self._keeper.change(decide, author)
        for number, outcome in outcomes.items():
            if isinstance(outcome, Done) and outcome.held.id in held:
                outcomes[number] = replace(outcome, held=held[outcome.held.id])
        return [outcomes[number] for number in range(len(entries))]

    def validate(self, id: str, entry: Entry) -> list[Finding]:
        """All that can be known about a destination before it is made."""
        declared = self._declared([(id, entry)])[0]
        taken = self._taken(self._view.destinations)
        clashes = [Finding("duplicates", False, f"{path} {said}") for path, said in taken.clashes(declared)]
        clashes = clashes or [Finding("duplicates", True, "its routing value, lake and table are its own")]
        return [*clashes, *self._probe().findings(declared)]

    # -- actions ------------------------------------------------------------------------------------------------------

    def act(self, id: str, action: str, author: str | None, same: Same = anything) -> Done:
        """Pause, resume, stop, restart or reseed."""
        return self._act(id, action, ACTIONS[action], author, same)

    def act_all(self, ids: Iterable[str], action: str, author: str | None) -> tuple[int, int]:
        """Pause, resume, stop or restart many in one transaction: how many changed, and how many could not.

        One that is not there any more, or is in a state that does not allow it, stays as it is.
        """
        act, wanted, refused = ACTIONS[action], list(ids), 0
        if action in LONG:
            raise Refused("conflict", f"{action} is for one destination at a time", "each takes a scan of the source")
        changed: list[Registered] = []

        def decide(held: Mapping[str, Registered], revision: Revision) -> list[Registered]:
            nonlocal refused
            changed.clear()
            refused = 0
            for id in wanted:  # noqa: A001
                try:
                    known = _there(held, id)
                    changed.extend([] if known.removing else [act(known, revision)])
                except Refused:
                    refused += 1
            return _changed(changed, held)

        before = self._keeper.held
        after = self._keeper.change(decide, author)
        return sum(after[each.id].version != before[each.id].version for each in changed if each.id in before), refused

    def rewind(self, id: str, to: int, author: str | None, same: Same = anything) -> Done:
        """Begin a new life at snapshot ``to`` of the source."""
        self._require_retained(to)
        return self._act(id, "rewind", lambda held, revision: lifecycle.rewind(held, to, revision), author, same)

    def remove(self, id: str, author: str | None, same: Same = anything, *, drop: bool) -> Done:
        """Forget a destination; with ``drop`` its table and cursor are taken away first."""

        def act(held: Registered, revision: Revision) -> Registered:
            if held.managed_by == "file":
                raise _of_the_file(id)
            return lifecycle.drop(held, revision) if drop else lifecycle.remove(held, revision)

        return self._act(id, "drop" if drop else "remove", act, author, same, while_removing=True)

    def _act(
        self, id: str, name: str, action: Action, author: str | None, same: Same, *, while_removing: bool = False
    ) -> Done:
        begins: list[Operation] = []

        def decide(held: Mapping[str, Registered], revision: Revision) -> list[Registered]:
            known = _there(held, id)
            if known.removing and not while_removing:
                raise Refused("being_removed", f"{id} is being removed", "wait for its operation")
            _require_same(known, same)
            return _changed([action(known, revision)], held)

        def begin(con: Connection, changed: Mapping[str, Registered]) -> None:
            """With the new life, or there would be a life that nobody can follow."""
            if name in LONG:
                begins.append(begun(LONG[name], changed[id]))
                self.operations.add(con, begins[-1])

        after = self._keeper.change(decide, author, begin)[id]
        return Done(after, operation=begins[-1] if begins else None)

    def close_operations(self) -> None:
        """Keep how the operations ended that are over; done every now and then."""
        view = self._view
        looked = [self.now_of(each, view) for each in self.operations.open()]
        over = [each for each in looked if each.state in ("succeeded", "superseded")]
        if over:
            self.operations.finish(over, self._now())

    def now_of(self, operation: Operation, view: View) -> Operation:
        """How far an operation is."""
        if operation.finished_at is not None:
            return operation
        held = self._keeper.held.get(operation.destination)
        return look(operation, held, view.seen.get(operation.destination))

    # -- what lakes say -----------------------------------------------------------------------------------------------

    def history(self, id: str, limit: int, before: int | None) -> list[Stamped]:
        """The destination's own commits, the newest first, from its lake."""
        held = _there(self._view.destinations, id)
        config = self._keeper.config
        try:
            lake = Lakes(config, self._environ).published(held.message(config.pipeline))
        except ViaduckError as error:
            raise Refused("not_visible", error.message, error.hint) from None
        try:
            with closing(CatalogReader(lake)) as catalog:
                return catalog.history(f'"destination": "{id}"', limit, before)
        except LakeAbsent:
            return []

    def _require_retained(self, snapshot: int) -> None:
        config = self._keeper.config
        with closing(CatalogReader(self._source().lake)) as catalog:
            head = catalog.head().snapshot
            table = catalog.table(config.source.schema_name, config.source.table, head)
            born = head if table is None else table.begin_snapshot
            if snapshot > head or snapshot < born or not catalog.exists(snapshot):
                oldest = catalog.oldest_since(born)
                raise Refused(
                    "not_retained", f"the source has no snapshot {snapshot} of its table", f"choose {oldest} to {head}"
                )

    def _probe(self) -> Probe:
        return Probe(self._keeper.config, self._source().table.columns, self._environ)

    def _source(self) -> SourceLook:
        if self._keeper.seen is None:
            raise DependencyError("source", "the source has not been seen yet", "try again; /readyz says what is wrong")
        return self._keeper.seen

    def _taken(self, held: Mapping[str, Registered]) -> UniquenessIndex:
        return UniquenessIndex(_living(held), self._neighbours(), self._source_claim())

    def _source_claim(self) -> Claim | None:
        lake, source = self._keeper.config.source.lake, self._source().lake
        known = lake.model_copy(update={"catalog": source.catalog})
        return claim_of("the source", digest_of(source), known)

    # -- entries, in detail -------------------------------------------------------------------------------------------

    @property
    def _view(self) -> View:
        return self._board.view()

    def _is_news(self, declared: Declared) -> bool:
        """Whether its lake was not looked at before: a retry of the same PUT must not cost anything."""
        known = self._view.destinations.get(declared.id)
        return known is None or known.declared.lake != declared.lake or not known.declared.same_table(declared)

    def _declared(self, entries: Sequence[tuple[str, Entry]]) -> list[Declared]:
        found = self._each_declared(entries)
        for each in found:
            if isinstance(each, InvalidEntry):
                raise each
        return [each for each in found if isinstance(each, Declared)]

    def _each_declared(self, entries: Sequence[tuple[str, Entry]]) -> list[Declared | InvalidEntry]:
        source, written = self._source(), [entry.text() for _, entry in entries]
        unwritable = [text if "\x00" not in text else "" for text in written]
        values = canonical_values(source.routing.type, unwritable)
        return [
            self._one(id, entry, value, source)
            for (id, entry), value in zip(entries, values, strict=True)  # noqa: A001
        ]

    def _one(self, id: str, entry: Entry, value: str | None, source: SourceLook) -> Declared | InvalidEntry:
        config, text = self._keeper.config, entry.text()
        faults: list[FieldError] = []
        if value is None:
            faults.append(FieldError("routing_value", f"is no {source.routing.type}, as {source.routing.name} is"))
        try:
            declared = declare_entry(id, entry, value if value is not None else text, config, self._environ)
        except InvalidEntry as unfit:
            return InvalidEntry([*faults, *unfit.faults])
        if self._is_source(declared, source):
            faults.append(FieldError("table", "is the source's own table; write another catalog, schema or table"))
        return InvalidEntry(faults) if faults else declared

    def _is_source(self, declared: Declared, source: SourceLook) -> bool:
        config = self._keeper.config
        names = (declared.schema_name.lower(), declared.table.lower())
        if names != (config.source.schema_name.lower(), config.source.table.lower()):
            return False
        try:
            lake = Lakes(config, self._environ).catalog(declared.id, declared.routing_value, declared.lake)
            return lake.identity == source.lake.identity
        except ViaduckError:  # a variable that only the appliers have
            return False


def _living(held: Mapping[str, Registered]) -> Iterable[Declared]:
    return (each.declared for each in held.values() if not each.removed)


def _changed(now: Iterable[Registered], held: Mapping[str, Registered]) -> list[Registered]:
    return [each for each in now if each is not held.get(each.id)]


def _declare(
    held: Mapping[str, Registered], taken: UniquenessIndex, declared: Declared, revision: Revision, same: Same
) -> Registered:
    known = held.get(declared.id)
    if known is not None and not known.removed:
        if known.managed_by == "file":
            raise _of_the_file(declared.id)
        if known.removing:
            raise Refused("being_removed", f"{declared.id} is being removed", "wait for its operation, then add it")
        _require_same(known, same)
    elif same is not anything:
        raise Refused("precondition_failed", f"there is no {declared.id} to change", "leave If-Match out to create it")
    faults = [FieldError(path, said) for path, said in taken.clashes(declared)]
    if faults:
        raise InvalidEntry(faults)
    return lifecycle.declare(known, declared, "api", revision)


def _require_free(held: Mapping[str, Registered], taken: UniquenessIndex, declared: Declared) -> None:
    """Raises ``Refused`` where the id is somebody's, ``InvalidEntry`` where routing value or table are."""
    known = held.get(declared.id)
    if known is not None and not known.removed:
        hint = "PUT a destination with an id of your own and this routing value"
        raise Refused("conflict", f"there is a destination {declared.id} already", hint)
    faults = [FieldError(path, said) for path, said in taken.clashes(declared)]
    if faults:
        raise InvalidEntry(faults)


def _there(held: Mapping[str, Registered], id: str) -> Registered:
    known = held.get(id)
    if known is None or known.removed:
        raise Refused("not_found", f"there is no destination {id}", "GET …/destinations lists those that there are")
    return known


def _require_same(known: Registered, same: Same) -> None:
    if not same(known):
        said = f"{known.id} is at version {known.version} by now"
        raise Refused("precondition_failed", said, "GET it again, and decide again")


def _of_the_file(id: str) -> Refused:
    return Refused("declared_by_file", f"the file declares {id}", "change the file, and send SIGHUP to control")


def _raise_failed(findings: Sequence[Finding]) -> None:
    faults = [
        FieldError(each.check, f"{each.type}: {each.message}; {each.hint}", "check_failed")
        for each in findings
        if each.ok is False
    ]
    if faults:
        raise InvalidEntry(faults)
