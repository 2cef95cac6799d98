"""Upkeep on demand and by schedule: operations, each an item on the work topic that is sent until it is answered.

An item that comes twice only does again what is done already. Control sends it under another name each time, since an
applier ignores the name of an item that it has answered.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import structlog

from services.control.model.lifecycle import Refused, Registered
from services.control.model.upkeep_schedule import due_lakes, is_within
from services.control.operations.destination_service import DestinationService
from services.control.operations.long_operations import LongOperation
from services.control.operations.reconciler import Reconciler
from services.control.store.audit_log import WHOLE
from services.control.view.destination_status import View
from shared.config.upkeep_rules import policy_of
from shared.contracts.messages import DesiredState, ItemKind, WorkItem
from shared.contracts.upkeep import LAKE_WIDE, UpkeepOrder, hours_of, seconds_of
from shared.kafka.sender import Sender

log = structlog.get_logger(__name__)

SCHEDULE = "schedule"
"""Who asks for what is due."""

RESEND_AFTER_S = 600.0
LOOK_EVERY_S = 5.0


@dataclass(frozen=True)
class Begun:
    """``refused``: why each of the others could not be, by id."""

    operations: tuple[LongOperation, ...]
    refused: Mapping[str, str]


class UpkeepService:
    """One pipeline's. ``begin`` and ``begin_all`` from any thread, ``turn`` from control's own."""

    def __init__(
        self,
        reconciler: Reconciler,
        service: DestinationService,
        view: Callable[[], View],
        sender: Sender,
        topic: str,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``service``: whose operations these are among. ``topic``: where work items go."""
        self._reconciler = reconciler
        self._service = service
        self._view = view
        self._sender = sender
        self._topic = topic
        self._now = now
        self._clock = clock
        self._sent: dict[str, tuple[float, int]] = {}
        """When each open operation's item was sent, and how often."""
        self._turn_s = float("-inf")

    def begin(self, destination: str, order: UpkeepOrder, author: str | None) -> LongOperation:
        """The operation that does it; or the open one, where it asks for the same. Raises ``Refused``."""
        view = self._view()
        _require_known(view, destination)
        _require_harmless(view)
        _require_ready(view, destination)
        running = {each.destination: each for each in self._open(view)}.get(destination)
        if running is not None:
            if running.order == order:
                return running
            hint = f"wait for the operation {running.id}, and ask again"
            raise Refused("conflict", f"another upkeep of {destination} is running", hint)
        self._service.audit_log.note("upkeep", author, self._now(), order.model_dump(mode="json"), destination)
        return self._begun(view.destinations[destination], order, author)

    def begin_all(self, destinations: Iterable[str], order: UpkeepOrder, author: str | None) -> Begun:
        """The same for many. What concerns a whole lake is asked for once in each lake."""
        view, refused, begun = self._view(), dict[str, str](), list[LongOperation]()
        running = {each.destination for each in self._open(view)}
        lakes: set[object] = set()
        ready: list[tuple[Registered, UpkeepOrder]] = []
        for name in destinations:
            try:
                _require_harmless(view)
                _require_ready(view, name)
            except Refused as refusal:
                refused[name] = refusal.message
                continue
            held = view.destinations[name]
            own = order if held.declared.lake_key not in lakes else _without_lake(order)
            if name in running or not (own.steps is None or own.steps):
                refused[name] = "an upkeep of it is running" if name in running else "its lake is another one's turn"
                continue
            lakes.add(held.declared.lake_key)
            ready.append((held, own))
        if ready:
            told = {**order.model_dump(mode="json"), "destinations": len(ready)}
            self._service.audit_log.note("upkeep", author, self._now(), told, WHOLE)
        begun = [self._begun(held, own, author) for held, own in ready]
        return Begun(tuple(begun), refused)

    def turn(self) -> None:
        """Send again what was not answered, and begin what is due. Raises ``DependencyError``."""
        if self._clock() < self._turn_s + LOOK_EVERY_S:
            return
        self._turn_s = self._clock()
        view = self._view()
        running = self._open(view)
        for each in running:
            sent_s, _ = self._sent.get(each.id, (float("-inf"), 0))
            if self._clock() >= sent_s + RESEND_AFTER_S:
                self._send(each)
        there = {each.id for each in running}
        self._sent = {name: each for name, each in self._sent.items() if name in there}
        self._begin_due(view, running)

    def _begin_due(self, view: View, running: list[LongOperation]) -> None:
        upkeep = self._reconciler.config.upkeep
        every_s, hours = seconds_of(upkeep.every), hours_of(upkeep.hours)
        free = upkeep.at_once - len(running)
        if every_s is None or free <= 0 or not is_within(self._now(), hours) or _harmed(view) is not None:
            return
        wanted = {name: each for name, each in view.destinations.items() if self._is_wanted(view, each)}
        if not wanted:
            return
        last = self._service.operations.last_upkeeps(SCHEDULE)
        busy = {each.destination for each in running}
        for held in due_lakes(wanted, last, self._now(), every_s, busy)[:free]:
            steps = policy_of(upkeep, held.declared.upkeep).steps
            self._begun(held, UpkeepOrder(steps=tuple(each for each in steps if each in LAKE_WIDE)), SCHEDULE)
            log.info("upkeep_due", destination=held.id)

    def _is_wanted(self, view: View, held: Registered) -> bool:
        policy = policy_of(self._reconciler.config.upkeep, held.declared.upkeep)
        if not set(policy.steps) & set(LAKE_WIDE):
            return False
        try:
            _require_ready(view, held.id)
        except Refused:
            return False
        return True

    def _open(self, view: View) -> list[LongOperation]:
        found = (each for each in self._service.operations.open() if each.kind == "upkeep")
        return [each for each in found if self._service.now_of(each, view).state == "running"]

    def _begun(self, held: Registered, order: UpkeepOrder, author: str | None) -> LongOperation:
        operation = LongOperation(
            uuid.uuid4().hex, held.id, "upkeep", held.generation, self._now(), author=author, order=order
        )
        self._service.operations.begin(operation)
        self._send(operation)
        return operation

    def _send(self, operation: LongOperation) -> None:
        _, count = self._sent.get(operation.id, (0.0, 0))
        item = WorkItem(
            item=f"{operation.id}.{count}.{uuid.uuid4().hex[:8]}",
            kind=ItemKind.UPKEEP,
            pipeline=self._reconciler.config.pipeline,
            destination=operation.destination,
            generation=operation.generation,
            through=0,
            upkeep=operation.order or UpkeepOrder(),
        )
        self._sender.send(self._topic, item.key, item.to_bytes())
        self._sent[operation.id] = self._clock(), count + 1


