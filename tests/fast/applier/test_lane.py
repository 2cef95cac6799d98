"""What a lane tells beside answers, and how long it waits for a burst."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from services.applier.model.grouping import Lane
from services.applier.model.patience import patience_s
from shared.contracts.reports import UnroutedRecords
from tests.fast.applier.driven_consumer import PIPELINE, Replayed, changes


def test_of_a_range_that_several_tasks_read_it_is_told_once_what_no_destination_takes(tmp_path: Path) -> None:
    one = UnroutedRecords(pipeline=PIPELINE, topic_id="t", after_at="{}", through_at='{"0":5}', rows=3)
    other = one.model_copy(update={"through_at": '{"0":4}', "rows": 2})
    consumer = Replayed(tmp_path, (one, one, other))
    consumer.wants("a", 1)
    consumer.sends(changes("a", 1, 2))
    consumer.works_off()
    assert [(each.through_at, each.rows) for each in consumer.sent.unrouted] == [('{"0":5}', 3), ('{"0":4}', 2)]
    assert {each.applier for each in consumer.sent.unrouted} == {"test"}
    assert (len(consumer.sent.answers), consumer.in_hand, consumer.broken) == (1, 0, [])


@pytest.mark.parametrize(("read_s", "waits_s"), [(0.0, 0.01), (0.125, 0.01), (0.5, 0.04), (1.0, 0.08), (60.0, 0.1)])
def test_a_burst_is_waited_for_as_long_as_a_part_of_what_another_read_takes(read_s: float, waits_s: float) -> None:
    assert patience_s(read_s) == pytest.approx(waits_s)


class Waits(threading.Condition):
    """Notes for how long it would wait."""

    def __init__(self) -> None:
        super().__init__()
        self.waits = list[float | None]()

    def wait(self, timeout: float | None = None) -> bool:
        self.waits.append(timeout)
        return True


def test_a_lane_knows_how_long_its_last_job_read(tmp_path: Path) -> None:
    consumer = Replayed(tmp_path)
    lane = consumer.consumer._lanes[Lane.CHANGES]
    lane._wake = wake = Waits()
    consumer.wants("a", 1)
    for through in (2, 3):
        consumer.sends(changes("a", through - 1, through))
        lane._linger()
        consumer.works_off()
    assert wake.waits == [patience_s(0.0), patience_s(1.5)]
