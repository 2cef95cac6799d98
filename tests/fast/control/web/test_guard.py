"""Who may ask what, and how a browser is kept from asking for somebody else."""

from __future__ import annotations

import inspect
import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from services.control.api.health import healthz
from services.control.store import access_audit
from services.control.store.access_audit import PER_MINUTE, WINDOW_S, AccessAudit
from services.control.store.audit_log import SERVER, AuditLog
from services.control.store.database import BUSY_TIMEOUT_S
from services.control.store.tokens import Scope, Token
from services.control.web.guard import SESSION_FOR_S, Caller, Denied, Guard, GuardedRequest
from services.control.web.middleware import MAX_BODY
from services.control.web.throttle import FAILURES, MOST_FAILURES, WITHIN_S
from shared.config.public_url import read
from shared.contracts.messages import Outcome
from shared.runtime.loopback import is_own_name
from shared.runtime.metrics_access import MetricsAccess, Rule
from tests.fast.control.examples import START, problem, progress
from tests.fast.control.rig import ControlRig, D, entry

WRITE = GuardedRequest("PUT", "/v1/pipelines/p/destinations/d")


@dataclass
class FakeTokens:
    """Tokens whose text is their scope."""

    scopes: list[Scope] = field(default_factory=lambda: ["read", "write", "drop", "admin"])
    only: frozenset[str] | None = None

    def any_valid(self) -> bool:
        return bool(self.scopes)

    def check(self, text: str) -> Token | None:
        found = next((each for each in self.scopes if each == text), None)
        return None if found is None else Token("1", f"a {found}er", found, "", "", None, START, pipelines=self.only)


def test_what_an_error_means_is_told_without_a_token_once_there_is_one() -> None:
    question = asked(path="/docs/errors")
    assert kind(Guard(loopback=False, tokens=FakeTokens()).judge(question)) == "allowed"
    assert kind(Guard(loopback=False, tokens=FakeTokens([])).judge(question)) == "closed"
    assert kind(Guard(loopback=False, tokens=FakeTokens()).judge(asked(path="/docs"))) == "unauthorized"


def test_the_page_of_errors_loads_nothing_that_needs_a_token(tmp_path: Path) -> None:
    with closing(ControlRig(tmp_path, loopback=False)) as rig:
        rig.tokens.create("olga", "read", START)
        page = rig.http.get("/docs/errors")
        assert (page.status_code, "unauthorized" in page.text) == (200, True)
        for asset in re.findall(r'(?:src|href)="(/assets/[^"]+)"', page.text):
            assert rig.http.get(asset).status_code == 200, asset


@dataclass
class Clock:
    now_s: float = 0.0

    def __call__(self) -> float:
        return self.now_s


def asked(method: str = "GET", path: str = "/v1/pipelines", token: str | None = None, **more: Any) -> GuardedRequest:
    return GuardedRequest(method, path, authorization=None if token is None else f"Bearer {token}", **more)


def kind(verdict: Caller | Denied) -> str:
    return verdict.kind if isinstance(verdict, Denied) else "allowed"


@pytest.mark.parametrize(
    ("scope", "method", "path", "verdict"),
    [
        ("read", "GET", "/v1/pipelines", "allowed"),
        ("read", "PUT", "/v1/pipelines/p/destinations/d", "forbidden"),
        ("read", "GET", "/v1/tokens", "forbidden"),
        ("write", "GET", "/", "allowed"),
        ("write", "DELETE", "/v1/pipelines/p/destinations/d", "allowed"),
        ("write", "POST", "/v1/tokens", "forbidden"),
        ("write", "GET", "/v1/pipelines/p", "allowed"),
        ("write", "PUT", "/v1/pipelines/p", "forbidden"),
        ("write", "DELETE", "/v1/pipelines/p/", "forbidden"),
        ("write", "POST", "/v1/pipelines/p/work:replay", "allowed"),
        ("admin", "PUT", "/v1/pipelines/p", "allowed"),
        ("admin", "POST", "/v1/tokens", "allowed"),
        ("other", "GET", "/v1/pipelines", "unauthorized"),
    ],
)
@pytest.mark.parametrize("loopback", [True, False])
def test_a_token_allows_what_its_scope_says(loopback: bool, scope: str, method: str, path: str, verdict: str) -> None:
    guard = Guard(loopback=loopback, tokens=FakeTokens())
    assert kind(guard.judge(asked(method, path, scope))) == verdict