def _without_lake(order: UpkeepOrder) -> UpkeepOrder:
    steps = order.steps
    kept = tuple(each for each in steps if each not in LAKE_WIDE) if steps is not None else ("compact",)
    return UpkeepOrder.model_validate({"steps": kept, "dry_run": order.dry_run})


def _require_known(view: View, destination: str) -> Registered:
    held = view.destinations.get(destination)
    if held is None:
        raise Refused("not_found", f"there is no destination {destination}", "GET …/destinations lists them")
    return held


def _require_harmless(view: View) -> None:
    """Raises ``Refused`` after an upkeep that changed rows: the next would do the same to another lake."""
    if (harmed := _harmed(view)) is not None:
        hint = f"compare the rows of {harmed} with the source (viaduck verify), then reseed or resume it"
        raise Refused("conflict", f"upkeep has damaged {harmed}, and no other of the pipeline begins", hint)


def _require_ready(view: View, destination: str) -> None:
    """Raises ``Refused`` for a destination whose table no applier would touch now."""
    held = _require_known(view, destination)
    if held.removing:
        raise Refused("being_removed", f"{destination} is being removed", "wait for its operation")
    if held.desired is not DesiredState.RUNNING:
        raise Refused("conflict", f"{destination} is {held.desired.value}", "resume or restart it first")
    seen = view.seen.get(destination)
    if seen is None or seen.generation != held.generation or seen.position is None or seen.position < 0:
        raise Refused("conflict", f"{destination} is not known to be seeded", "wait until it runs")
    if view.standings[destination].state == "parked":
        raise Refused("conflict", f"{destination} is parked", "correct the cause and resume it first")


def _harmed(view: View) -> str | None:
    """A destination that an upkeep has damaged, and that no operator has reseeded or resumed since."""
    return min((name for name, each in view.destinations.items() if each.is_damaged), default=None)
