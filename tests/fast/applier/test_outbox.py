"""An item counts as done when its progress has been delivered, not when it was sent."""

from __future__ import annotations

from services.applier.model.immediate_answers import answer
from services.applier.outbox import RESEND_AFTER_S, Outbox
from shared.contracts.messages import ItemKind, Outcome, WorkItem
from shared.kafka.work_consumer import PartitionId
from tests.fast.fake_sender import FakeSender

PLACE = (PartitionId("work", 0), 7)
PROGRESS = answer(
    WorkItem(item="i", kind=ItemKind.PROBE, pipeline="p", destination="d", generation=1, through=1), Outcome.EMPTY, "me"
)


def test_nothing_is_done_before_its_progress_is_delivered() -> None:
    broker = FakeSender(waits=True)
    outbox = Outbox(broker, "progress")
    outbox.send(PROGRESS, PLACE)
    assert outbox.delivered() == []
    broker.reports[0](None)
    assert outbox.delivered() == [PLACE]


def test_progress_that_could_not_be_delivered_is_sent_again() -> None:
    now = [0.0]
    broker = FakeSender(waits=True)
    outbox = Outbox(broker, "progress", clock=lambda: now[0])
    outbox.send(PROGRESS, PLACE)
    broker.reports[0](RuntimeError("broker away"))
    outbox.resend()
    assert broker.keys == ["p/d"]
    now[0] += RESEND_AFTER_S
    outbox.resend()
    assert broker.keys == ["p/d", "p/d"]
    broker.reports[1](None)
    assert outbox.delivered() == [PLACE]