def test_the_files_token_may_do_everything_and_is_named_in_the_trail() -> None:
    guard = Guard(loopback=False, token="s3cret")
    assert guard.judge(asked("POST", "/v1/tokens", "s3cret")) == Caller("operator", "admin")


def test_once_a_token_exists_loopback_is_for_looking_only() -> None:
    guard = Guard(loopback=True, tokens=FakeTokens())
    assert kind(guard.judge(asked())) == "allowed"
    assert kind(guard.judge(asked("PUT", WRITE.path))) == "unauthorized"
    assert kind(guard.judge(asked("GET", "/v1/tokens"))) == "unauthorized"


def test_wrong_tokens_are_refused_for_a_while_and_a_valid_one_never_is() -> None:
    """Behind a proxy, or on a shared machine, others may guess from the address of those who know."""
    clock = Clock()
    guard = Guard(loopback=False, tokens=FakeTokens(), clock=clock)
    for _ in range(FAILURES):
        assert kind(guard.judge(asked(token="guess", address="10.0.0.1"))) == "unauthorized"
    shut = guard.judge(asked(token="guess", address="10.0.0.1"))
    assert isinstance(shut, Denied)
    assert (shut.kind, shut.headers["Retry-After"]) == ("too_many_failures", "60")
    assert kind(guard.judge(asked(token="admin", address="10.0.0.1"))) == "allowed"
    assert guard.login("admin", "10.0.0.1") is not None
    assert kind(guard.judge(asked(token="guess", address="10.0.0.2"))) == "unauthorized"
    assert kind(guard.judge(asked(path="/healthz", address="10.0.0.1"))) == "allowed"
    clock.now_s += WITHIN_S
    assert kind(guard.judge(asked(token="guess", address="10.0.0.1"))) == "unauthorized"


def test_wrong_tokens_from_many_addresses_are_counted_together_and_take_no_memory() -> None:
    guard = Guard(loopback=False, tokens=FakeTokens(), clock=Clock())
    verdicts = [kind(guard.judge(asked(token="guess", address=f"10.0.{n // 250}.{n % 250}"))) for n in range(1_100)]
    assert verdicts == ["unauthorized"] * MOST_FAILURES + ["too_many_failures"] * 100
    assert kind(guard.judge(asked(token="read", address="10.0.0.1"))) == "allowed"


@pytest.mark.parametrize("scope", ["read", "write"])
def test_a_token_for_some_pipelines_opens_no_other(scope: Scope) -> None:
    guard = Guard(loopback=False, tokens=FakeTokens(only=frozenset({"events"})))
    for path in ("/", "/v1/pipelines", "/v1/pipelines/events", "/v1/pipelines/events/work", "/pipelines/events/"):
        assert kind(guard.judge(asked("GET", path, scope))) == "allowed"
    for path in ("/v1/pipelines/orders", "/v1/pipelines/orders/audit", "/pipelines/orders/", "/v1/pipelines/events:x"):
        assert kind(guard.judge(asked("GET", path, scope))) == "not_found"
    assert kind(guard.judge(asked("GET", "/metrics", scope))) == "forbidden"


PROXIED = [{"brought": True}, {"host": "viaduck.example"}]


@pytest.mark.parametrize("sent", PROXIED)
@pytest.mark.parametrize("method", ["GET", "PUT"])
def test_whoever_comes_through_a_proxy_is_not_local(sent: dict[str, Any], method: str) -> None:
    address: dict[str, Any] = {"address": "127.0.0.1"}
    for tokens in (FakeTokens(), FakeTokens([])):
        verdict = kind(Guard(loopback=True, tokens=tokens).judge(asked(method, **sent, **address)))
        assert verdict in ("closed", "cross_site", "unauthorized")
    assert kind(Guard(loopback=True, tokens=FakeTokens()).judge(asked(method, token="write", **sent))) == "allowed"


