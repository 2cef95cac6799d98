"""Reading the progress topic."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from services.control.progress_consumer import handler
from services.control.view.status_store import StatusStore
from shared.contracts.reports import UnroutedRecords
from shared.kafka.record import Record
from tests.fast.control.examples import PIPELINE, frontier, progress, registered


def record(value: bytes | None) -> Record:
    return Record("viaduck.progress", 0, 0, "events/a", value)


def test_answers_and_frontiers_reach_the_board() -> None:
    status_store, unreadable = StatusStore(PIPELINE), list[Record]()
    status_store.hold({"a": registered()})
    handle = handler(status_store.note, lambda record, _: unreadable.append(record))
    handle(record(progress(position=15).to_bytes()))
    handle(record(frontier([registered()], head=17).to_bytes()))
    assert (status_store.view().seen["a"].position, status_store.view().source_snapshot, unreadable) == (15, 17, [])


def test_what_appliers_tell_the_reader_of_a_topic_is_nothing_to_show() -> None:
    status_store, unreadable = StatusStore(PIPELINE), list[Record]()
    found = UnroutedRecords(pipeline=PIPELINE, topic_id="t", after_at="{}", through_at='{"0":5}', rows=3)
    handler(status_store.note, lambda record, _: unreadable.append(record))(record(found.to_bytes()))
    assert (status_store.offers(), status_store.offered.is_set(), unreadable) == ([], False, [])


def test_a_tombstone_says_nothing() -> None:
    unreadable: list[str] = []
    handler(StatusStore(PIPELINE).note, lambda _, reason: unreadable.append(reason))(record(None))
    assert unreadable == []


@given(st.binary() | st.text().map(str.encode) | st.just(b'{"record":"frontier"}'))
def test_garbage_is_put_aside_with_a_reason_and_stops_nobody(garbage: bytes) -> None:
    status_store, reasons = StatusStore(PIPELINE), list[str]()
    handle = handler(status_store.note, lambda _, reason: reasons.append(reason))
    handle(record(garbage))
    handle(record(progress(position=15).to_bytes()))
    assert len(reasons) == 1
    assert reasons[0].startswith("not a ")
    assert status_store.view().seen["a"].position == 15
