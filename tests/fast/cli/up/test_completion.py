"""What ``up --once`` waits for where there are several pipelines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from services.cli.runtime.client import Control
from services.cli.up.completion import BAD_CONFIGURATION, BEHIND, DONE, UNREACHABLE, Goal, worst
from shared.config.model import Config, Routing, Source
from shared.contracts.messages import now
from tests.fast.cli.fake_control import FakeControl, serving, status

SINCE = now()


class Fleet(FakeControl):
    """``more``: what it says of its pipeline beside the usual."""

    def __init__(self, destinations: list[dict[str, Any]], **more: Any) -> None:
        super().__init__(destinations)
        self.more = {"frontier": {"at": now().isoformat()}, **more}

    def answer(self, path: str, query: dict[str, list[str]]) -> tuple[int, dict[str, Any]]:
        code, body = super().answer(path, query)
        return code, {**body, **self.more} if path.endswith("/events") else body


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config(
        path=tmp_path / "viaduck.yaml", pipeline="events", source=Source(table="events"),
        routing=Routing(field="company"), state_dir=tmp_path,
    )  # fmt: skip


@pytest.fixture
def control() -> Iterator[Fleet]:
    with serving(Fleet([status("a"), status("b")])) as served:
        assert isinstance(served, Fleet)
        yield served


def looked(goal: Goal, control: FakeControl) -> Goal:
    goal.look(Control(control.url), SINCE, 0.0)
    return goal


def test_a_goal_is_reached_once_and_stays_so(config: Config, control: Fleet) -> None:
    goal = looked(Goal(config, 1700), control)
    control.destinations[0]["known_through"] = 3
    assert looked(goal, control).code == DONE
    assert goal.said(named=True) == ["events: 2 destinations are exact at snapshot 1700 or later"]
    assert goal.missing(named=True) == []


def test_who_is_behind_is_named(config: Config, control: Fleet) -> None:
    control.destinations[0] |= {"state": "parked", "error": {"type": "t", "message": "m", "hint": "h"}}
    goal = looked(Goal(config, 1700), control)
    assert goal.code == BEHIND
    assert goal.said(named=True) == ["events: 1 of 2 destinations:", "a: parked at snapshot 1700: t: m (h)"]


def test_a_file_that_its_source_refutes_is_decided_and_says_why(config: Config, control: Fleet) -> None:
    control.more["refused"] = ["routing.field: no such column"]
    goal = looked(Goal(config, 1700), control)
    assert (goal.code, goal.said(named=True)) == (BAD_CONFIGURATION, ["events: routing.field: no such column"])


def test_a_source_that_was_away_fails_its_pipeline_alone(config: Config, control: Fleet) -> None:
    goal = looked(Goal(config, 0, UNREACHABLE, ["source: away"]), control)
    assert (goal.code, goal.missing(named=True), control.tokens) == (UNREACHABLE, ["events: source: away"], [])


def test_a_control_that_never_answered_is_said_to_be_missing(config: Config) -> None:
    goal = Goal(config, 7)
    goal.look(Control("http://127.0.0.1:1"), SINCE, 0.0)
    assert (goal.code, goal.missing(named=False)) == (None, ["control never answered"])


@pytest.mark.parametrize(
    ("codes", "code"),
    [
        ([DONE, None], None),
        ([UNREACHABLE, None], None),
        ([DONE, DONE], DONE),
        ([DONE, BEHIND], BEHIND),
        ([UNREACHABLE, BEHIND], UNREACHABLE),
        ([UNREACHABLE, BAD_CONFIGURATION, BEHIND], BAD_CONFIGURATION),
    ],
)
def test_the_command_s_code_is_the_gravest_once_all_are_decided(codes: list[int | None], code: int | None) -> None:
    assert worst(codes) == code
