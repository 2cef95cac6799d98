"""What control answers over HTTP."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import unescape
from typing import Any

import pytest
from fastapi import FastAPI
from hypothesis import given
from hypothesis import strategies as st

from services.control.api.destinations import LONGEST_MESSAGE, _commits
from services.control.api.models import Detail
from services.control.model.lifecycle import Registered
from services.control.page.assets import FILES
from services.control.view.destination_status import Status
from services.control.view.status_store import StatusStore
from services.control.web.context import PipelineHandle, Sources
from services.control.web.guard import Denied, Guard, GuardedRequest
from services.control.web.paging import page
from services.control.web.problems import ProblemDocument
from shared.contracts.messages import Outcome
from shared.lake.catalog.stamps import StampedCommit
from shared.lake.stamp import LONGEST
from shared.runtime.background import Heartbeat
from shared.runtime.loopback import is_loopback
from tests.fast.control.examples import PIPELINE, START, by_id, declared, frontier, problem, progress, registered
from tests.fast.control.http import Http
from tests.fast.control.rig import SPARE, application

V1 = f"/v1/pipelines/{PIPELINE}"

LENT: list[FastAPI] = []
"""Applications of the clients of one test."""


@pytest.fixture(autouse=True)
def given_back() -> Iterator[None]:
    """The next test's clients take them over."""
    yield
    SPARE.extend(LENT)
    LENT.clear()


def client(
    held: Sequence[Registered] = (),
    guard: Guard | None = None,
    checks: Mapping[str, str | None] | None = None,
    view: Callable[[], Any] | None = None,
) -> Http:
    status_store = StatusStore(PIPELINE)
    status_store.file_in_force = True
    status_store.hold(by_id(held))
    status_store.note(progress(position=15, rows_applied=7))
    status_store.note(frontier(held, head=17))
    served = PipelineHandle(view or status_store.view)
    sources = Sources(lambda: {PIPELINE: served}, lambda: checks or {"broker": None}, lambda: "viaduck_up 1.0\n")
    LENT.append(application(sources, guard or Guard(loopback=True)))
    return Http(LENT[-1])


def many(count: int) -> list[Registered]:
    return [registered(f"d{number:03}", declared=declared(f"d{number:03}")) for number in range(count)]


def test_the_process_turns() -> None:
    assert client().get("/healthz").json() == {"status": "ok"}


def test_a_process_with_a_loop_that_does_not_turn_any_more_is_not_healthy() -> None:
    beat = Heartbeat("follower", within_s=-1.0)
    beat.begin()
    try:
        answer = client().get("/healthz")
    finally:
        beat.end()
    assert (answer.status_code, answer.json()["status"]) == (503, "stands still")
    assert list(answer.json()["threads"]) == ["follower"]


def test_ready_means_that_every_dependency_answers() -> None:
    answer = client(checks={"broker": None, "registry": None}).get("/readyz")
    assert (answer.status_code, answer.json()["status"]) == (200, "ready")


def test_a_dependency_that_does_not_answer_is_named() -> None:
    answer = client(checks={"broker": None, "source": "connection refused"}).get("/readyz")
    assert answer.status_code == 503
    assert answer.json() == {
        "status": "not ready: source",
        "checks": {"broker": None, "source": "connection refused"},
        "look_age_seconds": {"source": None},
    }


def test_metrics_are_in_prometheus_own_format() -> None:
    answer = client().get("/metrics")
    assert answer.text == "viaduck_up 1.0\n"
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"


def test_a_destination_shows_its_status() -> None:
    said = client([registered()]).get(f"{V1}/destinations/a").json()
    assert (said["id"], said["state"], said["position"], said["known_through"]) == ("a", "running", 15, 17)


def test_a_pipeline_shows_how_far_it_is() -> None:
    said = client([registered()]).get(V1).json()
    assert said == {
        "name": PIPELINE,
        "source_snapshot": 17,
        "settled": True,
        "caught_up": True,
        "frontier": {
            "head": 17,
            "cycle": 1,
            "at": "2026-01-01T00:00:20Z",
            "error": None,
            "notice": None,
            "looked_at": None,
            "overdue": False,
        },
        "refused": [],
        "destinations": {"running": 1, "total": 1},
        "retention_warning": None,
        "managed_by": "file",
        "rebuilt": None,
        "version": None,
        "author": None,
        "updated_at": None,
        "document": None,
    }


def test_the_pipelines_are_a_list_with_one() -> None:
    said = client([registered()]).get("/v1/pipelines").json()
    assert ([item["name"] for item in said["items"]], said["next"]) == ([PIPELINE], None)