def test_with_a_public_address_nobody_is_local() -> None:
    """A proxy may be set up so that nothing tells its requests from those of this machine."""
    for tokens, verdict in ((FakeTokens(), "unauthorized"), (FakeTokens([]), "closed")):
        guard = Guard(loopback=True, tokens=tokens, public_url=read("https://viaduck.example"))
        assert kind(guard.judge(asked(address="127.0.0.1"))) == verdict
        assert kind(guard.judge(asked(host="viaduck.example"))) == verdict
        assert kind(guard.judge(asked(path="/login", host="evil.example"))) == "cross_site"


def test_a_browser_at_the_public_address_may_act_and_at_another_may_not() -> None:
    guard = Guard(loopback=True, tokens=FakeTokens(), public_url=read("https://viaduck.example"))
    sessions: dict[str, Any] = {"sessions": ("another app's", guard.login("write", "") or "")}
    ours = {"origin": "https://viaduck.example", "site": "same-origin", **sessions}
    for host in ("viaduck.example", "viaduck.example:443", "127.0.0.1:8000"):
        assert kind(guard.judge(asked("POST", "/v1/x/pause", host=host, **ours))) == "allowed"
    for origin in (
        "http://viaduck.example",
        "https://viaduck.example:8443",
        "https://evil.example",
        "null",
        "https://[",
    ):
        theirs: dict[str, Any] = {**sessions, "origin": origin, "host": "viaduck.example"}
        assert kind(guard.judge(asked("POST", "/v1/x/pause", **theirs))) == "cross_site"
    assert kind(guard.judge(asked(host="evil.example", **sessions))) == "cross_site"


@pytest.mark.parametrize(
    ("rule", "address", "host", "brought", "verdict"),
    [
        ("local", "127.0.0.1", "localhost:8000", False, "allowed"),
        ("local", "::1", "[::1]:8000", False, "allowed"),
        ("local", "10.0.0.1", "127.0.0.1", False, "unauthorized"),
        ("local", "127.0.0.1", "localhost", True, "unauthorized"),
        ("local", "127.0.0.1", "evil.example", False, "unauthorized"),
        ("token", "127.0.0.1", "localhost", False, "unauthorized"),
        ("open", "10.0.0.1", "viaduck.example", True, "allowed"),
    ],
)
def test_metrics_name_tenants_and_are_for_this_machine_alone_unless_it_is_said_otherwise(
    rule: Rule, address: str, host: str, brought: bool, verdict: str
) -> None:
    guard = Guard(loopback=False, tokens=FakeTokens(), scraping=MetricsAccess(rule))
    sent: dict[str, Any] = {"path": "/metrics", "address": address, "host": host, "brought": brought}
    assert kind(guard.judge(asked(**sent))) == verdict
    assert kind(guard.judge(asked(token="read", **sent))) == "allowed"


FOREIGN = [
    {"site": "cross-site"},
    {"site": "same-site"},
    {"origin": "https://evil.example"},
    {"origin": "null"},
    {"origin": "http://127.0.0.1:9999", "host": "127.0.0.1:8000"},
]


@pytest.mark.parametrize("sent", FOREIGN)
def test_a_page_of_another_site_can_not_make_a_browser_change_anything(sent: dict[str, str]) -> None:
    for guard in (Guard(loopback=True), Guard(loopback=False, tokens=FakeTokens())):
        session = guard.login("admin", "") or ""
        assert kind(guard.judge(asked("POST", "/v1/x/pause", sessions=(session or "",), **sent))) in (
            "cross_site",
            "closed",
        )


