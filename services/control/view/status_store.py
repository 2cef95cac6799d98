"""Control's memory: what is registered and what was heard. Threads write it and others read it."""

from __future__ import annotations

import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from datetime import datetime

from services.control.model.lifecycle import Registered
from services.control.store.audit_log import RegistryRebuilt
from services.control.view import lake_health
from services.control.view import observed_state as seen_
from services.control.view.destination_status import View
from services.control.view.frontier import Frontiers, Published
from services.control.view.lake_health import KnownHealth
from services.control.view.observed_state import ObservedLife
from services.control.view.pipeline_retention import PipelineRetention
from shared.contracts.messages import ItemKind, Outcome, Progress
from shared.contracts.reports import Frontier, LakeHealth, Offer, Offered, Told, UnroutedRecords

ASKING = frozenset({Outcome.PARKED, Outcome.FENCED})
"""Answers that may want something of the registry; so does every one to a ``drop``."""

ORDERED = re.compile(r"[0-9a-f]{32}\.[0-9]+\.[0-9a-f]{8}")
"""What items are called that operations send."""

MOST_APPLIERS = 200
"""Bounds the names that a client of the broker can make up."""


MOST_SKIPS = 1_000
"""Answers about skipped records that wait to be written down; one destination has one every few minutes at most."""


class StatusStore:
    """Everything in it is a value of its own, so a view is a few shallow copies and never changes under its reader."""

    def __init__(self, pipeline: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.pipeline = pipeline
        self._clock = clock
        self.asked = threading.Event()
        """Set while there are answers that may want something of the registry."""
        self.file_in_force = False
        """Whether the registry holds what the file declares; set by the component that reads the file."""
        self.refused: tuple[str, ...] = ()
        """What the source says against the file as it is now."""
        self._rebuilt: RegistryRebuilt | None = None
        self._lock = threading.Lock()
        self._destinations: dict[str, Registered] = {}
        self._published = Published()
        self._seen: dict[str, ObservedLife] = {}
        self._health: dict[str, KnownHealth] = {}
        self._source_health: KnownHealth | None = None
        self._upkept: dict[str, Progress] = {}
        self._retention: PipelineRetention | None = None
        self._frontiers = Frontiers()
        self._appliers: OrderedDict[str, datetime] = OrderedDict()
        """When each answered last, by its own clock; those that did so last."""
        self._asks: dict[str, Progress] = {}
        self._skips: dict[str, Progress] = {}
        """Answers about skipped records, by the item that skipped them."""
        self.offered = threading.Event()
        """Set when a reader has offered routing values without a destination."""
        self._offers: dict[str, Offer] = {}
        self._view: View | None = None
        """The last one, as long as nothing has changed."""

    def hold(self, held: Mapping[str, Registered]) -> None:
        """Show what the registry holds now."""
        live = {name: each for name, each in held.items() if not each.removed}
        published = Published(
            {name: each.generation for name, each in live.items()},
            {name: each.revision.id for name, each in live.items()},
        )
        gone = held.keys() - live.keys()
        with self._lock:
            self._seen = {name: each for name, each in self._seen.items() if name not in gone}
            self._health = {name: each for name, each in self._health.items() if name not in gone}
            self._upkept = {name: each for name, each in self._upkept.items() if name not in gone}
            self._destinations, self._published, self._view = live, published, None
            self._frontiers.trust(published)

    def remember_rebuilt(self, rebuilt: RegistryRebuilt | None) -> None:
        """Show that the registry was lost once, and what of it is not back."""
        with self._lock:
            self._rebuilt, self._view = rebuilt, None

    def note_retention(self, retention: PipelineRetention) -> None:
        """What control's own look at the source's history came to."""
        with self._lock:
            self._retention, self._view = retention, None

    def note(self, message: Told) -> None:
        """Take in what an applier or a reader said; other pipelines' is ignored, and what the reader will offer."""
        if message.pipeline != self.pipeline or isinstance(message, UnroutedRecords):
            return
        with self._lock:
            self._view = None
            if isinstance(message, Frontier):
                self._frontiers.note(message, self._published, self._clock())
            elif isinstance(message, Offer):
                self._offers[message.instance] = message
                self.offered.set()
            elif isinstance(message, LakeHealth):
                self._note_health(message)
            else:
                self._note_progress(message)

    def take_asks(self) -> dict[str, Progress]:
        """The answers that may want something of the registry, the last of each destination; they are taken once."""
        with self._lock:
            asks, self._asks = self._asks, {}
            self.asked.clear()
            return asks

    def put_back(self, asks: Mapping[str, Progress]) -> None:
        """Asks that could not be met now; newer ones of the same destination stand."""
        with self._lock:
            self._asks = {**asks, **self._asks}

    def skips(self) -> list[Progress]:
        """Answers about skipped records that wait to be written down."""
        with self._lock:
            return list(self._skips.values())

    def skip_noted(self, item: str) -> None:
        """What an item skipped is written down."""
        with self._lock:
            self._skips.pop(item, None)

    def offers(self) -> list[Offered]:
        """The routing values without a destination that readers offered last."""
        with self._lock:
            return [value for offer in self._offers.values() for value in offer.values]

    def view(self) -> View:
        with self._lock:
            unsure = self._frontiers.unsure(self._clock())
            now = self.file_in_force, self.refused, unsure
            if self._view is None or (self._view.in_force, self._view.refused, self._view.unsure) != now:
                self._view = View(
                    pipeline=self.pipeline,
                    in_force=self.file_in_force,
                    refused=self.refused,
                    rebuilt=self._rebuilt,
                    destinations=self._destinations,
                    seen=dict(self._seen),
                    published=self._published,
                    newest=self._frontiers.newest,
                    trusted=self._frontiers.trusted,
                    appliers=dict(self._appliers),
                    unsure=unsure,
                    health=dict(self._health),
                    source_health=self._source_health,
                    upkept=dict(self._upkept),
                    retention=self._retention,
                )
            return self._view

    def _note_health(self, said: LakeHealth) -> None:
        if said.destination is None:
            self._source_health = lake_health.after(self._source_health, said)
        elif said.destination in self._destinations:
            self._health[said.destination] = lake_health.after(self._health.get(said.destination), said)

    def _note_progress(self, progress: Progress) -> None:
        if progress.applier:
            self._appliers[progress.applier] = progress.at
            self._appliers.move_to_end(progress.applier)
            if len(self._appliers) > MOST_APPLIERS:
                self._appliers.popitem(last=False)
        ordered = progress.kind is ItemKind.UPKEEP and ORDERED.fullmatch(progress.item)
        if ordered and progress.destination in self._destinations:
            self._upkept[progress.destination] = progress
        if (
            progress.skipped is not None
            and progress.destination in self._destinations
            and len(self._skips) < MOST_SKIPS
        ):
            self._skips[progress.skipped.item] = progress
            self.asked.set()
        before = self._seen.get(progress.destination)
        if seen_.is_past(before, progress):
            return
        after = seen_.after(before, progress)
        if after is not None:
            self._seen[progress.destination] = after
        if progress.outcome in ASKING or progress.kind is ItemKind.DROP:
            self._asks[progress.destination] = progress
            self.asked.set()
