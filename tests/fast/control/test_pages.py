"""What people find on the pages: a login, where a tenant is, why it stands, what can be done, and who did what."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest

from services.control.board import MOST_APPLIERS, Board
from services.control.page.pane import ROWS
from services.control.page.trouble import local
from services.control.pulse import EVERY_S, Pulse
from services.control.trail import Trail
from services.control.work import Work
from shared.backoff import delay_s
from shared.build import version
from shared.messages import Lagging, LakeRef, Outcome
from tests.fast.control.examples import PIPELINE, START, at, by_id, declared, frontier, problem, progress, registered
from tests.fast.control.office import V1, D, Office, entry
from tests.fast.control.test_work import TOPICS, FakeBroker, item, letter

BROWSER = {"Accept": "text/html,application/xhtml+xml"}
TOKEN = "s3cret-operator"
OPERATOR = {"Authorization": f"Bearer {TOKEN}"}
PIPELINES_PAGE = "/pipelines/events"


@pytest.fixture
def broker() -> FakeBroker:
    broker = FakeBroker()
    broker.put(item("one"))
    broker.put(letter())
    return broker


@pytest.fixture
def office(tmp_path: Path, broker: FakeBroker) -> Iterator[Office]:
    def work(board: Board, trail: Trail) -> Work:
        return Work(PIPELINE, TOPICS, broker, broker, board.view, trail)

    with closing(Office(tmp_path, file=("filed",), work=work)) as office:
        office.add("a")
        yield office


@pytest.fixture
def protected(tmp_path: Path) -> Iterator[Office]:
    """With a token, on loopback: whoever comes without one may read."""
    with closing(Office(tmp_path, token=TOKEN)) as office:
        assert office.http.put(f"{D}/a?check=false", entry("a"), OPERATOR).status_code == 201
        yield office


def send(office: Office, path: str, fields: dict[str, str] | None = None, **headers: str) -> httpx.Response:
    sent = {"Content-Type": "application/x-www-form-urlencoded", **BROWSER, **headers}
    return office.http.request("POST", path, content=urlencode(fields or {}).encode(), headers=sent)


# -- who looks --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "/destinations/a", "/proposals", "/operations", "/audit", "/health"])
def test_who_reads_without_a_token_finds_the_login_on_every_page(protected: Office, path: str) -> None:
    if path == "/proposals":
        protected.offered(mallard=1)
    shown = protected.http.get(path, headers=BROWSER).text
    assert f'href="/login?next={path.replace("/", "%2F")}"' in shown
    assert 'method="post"' not in shown, "a button that can only be refused"
    assert "/pause" not in shown
    assert "/login" not in protected.http.get(path, headers=OPERATOR).text


def test_a_refused_button_leads_to_the_login_and_from_there_back(protected: Office) -> None:
    place = "http://127.0.0.1/destinations/a/pause"
    refused = send(protected, "/destinations/a/pause", Referer=place)
    assert (refused.status_code, refused.headers["location"]) == (303, "/login?next=%2Fdestinations%2Fa%2Fpause")
    asked = protected.http.get("/login?next=/destinations/a/pause").text
    assert '<input type="hidden" name="next" value="/destinations/a/pause">' in asked
    back = send(protected, "/login", {"token": TOKEN, "next": "/destinations/a/pause"})
    assert (back.status_code, back.headers["location"]) == (303, "/destinations/a/pause")


@pytest.mark.parametrize(
    ("place", "goes"),
    [("//evil.example/", "/"), ("https://evil.example", "/"), ("/\\evil.example", "/"), ("/a\n", "/"), (None, "/"),
     ("/destinations/a?x=1", "/destinations/a?x=1"), ("/" + "x" * 5_000, "/")],
)  # fmt: skip
def test_a_login_leads_nowhere_else(place: str | None, goes: str) -> None:
    assert local(place) == goes


def test_a_problem_is_a_page_for_people_and_a_document_for_scripts(office: Office) -> None:
    page = office.http.get("/destinations/nobody", headers=BROWSER)
    assert (page.status_code, page.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "there is no destination nobody" in page.text
    assert office.http.get("/destinations/nobody").headers["content-type"] == "application/problem+json"
    assert office.http.get(f"{D}/nobody", headers=BROWSER).headers["content-type"] == "application/problem+json"
    strange = office.http.get("/destinations/nobody/%3Cscript%3E", headers=BROWSER)
    assert "<script>" not in strange.text.partition("<main")[2]


def test_the_footer_says_which_build_it_is_to_those_who_may_look(office: Office, tmp_path: Path) -> None:
    assert f"<footer>Viaduck {version()}</footer>" in office.http.get("/").text
    (tmp_path / "beyond").mkdir()
    with closing(Office(tmp_path / "beyond", loopback=False)) as beyond:
        beyond.tokens.create("olga", "read", START)
        assert version() not in beyond.http.get("/login").text


# -- a password comes back to nobody ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "catalog",
    [
        "postgres:host=h password=hunter2",
        "postgresql://u:hunter2@h/d",
        "postgres:host=h passwort=hunter2",
        "postgres:password='hunter2",
    ],
)
@pytest.mark.parametrize("path", ["/add", "/destinations/a/edit"])
def test_a_typed_password_never_comes_back_whatever_else_is_wrong(office: Office, path: str, catalog: str) -> None:
    fields = {"id": "a b", "routing_value": "x", "catalog": catalog, "seed_mode": "never", "version": "1"}
    refused = send(office, path, fields)
    assert refused.status_code == 422
    assert "hunter2" not in refused.text
    assert "Write it again: catalog" in refused.text
    assert 'value="x"' in refused.text, "what is no secret stays"


def test_a_key_among_properties_never_comes_back_either(office: Office) -> None:
    fields = {"id": "a b", "routing_value": "x", "properties": "s3_secret_access_key = hunter2"}
    assert "hunter2" not in send(office, "/add", fields).text


# -- how it goes ------------------------------------------------------------------------------------------------------


def test_nobody_waits_for_a_paused_tenant_so_its_lag_is_not_the_worst() -> None:
    board, now = Board(PIPELINE), [1_000.0]
    paused = registered("p", desired="paused")
    board.hold(by_id([registered("a"), paused]))
    lagging = {"a": Lagging(known_through=8, lag_seconds=2.5), "p": Lagging(known_through=1, lag_seconds=400_000.0)}
    board.note(frontier([registered("a"), paused]).model_copy(update={"lagging": lagging}))
    pulse = Pulse(board.view, lambda: now[0])
    pulse.feel()
    assert pulse.last.lag_s == 2.5
    board.hold(by_id([paused]))
    now[0] += EVERY_S
    pulse.feel()
    assert pulse.last.lag_s == 0.0


NEVER_REACHED = Lagging(known_through=-1, lag_seconds=0.0, attempts=7)


def test_one_that_was_never_reached_is_failing_and_says_since_when_how_often_and_what_is_next(office: Office) -> None:
    office.said(progress(Outcome.FAILED, seconds=100, error=problem()))
    word = frontier(office.registry.destinations().values())
    office.said(word.model_copy(update={"lagging": {"a": NEVER_REACHED}}))
    told = office.http.get(f"{D}/a").json()
    again = (at(100) + timedelta(seconds=delay_s(7, 0.0))).isoformat().replace("+00:00", "Z")
    assert (told["state"], told["lag_seconds"]) == ("seeding", None)
    assert (told["error"]["attempts"], told["error"]["next_try_at"]) == (7, again)
    shown = office.http.get("/destinations/a").text
    assert '<dd class="failing">failing' in shown
    assert "7 tries failed in a row" in shown
    assert "2026-01-01 00:01:40 UTC" in shown
    assert "2026-01-01 00:02:44 UTC</time> or soon after" in shown
    assert "0.0 s" not in shown
    row = office.http.get("/").text.partition("<tbody")[2]
    assert 'class="state failing">failing' in row
    assert "unknown" in row


def test_a_tenant_that_is_parked_is_not_promised_another_try(office: Office) -> None:
    office.said(progress(Outcome.PARKED, seconds=100, error=problem("access_denied", retryable=False)))
    word = frontier(office.registry.destinations().values())
    office.said(word.model_copy(update={"lagging": {"a": NEVER_REACHED}}))
    assert office.http.get(f"{D}/a").json()["error"]["next_try_at"] is None
    assert "it waits for you" in office.http.get("/destinations/a").text


def test_a_destinations_page_says_where_it_is_without_its_secrets(office: Office) -> None:
    keys = {"catalog": "postgres:host=db.example dbname=quack user=viaduck", "metadata_schema": "q", "schema": "duck",
            "data_path": "s3://quack/", "table": "ponds"}  # fmt: skip
    office.add("there", **keys)
    shown = office.http.get("/destinations/there").text
    assert all(said in shown for said in ("db.example", "dbname=quack", "s3://quack/", "duck.ponds", "<code>q</code>"))
    named = declared("named", lake=LakeRef(catalog_env="QUACK_CATALOG"))
    office.board.hold(by_id([registered(declared=named)]))
    office.served.pane.forget()
    assert "in the variable <code>QUACK_CATALOG</code>" in office.http.get("/destinations/named").text


def test_what_a_file_keeps_to_itself_is_on_no_page(office: Office) -> None:
    office.board.hold(by_id([registered(declared=declared("secret", lake=LakeRef(from_file=True)))]))
    office.served.pane.forget()
    assert "in the configuration file" in office.http.get("/destinations/secret").text


ALWAYS = {"reseed", "rewind"}


@pytest.mark.parametrize(
    ("prepared", "offered"),
    [
        ([], {"edit", "pause", "stop", "remove", *ALWAYS}),
        (["pause"], {"edit", "resume", "stop", "remove", *ALWAYS}),
        (["stop"], {"edit", "restart", "remove", *ALWAYS}),
        (["parked"], {"edit", "pause", "resume", "stop", "remove", *ALWAYS}),
        (["failed"], {"edit", "pause", "stop", "restart", "remove", *ALWAYS}),
        (["drop"], {"remove"}),
    ],
)
def test_only_what_its_state_permits_is_offered(office: Office, prepared: list[str], offered: set[str]) -> None:
    for each in prepared:
        if each in ("parked", "failed"):
            office.said(progress(Outcome(each), seconds=100, error=problem()))
        elif each == "drop":
            office.http.delete(f"{D}/a?data=drop")
        else:
            office.http.post(f"{D}/a:{each}")
    assert set(re.findall(r'href="/destinations/a/(\w+)"', office.http.get("/destinations/a").text)) == offered


def test_the_files_own_are_neither_edited_nor_removed_here(office: Office) -> None:
    shown = office.http.get("/destinations/filed").text
    assert not re.findall(r'href="/destinations/filed/(?:edit|remove)"', shown)
    assert office.http.get("/destinations/filed/edit", headers=BROWSER).status_code == 409


# -- edit -------------------------------------------------------------------------------------------------------------


def shown_version(office: Office, id: str = "a") -> str:
    found = re.search(r'name="version" value="(\d+)"', office.http.get(f"/destinations/{id}/edit").text)
    assert found is not None
    return found[1]


def test_a_destination_is_edited_as_it_was_put(office: Office) -> None:
    office.add("a", properties={"s3_region": "eu-central-1"}, seed_mode="latest")
    form = office.http.get("/destinations/a/edit").text
    assert 'value="value of a"' in form
    assert "s3_region = eu-central-1</textarea>" in form
    assert '<option value="latest" selected>' in form
    fields = {
        "routing_value": "value of a", "catalog": "sqlite:lakes/a.sqlite", "name": "A & Co", "seed_mode": "latest",
        "properties": "s3_region = eu-west-1\n\n s3_use_ssl=true ", "version": shown_version(office),
    }  # fmt: skip
    done = send(office, "/destinations/a/edit", fields)
    assert (done.status_code, done.headers["location"]) == (303, "/destinations/a")
    put = office.http.get(f"{D}/a/entry").json()
    assert (put["name"], put["properties"]) == ("A & Co", {"s3_region": "eu-west-1", "s3_use_ssl": "true"})
    assert office.http.get(f"{D}/a").json()["generation"] == 1


def test_an_edit_of_what_somebody_else_changed_is_refused(office: Office) -> None:
    fields = {"routing_value": "value of a", "catalog": "sqlite:lakes/a.sqlite", "version": shown_version(office)}
    office.add("a", name="changed meanwhile")
    refused = send(office, "/destinations/a/edit", {**fields, "name": "mine"})
    assert (refused.status_code, 'role="alert"' in refused.text) == (412, True)
    assert office.http.get(f"{D}/a").json()["name"] == "changed meanwhile"
    assert send(office, "/destinations/a/edit", {**fields, "version": "x"}).status_code == 412


@pytest.mark.parametrize("lines", ["s3_region", "= x", "a = 1\na = 2"])
def test_properties_that_are_no_settings_are_told_at_their_field(office: Office, lines: str) -> None:
    refused = send(office, "/add", {"id": "n", "routing_value": "x", "properties": lines}).text
    assert "line" in refused.split('id="add-properties-fault">')[1].split("</span>")[0]


# -- many at once -----------------------------------------------------------------------------------------------------


@pytest.fixture
def parked(office: Office) -> Office:
    for name in ("b", "c", "d"):
        office.add(name)
    for name, reason in (("a", "access_denied"), ("b", "access_denied"), ("c", "table_mismatch")):
        office.said(progress(Outcome.PARKED, name, seconds=100, error=problem(reason, retryable=False)))
    office.served.pane.forget()
    return office


def test_tiles_are_filters_and_reasons_too(parked: Office) -> None:
    shown = parked.http.get("/").text
    for query in ("state=parked", "state=parked&amp;reason=access_denied", "state=parked&amp;reason=table_mismatch"):
        assert f'href="?{query}"' in shown
    listed = parked.http.get("/?state=parked&reason=access_denied").text.partition("<tbody")[2]
    assert re.findall(r'href="destinations/(\w+)"', listed) == ["a", "b"]


def test_all_that_are_parked_for_one_reason_are_resumed_at_once(parked: Office) -> None:
    query = "state=parked&reason=access_denied"
    assert f'href="/all/resume?{query.replace("&", "&amp;")}"' in parked.http.get(f"/?{query}").text
    assert "resume 2 destinations" in parked.http.get(f"/all/resume?{query}").text
    before = parked.registry.destinations()
    parked.now = at(200)
    assert send(parked, f"/all/resume?{query}", {"count": "2"}).status_code == 303
    after = parked.registry.destinations()
    assert {name for name in after if after[name].revision != before[name].revision} == {"a", "b"}
    assert after["a"].version == after["b"].version, "in one transaction"
    assert parked.http.get(f"{D}?state=parked").json()["items"][0]["id"] == "c"


def test_many_are_changed_only_while_they_are_those_that_were_seen(parked: Office) -> None:
    before = parked.registry.destinations()
    refused = send(parked, "/all/stop?state=parked", {"count": "2"})
    assert (refused.status_code, "stop 3 destinations" in refused.text) == (409, True)
    assert parked.registry.destinations() == before
    assert send(parked, "/all/reseed?state=parked", {"count": "3"}).status_code == 404


def test_one_that_can_not_does_not_keep_the_others(office: Office) -> None:
    for name in ("b", "c"):
        office.add(name)
    office.http.post(f"{D}/b:stop")
    assert office.desk.act_all(["a", "b", "c", "nobody"], "pause", "olga") == (2, 2)
    assert {office.http.get(f"{D}/{name}").json()["state"] for name in ("a", "c")} == {"paused"}


# -- the other pages --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("base", ["", PIPELINES_PAGE])
@pytest.mark.parametrize(
    "path", ["/", "/proposals", "/operations", "/work", "/work/replay", "/dead-letters", "/audit", "/add"]
)
def test_each_page_is_there_for_the_only_pipeline_and_by_its_name(office: Office, base: str, path: str) -> None:
    shown = office.http.get(f"{base}{path}", headers=BROWSER)
    assert shown.status_code == 200
    assert f'href="{base}/operations"' in shown.text
    assert "<script>" not in shown.text
    assert not re.findall(r'\son\w+="', shown.text)


def test_operations_are_followed(office: Office) -> None:
    office.http.post(f"{D}/a:reseed")
    shown = office.http.get("/operations").text
    assert 'class="state running">running' in shown
    assert 'hx-get="/operations/rows?' in shown
    assert "Under way" in office.http.get("/destinations/a").text
    office.applied("a", 2, 12)
    assert 'class="state succeeded">succeeded' in office.http.get("/operations/rows?destination=a").text
    assert "None yet" in office.http.get("/operations?destination=nobody").text


def test_work_is_seen_and_sent_again(office: Office, broker: FakeBroker) -> None:
    assert "(1, 5]" in office.http.get("/work?destination=a").text
    assert "None among" in office.http.get("/work?destination=b").text
    assert "<b>1</b> matches" in office.http.get("/work/replay?destination=a").text
    sent = send(office, "/work/replay", {"destination": "a"})
    assert "<b>1</b> of 1 work items" in sent.text
    assert len(broker.topics[TOPICS.work]) == 2
    assert "replayed" in office.http.get("/audit").text


def test_dead_letters_are_seen_and_sent_again(office: Office, broker: FakeBroker) -> None:
    assert "not JSON" in office.http.get("/dead-letters").text
    sent = send(office, "/dead-letters/redrive", {"partition": "0", "offset": "0"})
    assert "<b>1</b> of 1 dead letters" in sent.text
    assert len(broker.topics[TOPICS.work]) == 2
    assert send(office, "/dead-letters/redrive", {"partition": "x"}).status_code == 422


def test_the_audit_trail_says_who_did_what_page_by_page(office: Office) -> None:
    for number in range(ROWS):
        office.add(f"t{number:03}", name="<b>x</b>")
    first = office.http.get("/audit").text
    assert first.count("<tr>") == ROWS + 1
    assert "<b>x</b>" not in first
    older = re.search(r'href="(/audit\?after=[^"]+)" rel="next"', first)
    assert older is not None
    assert "filed" in office.http.get(older[1]).text
    assert office.http.get("/audit?destination=a").text.count("<tr>") == 2


def test_tokens_are_made_shown_once_and_revoked(office: Office) -> None:
    made = send(office, "/tokens", {"name": "<deploy>", "scope": "admin"})
    token = re.findall(r"vdk_[\w-]+", made.text)[0]
    admin = {"Authorization": f"Bearer {token}"}
    listed = office.http.get("/tokens", headers=admin).text
    assert "&lt;deploy&gt;" in listed
    assert token not in listed
    id = re.findall(r"/tokens/(\w+)/revoke", listed)[0]  # noqa: A001
    _, reader = office.tokens.create("reader", "write", START)
    assert office.http.get("/tokens", headers={"Authorization": f"Bearer {reader}"}).status_code == 403
    assert send(office, f"/tokens/{id}/revoke", Authorization=f"Bearer {reader}").status_code == 403
    assert send(office, "/tokens", {"name": "x"}, Authorization=f"Bearer {reader}").status_code == 403
    bearer = admin["Authorization"]
    assert send(office, "/tokens", {"name": "", "scope": "admin"}, Authorization=bearer).status_code == 422
    assert send(office, f"/tokens/{id}/revoke", Authorization=bearer).status_code == 303
    assert office.tokens.find(id).revoked_at is not None  # type: ignore[union-attr]


def test_health_tells_of_dependencies_readers_and_appliers(office: Office) -> None:
    office.said(progress(applier="applier-7"))
    office.looked(12)
    shown = office.http.get("/health").text
    assert all(said in shown for said in ("applier-7", "viaduck-0", " ago"))


def test_whoever_calls_himself_an_applier_fills_no_memory() -> None:
    board = Board(PIPELINE)
    for number in range(MOST_APPLIERS + 50):
        board.note(progress(applier=f"a{number}"))
    assert len(board.view().appliers) == MOST_APPLIERS
    assert f"a{MOST_APPLIERS + 49}" in board.view().appliers


def test_errors_over_time_are_plotted(parked: Office) -> None:
    parked.said(progress(Outcome.FAILED, "d", seconds=100, error=problem()))
    parked.pulse.feel()
    assert [column[-1] for column in parked.http.get("/pulse").json()[3:]] == [1, 3]
    assert 'data-columns="3,4" data-series="failing,parked"' in parked.http.get("/").text


def test_every_page_of_five_thousand_is_small(office: Office) -> None:
    lines: list[dict[str, Any]] = [{**entry(f"t{n}"), "id": f"t{n}"} for n in range(5_000)]
    body = "\n".join(map(json.dumps, lines)).encode()
    office.http.request("POST", f"{V1}/destinations:import", content=body,
                        headers={"Content-Type": "application/x-ndjson"})  # fmt: skip
    office.served.pane.forget()
    for path in ("/", "/?state=seeding", "/all/pause?state=seeding", "/audit", "/operations", "/health"):
        assert len(office.http.get(path).content) < 100_000, path
    assert "pause 5,002 destinations" in office.http.get("/all/pause?state=seeding").text
    assert send(office, "/all/pause?state=seeding", {"count": "5002"}).status_code == 303
    assert office.http.get(V1).json()["destinations"] == {"paused": 5_002, "total": 5_002}