def test_the_own_page_can() -> None:
    guard = Guard(loopback=False, tokens=FakeTokens())
    session = guard.login("write", "")
    assert session is not None
    own = {"host": "viaduck.example", "origin": "https://viaduck.example", "site": "same-origin"}
    assert kind(guard.judge(asked("POST", "/v1/x/pause", sessions=(session or "",), **own))) == "allowed"


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "", "10.0.0.1"])
def test_a_strange_name_for_loopback_opens_nothing(host: str) -> None:
    """DNS rebinding: a page of another site that the browser believes to be ours."""
    guard = Guard(loopback=True)
    assert kind(guard.judge(asked(host=host))) == "cross_site"
    assert kind(Guard(loopback=True, tokens=FakeTokens()).judge(asked(token="read", host=host))) == "allowed"


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:8000", "localhost:8000", "[::1]:8000", "[::1]", "LOCALHOST"])
def test_this_machines_own_names_are_known(host: str) -> None:
    assert is_own_name(host)


def test_a_session_ends_by_time_by_logout_and_with_its_token() -> None:
    clock, tokens = Clock(), FakeTokens()
    guard = Guard(loopback=False, tokens=tokens, clock=clock)
    first, second, third = (guard.login("write", "") for _ in range(3))
    assert None not in (first, second, third)
    guard.logout(first or "")
    assert kind(guard.judge(asked(sessions=(first or "",)))) == "unauthorized"
    assert kind(guard.judge(asked(sessions=(second or "",)))) == "allowed"
    clock.now_s += SESSION_FOR_S
    assert kind(guard.judge(asked(sessions=(second or "",)))) == "unauthorized"
    fourth = guard.login("write", "")
    tokens.scopes.remove("write")
    assert kind(guard.judge(asked(sessions=(fourth or "",)))) == "unauthorized"
    assert guard.login("nonsense", "") is None


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[ControlRig]:
    with closing(ControlRig(tmp_path, loopback=False)) as rig:
        yield rig


def bearer(text: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}"}


def test_tokens_are_made_used_and_revoked_over_rest(rig: ControlRig) -> None:
    assert rig.http.get(D).status_code == 403
    _, admin = rig.tokens.create("root", "admin", START)
    made = rig.http.request("POST", "/v1/tokens", headers=bearer(admin), json={"name": "olga", "scope": "write"})
    token = made.json()["token"]
    assert made.status_code == 201
    assert re.fullmatch(r"token root \([0-9a-f]{16}\)", made.json()["author"])
    put = rig.http.put(f"{D}/a?check=false", entry("a"), bearer(token))
    assert (put.status_code, put.json()["author"]) == (201, f"token olga ({made.json()['id']})")
    assert rig.http.get("/v1/tokens", headers=bearer(token)).status_code == 403

    listed = rig.http.get("/v1/tokens", headers=bearer(admin)).text
    assert token not in listed
    assert "salt" not in listed
    assert rig.http.delete(f"/v1/tokens/{made.json()['id']}", bearer(admin)).status_code == 204
    assert rig.http.get(D, headers=bearer(token)).status_code == 401
    assert rig.http.delete(f"/v1/tokens/{made.json()['id']}", bearer(admin)).status_code == 404


def test_a_request_with_a_token_is_answered_while_the_registry_is_silent(rig: ControlRig) -> None:
    _, token = rig.tokens.create("olga", "read", START)
    with closing(sqlite3.connect(rig.folder / "registry.sqlite")) as other:
        other.execute("BEGIN EXCLUSIVE")
        began = time.monotonic()
        known, unknown = (rig.http.get(D, headers=bearer(text)).status_code for text in (token, f"{token}x"))
        assert (known, unknown) == (200, 401)
        assert time.monotonic() - began < BUSY_TIMEOUT_S / 2


def test_who_made_a_token_and_who_revoked_it_can_be_read_page_by_page(rig: ControlRig) -> None:
    admins, admin = rig.tokens.create("root", "admin", START)
    root = admins.author_name
    made = [
        rig.http.request("POST", "/v1/tokens", headers=bearer(admin), json={"name": name}).json()["id"]
        for name in ("one", "two", "three", "four")
    ]
    for token in made[:2]:
        rig.http.delete(f"/v1/tokens/{token}", bearer(admin))
    pages: list[list[tuple[str, str | None, str | None]]] = []
    after: str | None = ""
    while after is not None:
        page = rig.http.get(f"/v1/tokens?limit=2{after and '&after=' + after}", headers=bearer(admin)).json()
        pages.append([(each["name"], each["author"], each["revoked_by"]) for each in page["items"]])
        after = page["next"]
    assert pages == [
        [("root", None, None), ("one", root, root)],
        [("two", root, root), ("three", root, None)],
        [("four", root, None)],
    ]


