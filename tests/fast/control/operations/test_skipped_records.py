"""What was skipped of a topic stands in the audit trail, once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from services.control.operations.skipped_records import DEED, SkippedRecords
from services.control.store.audit_log import AuditLog
from services.control.store.database import Database
from services.control.view.status_store import StatusStore
from shared.contracts.messages import Outcome, Progress, Skipped
from tests.fast.control.examples import PIPELINE, by_id, progress, registered
from tests.fast.control.fresh_registry import fresh


@pytest.fixture
def trail(tmp_path: Path) -> Iterator[AuditLog]:
    with closing(Database(fresh(tmp_path / "registry.sqlite"))) as database:
        database.prepare()
        yield AuditLog(database, PIPELINE)


def heard(*said: Progress) -> StatusStore:
    store = StatusStore(PIPELINE)
    store.hold(by_id([registered("a")]))
    for each in said:
        store.note(each)
    return store


def skipping(item: str, outcome: Outcome = Outcome.APPLIED, id: str = "a") -> Progress:
    return progress(outcome, id, position=9, applier="applier-1", skipped=Skipped(item=item, offsets={0: (100, 180)}))


def test_each_commit_that_skipped_is_written_down_once_however_often_it_is_told(trail: AuditLog) -> None:
    store = heard(skipping("one"), skipping("one", Outcome.ALREADY_APPLIED), skipping("two"))
    assert store.asked.is_set()
    SkippedRecords(store, trail).turn()
    assert store.skips() == []
    SkippedRecords(heard(skipping("one")), trail).turn()  # a control that started again hears it again
    found = trail.entries(10, destination="a")
    assert [(each.deed, each.author, each.changes["item"][1]) for each in found] == [
        (DEED, "applier-1", "two"), (DEED, "applier-1", "one"),
    ]  # fmt: skip
    assert found[0].changes["records"][1] == 80
    assert found[0].changes["offsets"][1] == {"partition 0": "100 to 179"}


def test_of_a_destination_that_is_not_registered_nothing_is_written_down(trail: AuditLog) -> None:
    SkippedRecords(heard(skipping("one", id="stranger")), trail).turn()
    assert trail.entries(10) == []


def test_of_many_partitions_some_are_named_and_all_are_counted(trail: AuditLog) -> None:
    many = Skipped(item="one", offsets=dict.fromkeys(range(100), (0, 1)))
    SkippedRecords(heard(progress(skipped=many)), trail).turn()
    (entry,) = trail.entries(10)
    assert entry.changes["records"][1] == 100
    assert entry.changes["offsets"][1]["further partitions"] == "80"
