"""What people find on the pages: a login, where a tenant is, why it stands, what can be done, and who did what."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest

from services.control.operations.work_items import Work
from services.control.page.problem_pages import local
from services.control.store.audit_log import AuditLog
from services.control.view.history import EVERY_S, History, HistorySample
from services.control.view.status_store import MOST_APPLIERS, StatusStore
from services.control.web.page_snapshot import ROWS
from shared.contracts.messages import LakeRef, Outcome
from shared.contracts.reports import Lagging
from shared.runtime.backoff import delay_s
from shared.runtime.version import version
from tests.fast.control.examples import PIPELINE, START, at, by_id, declared, frontier, problem, progress, registered
from tests.fast.control.operations.test_work_items import TOPICS, FakeBroker, item, letter
from tests.fast.control.rig import V1, ControlRig, D, entry

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
def rig(tmp_path: Path, broker: FakeBroker) -> Iterator[ControlRig]:
    def work(status_store: StatusStore, trail: AuditLog) -> Work:
        return Work(PIPELINE, TOPICS, broker, broker, status_store.view, trail)

    with closing(ControlRig(tmp_path, file=("filed",), work=work)) as rig:
        rig.add("a")
        yield rig


@pytest.fixture
def protected(tmp_path: Path) -> Iterator[ControlRig]:
    """With a token, on loopback: whoever comes without one may read."""
    with closing(ControlRig(tmp_path, token=TOKEN)) as rig:
        assert rig.http.put(f"{D}/a?check=false", entry("a"), OPERATOR).status_code == 201
        yield rig


def send(rig: ControlRig, path: str, fields: dict[str, str] | None = None, **headers: str) -> httpx.Response:
    sent = {"Content-Type": "application/x-www-form-urlencoded", **BROWSER, **headers}
    return rig.http.request("POST", path, content=urlencode(fields or {}).encode(), headers=sent)


# -- who looks --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "/destinations/a", "/proposals", "/operations", "/audit", "/health"])
def test_who_reads_without_a_token_finds_the_login_on_every_page(protected: ControlRig, path: str) -> None:
    if path == "/proposals":
        protected.offered(mallard=1)
    shown = protected.http.get(path, headers=BROWSER).text
    assert f'href="/login?next={path.replace("/", "%2F")}"' in shown
    assert 'method="post"' not in shown, "a button that can only be refused"
    assert "/pause" not in shown
    assert "/login" not in protected.http.get(path, headers=OPERATOR).text


def test_a_refused_button_leads_to_the_login_and_from_there_back(protected: ControlRig) -> None:
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


def test_a_problem_is_a_page_for_people_and_a_document_for_scripts(rig: ControlRig) -> None:
    page = rig.http.get("/destinations/nobody", headers=BROWSER)
    assert (page.status_code, page.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "there is no destination nobody" in page.text
    assert rig.http.get("/destinations/nobody").headers["content-type"] == "application/problem+json"
    assert rig.http.get(f"{D}/nobody", headers=BROWSER).headers["content-type"] == "application/problem+json"
    strange = rig.http.get("/destinations/nobody/%3Cscript%3E", headers=BROWSER)
    assert "<script>" not in strange.text.partition("<main")[2]


def test_the_footer_says_which_build_it_is_to_those_who_may_look(rig: ControlRig, tmp_path: Path) -> None:
    assert f"<footer>Viaduck {version()}</footer>" in rig.http.get("/").text
    (tmp_path / "beyond").mkdir()
    with closing(ControlRig(tmp_path / "beyond", loopback=False)) as beyond:
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
def test_a_typed_password_never_comes_back_whatever_else_is_wrong(rig: ControlRig, path: str, catalog: str) -> None:
    fields = {"id": "a b", "routing_value": "x", "catalog": catalog, "seed_mode": "never", "version": "1"}
    refused = send(rig, path, fields)
    assert refused.status_code == 422
    assert "hunter2" not in refused.text
    assert "Write it again: catalog" in refused.text
    assert 'value="x"' in refused.text, "what is no secret stays"


def test_a_key_among_properties_never_comes_back_either(rig: ControlRig) -> None:
    fields = {"id": "a b", "routing_value": "x", "properties": "s3_secret_access_key = hunter2"}
    assert "hunter2" not in send(rig, "/add", fields).text


# -- how it goes ------------------------------------------------------------------------------------------------------


def test_nobody_waits_for_a_paused_tenant_so_its_lag_is_not_the_worst() -> None:
    status_store, now = StatusStore(PIPELINE), [1_000.0]
    paused = registered("p", desired="paused")
    status_store.hold(by_id([registered("a"), paused]))
    lagging = {"a": Lagging(known_through=8, lag_seconds=2.5), "p": Lagging(known_through=1, lag_seconds=400_000.0)}
    status_store.note(frontier([registered("a"), paused]).model_copy(update={"lagging": lagging}))
    pulse = History(status_store.view, lambda: now[0])
    pulse.feel()
    assert pulse.last.lag_s == 2.5
    status_store.hold(by_id([paused]))
    now[0] += EVERY_S
    pulse.feel()
    assert pulse.last.lag_s == 0.0


NEVER_REACHED = Lagging(known_through=-1, lag_seconds=0.0, attempts=7)


def test_one_that_was_never_reached_is_failing_and_says_since_when_how_often_and_what_is_next(rig: ControlRig) -> None:
    rig.said(progress(Outcome.FAILED, seconds=100, error=problem()))
    word = frontier(rig.registry.destinations().values())
    rig.said(word.model_copy(update={"lagging": {"a": NEVER_REACHED}}))
    told = rig.http.get(f"{D}/a").json()
    again = (at(100) + timedelta(seconds=delay_s(7, 0.0))).isoformat().replace("+00:00", "Z")
    assert (told["state"], told["lag_seconds"]) == ("seeding", None)
    assert (told["error"]["attempts"], told["error"]["next_try_at"]) == (7, again)
    shown = rig.http.get("/destinations/a").text
    assert '<dd class="failing">failing' in shown
    assert "7 tries failed in a row" in shown
    assert "2026-01-01 00:01:40 UTC" in shown
    assert "2026-01-01 00:02:44 UTC</time> or soon after" in shown
    assert "0.0 s" not in shown
    row = rig.http.get("/").text.partition("<tbody")[2]
    assert 'class="state failing">failing' in row
    assert "unknown" in row


def test_a_tenant_that_is_parked_is_not_promised_another_try(rig: ControlRig) -> None:
    rig.said(progress(Outcome.PARKED, seconds=100, error=problem("access_denied", retryable=False)))
    word = frontier(rig.registry.destinations().values())
    rig.said(word.model_copy(update={"lagging": {"a": NEVER_REACHED}}))
    assert rig.http.get(f"{D}/a").json()["error"]["next_try_at"] is None
    assert "resume it after you have corrected the cause" in rig.http.get("/destinations/a").text


def test_a_destinations_page_says_where_it_is_without_its_secrets(rig: ControlRig) -> None:
    keys = {"catalog": "postgres:host=db.example dbname=quack user=viaduck", "metadata_schema": "q", "schema": "duck",
            "data_path": "s3://quack/", "table": "ponds"}  # fmt: skip
    rig.add("there", **keys)
    shown = rig.http.get("/destinations/there").text
    assert all(said in shown for said in ("db.example", "dbname=quack", "s3://quack/", "duck.ponds", "<code>q</code>"))
    named = declared("named", lake=LakeRef(catalog_env="QUACK_CATALOG"))
    rig.status_store.hold(by_id([registered(declared=named)]))
    rig.handle.snapshots.forget()
    assert "in the variable <code>QUACK_CATALOG</code>" in rig.http.get("/destinations/named").text


def test_what_a_file_keeps_to_itself_is_on_no_page(rig: ControlRig) -> None:
    rig.status_store.hold(by_id([registered(declared=declared("secret", lake=LakeRef(from_file=True)))]))
    rig.handle.snapshots.forget()
    assert "in the configuration file" in rig.http.get("/destinations/secret").text


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
def test_only_what_its_state_permits_is_offered(rig: ControlRig, prepared: list[str], offered: set[str]) -> None:
    for each in prepared:
        if each in ("parked", "failed"):
            rig.said(progress(Outcome(each), seconds=100, error=problem()))
        elif each == "drop":
            rig.http.delete(f"{D}/a?data=drop")
        else:
            rig.http.post(f"{D}/a:{each}")
    assert set(re.findall(r'href="/destinations/a/(\w+)"', rig.http.get("/destinations/a").text)) == offered


def test_the_files_own_are_neither_edited_nor_removed_here(rig: ControlRig) -> None:
    shown = rig.http.get("/destinations/filed").text
    assert not re.findall(r'href="/destinations/filed/(?:edit|remove)"', shown)
    assert rig.http.get("/destinations/filed/edit", headers=BROWSER).status_code == 409


# -- edit -------------------------------------------------------------------------------------------------------------


def shown_version(rig: ControlRig, id: str = "a") -> str:
    found = re.search(r'name="version" value="(\d+)"', rig.http.get(f"/destinations/{id}/edit").text)
    assert found is not None
    return found[1]


def test_a_destination_is_edited_as_it_was_put(rig: ControlRig) -> None:
    rig.add("a", properties={"s3_region": "eu-central-1"}, seed_mode="latest")
    form = rig.http.get("/destinations/a/edit").text
    assert 'value="value of a"' in form
    assert "s3_region = eu-central-1</textarea>" in form
    assert '<option value="latest" selected>' in form
    fields = {
        "routing_value": "value of a", "catalog": "sqlite:lakes/a.sqlite", "name": "A & Co", "seed_mode": "latest",
        "properties": "s3_region = eu-west-1\n\n s3_use_ssl=true ", "version": shown_version(rig),
    }  # fmt: skip
    done = send(rig, "/destinations/a/edit", fields)
    assert (done.status_code, done.headers["location"]) == (303, "/destinations/a")
    put = rig.http.get(f"{D}/a/entry").json()
    assert (put["name"], put["properties"]) == ("A & Co", {"s3_region": "eu-west-1", "s3_use_ssl": "true"})
    assert rig.http.get(f"{D}/a").json()["generation"] == 1


def test_an_edit_of_what_somebody_else_changed_is_refused(rig: ControlRig) -> None:
    fields = {"routing_value": "value of a", "catalog": "sqlite:lakes/a.sqlite", "version": shown_version(rig)}
    rig.add("a", name="changed meanwhile")
    refused = send(rig, "/destinations/a/edit", {**fields, "name": "mine"})
    assert (refused.status_code, 'role="alert"' in refused.text) == (412, True)
    assert rig.http.get(f"{D}/a").json()["name"] == "changed meanwhile"
    assert send(rig, "/destinations/a/edit", {**fields, "version": "x"}).status_code == 412


@pytest.mark.parametrize("lines", ["s3_region", "= x", "a = 1\na = 2"])
def test_properties_that_are_no_settings_are_told_at_their_field(rig: ControlRig, lines: str) -> None:
    refused = send(rig, "/add", {"id": "n", "routing_value": "x", "properties": lines}).text
    assert "line" in refused.split('id="add-properties-fault">')[1].split("</span>")[0]


def test_a_layout_is_edited_as_it_was_put_and_its_faults_are_told_at_its_field(rig: ControlRig) -> None:
    rig.add("a", layout={"partitioned_by": 'year("Day")', "encrypted": True})
    form = rig.http.get("/destinations/a/edit").text
    assert "partitioned_by = year(&#34;Day&#34;)\nencrypted = true</textarea>" in form
    fields = {"routing_value": "value of a", "catalog": "sqlite:lakes/a.sqlite", "version": shown_version(rig)}
    for lines, said in (
        ("sorted_by = lower(company)", "is no list"),
        ("encrypted = perhaps", "valid boolean"),
        ("ordered_by = company", "Extra inputs"),
        ("sorted_by", "line 1 is not name = value"),
    ):
        refused = send(rig, "/destinations/a/edit", {**fields, "layout": lines}).text
        assert said in refused.split('id="add-layout-fault">')[1].split("</span>")[0], lines
    sent = send(rig, "/destinations/a/edit", {**fields, "layout": "sorted_by = company DESC\nencrypted = true"})
    assert sent.status_code == 303, sent.text
    assert rig.http.get(f"{D}/a/entry").json()["layout"] == {"sorted_by": "company DESC", "encrypted": True}
    shown = rig.http.get("/destinations/a").text
    assert "sorted by company DESC; encrypted" in shown
    assert "another layout is declared and holds from the next reseed on" in shown


# -- many at once -----------------------------------------------------------------------------------------------------


@pytest.fixture
def parked(rig: ControlRig) -> ControlRig:
    for name in ("b", "c", "d"):
        rig.add(name)
    for name, reason in (("a", "access_denied"), ("b", "access_denied"), ("c", "table_mismatch")):
        rig.said(progress(Outcome.PARKED, name, seconds=100, error=problem(reason, retryable=False)))
    rig.handle.snapshots.forget()
    return rig


def test_tiles_are_filters_and_reasons_too(parked: ControlRig) -> None:
    shown = parked.http.get("/").text
    for query in ("state=parked", "state=parked&amp;reason=access_denied", "state=parked&amp;reason=table_mismatch"):
        assert f'href="?{query}"' in shown
    listed = parked.http.get("/?state=parked&reason=access_denied").text.partition("<tbody")[2]
    assert re.findall(r'href="destinations/(\w+)"', listed) == ["a", "b"]


def test_all_that_are_parked_for_one_reason_are_resumed_at_once(parked: ControlRig) -> None:
    query = "state=parked&reason=access_denied"
    assert f'href="/all/resume?{query.replace("&", "&amp;")}"' in parked.http.get(f"/?{query}").text
    page = parked.http.get(f"/all/resume?{query}").text
    assert "resume 2 destinations" in page
    before = parked.registry.destinations()
    parked.now = at(200)
    assert send(parked, f"/all/resume?{query}", {"seen": seen_on(page)}).status_code == 303
    after = parked.registry.destinations()
    assert {name for name in after if after[name].revision != before[name].revision} == {"a", "b"}
    assert after["a"].version == after["b"].version, "in one transaction"
    assert parked.http.get(f"{D}?state=parked").json()["items"][0]["id"] == "c"


def test_many_are_changed_only_while_they_are_those_that_were_seen(parked: ControlRig) -> None:
    query, before = "state=parked&reason=access_denied", parked.registry.destinations()
    seen = seen_on(parked.http.get(f"/all/stop?{query}").text)
    parked.said(progress(Outcome.APPLIED, "a", seconds=200, position=5))
    parked.said(progress(Outcome.PARKED, "c", seconds=200, error=problem("access_denied", retryable=False)))
    parked.handle.snapshots.forget()
    refused = send(parked, f"/all/stop?{query}", {"seen": seen})
    assert (refused.status_code, "stop 2 destinations" in refused.text) == (409, True), "as many, and others"
    assert send(parked, f"/all/stop?{query}", {"count": "2"}).status_code == 409
    assert parked.registry.destinations() == before
    again = seen_on(refused.text)
    assert send(parked, f"/all/reseed?{query}", {"seen": again}).status_code == 404
    assert send(parked, f"/all/stop?{query}", {"seen": again}).status_code == 303
    assert {name for name, each in parked.registry.destinations().items() if each.desired == "stopped"} == {"b", "c"}


def seen_on(page: str) -> str:
    found = re.search(r'name="seen" value="([^"]+)"', page)
    assert found is not None
    return found[1]


def test_one_that_can_not_does_not_keep_the_others(rig: ControlRig) -> None:
    for name in ("b", "c"):
        rig.add(name)
    rig.http.post(f"{D}/b:stop")
    assert rig.service.act_all(["a", "b", "c", "nobody"], "pause", "olga") == (2, 2)
    assert {rig.http.get(f"{D}/{name}").json()["state"] for name in ("a", "c")} == {"paused"}


def test_a_list_that_is_narrowed_down_leads_back_to_all(parked: ControlRig) -> None:
    assert 'class="clear" href="/"' in parked.http.get("/?state=parked").text
    assert 'class="clear"' not in parked.http.get("/?sort=lag").text


# -- the other pages --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("base", ["", PIPELINES_PAGE])
@pytest.mark.parametrize(
    "path", ["/", "/proposals", "/operations", "/work", "/work/replay", "/dead-letters", "/audit", "/add"]
)
def test_each_page_is_there_for_the_only_pipeline_and_by_its_name(rig: ControlRig, base: str, path: str) -> None:
    shown = rig.http.get(f"{base}{path}", headers=BROWSER)
    assert shown.status_code == 200
    assert f'href="{base}/operations"' in shown.text
    assert "<script>" not in shown.text
    assert not re.findall(r'\son\w+="', shown.text)


@pytest.mark.parametrize("base", ["", PIPELINES_PAGE])
@pytest.mark.parametrize(
    ("path", "section"),
    [("/", "destinations"), ("/destinations/a", "destinations"), ("/destinations/a/pause", "destinations"),
     ("/add", "destinations"), ("/proposals", "proposals"), ("/work/replay", "work"), ("/audit", "audit"),
     ("/dead-letters", "dead letters")],
)  # fmt: skip
def test_the_bar_on_top_says_where_a_page_is(rig: ControlRig, base: str, path: str, section: str) -> None:
    shown = rig.http.get(f"{base}{path}").text
    assert re.findall(r'aria-current="page">([a-z ]+)<', shown) == [section]


@pytest.mark.parametrize(
    ("path", "section"), [("/health", "health"), ("/tokens", "tokens"), ("/deployment/audit", "tokens")]
)
def test_so_it_does_for_pages_of_the_deployment(rig: ControlRig, path: str, section: str) -> None:
    assert re.findall(r'aria-current="page">([a-z ]+)<', rig.http.get(path).text) == [section]


def test_several_pipelines_show_what_fails_and_what_is_unknown(rig: ControlRig) -> None:
    """One that was never reached stood there as seeding, and the worst lag of a pipeline that nobody knows of as 0."""
    both = {"events": rig.handle, "orders": rig.handle}
    rig.http.app.state.sources = replace(rig.http.app.state.sources, pipelines=lambda: both)
    rig.applied("filed", 1, 10)
    rig.looked(10)
    rig.add("later")  # of which the reader has not told
    rig.said(progress(Outcome.FAILED, "a", error=problem("destination_unreachable")))
    rig.history.feel()
    rig.handle.snapshots.forget()
    shown = rig.http.get("/").text
    row = shown.partition("<tbody")[2].partition("</tr>")[0]
    assert '<span class="failing">failing 1</span>' in row
    assert '<span class="failing">failing</span>' in row
    assert '<td class="number">unknown</td>' in row


@pytest.mark.parametrize(
    ("lag_s", "unknown", "shown"), [(0.0, 1, None), (3.0, 1, 3.0), (0.0, 0, 0.0), (None, 1, None), (None, 0, None)]
)
def test_no_lag_is_0_while_one_is_unknown(lag_s: float | None, unknown: int, shown: float | None) -> None:
    assert HistorySample(0.0, lag_s, unknown).worst_lag_s == shown


def test_operations_are_followed(rig: ControlRig) -> None:
    rig.http.post(f"{D}/a:reseed")
    shown = rig.http.get("/operations").text
    assert 'class="state running">running' in shown
    assert 'hx-get="/operations/rows?' in shown
    assert "In progress" in rig.http.get("/destinations/a").text
    rig.applied("a", 2, 12)
    assert 'class="state succeeded">succeeded' in rig.http.get("/operations/rows?destination=a").text
    assert "None yet" in rig.http.get("/operations?destination=nobody").text


def test_work_is_seen_and_sent_again(rig: ControlRig, broker: FakeBroker) -> None:
    assert "(1, 5]" in rig.http.get("/work?destination=a").text
    assert "None among" in rig.http.get("/work?destination=b").text
    assert "<b>1</b> matches" in rig.http.get("/work/replay?destination=a").text
    sent = send(rig, "/work/replay", {"destination": "a"})
    assert "<b>1</b> of 1 work items" in sent.text
    assert len(broker.topics[TOPICS.work]) == 2
    assert "replayed" in rig.http.get("/audit").text


def test_the_page_goes_on_behind_what_one_call_sends(
    rig: ControlRig, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.control.operations.replay_pacing.CALL_TAKES_S", 0.002)
    for number in range(3):
        broker.put(item(f"more {number}"))
    before = len(broker.topics[TOPICS.work])
    sent = send(rig, "/work/replay", {"destination": "a"}).text
    assert "<b>2</b> of 2 work items" in sent
    (after,) = re.findall(r'name="after" value="([^"]+)"', sent)
    assert "send the next" not in send(rig, "/work/replay", {"destination": "a", "after": after}).text
    assert len(broker.topics[TOPICS.work]) == 2 * before


def test_dead_letters_are_seen_and_sent_again(rig: ControlRig, broker: FakeBroker) -> None:
    assert "not JSON" in rig.http.get("/dead-letters").text
    sent = send(rig, "/dead-letters/redrive", {"partition": "0", "offset": "0"})
    assert "<b>1</b> of 1 dead letters" in sent.text
    assert len(broker.topics[TOPICS.work]) == 2
    assert send(rig, "/dead-letters/redrive", {"partition": "x"}).status_code == 422


def test_the_audit_trail_says_who_did_what_page_by_page(rig: ControlRig) -> None:
    for number in range(ROWS):
        rig.add(f"t{number:03}", name="<b>x</b>")
    first = rig.http.get("/audit").text
    assert first.count("<tr>") == ROWS + 1
    assert "<b>x</b>" not in first
    older = re.search(r'href="(/audit\?after=[^"]+)" rel="next"', first)
    assert older is not None
    assert "filed" in rig.http.get(older[1]).text
    assert rig.http.get("/audit?destination=a").text.count("<tr>") == 2


def test_tokens_are_made_shown_once_and_revoked(rig: ControlRig) -> None:
    made = send(rig, "/tokens", {"name": "<deploy>", "scope": "admin"})
    token = re.findall(r"vdk_[\w-]+", made.text)[0]
    admin = {"Authorization": f"Bearer {token}"}
    trail = rig.http.get("/deployment/audit", headers=admin)
    assert (trail.status_code, "token" in trail.text, "&lt;deploy&gt;" in trail.text) == (200, True, True)
    assert "<deploy>" not in trail.text
    listed = rig.http.get("/tokens", headers=admin).text
    assert "&lt;deploy&gt;" in listed
    assert token not in listed
    id = re.findall(r"/tokens/(\w+)/revoke", listed)[0]  # noqa: A001
    _, reader = rig.tokens.create("reader", "write", START)
    assert rig.http.get("/tokens", headers={"Authorization": f"Bearer {reader}"}).status_code == 403
    assert rig.http.get("/deployment/audit", headers={"Authorization": f"Bearer {reader}"}).status_code == 403
    assert send(rig, f"/tokens/{id}/revoke", Authorization=f"Bearer {reader}").status_code == 403
    assert send(rig, "/tokens", {"name": "x"}, Authorization=f"Bearer {reader}").status_code == 403
    bearer = admin["Authorization"]
    assert send(rig, "/tokens", {"name": "", "scope": "admin"}, Authorization=bearer).status_code == 422
    assert send(rig, f"/tokens/{id}/revoke", Authorization=bearer).status_code == 303
    assert rig.tokens.find(id).revoked_at is not None  # type: ignore[union-attr]


def test_a_destination_of_a_topic_shows_each_partition(rig: ControlRig) -> None:
    held = list(rig.status_store.view().destinations.values())
    rig.said(frontier(held, head=8, head_at='{"0":1205,"1":3}', waits={0: 2.5}))
    rig.said(progress(position=8, position_at='{"0":5,"1":3}'))
    shown = rig.http.get("/destinations/a").text
    assert "1,200 records behind" in shown
    row = re.search(r"<tr><td class=\"number\">0</td>.*?</tr>", shown, re.DOTALL)
    assert row is not None
    assert re.findall(r">([^<>]+)</td>", row[0]) == ["0", "1,205", "5", "1,200", "2.5 s"]


def test_health_tells_of_dependencies_readers_and_appliers(rig: ControlRig) -> None:
    rig.said(progress(applier="applier-7"))
    rig.looked(12)
    shown = rig.http.get("/health").text
    assert all(said in shown for said in ("applier-7", "viaduck-0", " ago"))


def test_whoever_calls_himself_an_applier_fills_no_memory() -> None:
    status_store = StatusStore(PIPELINE)
    for number in range(MOST_APPLIERS + 50):
        status_store.note(progress(applier=f"a{number}"))
    assert len(status_store.view().appliers) == MOST_APPLIERS
    assert f"a{MOST_APPLIERS + 49}" in status_store.view().appliers


def test_errors_over_time_are_plotted(parked: ControlRig) -> None:
    parked.said(progress(Outcome.FAILED, "d", seconds=100, error=problem()))
    parked.history.feel()
    assert [column[-1] for column in parked.http.get("/pulse").json()[3:]] == [1, 3]
    assert 'data-columns="3,4" data-series="failing,parked"' in parked.http.get("/").text


def test_every_page_of_five_thousand_is_small(rig: ControlRig) -> None:
    lines: list[dict[str, Any]] = [{**entry(f"t{n}"), "id": f"t{n}"} for n in range(5_000)]
    body = "\n".join(map(json.dumps, lines)).encode()
    rig.http.request("POST", f"{V1}/destinations:import", content=body,
                        headers={"Content-Type": "application/x-ndjson"})  # fmt: skip
    rig.handle.snapshots.forget()
    for path in ("/", "/?state=seeding", "/all/pause?state=seeding", "/audit", "/operations", "/health"):
        assert len(rig.http.get(path).content) < 100_000, path
    asked = rig.http.get("/all/pause?state=seeding").text
    assert "pause 5,002 destinations" in asked
    assert send(rig, "/all/pause?state=seeding", {"seen": seen_on(asked)}).status_code == 303
    assert rig.http.get(V1).json()["destinations"] == {"paused": 5_002, "total": 5_002}