def test_a_body_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    with closing(ControlRig(tmp_path)) as rig:
        large = b'{"name": "' + b"x" * MAX_BODY + b'"}'
        answer = rig.http.request("PUT", f"{D}/a", content=large, headers={"Content-Type": "application/json"})
        assert (answer.status_code, answer.json()["type"]) == (413, "/docs/errors#too_large")


def test_every_answer_tells_browsers_to_trust_nothing(rig: ControlRig) -> None:
    for path in ("/healthz", "/", "/v1/pipelines", "/nowhere"):
        headers = rig.http.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["content-security-policy"].startswith("default-src 'none'")
        assert headers["cache-control"] == "no-store"


def test_what_a_problem_points_at_is_there(tmp_path: Path) -> None:
    with closing(ControlRig(tmp_path)) as rig:
        page, _, kind = rig.http.get("/nowhere").json()["type"].partition("#")
        assert f'id="{kind}"' in rig.http.get(page).text


RESERVED = ["operator", "Policy", "file", "anonymous", "loopback"]


@pytest.mark.parametrize("name", [*RESERVED, "line\nbreak", "\u202eevil", "", "x" * 201])
def test_no_token_is_called_as_somebody_else_in_the_trail_or_as_nobody_can_read(rig: ControlRig, name: str) -> None:
    _, admin = rig.tokens.create("root", "admin", START)
    made = rig.http.request("POST", "/v1/tokens", headers=bearer(admin), json={"name": name})
    assert (made.status_code, made.json()["type"]) == (422, "/docs/errors#invalid")


def test_a_token_from_before_can_not_pass_for_the_operator(rig: ControlRig) -> None:
    token, text = rig.tokens.create("operator", "write", START)
    put = rig.http.put(f"{D}/a?check=false", entry("a"), bearer(text))
    assert put.json()["author"] == f"token operator ({token.id})"


def test_to_drop_data_needs_a_scope_of_its_own(rig: ControlRig) -> None:
    texts = {scope: rig.tokens.create("x", scope, START)[1] for scope in ("write", "drop")}
    for name in ("a", "b"):
        rig.http.put(f"{D}/{name}?check=false", entry(name), bearer(texts["write"]))
    refused = rig.http.delete(f"{D}/a?data=drop", bearer(texts["write"]))
    assert (refused.status_code, "scope drop" in refused.json()["detail"]) == (403, True)
    form = {**bearer(texts["write"]), "Content-Type": "application/x-www-form-urlencoded"}
    page = rig.http.request("POST", "/destinations/a/remove", headers=form, content=b"drop=yes")
    assert page.status_code == 403
    assert not rig.registry.destinations()["a"].removing
    assert rig.http.delete(f"{D}/a?data=keep", bearer(texts["write"])).status_code == 204
    assert rig.http.delete(f"{D}/b?data=drop", bearer(texts["drop"])).status_code == 202


@pytest.mark.parametrize("way", ["rest", "page"])
def test_a_reseed_of_a_table_that_was_never_filled_replaces_somebody_elses_rows_and_needs_the_scope_too(
    rig: ControlRig, way: str
) -> None:
    """An id of one's own at a table with rows: parked as table_not_empty, which a reseed would overcome."""
    texts = {scope: rig.tokens.create("x", scope, START)[1] for scope in ("write", "drop")}

    def reseed(scope: str) -> httpx.Response:
        if way == "rest":
            return rig.http.post(f"{D}/a:reseed", None, bearer(texts[scope]))
        return rig.http.request("POST", "/destinations/a/reseed", headers={**bearer(texts[scope]), **FORM})

    def put(table: str) -> None:
        assert rig.http.put(f"{D}/a?check=false", entry("a", table=table), bearer(texts["write"])).is_success

    begun = 202 if way == "rest" else 303
    put("foreign")
    assert reseed("write").status_code == 403
    rig.said(progress(Outcome.PARKED, "a", error=problem("table_not_empty", retryable=False)))
    refused = reseed("write")
    assert (refused.status_code, "scope drop" in refused.text) == (403, True)
    assert rig.registry.destinations()["a"].generation == 1
    put("own")
    rig.applied("a", 2, 12)
    assert reseed("write").status_code == begun, "what it wrote itself a seed brings back"
    assert reseed("write").status_code == begun, "it was allowed to already"
    put("foreign")
    assert not rig.registry.destinations()["a"].replace
    assert reseed("write").status_code == 403, "another table is another question"
    assert reseed("drop").status_code == begun
    assert rig.registry.destinations()["a"].replace


