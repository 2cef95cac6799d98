"""Pages of docs/reference that are made from the code are what the code is now, and leave nothing unexplained."""

from __future__ import annotations

import ast
import json
import re

import pytest

from services.applier.apply.cursor.fence import Stamp
from shared.contracts.messages import ItemKind, WorkItem
from shared.kafka.topics import Topics
from tests.reference import BEGIN, FOLDER, PAGES, ROOT, calls, log_calls, made, meanings

AGAIN = "run python -m tests.reference"


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_what_the_code_says(name: str) -> None:
    page = (FOLDER / name).read_text()
    assert made(name, page) == page, AGAIN


@pytest.mark.parametrize("name", ["topics.md", "log-events.md"])
def test_every_field_and_event_has_a_meaning(name: str) -> None:
    known = meanings((FOLDER / name).read_text())
    assert known
    assert not [key for key, meaning in known.items() if not meaning]


def test_every_call_is_listed_with_what_it_does_its_scope_and_what_it_answers() -> None:
    rows = re.findall(
        r"^\| `([A-Z]+) ([^`]+)` \| (.*) \| (.*) \| .* \| (.*) \|$", made("rest-api.md", BEGIN), re.MULTILINE
    )
    assert {(path, method) for method, path, *_ in rows} == set(calls())
    assert all(text and "200" <= answers < "300" for *_, text, answers in rows)
    scopes = {f"{method} {path}": scope for method, path, scope, *_ in rows}
    assert scopes["GET /v1/pipelines/{pipeline}"] == "`read`"
    assert scopes["PUT /v1/pipelines/{pipeline}/destinations/{destination}"] == "`write`"
    assert {scopes["PUT /v1/pipelines/{pipeline}"], scopes["POST /v1/tokens"]} == {"`admin`"}
    assert {call for call, scope in scopes.items() if not scope} == {"GET /healthz", "GET /readyz"}


def test_a_meaning_that_is_written_by_hand_stays() -> None:
    page = (FOLDER / "log-events.md").read_text()
    mine = re.sub(r"(\| `dead_letter` \|.*\| )[^|]+( \|)", r"\1Mine\2", page)
    assert mine != page
    assert "| Mine |" in made("log-events.md", mine)


def test_log_events_are_stable_keys() -> None:
    for file, call in log_calls():
        (event,) = call.args
        key = ast.literal_eval(event)
        assert re.fullmatch(r"[a-z]+(_[a-z]+)*", key), f"{file.relative_to(ROOT)}:{call.lineno}: {key}"


def test_every_topic_is_in_the_table() -> None:
    listed = re.findall(r"^\| `(viaduck\.[\w-]+)` \|", (FOLDER / "topics.md").read_text(), re.MULTILINE)
    assert listed == list(Topics().all)


def test_every_field_of_a_stamp_is_explained() -> None:
    item = WorkItem(
        item="i", kind=ItemKind.CHANGES, pipeline="p", destination="d", generation=1, expected=0, expected_at="{}",
        after=1, after_at='{"0":1}', through=2, through_at='{"0":2}', keeps=True,
    )  # fmt: skip
    stamp = Stamp(item, "changes", 1, 2, "t", 3, 4, through_at='{"0":2}', columns=["add v"])
    fields = set(json.loads(stamp.extra_info()))
    rows = re.findall(r"^\| (`[^|]+) \|", (FOLDER / "stamps.md").read_text(), re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == fields
