"""The page's actions, its sessions, and what it brings live."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from markupsafe import escape

from services.control.page import live
from services.control.page.templates import breakable, count, duration, moment
from services.control.page.truncation import clip
from services.control.view.destination_status import View
from services.control.view.history import EVERY_S, History
from services.control.view.status_store import StatusStore
from shared.contracts.messages import LakeRef, Outcome, Problem
from tests.fast.control.examples import PIPELINE, START, by_id, declared, frontier, problem, progress, registered
from tests.fast.control.live_server import served
from tests.fast.control.rig import ControlRig
from tests.fast.control.sample_deployment import SHOWN, commit_an_hour, through_of

LINE_LIMIT = 50_000
"""Bytes of one update."""


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[ControlRig]:
    with closing(ControlRig(tmp_path, file=("filed",))) as rig:
        rig.add("a")
        yield rig


def send(rig: ControlRig, path: str, body: str = "", **headers: str) -> httpx.Response:
    sent = {"Content-Type": "application/x-www-form-urlencoded", **headers}
    return rig.http.request("POST", path, content=body.encode(), headers=sent)


def test_an_action_is_explained_before_it_is_done_and_then_seen(rig: ControlRig) -> None:
    assert "until it is resumed" in rig.http.get("/destinations/a/pause").text
    done = send(rig, "/destinations/a/pause")
    assert (done.status_code, done.headers["location"]) == (303, "/destinations/a")
    shown = rig.http.get("/destinations/a").text
    assert 'class="paused">paused' in shown
    assert "paused by <bdi>loopback</bdi>" in shown


def test_a_removal_keeps_the_data_unless_the_box_is_ticked(rig: ControlRig) -> None:
    rig.add("b")
    assert send(rig, "/destinations/a/remove").headers["location"] == "/"
    assert rig.published("a") is None
    send(rig, "/destinations/b/remove", "drop=yes")
    dropping = rig.published("b")
    assert dropping is not None
    assert dropping.drop


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("/destinations/filed/remove", "", "the file declares filed"),
        ("/destinations/a/rewind", "to=x", "a snapshot is a number"),
        ("/destinations/a/rewind", "", "a snapshot is a number"),
        ("/destinations/a/rewind", "to=0%3D1%2C1", "offsets are numbers by partition"),
        ("/destinations/a/rewind", "to=0%3D1%2C1%3D-2", "offsets are numbers by partition"),
        ("/destinations/a/rewind", "to=0%3D1", "offsets by partition are of topics"),
    ],
)
def test_what_is_refused_is_said_where_it_was_asked(rig: ControlRig, path: str, body: str, said: str) -> None:
    answer = send(rig, path, body)
    assert (answer.status_code, said in answer.text) == (409, True)


ADD = "id=new&routing_value=x&catalog=sqlite%3Alakes%2Fnew.sqlite"


def test_a_destination_is_added_on_the_page(rig: ControlRig) -> None:
    done = send(rig, "/add", ADD + "&data_path=&seed_mode=latest&generation=9")
    assert (done.status_code, done.headers["location"]) == (303, "/destinations/new")
    added = rig.registry.destinations()["new"]
    assert (added.declared.routing_value, added.declared.seed_mode, added.managed_by) == ("x", "latest", "api")
    assert "added by <bdi>loopback</bdi>" in rig.http.get("/destinations/new").text


@pytest.mark.parametrize(
    ("body", "status", "field", "said"),
    [
        (ADD.replace("new", "a b", 1), 422, "id", "must be 1 to 200 letters"),
        (ADD.replace("id=new", "id=a"), 409, "id", "is taken"),
        (ADD.replace("id=new", "id=filed"), 409, "id", "is taken"),
        (ADD.replace("=x", "=value+of+a"), 422, "routing_value", "a"),
        (ADD.replace("sqlite%3Alakes%2Fnew.sqlite", "postgresql://u:s3cret@h/d"), 422, "catalog", "holds a password"),
        (ADD + "&seed_mode=never", 422, "seed_mode", "should match"),
        ("", 422, "id", "must be"),
    ],
)
def test_what_speaks_against_a_destination_is_said_at_its_field(
    rig: ControlRig, body: str, status: int, field: str, said: str
) -> None:
    answer = send(rig, "/add", body)
    assert answer.status_code == status
    fault = answer.text.split(f'id="add-{field}-fault">')[1].split("</span>")[0]
    assert said in fault
    assert 'role="alert"' in answer.text
    assert "/docs/errors#" in answer.text
    assert "s3cret" not in answer.text
    assert set(rig.registry.destinations()) == {"a", "filed"}


def test_what_somebody_wrote_stays_in_the_form_as_text(rig: ControlRig) -> None:
    shown = send(rig, "/add", "id=%22%3E%3Cscript%3E&routing_value=%3Cimg+src%3Dx%3E").text
    assert 'value="&#34;&gt;&lt;script&gt;"' in shown
    assert "<img" not in shown


def test_a_page_elsewhere_can_not_add_and_nobody_who_may_only_read(rig: ControlRig) -> None:
    assert send(rig, "/add", ADD, Origin="https://evil.example").status_code == 403
    assert 'action="/add"' in rig.http.get("/").text
    _, text = rig.tokens.create("olga", "read", START)
    reader = {"Authorization": f"Bearer {text}"}
    assert send(rig, "/add", ADD, **reader).status_code == 403
    assert 'action="/add"' not in rig.http.get("/", headers=reader).text
    assert "new" not in rig.registry.destinations()


def test_a_page_elsewhere_can_not_press_our_buttons(rig: ControlRig) -> None:
    answer = send(rig, "/destinations/a/remove", Origin="https://evil.example")
    assert answer.status_code == 403
    assert rig.published("a") is not None


def test_what_is_not_there_is_a_problem(rig: ControlRig) -> None:
    for path in ("/destinations/nobody", "/destinations/a/explode", "/destinations/nobody/pause"):
        assert rig.http.get(path).status_code == 404


def test_a_token_is_traded_for_a_cookie_that_scripts_can_not_read(tmp_path: Path) -> None:
    with closing(ControlRig(tmp_path, loopback=False)) as rig:
        _, text = rig.tokens.create("olga", "write", START)
        page = rig.http.get("/", headers={"Accept": "text/html"})
        assert (page.status_code, page.headers["location"]) == (303, "/login")
        assert send(rig, "/login", "token=wrong").status_code == 401
        answer = send(rig, "/login", f"token={text}")
        cookie = answer.headers["set-cookie"]
        assert (answer.status_code, "HttpOnly" in cookie, "SameSite=strict" in cookie) == (303, True, True)
        assert text not in cookie
        session = {"Cookie": f"viaduck_session={answer.cookies['viaduck_session']}"}
        assert rig.http.get("/", headers=session).status_code == 200
        assert send(rig, "/logout", "", **session).status_code == 303
        assert rig.http.get("/", headers=session).status_code == 401


def test_changes_come_as_events_and_nothing_else_does(rig: ControlRig) -> None:
    with served(rig) as url, httpx.stream("GET", f"{url}/events", timeout=20) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        lines = stream.iter_lines()
        assert {next_event(lines)[0], next_event(lines)[0]} == {"overview", "rows"}
        rig.said(progress(Outcome.PARKED, error=problem("access_denied")))
        events = dict([next_event(lines), next_event(lines)])
        assert "access_denied" in events["rows"]
        assert "access_denied" in events["overview"]


@pytest.mark.parametrize("shown_by", ["token", "session"])
def test_a_stream_ends_with_the_token_that_it_was_opened_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shown_by: str
) -> None:
    monkeypatch.setattr(live, "JUDGED_EVERY", 1)
    with closing(ControlRig(tmp_path, loopback=False)) as rig:
        token, text = rig.tokens.create("olga", "read", START)
        rig.tokens.create("root", "admin", START)
        headers = {"Authorization": f"Bearer {text}"}
        if shown_by == "session":
            headers = {"Cookie": f"viaduck_session={send(rig, '/login', f'token={text}').cookies['viaduck_session']}"}
        with served(rig) as url, httpx.stream("GET", f"{url}/events", headers=headers, timeout=30) as stream:
            lines = stream.iter_lines()
            assert next_event(lines)[0] == "overview"
            rig.tokens.revoke(token.id, START)
            deadline = time.monotonic() + 30
            for _ in lines:  # a comment comes every 15 s
                assert time.monotonic() < deadline, "it goes on"


def next_event(lines: Iterator[str]) -> tuple[str, str]:
    name, data = "", []
    for line in lines:
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            data.append(line.removeprefix("data: "))
        elif not line and name:
            return name, "\n".join(data)
    raise AssertionError("the stream ended")


def test_five_thousand_destinations_are_one_small_page(rig: ControlRig) -> None:
    lines = (json.dumps({"id": f"t{n}", "routing_value": f"v{n}", "catalog": f"sqlite:l/{n}.db"}) for n in range(5_000))
    body = "\n".join(lines).encode()
    rig.http.request("POST", "/v1/pipelines/events/destinations:import", content=body,
                        headers={"Content-Type": "application/x-ndjson"})  # fmt: skip
    rig.said(frontier(rig.registry.destinations().values(), head=5))
    assert len(rig.http.get("/").content) < LINE_LIMIT


WORST = {
    "Japanese": "株式会社" * 500,
    "quotes": "\"'" * 1_000,
    "tags": "<script>" * 500,
    "lines": "a\n" * 1_000,
    "one word": "x" * 4_000,
    "four bytes each": "🦆" * 1_000,
}


@pytest.mark.parametrize("kind", WORST)
def test_an_update_is_small_whatever_ids_values_and_messages_hold(tmp_path: Path, kind: str) -> None:
    text = WORST[kind]
    with closing(ControlRig(tmp_path, pipeline="p" * 200)) as rig:
        park_all(rig, text)
        rig.status_store.refused = tuple(f"destinations[{number}]: {text}" for number in range(1_000))
        with served(rig) as url, httpx.stream("GET", f"{url}/events?sort=lag", timeout=20) as stream:
            lines = stream.iter_lines()
            events = dict([next_event(lines), next_event(lines)])
        assert events["rows"].count("<tr>") == 50
        assert events["rows"].count(f": {escape(text[0])}") == 50
        assert sum(weight(name, html) for name, html in events.items()) < LINE_LIMIT
        with served(rig) as url, httpx.stream("GET", f"{url}/events/destinations/{long(0)}", timeout=20) as stream:
            assert weight(*next_event(stream.iter_lines())) < LINE_LIMIT


def weight(name: str, html: str) -> int:
    """Bytes of an event as it travels."""
    return len(f"event: {name}\n".encode()) + sum(len(f"data: {line}\n".encode()) for line in html.split("\n")) + 1


def long(number: int) -> str:
    return f"{'x:' * 97}{number:02}"


def park_all(rig: ControlRig, text: str) -> None:
    held = [
        registered(declared=declared(long(n), routing_value=text[:4_000] + str(n), lake=LakeRef(catalog="sqlite:/x")))
        for n in range(60)
    ]
    error = Problem(type="destination_unreachable", message=text, hint=text, retryable=False)
    rig.status_store.hold(by_id(held))
    figures = {"position": 2**62, "rows_applied": 2**62, "through": 2**62}
    for each in held:
        said = progress(Outcome.PARKED, each.id, error=error, **figures)
        rig.status_store.note(said.model_copy(update={"pipeline": rig.pipeline}))
    word = frontier(held, head=2**62, lagging={each.id: 1 for each in held})
    trouble = {"pipeline": rig.pipeline, "error": error}
    rig.status_store.note(word.model_copy(update=trouble))


def test_an_ordinary_message_is_shown_whole_in_the_list_and_a_long_one_on_its_own_page(rig: ControlRig) -> None:
    said = Problem(type="access_denied", message="m" * 200, hint="h" * 200, retryable=False)
    rig.said(progress(Outcome.PARKED, error=said))
    assert all(text in rig.http.get("/").text for text in ("m" * 200, "h" * 200))
    rig.said(progress(Outcome.PARKED, error=said.model_copy(update={"message": "m" * 5_000})))
    rig.handle.snapshots.forget()
    assert "m" * 300 not in rig.http.get("/").text
    assert "m" * 5_000 in rig.http.get("/destinations/a").text


@pytest.mark.parametrize(
    ("text", "room", "shown"),
    [
        ("short", 24, "short"),
        ("exactly 24 bytes, not 25", 24, "exactly 24 bytes, not 25"),
        ("more than twenty-four bytes", 24, "more than twenty-four…"),
        ("株式会社株式会社株式会社", 24, "株式会社株式会…"),
        ('"' * 24, 24, '""""…'),
        ("two\nlines\u2028or three", 24, "two lines or three"),
        ("", 24, ""),
    ],
)
def test_a_text_is_cut_by_what_it_weighs_as_html(text: str, room: int, shown: str) -> None:
    assert clip(text, room) == shown
    assert len(str(escape(clip(text, room))).encode()) <= room


