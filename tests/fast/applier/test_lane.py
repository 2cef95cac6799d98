"""What a lane tells beside answers."""

from __future__ import annotations

from pathlib import Path

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