def test_for_the_holder_of_a_token_for_one_pipeline_there_is_no_other(tmp_path: Path) -> None:
    with closing(ControlRig(tmp_path, loopback=False)) as rig:
        both = {"events": rig.handle, "orders": rig.handle}
        rig.http.app.state.sources = replace(rig.http.app.state.sources, pipelines=lambda: both)
        made, text = rig.tokens.create("x", "write", START, pipelines=["events"])
        assert [each["name"] for each in rig.http.get("/v1/pipelines", headers=bearer(text)).json()["items"]] == [
            "events"
        ]
        assert rig.http.get("/v1/pipelines/orders/destinations", headers=bearer(text)).status_code == 404
        assert rig.http.get("/pipelines/orders/", headers=bearer(text)).status_code == 404
        assert "orders" not in rig.http.get("/", headers=bearer(text)).text
        assert rig.tokens.check(text) == made
        assert rig.tokens.all()[0].pipelines == frozenset({"events"})


def test_a_token_for_some_pipelines_can_not_be_an_admin_s(rig: ControlRig) -> None:
    _, admin = rig.tokens.create("root", "admin", START)
    wanted = {"name": "x", "scope": "admin", "pipelines": ["events"]}
    made = rig.http.request("POST", "/v1/tokens", headers=bearer(admin), json=wanted)
    assert made.status_code == 422
    wanted["scope"] = "drop"
    made = rig.http.request("POST", "/v1/tokens", headers=bearer(admin), json=wanted)
    assert (made.status_code, made.json()["pipelines"], made.json()["scope"]) == (201, ["events"], "drop")


COOKIES = [
    "a=b; viaduck_session={}", "we{{ird[]=1; viaduck_session={}",
    'x="un;closed; viaduck_session={}; y', ";;=;viaduck_session={}",
    "viaduck_session=another; viaduck_session={}", "\u00e9\u00e8=\u00fc; viaduck_session={}", "{}; viaduck_session={}",
]  # fmt: skip


@pytest.mark.parametrize("cookie", COOKIES)
def test_cookies_of_other_applications_on_this_host_break_nothing(rig: ControlRig, cookie: str) -> None:
    _, text = rig.tokens.create("x", "read", START)
    session = rig.guard.login(text, "")
    assert session is not None
    sent = {"Cookie": cookie.replace("viaduck_session={}", f"viaduck_session={session}")}
    assert rig.http.get("/v1/pipelines", headers=sent).status_code == 200
    assert rig.http.get("/v1/pipelines", headers={"Cookie": cookie.split("viaduck")[0]}).status_code == 401


FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"&".join(b"f%d=x" % n for n in range(60)), FORM, 413),
        (b"token=" + b"x" * 100_000, FORM, 413),
        (b'{"token": "x"}', {"Content-Type": "application/json"}, 415),
        (b"\xff\xfe&&==%zz&token", FORM, 401),
        (b"token=%00%ed%a0%80", FORM, 401),
    ],
)
def test_an_odd_form_is_refused_and_breaks_nothing(
    rig: ControlRig, body: bytes, headers: dict[str, str], status: int
) -> None:
    rig.tokens.create("x", "read", START)
    assert rig.http.request("POST", "/login", headers=headers, content=body).status_code == status