def test_the_history_says_how_long_each_apply_took_that_control_has_heard_of(rig: ControlRig, tmp_path: Path) -> None:
    rig.add(SHOWN)
    commit_an_hour(tmp_path / "lakes" / f"{SHOWN}.sqlite")
    for number, phases in [(37, {}), (38, {"feed": 0.25, "apply": 0.5}), (39, {"feed": 1, "apply": 2, "total": 2.5})]:
        rig.said(progress(id=SHOWN, position=through_of(number), seconds=10.0).model_copy(update={"seconds": phases}))
    listed = rig.http.get(f"/v1/pipelines/events/destinations/{SHOWN}/history").json()["items"]
    assert [each["seconds"] for each in listed[:4]] == [2.5, 0.75, None, None]
    assert [column[-3:] for column in rig.http.get(f"/destinations/{SHOWN}/applies").json()][3] == [None, 0.75, 2.5]
    shown = rig.http.get(f"/destinations/{SHOWN}").text
    assert all(f'<td class="number">{said}</td></tr>' in shown for said in ("0.75 s", "2.50 s", "–"))
    assert 'data-series="seconds"' in shown
    rig.said(progress(id=SHOWN, generation=2, position=through_of(39)).model_copy(update={"seconds": {"apply": 9.0}}))
    assert rig.http.get(f"/v1/pipelines/events/destinations/{SHOWN}/history").json()["items"][0]["seconds"] is None