def test_a_list_gives_every_destination_once_page_by_page() -> None:
    http = client(many(25))
    names: list[str] = []
    sizes: list[int] = []
    after: str | None = None
    while after is not None or not sizes:
        said = http.get(f"{V1}/destinations", params={"limit": "10", **({"after": after} if after else {})}).json()
        names += [item["id"] for item in said["items"]]
        sizes.append(len(said["items"]))
        after = said["next"]
    assert (names, sizes) == ([each.id for each in many(25)], [10, 10, 5])


def test_a_list_gives_a_hundred_unless_asked_otherwise() -> None:
    assert len(client(many(120)).get(f"{V1}/destinations").json()["items"]) == 100


def test_a_list_is_filtered_and_sorted_and_paged_alike() -> None:
    status_store = StatusStore(PIPELINE)
    held = [registered(name, declared=declared(name)) for name in ("ab", "ac", "b", "c")]
    status_store.hold(by_id(held))
    status_store.note(progress(Outcome.PARKED, "b", error=problem("access_denied")))
    status_store.note(frontier(held, head=17, lagging={"ac": 15, "c": 15}))
    http = client(view=status_store.view)

    def ids(query: str) -> list[str]:
        return [item["id"] for item in http.get(f"{V1}/destinations?{query}").json()["items"]]

    assert ids("prefix=a") == ["ab", "ac"]
    assert ids("state=parked") == ["b"]
    assert ids("state=parked&state=running&prefix=b") == ["b"]
    assert ids("search=VALUE of c") == ["c"]
    assert ids("min_lag=1") == ["ac", "c"]
    assert ids("sort=-lag") == ["ac", "c", "ab", "b"]
    first = http.get(f"{V1}/destinations?sort=-lag&limit=3").json()
    assert ids(f"sort=-lag&limit=3&after={first['next']}") == ["b"]
    assert http.get(f"{V1}/destinations?after={first['next']}").status_code == 422


NAMES = st.lists(st.text("aB:._@+-9", min_size=1), unique=True)


@given(NAMES, st.integers(1, 5))
def test_pages_together_are_the_list(names: list[str], limit: int) -> None:
    found, after = [], None
    while True:
        some, after = page(names, limit, after)
        found += some
        if after is None:
            break
    assert found == sorted(names)


@given(NAMES, NAMES)
def test_a_cursor_stays_good_when_names_come_and_go(before: list[str], now: list[str]) -> None:
    some, after = page(before, 2, None)
    if after is not None:
        rest, _ = page(now, 1_000, after)
        assert rest == sorted(name for name in now if name > some[-1])