def test_behind_tls_the_cookie_travels_over_tls_alone_and_is_this_host_s(tmp_path: Path) -> None:
    with closing(ControlRig(tmp_path, public_url="https://viaduck.example")) as rig:
        _, text = rig.tokens.create("x", "read", START)
        sent = {**FORM, "Host": "viaduck.example", "Origin": "https://viaduck.example"}
        answer = rig.http.request("POST", "/login", headers=sent, content=f"token={text}".encode())
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith("__Host-viaduck_session=")
        assert {"Secure", "HttpOnly", "Path=/", "SameSite=strict"} <= {part.strip() for part in cookie.split(";")}
        assert "Domain" not in cookie
        page = {"Cookie": cookie.partition(";")[0], "Host": "viaduck.example"}
        assert rig.http.get("/v1/pipelines", headers=page).status_code == 200
        out = rig.http.request("POST", "/logout", headers={**page, "Origin": "https://viaduck.example"})
        assert "Secure" in out.headers["set-cookie"]
        assert rig.http.get("/v1/pipelines", headers=page).status_code == 401


def trail(rig: ControlRig, token: str) -> list[tuple[str, str, dict[str, Any]]]:
    rig.incidents.flush()
    items = rig.http.get("/v1/audit", headers=bearer(token)).json()["items"]
    return [(each["deed"], each["author"], {name: now for name, (_, now) in each["changes"].items()}) for each in items]


def test_what_was_refused_who_logged_in_and_what_was_validated_stands_in_the_trail(rig: ControlRig) -> None:
    root, admin = rig.tokens.create("root", "admin", START)
    _, read_only = rig.tokens.create("reader", "read", START)
    rig.http.get("/v1/pipelines", headers=bearer("vdk_guess_secret"))
    rig.http.request("POST", "/login", headers=FORM, content=b"token=guess")
    rig.http.request("POST", "/login", headers=FORM, content=f"token={admin}".encode())
    rig.http.put(f"{D}/a", entry("a"), bearer(read_only))
    rig.http.post(f"{D}:validate", {**entry("a"), "id": "a"}, bearer(admin))
    rig.http.get("/v1/pipelines", headers=bearer(admin))
    found = trail(rig, admin)
    assert [(deed, author, told.get("status")) for deed, author, told in reversed(found)][2:] == [
        ("token_refused", "anonymous", 401),
        ("login_failed", "anonymous", 401),
        ("logged_in", root.author_name, 303),
        ("refused", "anonymous", 403),
        ("validated", root.author_name, 200),
    ]
    assert [deed for deed, _, _ in found][-2:] == ["token_created"] * 2
    assert "guess" not in str(found)
    assert rig.http.get("/v1/audit", headers=bearer(read_only)).status_code == 403


def test_a_flood_of_wrong_tokens_does_not_fill_the_trail(tmp_path: Path) -> None:
    with closing(ControlRig(tmp_path)) as rig:
        clock = Clock()
        incidents = AccessAudit(rig.registry.database, lambda: START, clock)
        for _ in range(1_000):
            incidents.note("token_refused", "anonymous", {"path": "/"})
        incidents.flush()
        clock.now_s += WINDOW_S
        incidents.flush()
        found = AuditLog(rig.registry.database, SERVER).entries(2_000)
        assert len(found) == PER_MINUTE + 1
        assert (found[0].deed, found[0].changes) == ("not_noted", {"token_refused": [None, 1_000 - PER_MINUTE]})


