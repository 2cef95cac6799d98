"""Pipelines that came over REST: registered, copied and published, by one control or by several."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from services.control.model.lifecycle import Refused
from services.control.store.audit_log import WHOLE, AuditLog
from services.control.store.database import Database
from services.control.store.pipeline_store import PipelineStore, StoredPipeline
from shared.config.pipeline_files import Copy, PipelineFiles
from shared.contracts.errors import DependencyError
from shared.contracts.messages import PipelineDocument
from tests.fast.control.examples import START, at
from tests.fast.control.fakes import FakeTopic

ORDERS = {"source": {"table": "orders", "catalog": None}, "destinations": [{"id": "a"}, {"id": "b"}], "n": 1}


@dataclass
class Control:
    """One of those that share a registry, with a folder and a topic of its own."""

    url: str
    folder: Path
    now: datetime = START
    topic: FakeTopic = field(default_factory=lambda: FakeTopic("viaduck.pipelines"))

    def __post_init__(self) -> None:
        self.database = Database(make_url(self.url))
        self.database.prepare()
        self.copies = PipelineFiles(self.folder)
        self.pipeline_store = PipelineStore(
            self.database, self.copies, self.topic, "viaduck.pipelines", lambda: self.now
        )

    def close(self) -> None:
        self.database.close()

    @property
    def kept(self) -> dict[str, PipelineDocument]:
        """What compaction would leave of what it published."""
        return {key: PipelineDocument.from_bytes(value) for key, value in dict(self.topic.sent).items() if value}


@pytest.fixture
def one(database_url: str, tmp_path: Path) -> Iterator[Control]:
    with closing(Control(database_url, tmp_path / "one")) as control:
        yield control


@pytest.fixture
def other(database_url: str, tmp_path: Path) -> Iterator[Control]:
    with closing(Control(database_url, tmp_path / "other")) as control:
        yield control


def test_what_is_put_is_registered_copied_and_published_and_is_there_after_a_restart(
    one: Control, other: Control
) -> None:
    assert one.pipeline_store.is_new()
    put = one.pipeline_store.put("orders", ORDERS, "somebody")
    assert put == StoredPipeline("orders", ORDERS, "there", 1, "somebody", START)
    assert not one.pipeline_store.is_new()
    assert one.copies.read("orders") == Copy(ORDERS, 1)
    assert one.kept == {"orders": PipelineDocument(pipeline="orders", version=1, document=ORDERS)}
    assert one.pipeline_store.find("orders") == put
    other.pipeline_store.refresh()
    assert other.pipeline_store.all == one.pipeline_store.all


def test_the_same_again_in_any_order_changes_nothing(one: Control) -> None:
    first = one.pipeline_store.put("orders", ORDERS, "somebody")
    sent = len(one.topic.sent)
    again = one.pipeline_store.put("orders", dict(reversed(ORDERS.items())), "somebody else")
    assert (again, len(one.topic.sent)) == (first, sent)
    assert one.pipeline_store.put("orders", {**ORDERS, "n": True}, None).version == 2


def test_one_that_went_is_said_to_be_gone_and_comes_back_with_a_later_version(one: Control) -> None:
    one.pipeline_store.put("orders", ORDERS, None)
    gone = one.pipeline_store.end("orders", "deleted", "somebody")
    assert (gone.content, gone.version, one.pipeline_store.find("orders")) == (None, 2, None)
    assert one.copies.names() == []
    assert one.kept["orders"] == PipelineDocument(pipeline="orders", version=2)
    assert one.pipeline_store.put("orders", ORDERS, None).version == 3
    assert one.copies.version("orders") == 3


def test_versions_are_counted_over_all_and_the_trail_tells_what_changed(one: Control) -> None:
    one.now = at(5)
    one.pipeline_store.put("events", {"n": 1}, None)
    one.pipeline_store.put("orders", ORDERS, "somebody")
    one.pipeline_store.put("orders", {**ORDERS, "destinations": [{"id": "b", "x": 1}], "n": 2}, "somebody")
    one.pipeline_store.end("orders", "ceded", "file")
    one.pipeline_store.put("orders", {"n": 2}, None)
    found = AuditLog(one.database, "orders").entries(10)
    assert [(each.version, each.deed, each.author) for each in reversed(found)] == [
        (2, "added", "somebody"), (3, "changed", "somebody"), (4, "taken over by a file", "file"),
        (5, "added again", None),
    ]  # fmt: skip
    assert {(each.destination, each.generation, each.at) for each in found} == {(WHOLE, 0, at(5))}
    assert found[2].changes == {"destinations": [["a", "b"], ["b"]], "n": [1, 2]}


def test_what_one_control_changes_the_other_copies_and_publishes(one: Control, other: Control) -> None:
    one.pipeline_store.put("orders", ORDERS, None)
    other.pipeline_store.refresh()
    assert (other.copies.read("orders"), other.kept) == (Copy(ORDERS, 1), one.kept)
    other.pipeline_store.end("orders", "deleted", None)
    one.pipeline_store.refresh()
    assert (one.copies.names(), one.kept) == ([], other.kept)


def test_a_condition_is_held_against_what_is_registered_whoever_wrote_it(one: Control, other: Control) -> None:
    other.pipeline_store.put("orders", ORDERS, None)

    def only_new(known: StoredPipeline | None) -> None:
        if known is not None:
            raise Refused("precondition_failed", "it is there", "")

    with pytest.raises(Refused):
        one.pipeline_store.put("orders", {"n": 2}, None, only_new)
    assert one.copies.names() == []
    one.pipeline_store.refresh()
    assert one.pipeline_store.all["orders"].version == 1


def test_many_changes_at_both_end_with_one_truth_and_no_version_twice(one: Control, other: Control) -> None:
    def play(control: Control, shift: int) -> None:
        for number in range(30):
            name = f"p{(number + shift) % 4}"
            if number % 5 == 4:
                control.pipeline_store.end(name, "deleted", None)
            else:
                control.pipeline_store.put(name, {"n": number * 10 + shift}, None)

    threads = [threading.Thread(target=play, args=(each, shift)) for shift, each in enumerate((one, other))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for control in (one, other):
        control.pipeline_store.refresh()
    assert one.pipeline_store.all == other.pipeline_store.all
    assert one.kept == other.kept
    assert {name: one.copies.read(name) for name in one.copies.names()} == {
        name: other.copies.read(name) for name in other.copies.names()
    }
    versions = [each.version for name in one.pipeline_store.all for each in AuditLog(one.database, name).entries(1_000)]
    assert len(set(versions)) == len(versions)


def test_copies_that_somebody_touched_are_mended_and_those_of_nobody_go(one: Control) -> None:
    one.pipeline_store.put("orders", ORDERS, None)
    one.pipeline_store.put("events", {"n": 1}, None)
    one.copies.remove("orders")
    one.copies.file("events").write_text("{")
    one.copies.write("nobodys", {}, 1)
    one.pipeline_store.mend()
    assert (one.copies.read("orders"), one.copies.read("events")) == (Copy(ORDERS, 1), Copy({"n": 1}, 2))
    assert one.copies.names() == ["events", "orders"]


def test_a_folder_that_can_not_be_written_is_said_and_made_up_for(one: Control) -> None:
    one.folder.mkdir()
    one.copies.folder.write_text("in the way")
    with pytest.raises(DependencyError, match=r"state_dir: .*pipelines can't be written"):
        one.pipeline_store.put("orders", ORDERS, None)
    assert one.kept == {}
    one.copies.folder.unlink()
    one.pipeline_store.refresh()
    assert (one.copies.names(), list(one.kept)) == (["orders"], ["orders"])


def test_a_lost_registry_adopts_what_others_remember_with_their_versions(one: Control, other: Control) -> None:
    said = [
        PipelineDocument(pipeline="orders", version=7, document=ORDERS),
        PipelineDocument(pipeline="gone", version=9),
    ]
    one.pipeline_store.adopt(said)
    other.pipeline_store.adopt(said)
    one.pipeline_store.refresh()
    assert {name: (each.version, each.state) for name, each in one.pipeline_store.all.items()} == {
        "orders": (7, "there"), "gone": (9, "deleted"),
    }  # fmt: skip
    assert one.copies.read("orders") == Copy(ORDERS, 7)
    assert one.pipeline_store.put("gone", {"n": 1}, None).version == 10


def test_a_message_keeps_what_is_null_and_knows_its_model() -> None:
    said = PipelineDocument(pipeline="orders", version=1, document={"a": None, "b": [None, {"c": None}]})
    assert json.loads(said.to_bytes()) == {
        "v": 1, "pipeline": "orders", "version": 1, "document": {"a": None, "b": [None, {"c": None}]},
    }  # fmt: skip
    assert PipelineDocument.from_bytes(said.to_bytes()) == said
