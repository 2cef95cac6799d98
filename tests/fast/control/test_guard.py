"""Who may ask what, and how a browser is kept from asking for somebody else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from services.control.api.guard import FAILURES, SESSION_FOR_S, WITHIN_S, Asked, Asker, Denied, Guard, is_own_name
from services.control.api.middleware import MAX_BODY
from services.control.tokens import Scope, Token
from tests.fast.control.examples import START
from tests.fast.control.office import D, Office, entry

WRITE = Asked("PUT", "/v1/pipelines/p/destinations/d")


@dataclass
class FakeTokens:
    """Tokens whose text is their scope."""

    scopes: list[Scope] = field(default_factory=lambda: ["read", "write", "admin"])
    fresh: bool = True

    def any_valid(self) -> bool:
        return bool(self.scopes)

    def check(self, text: str) -> Token | None:
        found = next((each for each in self.scopes if each == text), None)
        return None if found is None else Token("1", f"a {found}er", found, "", "", None, START)


def test_what_an_error_means_is_told_without_a_token_once_there_is_one() -> None:
    question = asked(path="/docs/errors")
    assert kind(Guard(loopback=False, tokens=FakeTokens()).judge(question)) == "allowed"
    assert kind(Guard(loopback=False, tokens=FakeTokens([])).judge(question)) == "closed"
    assert kind(Guard(loopback=False, tokens=FakeTokens()).judge(asked(path="/docs"))) == "unauthorized"


def test_the_page_of_errors_loads_nothing_that_needs_a_token(tmp_path: Path) -> None:
    with closing(Office(tmp_path, loopback=False)) as office:
        office.tokens.create("olga", "read", START)
        page = office.http.get("/docs/errors")
        assert (page.status_code, "unauthorized" in page.text) == (200, True)
        for asset in re.findall(r'(?:src|href)="(/assets/[^"]+)"', page.text):
            assert office.http.get(asset).status_code == 200, asset


@dataclass
class Clock:
    now_s: float = 0.0

    def __call__(self) -> float:
        return self.now_s


def asked(method: str = "GET", path: str = "/v1/pipelines", token: str | None = None, **more: str) -> Asked:
    return Asked(method, path, authorization=None if token is None else f"Bearer {token}", **more)


def kind(verdict: Asker | Denied) -> str:
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
    assert guard.judge(asked("POST", "/v1/tokens", "s3cret")) == Asker("operator", "admin")


def test_once_a_token_exists_loopback_is_for_looking_only() -> None:
    guard = Guard(loopback=True, tokens=FakeTokens())
    assert kind(guard.judge(asked())) == "allowed"
    assert kind(guard.judge(asked("PUT", WRITE.path))) == "unauthorized"
    assert kind(guard.judge(asked("GET", "/v1/tokens"))) == "unauthorized"


def test_wrong_tokens_shut_an_address_out_for_a_while_and_no_other() -> None:
    clock = Clock()
    guard = Guard(loopback=False, tokens=FakeTokens(), clock=clock)
    for _ in range(FAILURES):
        assert kind(guard.judge(asked(token="guess", address="10.0.0.1"))) == "unauthorized"
    shut = guard.judge(asked(token="admin", address="10.0.0.1"))
    assert isinstance(shut, Denied)
    assert (shut.kind, shut.headers["Retry-After"]) == ("too_many_failures", "60")
    assert kind(guard.judge(asked(token="admin", address="10.0.0.2"))) == "allowed"
    assert kind(guard.judge(asked(path="/healthz", address="10.0.0.1"))) == "allowed"
    clock.now_s += WITHIN_S
    assert kind(guard.judge(asked(token="admin", address="10.0.0.1"))) == "allowed"


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
        assert kind(guard.judge(asked("POST", "/v1/x/pause", session=session, **sent))) in ("cross_site", "closed")


def test_the_own_page_can() -> None:
    guard = Guard(loopback=False, tokens=FakeTokens())
    session = guard.login("write", "")
    assert session is not None
    own = {"host": "viaduck.example", "origin": "https://viaduck.example", "site": "same-origin"}
    assert kind(guard.judge(asked("POST", "/v1/x/pause", session=session, **own))) == "allowed"


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
    guard.logout(first)
    assert kind(guard.judge(asked(session=first or ""))) == "unauthorized"
    assert kind(guard.judge(asked(session=second or ""))) == "allowed"
    clock.now_s += SESSION_FOR_S
    assert kind(guard.judge(asked(session=second or ""))) == "unauthorized"
    fourth = guard.login("write", "")
    tokens.scopes.remove("write")
    assert kind(guard.judge(asked(session=fourth or ""))) == "unauthorized"
    assert guard.login("nonsense", "") is None


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    with closing(Office(tmp_path, loopback=False)) as office:
        yield office


def bearer(text: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}"}


def test_tokens_are_made_used_and_revoked_over_rest(office: Office) -> None:
    assert office.http.get(D).status_code == 403
    _, admin = office.tokens.create("root", "admin", START)
    made = office.http.request("POST", "/v1/tokens", headers=bearer(admin), json={"name": "olga", "scope": "write"})
    token = made.json()["token"]
    assert (made.status_code, made.json()["author"]) == (201, "root")
    put = office.http.put(f"{D}/a?check=false", entry("a"), bearer(token))
    assert (put.status_code, put.json()["author"]) == (201, "olga")
    assert office.http.get("/v1/tokens", headers=bearer(token)).status_code == 403

    listed = office.http.get("/v1/tokens", headers=bearer(admin)).text
    assert token not in listed
    assert "salt" not in listed
    assert office.http.delete(f"/v1/tokens/{made.json()['id']}", bearer(admin)).status_code == 204
    assert office.http.get(D, headers=bearer(token)).status_code == 401
    assert office.http.delete(f"/v1/tokens/{made.json()['id']}", bearer(admin)).status_code == 404


def test_who_made_a_token_and_who_revoked_it_can_be_read_page_by_page(office: Office) -> None:
    _, admin = office.tokens.create("root", "admin", START)
    made = [
        office.http.request("POST", "/v1/tokens", headers=bearer(admin), json={"name": name}).json()["id"]
        for name in ("one", "two", "three", "four")
    ]
    for token in made[:2]:
        office.http.delete(f"/v1/tokens/{token}", bearer(admin))
    pages: list[list[tuple[str, str | None, str | None]]] = []
    after: str | None = ""
    while after is not None:
        page = office.http.get(f"/v1/tokens?limit=2{after and '&after=' + after}", headers=bearer(admin)).json()
        pages.append([(each["name"], each["author"], each["revoked_by"]) for each in page["items"]])
        after = page["next"]
    assert pages == [
        [("root", None, None), ("one", "root", "root")],
        [("two", "root", "root"), ("three", "root", None)],
        [("four", "root", None)],
    ]


def test_a_body_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    with closing(Office(tmp_path)) as office:
        large = b'{"name": "' + b"x" * MAX_BODY + b'"}'
        answer = office.http.request("PUT", f"{D}/a", content=large, headers={"Content-Type": "application/json"})
        assert (answer.status_code, answer.json()["type"]) == (413, "/docs/errors#too_large")


def test_every_answer_tells_browsers_to_trust_nothing(office: Office) -> None:
    for path in ("/healthz", "/", "/v1/pipelines", "/nowhere"):
        headers = office.http.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["content-security-policy"].startswith("default-src 'none'")
        assert headers["cache-control"] == "no-store"


def test_what_a_problem_points_at_is_there(tmp_path: Path) -> None:
    with closing(Office(tmp_path)) as office:
        page, _, kind = office.http.get("/nowhere").json()["type"].partition("#")
        assert f'id="{kind}"' in office.http.get(page).text
