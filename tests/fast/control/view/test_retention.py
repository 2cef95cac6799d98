"""How far the source may be expired: what each destination needs, over HTTP and as metrics."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from services.control.retention_metrics_view import retention_metrics
from services.control.view.lake_retention import by_lake
from services.control.view.observed_state import CLOCKS_DIFFER
from services.control.view.pipeline_retention import PipelineRetention, warning
from services.control.view.status_store import StatusStore
from shared.contracts.messages import ItemKind, Outcome, SeedMode
from shared.contracts.reports import Lagging
from shared.lake.upkeep.retained import LakeSnapshot, Retained
from shared.runtime.metrics import together
from tests.fast.control.examples import START, at, by_id, declared, frontier, problem, progress, registered
from tests.fast.control.fakes import FakeSource
from tests.fast.control.files import make_source, with_lake
from tests.fast.control.rig import V1, ControlRig

SPAN = Retained("a lake", 120, at(0), 9_000, at(1_001))
LOOK = PipelineRetention(at(1_001), SPAN, begun=LakeSnapshot(8_000, at(900)))


def store(*held: Any, pipeline: str = "events", look: PipelineRetention | None = LOOK) -> StatusStore:
    made = StatusStore(pipeline)
    made.hold(by_id(held))
    made.file_in_force = True
    if look is not None:
        made.note_retention(look)
    return made


def lowest(made: StatusStore) -> int | None:
    (found,) = by_lake({made.pipeline: made.view()})
    return None if found.lowest is None else found.lowest.held.snapshot


def unknown(made: StatusStore) -> list[str | None]:
    (found,) = by_lake({made.pipeline: made.view()})
    return [each.destination for each in found.unknown]


def test_the_lowest_stored_position_holds_the_source() -> None:
    made = store(registered("a"), registered("b"))
    made.note(progress(id="a", position=812))
    made.note(progress(id="b", position=3_000))
    (found,) = by_lake({"events": made.view()})
    assert (found.may_expire_through, found.unknown_count) == (811, 0)
    assert found.lowest is not None
    assert (found.lowest.pipeline, found.lowest.held.destination) == ("events", "a")


@pytest.mark.parametrize("desired", ["paused", "stopped"])
def test_what_is_switched_off_counts(desired: Any) -> None:
    made = store(registered("a", desired=desired), registered("b"))
    made.note(progress(id="a", position=200))
    made.note(progress(id="b", position=3_000))
    assert lowest(made) == 200


def test_what_is_parked_counts_unless_its_history_is_lost_already() -> None:
    made = store(registered("a"), registered("b"))
    made.note(progress(id="b", position=3_000))
    made.note(progress(Outcome.PARKED, "a", position=200, error=problem("access_denied")))
    assert lowest(made) == 200
    made.note(progress(Outcome.PARKED, "a", seconds=20, position=200, error=problem("history_expired")))
    assert lowest(made) == 3_000


def test_what_is_removed_or_being_removed_does_not_count() -> None:
    made = store(registered("a", removing=True), registered("b", removed=True), registered("c"))
    for name, position in (("a", 200), ("b", 300), ("c", 4_000)):
        made.note(progress(id=name, position=position))
    assert lowest(made) == 4_000


def test_a_rewind_that_has_not_begun_needs_the_snapshot_where_it_begins() -> None:
    made = store(registered("a", generation=2, seed_at=500))
    made.note(progress(id="a", generation=1, position=3_000))
    assert lowest(made) == 500
    made.note(progress(id="a", generation=2, position=-1, kind=ItemKind.PROBE))
    assert lowest(made) == 500
    made.note(progress(id="a", generation=2, position=600))
    assert lowest(made) == 600


def test_a_replay_that_has_not_begun_needs_the_oldest_snapshot() -> None:
    made = store(registered("a", declared=declared("a", seed_mode=SeedMode.REPLAY)))
    assert (lowest(made), unknown(made)) == (120, [])


def test_a_destination_of_which_nothing_was_heard_is_named_and_nothing_may_be_expired() -> None:
    made = store(registered("a"), registered("b", generation=2))
    made.note(progress(id="b", generation=1, position=3_000))
    (found,) = by_lake({"events": made.view()})
    assert ([each.destination for each in found.unknown], found.may_expire_through) == (["a", "b"], None)


def test_a_cursor_that_could_not_be_read_is_unknown() -> None:
    made = store(registered("a"))
    made.note(progress(Outcome.FAILED, "a", error=problem()))
    assert unknown(made) == ["a"]


def test_a_seed_that_may_be_under_way_keeps_what_it_may_read() -> None:
    made = store(registered("a"))
    made.note(progress(id="a", seconds=900 + CLOCKS_DIFFER.total_seconds(), position=-1, kind=ItemKind.PROBE))
    assert lowest(made) == 8_000
    earlier = store(registered("a"))
    earlier.note(progress(id="a", seconds=899 + CLOCKS_DIFFER.total_seconds(), position=-1, kind=ItemKind.PROBE))
    assert lowest(earlier) == 120, "the look did not ask for a moment so long ago"
    off = store(registered("a", desired="paused"))
    off.note(progress(id="a", position=-1, kind=ItemKind.PROBE))
    assert lowest(off) is None


def test_a_position_that_has_expired_is_replaced_by_what_is_known_to_be_exact() -> None:
    held = registered("a")
    made = store(held)
    made.note(progress(id="a", position=50))
    assert lowest(made) is None
    made.note(frontier([held], head=7_000))
    assert lowest(made) == 7_000


def test_columns_that_changed_take_nothing_from_who_can_go_on_behind_them() -> None:
    """Its rows are exact at a snapshot that is still there; only the columns have to be followed from an older one."""
    held = registered("a")
    made = store(held)
    made.note(progress(id="a", position=50))
    behind = Lagging(known_through=59, rows_through=7_000)
    made.note(frontier([held], head=7_000).model_copy(update={"lagging": {"a": behind}}))
    assert lowest(made) == 7_000


def test_the_head_stays_where_nothing_is_needed() -> None:
    (found,) = by_lake({"events": store().view()})
    assert (found.lowest, found.may_expire_through) == (None, 8_999)


def test_pipelines_of_one_lake_are_taken_together_and_others_apart() -> None:
    one, two = store(registered("a")), store(registered("a"), pipeline="other")
    three = store(pipeline="third", look=replace(LOOK, retained=replace(SPAN, lake="another lake")))
    one.note(progress(id="a", position=900))
    two.note(progress(id="a", position=300).model_copy(update={"pipeline": "other"}))
    views = {each.pipeline: each.view() for each in (one, two, three)}
    together, apart = by_lake(views)
    assert (together.pipelines, apart.pipelines) == (("events", "other"), ("third",))
    assert together.lowest is not None
    assert (together.lowest.pipeline, together.may_expire_through) == ("other", 299)


def test_a_pipeline_whose_file_is_not_in_force_or_that_runs_elsewhere_is_unknown_as_a_whole() -> None:
    made = store(registered("a"))
    made.note(progress(id="a", position=900))
    made.file_in_force = False
    found, elsewhere = by_lake({"events": made.view()}, ["elsewhere"])
    assert (found.unknown[0].destination, found.may_expire_through) == (None, None)
    assert (elsewhere.retained, elsewhere.unknown[0].pipeline, elsewhere.unknown_count) == (None, "elsewhere", 1)


def test_a_warning_names_those_who_have_the_least_left() -> None:
    assert warning(LOOK) is None
    said = warning(replace(LOOK, near=("a", "b", "c", "d")))
    assert said is not None
    assert "a, b, c and 1 more" in said


# -- with a source ----------------------------------------------------------------------------------------------------


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[ControlRig]:
    make_source(tmp_path)
    with_lake(tmp_path, *(f"INSERT INTO lake.events SELECT {n}, 'x', 1, NULL" for n in range(20)))
    with_lake(tmp_path, "CALL ducklake_expire_snapshots('lake', versions => [0, 1])")
    with closing(ControlRig(tmp_path, source=FakeSource(lake=f"sqlite:{tmp_path}/source.sqlite"))) as rig:
        yield rig


def shown(rig: ControlRig) -> Any:
    answer = rig.http.get("/v1/retention")
    assert answer.status_code == 200, answer.text
    (found,) = answer.json()["items"]
    return found


def test_the_source_s_span_is_shown_with_what_holds_it(rig: ControlRig) -> None:
    rig.add("a")
    assert shown(rig)["unknown"] == [{"pipeline": "events", "destination": None, "state": None}]
    rig.applied("a", 1, 12)
    rig.source_watch.look()
    found = shown(rig)
    assert (found["oldest"], found["head"], found["lowest"], found["may_expire_through"]) == (2, 21, 12, 11)
    assert {**found["held_by"], "at": None} == {
        "pipeline": "events", "destination": "a", "state": "running", "position": 12, "at": None,
    }  # fmt: skip
    assert found["held_by"]["at"] is not None
    rig.applied("a", 1, 15)
    assert shown(rig)["held_by"]["at"] is not None, "the source is asked for a snapshot that the look did not ask for"


def test_who_is_about_to_lose_the_history_is_shown_counted_and_logged_once(rig: ControlRig) -> None:
    rig.add("a")
    rig.applied("a", 1, 3)
    with capture_logs() as logs:
        rig.source_watch.look()
        rig.source_watch.look()
    assert [(each["event"], each["first"]) for each in logs] == [("destinations_near_expiry", ["a"])]
    said = rig.http.get(V1).json()["retention_warning"]
    assert "left to a:" in said
    assert "left to a:" in rig.http.get("/").text
    text = together([retention_metrics(rig.status_store.view())])
    assert 'viaduck_destinations_near_expiry{pipeline="events"} 1.0' in text
    assert 'viaduck_retention_headroom_snapshots{pipeline="events"} 1.0' in text
    assert "viaduck_retention_headroom_seconds{" not in text, "nothing was promised"
    rig.applied("a", 1, 20)
    rig.source_watch.look()
    assert rig.http.get(V1).json()["retention_warning"] is None


def test_a_promise_makes_headroom_a_time(tmp_path: Path) -> None:
    make_source(tmp_path)
    section = {"source": {"catalog": "sqlite:source.sqlite", "table": "events", "retained_seconds": 3_600}}
    lake = f"sqlite:{tmp_path}/source.sqlite"
    with closing(ControlRig(tmp_path, source=FakeSource(lake=lake), sections=section)) as rig:
        rig.add("a")
        rig.applied("a", 1, 1)
        rig.source_watch.look()
        left = rig.status_store.view().retention
        assert left is not None
        assert left.headroom_s is not None
        assert 3_500 < left.headroom_s <= 3_600


def test_a_source_that_does_not_answer_leaves_the_last_look_and_says_so(rig: ControlRig) -> None:
    rig.source_watch.look()
    (rig.folder / "source.sqlite").unlink()
    with capture_logs() as logs:
        rig.source_watch.look()
        rig.source_watch.look()
    assert [each["event"] for each in logs] == ["source_history_unreadable"]
    found = shown(rig)
    assert (found["head"], found["looked_at"]) == (21, START.isoformat().replace("+00:00", "Z"))
    assert "source.sqlite" in found["error"]


def test_a_source_that_never_answered_is_unknown_and_says_why(tmp_path: Path) -> None:
    with closing(ControlRig(tmp_path)) as rig:
        rig.source_watch.look()
        found = shown(rig)
    assert (found["lake"], found["unknown_count"], found["may_expire_through"]) == (None, 1, None)
    assert "source.sqlite" in found["error"]


def test_a_topic_is_no_lake_and_keeps_none_from_being_expired(tmp_path: Path) -> None:
    """`viaduck source expire` expired nothing beside a pipeline that lands a topic: its source was never seen."""
    topic = {
        "source": {"kind": "kafka", "topic": "clicks"}, "routing": {}, "kafka": {"bootstrap_servers": "kafka:9092"}
    }  # fmt: skip
    with closing(ControlRig(tmp_path, sections=topic)) as rig:
        assert rig.http.get("/v1/retention").json()["items"] == []


def test_a_limited_token_sees_the_lakes_of_its_own_pipelines_only(rig: ControlRig) -> None:
    rig.add("a")
    rig.applied("a", 1, 12)
    rig.source_watch.look()
    _, text = rig.tokens.create("limited", "read", START, pipelines={"another"})
    answer = rig.http.get("/v1/retention", headers={"Authorization": f"Bearer {text}"})
    assert answer.json()["items"] == []
    listed = rig.http.get("/v1/pipelines?everything=true", headers={"Authorization": f"Bearer {text}"})
    assert listed.json()["items"] == [], "no parameter of a request widens what a token sees"
    _, text = rig.tokens.create("limited", "read", START, pipelines={"events"})
    answer = rig.http.get("/v1/retention", headers={"Authorization": f"Bearer {text}"})
    assert answer.json()["items"][0]["lowest"] == 12


def test_what_was_expired_is_in_the_audit_trail(rig: ControlRig) -> None:
    answer = rig.http.post(f"{V1}/source:expired", {"snapshots": 9, "through": 11, "ignored": ["a"]})
    assert answer.status_code == 204, answer.text
    entry = rig.http.get(f"{V1}/audit").json()["items"][0]
    assert (entry["deed"], entry["author"]) == ("source_expired", "loopback")
    assert entry["changes"] == {"snapshots": [None, 9], "through": [None, 11], "ignored": [None, ["a"]]}
    for wrong in ({"snapshots": 0, "through": 1}, {"snapshots": 1}, {"snapshots": True, "through": 1}):
        assert rig.http.post(f"{V1}/source:expired", wrong).status_code == 422
    assert rig.http.post("/v1/pipelines/none/source:expired", {"snapshots": 1, "through": 1}).status_code == 404
