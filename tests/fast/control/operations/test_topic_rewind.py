"""A topic's destination is rewound to offsets that it has passed, and that the topic retains; else control says why."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from shared.config.model import TopicSource
from shared.contracts.messages import Destination, Outcome
from shared.contracts.positions import Vector
from shared.kafka.topic_log import TopicIdentity
from tests.fast.control.examples import problem, progress
from tests.fast.control.rig import V1, ControlRig, D

ENTRY = {"routing_value": "", "catalog": "sqlite:/lakes/a.sqlite"}


class FakeLog:
    """A topic of two partitions, the first of which begins at 40."""

    def identity(self) -> TopicIdentity:
        return TopicIdentity("cluster", "topic id", 2)

    def oldest(self, partitions: int) -> Vector:
        assert partitions == 2
        return Vector.of({0: 40})


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[ControlRig]:
    with closing(ControlRig(tmp_path)) as rig:
        source(rig)
        rig.service._open_log = lambda *_: FakeLog()
        answer = rig.http.put(f"{D}/a?check=false", ENTRY)
        assert answer.status_code == 201, answer.text
        yield rig


def source(rig: ControlRig, *, keys: tuple[str, ...] = (), **topic: Any) -> None:
    """The pipeline reads a topic."""
    config = rig.reconciler.config
    rig.reconciler.config = config.model_copy(
        update={
            "topic": TopicSource(kind="kafka", topic="clicks", **topic),
            "routing": config.routing.model_copy(update={"key_columns": keys}),
        }
    )


def landed(rig: ControlRig) -> None:
    rig.said(progress(position=198, position_at='{"0":100,"1":98}'))


def rewind(rig: ControlRig, to: Any) -> httpx.Response:
    return rig.http.post(f"{D}/a:rewind", {"to": to})


def published(rig: ControlRig) -> Destination:
    said = rig.published("a")
    assert said is not None
    return said


def test_a_rewind_begins_a_life_at_its_offsets_and_other_partitions_stay(rig: ControlRig) -> None:
    landed(rig)
    begun = rewind(rig, {"0": 60})
    assert (begun.status_code, begun.json()["kind"], begun.json()["generation"]) == (202, "rewind", 2)
    said = published(rig)
    assert (said.seed_at, said.seed_from, said.replace) == (158, '{"0":60,"1":98}', False)
    assert rig.http.get(f"{D}/a").json()["seed_from"] == '{"0":60,"1":98}'
    trail = rig.http.get(f"{V1}/audit").json()["items"][0]
    assert (trail["deed"], trail["changes"]["seed_from"]) == ("rewound", [None, '{"0":60,"1":98}'])
    again = rewind(rig, {"0": 50})
    assert (again.status_code, again.json()["type"]) == (409, "/docs/errors#conflict"), "where it is now is not known"


@pytest.mark.parametrize(
    ("to", "status", "said"),
    [
        ({"0": 101}, 422, "to.0: offset 101 lies beyond the position, which is 100"),
        ({"2": 0}, 422, "to.2: the topic has 2 partitions, 0 to 1"),
        ({"0": 39}, 409, "partition 0 begins at offset 40 now, and 39 is gone"),
        ({"0": -1}, 422, "greater than or equal to 0"),
        ({"0": "60"}, 422, "valid integer"),
        ({"0": 60.5}, 422, "valid integer"),
        ({"x": 60}, 422, "should match pattern"),
        ({"00": 60}, 422, "should match pattern"),
        ({}, 422, "at least 1 item"),
        (158, 422, 'an offset by partition, such as {"to": {"0": 100}}'),
        (True, 422, "valid integer"),
        (None, 422, "valid integer"),
    ],
)
def test_what_can_not_be_rewound_to_is_refused_with_the_reason(
    rig: ControlRig, to: Any, status: int, said: str
) -> None:
    landed(rig)
    answer = rewind(rig, to)
    assert answer.status_code == status
    assert said in answer.json()["detail"]
    assert published(rig).generation == 1


def test_what_is_gone_names_what_may_be_chosen(rig: ControlRig) -> None:
    landed(rig)
    assert rewind(rig, {"0": 3}).json()["hint"] == "choose 40 to 100 of partition 0"


@pytest.mark.parametrize(
    ("more", "said"), [({"keys": ("id",)}, "routing.key_columns"), ({"metadata": ("offset",)}, "source.metadata")]
)
def test_where_rows_do_not_tell_their_record_a_reseed_is_the_way(
    rig: ControlRig, more: dict[str, Any], said: str
) -> None:
    landed(rig)
    source(rig, **more)
    answer = rewind(rig, {"0": 60})
    assert (answer.status_code, said in answer.json()["detail"]) == (409, True)
    assert "reseed" in answer.json()["hint"]


def test_offsets_are_not_of_lakes(tmp_path: Path) -> None:
    with closing(ControlRig(tmp_path)) as rig:
        rig.add("a")
        for path, body in ((":rewind", {"to": {"0": 1}}), (":reseed", {"from": "earliest"})):
            answer = rig.http.post(f"{D}/a{path}", body)
            assert (answer.status_code, "the source is a lake" in answer.json()["detail"]) == (422, True)


def test_a_reseed_begins_at_the_files_start_or_at_the_oldest_record(rig: ControlRig) -> None:
    landed(rig)
    assert rig.http.post(f"{D}/a:reseed", {"from": "earliest"}).status_code == 202
    assert (published(rig).seed_from, published(rig).replace) == ("earliest", True)
    rig.said(progress(Outcome.PARKED, generation=2, position=-1, error=problem("access_denied", retryable=False)))
    for body in ({"from": "start"}, {}, None):
        assert rig.http.post(f"{D}/a:reseed", body).status_code == 202
        assert published(rig).seed_from is None
    assert rig.http.post(f"{D}/a:reseed", {"from": "yesterday"}).status_code == 422