def test_the_history_says_who_made_each_commit_where_its_stamp_does(rig: ControlRig, tmp_path: Path) -> None:
    rig.add(SHOWN)
    commit_an_hour(tmp_path / "lakes" / f"{SHOWN}.sqlite")
    listed = rig.http.get(f"/v1/pipelines/events/destinations/{SHOWN}/history").json()["items"]
    assert [each["path"] for each in listed[:4]] == [None, "direct", "extension", None]
    shown = rig.http.get(f"/destinations/{SHOWN}").text
    assert all(f'<td class="wide">{said}</td>' in shown for said in ("direct", "extension", "–"))


def test_the_pulse_keeps_lag_and_rows_per_second() -> None:
    views = [view_with(rows=100), view_with(rows=150)]
    now = [1_000.0]
    pulse = History(lambda: views[0], lambda: now[0])
    pulse.feel()
    pulse.feel()
    views.pop(0)
    now[0] += 2 * EVERY_S
    pulse.feel()
    assert pulse.columns == [[1_000.0, 1_010.0], [2.5, 2.5], [0.0, 5.0], [0, 0], [0, 0]]


def view_with(rows: int) -> View:
    status_store = StatusStore(PIPELINE)
    status_store.hold(by_id([registered()]))
    status_store.note(progress(position=5, rows_applied=rows))
    status_store.note(frontier([registered()], lagging={"a": 4}))
    return status_store.view()


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (None, "unknown"),
        (0.0, "0.0 s"),
        (99.94, "99.9 s"),
        (214.0, "3 min 34 s"),
        (6_000.0, "1 h 40 min"),
        (400_000.0, "4 d"),
    ],
)
def test_a_lag_is_told_in_as_few_digits_as_one_needs(seconds: float | None, said: str) -> None:
    assert duration(seconds) == said


def test_figures_and_times_read_the_same_everywhere() -> None:
    assert count(1_234_567.4) == "1,234,567"
    assert moment(START) == '<time datetime="2026-01-01T00:00:00+00:00">2026-01-01 00:00:00 UTC</time>'


def test_a_long_word_may_be_broken_and_is_still_only_text() -> None:
    assert breakable("access_denied") == "access_<wbr>denied"
    assert breakable("<b>_") == "&lt;b&gt;_<wbr>"
