"""The interface as tools use it: read, change, write; HEAD; verbs; keys of requests; which build answers."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.control.store.idempotency_store import KEPT_FOR_S, MOST, MOST_BYTES, Answers, Kept
from services.control.web.idempotency import NAME
from services.control.web.json_bodies import FIRST_LOOK, members, strictly
from shared.config.catalogs import ResolvedLake
from shared.contracts.layout import TableLayout
from shared.lake.connection.attach import attach
from shared.lake.connection.engine import connect
from shared.runtime.version import REVISION, build_version, version
from tests.fast.control.live_server import served
from tests.fast.control.rig import V1, ControlRig, D, entry

PROBLEM = "application/problem+json"
ADDED = entry("new", seed_mode="latest", properties={"s3_region": "eu-central-1"}, name="New & Co")

LISTED = {"server": {"allowed_variables": ["ORDERS_*"], "allowed_hosts": ["*"]}}


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[ControlRig]:
    with closing(ControlRig(tmp_path, file=("filed",))) as rig:
        rig.add("a")
        yield rig


def kind(answer: httpx.Response) -> str:
    return str(answer.json()["type"]).rpartition("#")[2]


# -- read, change, write ----------------------------------------------------------------------------------------------


def test_what_get_answers_can_be_put_again_and_changes_nothing(rig: ControlRig) -> None:
    rig.applied("a", 1, 12)
    seen = rig.http.get(f"{D}/a")
    again = rig.http.put(f"{D}/a?check=false", seen.json(), {"If-Match": seen.headers["ETag"]})
    assert again.status_code == 200, again.text
    first = again.json()["version"]
    assert rig.http.put(f"{D}/a?check=false", again.json()).json()["version"] == first


def test_a_figure_that_moved_since_the_get_is_nobodys_wish(rig: ControlRig) -> None:
    seen = rig.http.get(f"{D}/a").json()
    rig.applied("a", 1, 12)
    assert seen["position"] != rig.http.get(f"{D}/a").json()["position"]
    changed = rig.http.put(f"{D}/a?check=false", {**seen, "data_path": "elsewhere/"})
    assert (changed.status_code, changed.json()["data_path"]) == (200, "elsewhere/")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("generation", 9),
        ("state", "paused"),
        ("managed_by", "file"),
        ("pipeline", "another"),
        ("lake", {"catalog": "sqlite:/elsewhere"}),
        ("rewound_to", 3),
    ],
)
def test_a_read_only_field_that_asks_for_something_is_refused_by_its_name(
    rig: ControlRig, field: str, value: object
) -> None:
    seen = rig.http.get(f"{D}/a").json()
    refused = rig.http.put(f"{D}/a?check=false", {**seen, field: value})
    assert (refused.status_code, kind(refused)) == (422, "invalid")
    assert [each["path"] for each in refused.json()["fields"]] == [field]
    assert rig.http.get(f"{D}/a").json()["version"] == seen["version"]


def test_the_version_in_a_body_is_as_good_as_if_match(rig: ControlRig) -> None:
    seen = rig.http.get(f"{D}/a").json()
    rig.add("a", name="changed meanwhile")
    assert kind(rig.http.put(f"{D}/a?check=false", seen)) == "precondition_failed"


def test_a_new_destination_may_be_made_of_what_another_shows_but_for_its_own_wishes(rig: ControlRig) -> None:
    shown = rig.http.get(f"{D}/a").json()
    taken = {"id": "b", "routing_value": "b", "catalog": "sqlite:lakes/b.sqlite"}
    assert rig.http.put(f"{D}/b?check=false", {**shown, **taken}).status_code == 201
    assert kind(rig.http.put(f"{D}/c?check=false", {**shown, "id": "c", "state": "stopped"})) == "invalid"


def test_an_entry_is_served_as_it_was_put_key_by_key(rig: ControlRig) -> None:
    assert rig.http.put(f"{D}/new?check=false", {**ADDED, "id": "new"}).status_code == 201
    shown = rig.http.get(f"{D}/new/entry")
    assert shown.json() == ADDED
    assert shown.headers["ETag"] == rig.http.get(f"{D}/new").headers["ETag"]
    assert {name: rig.http.get(f"{D}/new").json()[name] for name in ADDED} == ADDED
    body = {**shown.json(), "name": "renamed"}
    changed = rig.http.put(f"{D}/new?check=false", body, {"If-Match": shown.headers["ETag"]})
    assert (changed.status_code, rig.http.get(f"{D}/new/entry").json()) == (200, body)


def test_a_changed_layout_is_noticed_until_a_reseed(rig: ControlRig) -> None:
    layout = {"partitioned_by": "year(ts)", "encrypted": False}
    changed = rig.http.put(f"{D}/a?check=false", entry("a", layout=layout))
    assert (changed.status_code, changed.json()["layout"]) == (200, {**layout, "sorted_by": None})
    assert changed.json()["generation"] == 1
    assert changed.json()["notice"].endswith("from the next reseed on: partitioned by year(ts)")
    told = rig.published("a")
    assert told is not None
    assert told.layout == TableLayout(partitioned_by="year(ts)")
    rig.http.post(f"{D}/a:reseed")
    assert rig.http.get(f"{D}/a").json()["notice"] is None


@pytest.mark.parametrize(
    ("layout", "path"),
    [
        ({"partitioned_by": "bucket(2, event_id)"}, "layout.partitioned_by"),
        ({"partitioned_by": "x; DROP TABLE t"}, "layout.partitioned_by"),
        ({"sorted_by": "lower(company)"}, "layout.sorted_by"),
        ({"sorted_by": 7}, "layout.sorted_by"),
        ({"sorted_by": "x" * 2_001}, "layout.sorted_by"),
        ({"encrypted": "perhaps"}, "layout.encrypted"),
        ({"order": "x"}, "layout.order"),
        ("year(ts)", "layout"),
    ],
)
def test_a_layout_that_is_none_is_refused_by_its_path(rig: ControlRig, layout: object, path: str) -> None:
    refused = rig.http.put(f"{D}/new?check=false", entry("new", layout=layout))
    assert (refused.status_code, kind(refused)) == (422, "invalid")
    assert [each["path"] for each in refused.json()["fields"]] == [path]


@pytest.mark.parametrize(
    ("layout", "said"),
    [
        ({"partitioned_by": "year(company)"}, "company is VARCHAR, which has no year"),
        ({"partitioned_by": "gone"}, "layout.partitioned_by: the source has no column 'gone'"),
        ({"sorted_by": "gone"}, "layout.sorted_by: the source has no column 'gone'"),
        ({"partitioned_by": "COMPANY", "sorted_by": "company DESC"}, None),
        ({"partitioned_by": "same", "sorted_by": "same"}, None),
    ],
)
def test_a_layout_is_held_against_the_source_before_a_destination_is_put(
    rig: ControlRig, layout: dict[str, str], said: str | None
) -> None:
    findings = rig.http.post(f"{D}:validate", entry("new", id="new", layout=layout)).json()["checks"]
    found = [each for each in findings if each["check"] == "layout"]
    assert [(each["ok"], each["type"], said in each["message"]) for each in found if said] == (
        [(False, "invalid_destination", True)] if said else []
    )
    assert bool(found) == (said is not None)
    refused = rig.http.put(f"{D}/new", entry("new", layout=layout))
    assert (refused.status_code == 422) == (said is not None)


def test_a_lake_that_was_made_plain_is_not_taken_where_an_encrypted_one_is_asked_for(rig: ControlRig) -> None:
    with connect() as con:
        attach(con, "lake", ResolvedLake(f"sqlite:{rig.folder}/lakes/new.sqlite"), read_only=False, create=True)
    refused = rig.http.put(f"{D}/new", entry("new", layout={"encrypted": True}))
    assert (refused.status_code, kind(refused)) == (422, "check_failed")
    assert "created without encryption" in refused.text
    assert rig.http.put(f"{D}/new", entry("new", layout={"encrypted": False})).status_code == 201


def test_the_entry_survives_a_restart_and_the_trail_does_not_repeat_it(rig: ControlRig) -> None:
    rig.http.put(f"{D}/new?check=false", ADDED)
    rig.registry._known, rig.registry._known_version = {}, -1
    written = rig.registry.destinations()["new"].declared.written
    assert written == ADDED
    assert "written" not in rig.http.get(f"{V1}/audit").json()["items"][0]["changes"]


def test_the_files_own_entries_are_served_too_and_stay_the_files(rig: ControlRig) -> None:
    shown = rig.http.get(f"{D}/filed/entry").json()
    assert shown["routing_value"] == rig.http.get(f"{D}/filed").json()["routing_value"]
    assert kind(rig.http.put(f"{D}/filed?check=false", rig.http.get(f"{D}/filed").json())) == "declared_by_file"


DOCUMENT: dict[str, Any] = {
    "source": {"catalog_env": "ORDERS_CATALOG", "table": "orders"},
    "routing": {"field": "company", "key_columns": ["order_id"]},
}


def test_a_pipeline_is_read_changed_and_written_too(tmp_path: Path) -> None:
    with closing(ControlRig(tmp_path, sections=LISTED, environ={"ORDERS_CATALOG": "dbname=orders"})) as rig:
        place = "/v1/pipelines/orders"
        assert rig.http.put(f"{place}?check=false", DOCUMENT).status_code == 201
        document = rig.http.get(f"{place}/document")
        assert document.json() == DOCUMENT
        whole = rig.http.get(place).json()
        same = rig.http.put(f"{place}?check=false", whole, {"If-Match": document.headers["ETag"]})
        assert (same.status_code, same.json()["version"]) == (200, whole["version"])
        whole["document"]["poll"] = {"interval_seconds": 3}
        changed = rig.http.put(f"{place}?check=false", whole)
        assert changed.json()["document"]["poll"] == {"interval_seconds": 3}
        assert kind(rig.http.put(f"{place}?check=false", whole)) == "precondition_failed"
        refused = rig.http.put(f"{place}?check=false", {**changed.json(), "name": "x", "source": {}})
        assert {each["path"] for each in refused.json()["fields"]} == {"name", "source"}


# -- HEAD, verbs, version ---------------------------------------------------------------------------------------------

PATHS = (
    "/healthz", "/readyz", "/metrics", "/", "/openapi.json", "/v1/version", "/v1/pipelines", V1, D, f"{D}/a",
    f"{D}/a/entry", f"{D}/a/status", "/destinations/a", "/assets/page.css", "/v1/tokens", "/docs/errors",
)  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_head_answers_what_get_does_without_its_body(rig: ControlRig, path: str) -> None:
    asked, told = rig.http.get(path), rig.http.request("HEAD", path)
    assert (told.status_code, told.content) == (asked.status_code, b"") == (200, b"")
    if path != "/metrics":
        assert told.headers["content-type"] == asked.headers["content-type"]
        assert told.headers.get("etag") == asked.headers.get("etag")


def test_head_of_what_is_not_there_or_takes_no_get_says_so(rig: ControlRig) -> None:
    assert rig.http.request("HEAD", f"{D}/nobody").status_code == 404
    refused = rig.http.request("HEAD", f"{D}:import")
    assert (refused.status_code, refused.headers["Allow"]) == (405, "POST")
    assert "HEAD" in rig.http.post(f"{D}/a/status").headers["Allow"]


def test_head_of_a_stream_ends(rig: ControlRig) -> None:
    with served(rig) as url:
        told = httpx.head(f"{url}/events", timeout=10)
        assert (told.status_code, told.headers["content-type"].partition(";")[0]) == (200, "text/event-stream")
        assert httpx.get(f"{url}/v1/version", timeout=10).status_code == 200


@pytest.mark.parametrize("verb", ["pause", "resume", "stop", "restart", "reseed", "rewind"])
def test_every_verb_has_a_colon_and_its_old_spelling(rig: ControlRig, verb: str) -> None:
    body = {"to": 12} if verb == "rewind" else None
    new, old = (rig.http.post(f"{D}/a{by}{verb}", body).status_code for by in (":", "/"))
    assert new == old
    assert new != 404
    paths = rig.http.get("/openapi.json").json()["paths"]
    assert f"{D.replace('events', '{pipeline}')}/{{destination}}:{verb}" in paths
    assert not [path for path in paths if path.endswith(f"/{verb}")]


def test_a_verb_finds_a_destination_whose_name_holds_colons(rig: ControlRig) -> None:
    rig.add("a:pause")
    assert rig.http.post(f"{D}/a:pause:pause").json()["id"] == "a:pause"
    assert rig.http.post(f"{D}/a:pause").json()["id"] == "a"
    assert rig.http.get(f"{D}/a:pause").json()["state"] == "paused"


def test_the_build_says_its_version(rig: ControlRig, monkeypatch: pytest.MonkeyPatch) -> None:
    assert rig.http.get("/v1/version").json() == {"version": version(), "revision": None}
    monkeypatch.setenv(REVISION, "0123456789abcdef")
    assert rig.http.get("/v1/version").json()["revision"] == "0123456789abcdef"
    assert build_version() == f"{version()} (0123456789ab)"


# -- keys of requests -------------------------------------------------------------------------------------------------


def test_a_post_that_is_sent_again_with_its_key_makes_nothing_twice(rig: ControlRig) -> None:
    wanted, key = {"name": "deploy", "scope": "admin"}, {NAME: '"8e03978e-40d5-43dd-bc93-6894a57f9324"'}
    first = post(rig, "/v1/tokens", wanted, key)
    authorized = {**key, "Authorization": f"Bearer {first.json()['token']}"}
    again = post(rig, "/v1/tokens", wanted, authorized)
    third = post(rig, "/v1/tokens", wanted, authorized)
    assert (again.status_code, third.json()) == (201, again.json())
    assert third.headers["Idempotency-Replayed"] == "true"
    assert third.headers["content-type"] == again.headers["content-type"]
    assert len(rig.tokens.all()) == 2  # a key is its asker's own: the first came from nobody in particular


def post(rig: ControlRig, path: str, body: object, headers: dict[str, str]) -> httpx.Response:
    return rig.http.request("POST", path, headers=headers, json=body)


@pytest.mark.parametrize("by", [":", "/"])
def test_a_reseed_that_is_sent_again_with_its_key_is_the_same_operation(rig: ControlRig, by: str) -> None:
    begun = [post(rig, f"{D}/a{by}reseed", None, {NAME: "k"}) for _ in range(3)]
    assert {each.json()["id"] for each in begun} == {begun[0].json()["id"]}
    assert {each.headers["Location"] for each in begun} == {begun[0].headers["Location"]}
    assert rig.registry.destinations()["a"].generation == 2
    assert post(rig, f"{D}/a:reseed", None, {NAME: "k2"}).json()["generation"] == 3


def test_a_key_for_another_request_is_refused(rig: ControlRig) -> None:
    rig.add("b")
    post(rig, f"{D}/a:reseed", None, {NAME: "k"})
    reused = post(rig, f"{D}/b:reseed", None, {NAME: "k"})
    assert (reused.status_code, kind(reused), reused.headers["content-type"]) == (422, "key_reused", PROBLEM)
    assert rig.registry.destinations()["b"].generation == 1


@pytest.mark.parametrize("bad", ["", "x" * 300, "two words"])
def test_what_can_be_no_key_is_refused(rig: ControlRig, bad: str) -> None:
    assert kind(post(rig, f"{D}/a:reseed", None, {NAME: bad})) == "invalid"


def test_a_failure_of_ours_is_not_kept_so_that_the_same_key_may_be_tried_again(rig: ControlRig) -> None:
    wanted = entry("late", id="late")
    there, rig.reconciler.seen = rig.reconciler.seen, None  # the source was not polled yet
    assert post(rig, f"{D}:validate", wanted, {NAME: "k"}).status_code == 503
    rig.reconciler.seen = there
    assert post(rig, f"{D}:validate", wanted, {NAME: "k"}).status_code == 200


def test_while_the_first_is_answered_the_second_waits_its_turn() -> None:
    answers = Answers()
    assert answers.begin("olga", "k", "p") is None
    held = answers.begin("olga", "k", "p")
    assert held is not None
    assert held.answer is None
    assert answers.begin("someone else", "k", "p") is None
    answers.end("olga", "k", None)
    assert answers.begin("olga", "k", "p") is None, "what failed may be tried in earnest"


def test_answers_are_kept_for_an_hour_and_never_too_many() -> None:
    now = [0.0]
    answers = Answers(lambda: now[0])
    keep(answers, "first", b"x")
    now[0] = KEPT_FOR_S - 1
    assert answers.begin("olga", "first", "p") is not None
    now[0] = KEPT_FOR_S + 1
    assert answers.begin("olga", "first", "p") is None
    for number in range(MOST + 50):
        keep(answers, f"k{number}", b"x")
    assert len(answers._held) <= MOST + 1
    for number in range(20):
        keep(answers, f"large{number}", b"x" * (MOST_BYTES // 10))
    assert answers._bytes <= MOST_BYTES
    assert answers.begin("olga", "large19", "p") is not None


def keep(answers: Answers, key: str, body: bytes) -> None:
    answers.begin("olga", key, "p")
    answers.end("olga", key, Kept(200, (), body))


def test_two_at_once_do_it_once(rig: ControlRig) -> None:
    with served(rig) as url:
        found: list[httpx.Response] = []

        def ask() -> None:
            found.append(httpx.post(f"{url}{D}/a:reseed", headers={NAME: "both"}, timeout=20))

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    assert {each.status_code for each in found} <= {202, 409}
    assert rig.registry.destinations()["a"].generation == 2


def test_every_post_tells_of_its_key(rig: ControlRig) -> None:
    for path, operations in rig.http.get("/openapi.json").json()["paths"].items():
        if "post" in operations:
            named = [each["name"] for each in operations["post"].get("parameters", [])]
            assert NAME in named, path


# -- imports ----------------------------------------------------------------------------------------------------------


def test_an_import_takes_lines_or_an_array(rig: ControlRig) -> None:
    entries = [{**entry(name), "id": name} for name in ("x", "y")]
    done = rig.http.post(f"{D}:import", [*entries, {"id": "z"}]).json()
    assert (done["created"], done["failed"]) == (2, 1)
    assert [(each["line"], each["status"]) for each in done["lines"]] == [(1, 201), (2, 201), (3, 422)]
    broken = rig.http.request("POST", f"{D}:import", content=b"[{", headers={"Content-Type": "application/json"})
    assert kind(broken) == "invalid"


MILLIONS = (
    b"1\n" * 1_000_000, b"\n" * 1_000_000, b"1\n" * 10_001, b"[" + b"{}," * 1_000_000 + b"{}]",
    b"[" + b"1," * 500_000 + b"oops",
)  # fmt: skip


@pytest.mark.parametrize("body", MILLIONS, ids=range(len(MILLIONS)))
def test_an_import_of_millions_is_refused_before_it_is_looked_into(rig: ControlRig, body: bytes) -> None:
    """Two megabytes cost control two minutes and 2 GB of memory."""
    began = time.process_time()
    answer = rig.http.request("POST", f"{D}:import", content=body, headers={"Content-Type": "application/x-ndjson"})
    assert (answer.status_code, kind(answer)) == (413, "too_large")
    assert time.process_time() - began < 2.0


def test_one_line_of_an_import_is_no_larger_than_a_put(rig: ControlRig) -> None:
    large = b'{"id": "x", "name": "' + b"n" * 1_000_000 + b'"}'
    line = rig.http.request("POST", f"{D}:import", content=large, headers={"Content-Type": "application/x-ndjson"})
    assert "longer than 1,000,000" in line.json()["lines"][0]["detail"]
    member = rig.http.request(
        "POST", f"{D}:import", content=b"[" + large + b"]", headers={"Content-Type": "application/json"}
    )
    assert (kind(member), "longer than 1,000,000" in member.text) == ("invalid", True)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


@given(st.lists(JSON, max_size=6), st.sampled_from([None, 1, "\t"]))
def test_the_members_of_an_array_are_those_of_its_json(array: list[Any], indent: str | int | None) -> None:
    text = json.dumps(array, indent=indent)
    assert list(members(f" {text}\n".encode(), 10_000)) == array


@given(st.lists(st.text(alphabet='0123456789-.eE"\\[]{},: \n', max_size=6)))
def test_what_is_no_array_is_no_array_member_by_member_either(parts: list[str]) -> None:
    body = ("[" + ",".join(parts) + "]").encode()
    try:
        whole = strictly(body)
    except ValueError:
        with pytest.raises(ValueError):
            list(members(body, 10_000))
    else:
        assert list(members(body, 10_000)) == whole


def test_a_number_that_lies_across_the_first_look_is_read_whole() -> None:
    for spaces in range(FIRST_LOOK - 6, FIRST_LOOK + 2):
        assert list(members(b"[" + b" " * 3 + b'"' + b"x" * spaces + b'",123456]', 10_000))[1:] == [123456]
        assert list(members(b"[" + b"[" + b" " * spaces + b"]" + b",1234]", 10_000))[1:] == [1234]
    assert list(members(b"[" + b"1" * 4_200 + b"]", 10_000)) == [int("1" * 4_200)]
