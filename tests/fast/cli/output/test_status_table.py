"""``viaduck status`` in front of a control that says what a test wants."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner
from viaduck_client import Rejected

from services.cli.main import app
from tests.fast.cli.fake_control import FakeControl, serving, status

NOTICE = 'main.t is read whole: ALTER TABLE "main"."t" RESET PARTITIONED BY [\x1b]'


class Noticed(FakeControl):
    def answer(self, path: str, query: dict[str, list[str]]) -> tuple[int, dict[str, Any]]:
        code, body = super().answer(path, query)
        if path.strip("/") == "v1/pipelines/events":
            body["frontier"] = {"at": None, "notice": NOTICE}
        return code, body


def test_what_makes_a_source_dear_to_read_is_told_beside_the_table() -> None:
    with serving(Noticed([status("a")])) as control:
        table, lines = (CliRunner().invoke(app, ["status", "--url", control.url, *words]) for words in ([], ["--json"]))
    assert (table.exit_code, lines.exit_code) == (0, 0)
    told = " ".join(table.stderr.split())
    assert told == NOTICE.replace("main.t is", "events: main.t is").replace("\x1b", "\\x1b")
    assert lines.stdout.count("\n") == 1


def test_nothing_is_told_of_a_source_that_is_not() -> None:
    with serving(FakeControl([status("a")])) as control:
        done = CliRunner().invoke(app, ["status", "--url", control.url])
    assert (done.exit_code, done.stderr) == (0, "")


TOPIC = {
    "lag_records": 1_205,
    "partitions": [
        {"partition": 0, "head": 1_305, "position": 100, "lag_records": 1_205, "lag_seconds": 2.5},
        {"partition": 1, "head": 9, "position": None, "lag_records": None, "lag_seconds": None},
    ],
}


def test_a_topic_is_told_by_partition() -> None:
    with serving(FakeControl([{**status("a"), "topic": TOPIC}])) as control:
        table, lines = (CliRunner().invoke(app, ["status", "--url", control.url, *words]) for words in ([], ["--json"]))
        shown = CliRunner().invoke(app, ["destination", "show", "a", "--url", control.url])
    last = [line.split() for line in table.stdout.splitlines()][-3:]
    assert last[0] == ["destination", "partition", "head", "position", "lag", "seconds"]
    assert last[1:] == [["a", "0", "1,305", "100", "1,205", "2.5"], ["a", "1", "9", "–", "–", "–"]]
    assert json.loads(lines.stdout)["topic"] == TOPIC
    assert "partition 0: 100 of 1,305 (1,205 behind, 2.5 s)" in " ".join(shown.stdout.split())


class Withholding(FakeControl):
    """Serves ``events``, and of ``orders`` only why it can't be used."""

    def answer(self, path: str, query: dict[str, list[str]]) -> tuple[int, dict[str, Any]]:
        match path.strip("/").split("/"):
            case ["v1", "pipelines"]:
                return 200, {"items": [{"name": "events"}, {"name": "orders"}], "next": None}
            case ["v1", "pipelines", "orders"]:
                return 200, {
                    "name": "orders",
                    "refused": ["source.catalog_env: \x1b[1mORDERS is not set"],
                    "frontier": None,
                }
        return super().answer(path, query)


@pytest.mark.parametrize("words", [[], ["--json"]], ids=["table", "lines"])
def test_a_pipeline_that_can_not_be_used_hides_none_of_the_others(words: list[str]) -> None:
    with serving(Withholding([status("a"), status("b")])) as control:
        done = CliRunner().invoke(app, ["status", "--url", control.url, *words])
    assert done.exit_code == 1
    assert all(each in done.stdout for each in ("a", "b"))
    assert " ".join(done.stderr.split()) == "orders: source.catalog_env: \\x1b[1mORDERS is not set"


def test_a_pipeline_that_is_not_there_is_refused_as_ever() -> None:
    with serving(FakeControl([status("a")])) as control:
        done = CliRunner().invoke(app, ["destination", "list", "--pipeline", "nobody", "--url", control.url])
    assert isinstance(done.exception, Rejected)
