"""What becomes of an item before anything is opened for it: most that come again are done with here."""

from __future__ import annotations

from dataclasses import dataclass

import structlog

from services.applier.destination_cache import DestinationCache
from services.applier.known_positions import KnownPositions
from services.applier.metrics_recorder import MetricsRecorder
from services.applier.model.admission import Admission, admit
from services.applier.model.immediate_answers import answer, unknown
from services.applier.outbox import Outbox, Place
from shared.contracts.messages import Destination, ItemKind, Outcome, Progress, WorkItem

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class ScreeningVerdict:
    """``RUN`` and ``HOLD`` leave the item to a lane; after every other one it is done with, ``answer`` being sent."""

    admission: Admission
    answer: Progress | None = None

    @property
    def is_final(self) -> bool:
        return self.admission not in (Admission.RUN, Admission.HOLD)


@dataclass(frozen=True)
class Screen:
    """Judges items by what this process knows, without a look at any lake. Used by many threads."""

    directory: DestinationCache
    known: KnownPositions
    outbox: Outbox
    measure: MetricsRecorder
    applier: str

    def judge(self, item: WorkItem, waited_s: float) -> ScreeningVerdict:
        """``waited_s``: for how long the item has been here, in seconds."""
        if item.upkeep is None:  # an order is control's, and no reader's next wish
            self.known.hear(item)
        if self.known.was_answered(item):
            return ScreeningVerdict(Admission.PASSED)
        destination = self.directory.last(item.key)
        admission = admit(item, destination, waited_s)
        if admission is Admission.UNKNOWN:
            return ScreeningVerdict(admission, unknown(item, self.applier))
        if destination is None:
            return ScreeningVerdict(admission)
        if admission is Admission.FENCED:
            return ScreeningVerdict(admission, self._fenced(item, destination))
        if admission is Admission.RUN:
            passed = self.known.answer(item, destination, self.applier)
            if passed is None:
                return ScreeningVerdict(Admission.RUN)
            is_heard = item.kind is ItemKind.PROBE or not self.known.is_outrun(item)
            return ScreeningVerdict(Admission.PASSED, passed if is_heard else None)
        return ScreeningVerdict(admission)

    def finish(self, item: WorkItem, place: Place, verdict: ScreeningVerdict) -> None:
        """Carry a final verdict out."""
        self.measure.screened(verdict.admission)
        if verdict.admission is Admission.REFUSED:
            log.error("drop_refused", destination=item.key, item=item.item)
        if verdict.answer is None:
            self.outbox.finish(place)
        else:
            self.outbox.send(verdict.answer, place)

    def _fenced(self, item: WorkItem, destination: Destination) -> Progress:
        said = answer(item, Outcome.FENCED, self.applier)
        return said.model_copy(update={"generation": destination.generation})