def test_a_flood_of_one_kind_hides_and_displaces_nothing_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who guesses tokens for three hours must not erase that he logged in before, nor what he does meanwhile."""
    monkeypatch.setattr(access_audit, "MOST_KEPT", 100)
    with closing(ControlRig(tmp_path)) as rig:
        clock = Clock()
        incidents = AccessAudit(rig.registry.database, lambda: START, clock)
        incidents.note("logged_in", "mallory", {"path": "/login"})
        for _ in range(5):
            for _ in range(PER_MINUTE + 1):
                incidents.note("token_refused", "anonymous", {"path": "/"})
            incidents.note("refused", "mallory", {"path": "/v1/tokens"})
            incidents.flush()
            clock.now_s += WINDOW_S
        found = [each.deed for each in AuditLog(rig.registry.database, SERVER).entries(2_000)]
        assert (found.count("logged_in"), found.count("refused")) == (1, 5)
        assert found.count("token_refused") <= 100


def test_a_browser_that_is_left_open_fills_no_trail(rig: ControlRig) -> None:
    _, admin = rig.tokens.create("root", "admin", START)
    token, text = rig.tokens.create("olga", "read", START)
    answer = rig.http.request("POST", "/login", headers=FORM, content=f"token={text}".encode())
    session = {"Cookie": f"viaduck_session={answer.cookies['viaduck_session']}"}
    assert rig.http.get("/pulse", headers=session).status_code == 200
    rig.tokens.revoke(token.id, START)
    for _ in range(30):  # its plots ask every five seconds
        assert rig.http.get("/pulse", headers=session).status_code == 401
    assert "token_refused" not in [deed for deed, _, _ in trail(rig, admin)]
    assert rig.http.get("/v1/pipelines", headers=bearer("vdk_guess_x")).status_code == 401, "not 429: nobody guessed"


def test_health_waits_for_no_thread_that_a_lake_holds(rig: ControlRig) -> None:
    assert inspect.iscoroutinefunction(healthz)


JSON = {"Content-Type": "application/json"}
ODD = [
    b'{"catalog":' + b"[" * 400_000,
    b'{"catalog":' + b'{"a":' * 900 + b"1" + b"}" * 900 + b"}",
    b'{"routing_value":' + b"9" * 6_000 + b"}",
    b'{"routing_value": "\xff\xfe"}',
    b'{"routing_value": "\\ud800", "catalog": "sqlite:x"}',
    b"{" + b",".join(b'"k%d":1' % n for n in range(50_000)) + b"}",
]


@pytest.mark.parametrize("body", ODD, ids=range(len(ODD)))
def test_an_odd_body_is_the_sender_s_mistake_and_its_answer_is_short(tmp_path: Path, body: bytes) -> None:
    with closing(ControlRig(tmp_path)) as rig:
        for method, path in (("PUT", f"{D}/a"), ("PUT", "/v1/pipelines/orders"), ("POST", "/v1/tokens")):
            answer = rig.http.request(method, path, content=body, headers=JSON)
            assert 400 <= answer.status_code < 500, answer.text[:300]
            assert len(answer.content) < 20_000


@pytest.mark.parametrize(
    "headers",
    [
        {"If-Match": '"' + "1" * 5_000 + '"'},
        {"Referer": "http://[", "Accept": "text/html"},
        {"Origin": "https://["},
        {"Authorization": "Bearer \u00fc" + "x" * 5_000},
        {"Content-Length": "9" * 30},
    ],
)
def test_an_odd_header_is_the_sender_s_mistake(tmp_path: Path, headers: dict[str, str]) -> None:
    with closing(ControlRig(tmp_path)) as rig:
        rig.add("a")
        for method, path in (("PUT", f"{D}/a"), ("POST", "/destinations/a/pause")):
            assert rig.http.request(method, path, content=b"x", headers=headers).status_code < 500


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Forwarded-For": "10.0.0.1"},
        {"x-forwarded-proto": "https"},
        {"Forwarded": "for=10.0.0.1"},
        {"X-Real-IP": "10.0.0.1"},
        {"Via": "1.1 proxy"},
    ],
)
def test_a_request_that_came_through_a_proxy_is_no_admin_s(tmp_path: Path, headers: dict[str, str]) -> None:
    with closing(ControlRig(tmp_path)) as rig:
        for answer in (
            rig.http.put(f"{D}/a?check=false", entry("a"), headers),
            rig.http.get("/v1/pipelines", headers=headers),
            rig.http.request("POST", "/v1/tokens", headers=headers, json={"name": "mallory", "scope": "admin"}),
        ):
            assert (answer.status_code, answer.json()["type"]) == (403, "/docs/errors#closed")
        assert rig.tokens.all() == []
