"""The client against a control service that a test plays: what it sends, and what it makes of the answers."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from viaduck_client import Client, InvalidAddress, Rejected, Unavailable

Answer = Callable[[httpx.Request], httpx.Response]
PAGE = Path(__file__).parents[2] / "docs/reference/python-client.md"


def client(answer: Answer) -> Client:
    return Client("http://control", token="t0ken", transport=httpx.MockTransport(answer))


def answering(document: Any, asked: list[httpx.Request], status: int = 200) -> Answer:
    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(status, json=document)

    return answer


def test_a_put_sends_the_entry_the_token_and_the_version_that_was_read() -> None:
    asked: list[httpx.Request] = []
    with client(answering({"id": "a"}, asked)) as viaduck:
        viaduck.put("events", "a", {"routing_value": "x"}, check=False, if_match=7)
    (request,) = asked
    assert (request.method, request.url.path, request.url.query) == (
        "PUT",
        "/v1/pipelines/events/destinations/a",
        b"check=false",
    )
    assert (request.headers["Authorization"], request.headers["If-Match"]) == ("Bearer t0ken", '"7"')
    assert json.loads(request.content) == {"routing_value": "x"}


def test_a_list_is_read_page_by_page() -> None:
    pages = {None: {"items": [{"id": "a"}], "next": "cursor"}, "cursor": {"items": [{"id": "b"}], "next": None}}

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json=pages[request.url.params.get("after")])

    with client(answer) as viaduck:
        assert [each["id"] for each in viaduck.destinations("events", state="parked")] == ["a", "b"]


def test_the_health_of_lakes_is_read_page_by_page_and_the_source_s_beside_them() -> None:
    source = {"id": None, "files": 3}
    pages = {
        None: {"items": [{"id": "b"}], "next": "cursor", "source": source},
        "cursor": {"items": [{"id": "a"}], "next": None, "source": source},
    }
    asked: list[str | None] = []

    def answer(request: httpx.Request) -> httpx.Response:
        assert request.url.path == "/v1/pipelines/events/health"
        asked.append(request.url.params.get("sort"))
        return httpx.Response(200, json=pages[request.url.params.get("after")])

    with client(answer) as viaduck:
        assert [each["id"] for each in viaduck.lakes("events", "-files,-old_bytes")] == ["b", "a"]
        assert viaduck.source_health("events") == source
    assert asked == ["-files,-old_bytes", "-files,-old_bytes", None]


@pytest.mark.parametrize("name", ["../tokens", "a/b", "a?x=1", "a#b", "%2e%2e", "a b", "é"])
def test_a_name_is_one_part_of_the_path_whatever_it_holds(name: str) -> None:
    asked: list[httpx.Request] = []
    with client(answering({}, asked)) as viaduck:
        viaduck.destination("events", name)
    path = asked[0].url.raw_path.decode()
    assert path.startswith("/v1/pipelines/events/destinations/")
    assert path.count("/") == 5
    assert asked[0].url.path.removeprefix("/v1/pipelines/events/destinations/") == name


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_a_name_that_would_step_out_of_its_path_is_sent_nowhere(name: str) -> None:
    """``DELETE …/destinations/..`` is ``DELETE`` of the pipeline to whatever resolves the path on the way."""
    asked: list[httpx.Request] = []
    with client(answering({}, asked)) as viaduck:
        calls: tuple[Callable[[], object], ...] = (
            lambda: viaduck.remove("events", name), lambda: viaduck.destination("events", name),
            lambda: viaduck.act("events", name, "pause"), lambda: viaduck.remove_pipeline(name),
            lambda: viaduck.put_pipeline(name, {}), lambda: viaduck.revoke_token(name),
            lambda: viaduck.accept("events", name), lambda: viaduck.operation("events", name),
            lambda: viaduck.replay(name), lambda: viaduck.dead_letters(name),
            lambda: viaduck.rejected(name), lambda: viaduck.redrive_rejected(name),
        )  # fmt: skip
        for call in calls:
            with pytest.raises(InvalidAddress, match="is no name"):
                call()
    assert asked == []


def test_a_topic_is_rewound_by_partition_and_reseeded_from_its_oldest_record() -> None:
    asked: list[httpx.Request] = []
    with client(answering({}, asked, 202)) as viaduck:
        viaduck.rewind("events", "a", {0: 100, 12: 98})
        viaduck.rewind("events", "a", 12)
        viaduck.reseed("events", "a", begin="earliest")
        viaduck.reseed("events", "a")
    bodies = [json.loads(each.content or b"null") for each in asked]
    assert bodies == [{"to": {"0": 100, "12": 98}}, {"to": 12}, {"from": "earliest"}, None]


def test_a_rejection_carries_the_problem_document() -> None:
    problem = {"type": "/docs/errors#taken", "title": "Taken", "detail": "it is taken", "hint": "choose another"}
    with client(answering(problem, [], 409)) as viaduck, pytest.raises(Rejected) as caught:
        viaduck.pipeline("events")
    assert str(caught.value) == "/v1/pipelines/events: taken: it is taken (choose another)"
    assert (caught.value.status, caught.value.kind, caught.value.problem) == (409, "taken", problem)


@pytest.mark.parametrize("body", [b"", b"not json", b"[1]"])
def test_a_rejection_without_a_problem_document_is_one_too(body: bytes) -> None:
    with client(lambda _: httpx.Response(404, content=body)) as viaduck, pytest.raises(Rejected) as caught:
        viaduck.pipeline("events")
    assert (caught.value.status, caught.value.kind) == (404, "")


def test_a_dependency_that_is_away_is_unavailable_with_its_hint() -> None:
    problem = {"type": "/docs/errors#registry", "detail": "it does not answer", "hint": "check registry.url"}
    with client(answering(problem, [], 503)) as viaduck, pytest.raises(Unavailable) as caught:
        viaduck.pipelines()
    assert str(caught.value) == "control: http://control/v1/pipelines: registry: it does not answer"
    assert caught.value.hint == "check registry.url"


def test_a_control_that_does_not_answer_or_is_something_else_is_unavailable() -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    for answer in (refuse, lambda _: httpx.Response(200, json=[]), lambda _: httpx.Response(200, content=b"<html>")):
        with client(answer) as viaduck, pytest.raises(Unavailable, match="http://control"):
            viaduck.pipelines()


@pytest.mark.parametrize("address", ["::", "http://a:port"])
def test_what_is_no_address_is_refused_at_once(address: str) -> None:
    with pytest.raises(InvalidAddress, match="http://host:port"):
        Client(address)


def test_all_that_matches_is_sent_again_in_as_many_calls_as_it_takes() -> None:
    answers = iter([{"matched": 2, "sent": 2, "refused": 0, "next": "c"},
                    {"matched": 1, "sent": 0, "refused": 1, "next": None}])  # fmt: skip
    with client(lambda _: httpx.Response(200, json=next(answers))) as viaduck:
        assert viaduck.replay("events") == {"matched": 3, "sent": 2, "refused": 1, "next": None}


def test_waiting_ends_with_the_operation_or_with_the_time() -> None:
    states = iter(["running", "succeeded"])

    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={"id": "1", "state": next(states)})

    with client(answer) as viaduck:
        assert viaduck.wait("events", "1", timeout_s=0)["state"] == "running"
        assert viaduck.wait("events", "1", timeout_s=0)["state"] == "succeeded"


def test_the_page_lists_every_method() -> None:
    page = PAGE.read_text()
    methods = [name for name, _ in inspect.getmembers(Client, inspect.isfunction) if not name.startswith("_")]
    assert len(methods) > 25
    for name in methods:
        assert f"`{name}(" in page, name