def cursor(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


NO_CURSORS = ['[1%s, "a"]' % ("0" * 400), '[NaN, "a"]', "[[1], 2]", "{}", "[" * 700]

WRONG = [
    ("/nowhere", 404, "Not Found"),
    ("/v1/pipelines/another", 404, "there is no pipeline another"),
    ("/v1/pipelines/another/destinations", 404, "there is no pipeline another"),
    (f"{V1}/destinations/stranger", 404, "the pipeline events has no destination stranger"),
    (f"{V1}/destinations?limit=0", 422, "query.limit"),
    (f"{V1}/destinations?limit=1001", 422, "query.limit"),
    (f"{V1}/destinations?limit=many", 422, "query.limit"),
    (f"{V1}/destinations?after=%F0%9F%A6%86", 422, "after: not a cursor"),
    (f"{V1}/destinations?after=a", 422, "after: not a cursor"),
    *((f"{V1}/destinations?sort=lag&after={cursor(text)}", 422, "after: not a cursor") for text in NO_CURSORS),
]


@pytest.mark.parametrize(("path", "status", "detail"), WRONG)
def test_every_error_is_a_problem_document_with_a_hint(path: str, status: int, detail: str) -> None:
    answer = client().get(path)
    said = answer.json()
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
    assert said["status"] == status
    assert said["title"]
    assert said["hint"]
    assert detail in said["detail"]


def test_a_wrong_parameter_is_named_by_its_path() -> None:
    said = client().get(f"{V1}/destinations?limit=0").json()
    assert [field["path"] for field in said["fields"]] == ["query.limit"]


def test_another_method_is_a_problem_document_too() -> None:
    answer = client().request("DELETE", "/healthz")
    assert (answer.status_code, answer.headers["content-type"]) == (405, "application/problem+json")


def test_a_defect_is_a_problem_document_that_shows_nothing_of_it() -> None:
    def broken() -> Any:
        raise RuntimeError("password=s3cret")

    answer = client(view=broken).get(V1)
    assert (answer.status_code, answer.headers["content-type"]) == (500, "application/problem+json")
    assert "s3cret" not in answer.text


def test_the_schema_is_served_and_its_pages_from_elsewhere_are_not() -> None:
    http = client()
    assert "/v1/pipelines/{pipeline}/destinations/{destination}" in http.get("/openapi.json").json()["paths"]
    assert http.get("/docs").status_code == 404


def test_the_schema_tells_headers_and_gives_examples_that_hold() -> None:
    document = client().get("/openapi.json").json()
    destination = document["paths"]["/v1/pipelines/{pipeline}/destinations/{destination}"]
    sent = {status: set(said.get("headers", {})) for status, said in destination["put"]["responses"].items()}
    assert (sent["200"], sent["201"]) == ({"ETag"}, {"ETag", "Location"})
    assert (sent["401"], sent["405"]) == ({"WWW-Authenticate"}, {"Allow"})
    assert (sent["429"], sent["503"]) == ({"Retry-After"}, {"Retry-After"})
    assert set(destination["delete"]["responses"]["202"]["headers"]) == {"Location"}
    schemas = document["components"]["schemas"]
    (status,), (detail,), (problem,) = (schemas[name]["examples"] for name in ("Status", "Detail", "ProblemDocument"))
    assert Status.model_validate(status).model_dump(mode="json").keys() == status.keys()
    whole = Detail.model_validate({**detail, "schema_name": "main"})
    assert whole.model_dump(mode="json", by_alias=True, exclude_none=True) == detail
    assert ProblemDocument.model_validate(problem).model_dump() == problem


OPEN = ["/healthz", "/readyz", "/metrics"]
CLOSED = ["/", "/v1/pipelines", V1, f"{V1}/destinations", "/openapi.json", "/nowhere", "/healthz/", "//healthz"]


@pytest.mark.parametrize("path", OPEN)
@pytest.mark.parametrize("token", [None, "s3cret"])
def test_health_and_metrics_are_open_to_everybody(path: str, token: str | None) -> None:
    assert client(guard=Guard(loopback=False, token=token)).get(path).status_code == 200


@pytest.mark.parametrize("path", CLOSED)
def test_beyond_loopback_without_a_token_nothing_else_is_served(path: str) -> None:
    answer = client(guard=Guard(loopback=False)).get(path)
    assert (answer.status_code, answer.headers["content-type"]) == (403, "application/problem+json")
    assert "server.token_env" in answer.json()["hint"]


@pytest.mark.parametrize("path", CLOSED)
@pytest.mark.parametrize("authorization", [None, "", "Bearer", "Bearer wrong", "Basic s3cret", "s3cret", "Bearer ü"])
def test_beyond_loopback_the_token_is_needed(path: str, authorization: str | None) -> None:
    headers = {} if authorization is None else {"Authorization": authorization}
    answer = client(guard=Guard(loopback=False, token="s3cret")).get(path, headers=headers)
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")


def test_beyond_loopback_the_token_opens_everything() -> None:
    http = client([registered()], Guard(loopback=False, token="s3cret"))
    for path in ["/", "/v1/pipelines", V1, "/openapi.json"]:
        assert http.get(path, headers={"Authorization": "bearer s3cret"}).status_code == 200


def test_on_loopback_reading_needs_no_token_and_writing_does() -> None:
    guard = Guard(loopback=True, token="s3cret")
    assert not isinstance(guard.judge(GuardedRequest("GET", V1)), Denied)
    denied = guard.judge(GuardedRequest("PUT", V1))
    assert isinstance(denied, Denied)
    assert denied.kind == "unauthorized"
    assert not isinstance(guard.judge(GuardedRequest("PUT", V1, authorization="Bearer s3cret")), Denied)


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("[::1]", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("", False),
        ("10.0.0.1", False),
        ("localhost.example.com", False),
        ("127.0.0.1.example.com", False),
    ],
)
def test_loopback_is_what_nobody_else_can_reach(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


HOSTILE = """<script>alert(1)</script><img src=x onerror=alert(1)>'"&{{ 7*7 }}{% raw %}</td></table>"""


def test_whatever_a_routing_value_or_an_error_holds_is_shown_as_text() -> None:
    status_store = StatusStore(PIPELINE)
    status_store.hold({"a": registered(declared=declared(routing_value=HOSTILE))})
    error = problem().model_copy(update={"message": HOSTILE, "hint": HOSTILE, "type": HOSTILE})
    status_store.note(progress(Outcome.PARKED, error=error))
    html = client(view=status_store.view).get("/").text
    assert "<script>" not in html
    assert "<img" not in html
    assert "{{ 7*7 }}" in html
    assert html.count("&lt;script&gt;alert(1)&lt;/script&gt;") == 9


def test_the_page_shows_every_destination_with_its_state_position_lag_and_error() -> None:
    status_store = StatusStore(PIPELINE)
    status_store.hold(by_id([registered()]))
    status_store.note(progress(Outcome.PARKED, position=15, error=problem("table_mismatch")))
    status_store.note(frontier([registered()], head=17, lagging={"a": 15}))
    html = client(view=status_store.view).get("/").text
    for shown in ("parked", ">15<", ">2<", "2.5 s", "it is table_mismatch", "do something", "<b>17</b>"):
        assert shown in html


def test_the_page_asks_for_nothing_from_anywhere_else() -> None:
    answer = client([registered()]).get("/")
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
    assert "unsafe" not in policy
    assert "http://" not in answer.text
    assert "https://" not in answer.text
    assert " style=" not in answer.text
    assert " on" not in "".join(re.findall(r"<[^>]*>", answer.text)).replace(" only", "")


def test_everything_that_the_page_names_is_served() -> None:
    http = client()
    named = re.findall(r'(?:src|href)="(/assets/[^"]+)"', http.get("/").text)
    assert len(named) == 7
    for path in named:
        assert http.get(path).status_code == 200
    assert http.get("/assets/../live.py").status_code == 404
    assert http.get("/assets/..%2flive.py").status_code == 404


def test_every_library_comes_with_its_licence() -> None:
    libraries = {name.split("-")[0].split(".")[0] for name in FILES if name.endswith(".js") and name != "page.js"}
    licences = {name.split("-")[0].split(".")[0] for name in FILES if name.endswith(".LICENSE")}
    assert libraries == licences == {"htmx", "uPlot"}


def test_the_list_can_be_searched_filtered_and_sorted() -> None:
    status_store = StatusStore(PIPELINE)
    held = [registered("a"), registered("b", declared=declared("b", routing_value="München")), registered("c")]
    status_store.hold(by_id(held))
    status_store.note(progress(position=15))
    status_store.note(progress(Outcome.PARKED, "c", error=problem("access_denied")))
    status_store.note(frontier(held, head=17, lagging={"b": 15}))
    http = client(view=status_store.view)

    def shown(query: str) -> list[str]:
        return re.findall(r'<td class="name"><a href="destinations/(\w+)"', http.get(f"/?{query}").text)

    assert shown("") == ["a", "b", "c"]
    assert shown("search=MÜNCH") == ["b"]
    assert shown("state=parked") == ["c"]
    assert shown("sort=lag") == ["c", "b", "a"]
    assert shown("state=nonsense&sort=nonsense") == ["a", "b", "c"]


def test_the_page_says_what_to_do_while_there_are_no_destinations() -> None:
    assert "No destinations yet" in client().get("/").text


def test_a_long_page_has_a_next_one() -> None:
    http = client(many(51))
    html = http.get("/").text
    link = unescape(re.findall(r'<a href="([^"]+)" rel="next"', html)[0])
    assert (html.count("<tr>"), http.get(link).text.count("<tr>")) == (51, 2)


STAMP = {"pipeline": PIPELINE, "destination": "a", "kind": "changes", "generation": 1, "after": 1, "through": 2,
         "item": "i", "deleted": 0, "inserted": 1}  # fmt: skip


@pytest.mark.parametrize(
    "said",
    ["[" * 3_000, "[]", "null", json.dumps({**STAMP, "kind": None}), json.dumps({**STAMP, "inserted": "<b>"}),
     json.dumps({**STAMP, "kind": "k" * 500}), json.dumps({**STAMP, "generation": 2**63}),
     json.dumps({**STAMP, "through": 2**70}), json.dumps({**STAMP, "more": "x" * LONGEST})],
)  # fmt: skip
def test_a_stamp_that_the_lakes_owner_wrote_breaks_no_page(said: str) -> None:
    """It was a 500 of the destination's page, and of its history."""
    good = StampedCommit(1, START, "m" * 5_000, json.dumps(STAMP))
    found = _commits([StampedCommit(2, START, "m", said), good], StatusStore(PIPELINE).view(), "a")
    assert [(each.snapshot, len(each.message)) for each in found] == [(1, LONGEST_MESSAGE)]
