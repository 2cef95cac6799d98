"""The page in a real browser: add, watch, pause, an error, a reseed, by keyboard and in a narrow window."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, expect

from shared.contracts.messages import Outcome
from tests.fast.control.browser import CHROMIUM, MISSING, chromium
from tests.fast.control.examples import START, problem, progress
from tests.fast.control.live_server import served
from tests.fast.control.rig import ControlRig, D, entry
from tests.fast.control.sample_deployment import PARKED, SHOWN, busy_rig

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason=MISSING)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[ControlRig]:
    with closing(ControlRig(tmp_path)) as rig:
        yield rig


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def page(rig: ControlRig, browser: Browser) -> Iterator[Page]:
    with served(rig) as url:
        page = browser.new_page(base_url=url)
        complaints: list[str] = []
        page.on("console", lambda said: complaints.append(said.text) if is_complaint(said) else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda asked: elsewhere(asked, url, complaints))
        yield page
        page.close()
    assert complaints == []


def is_complaint(said: ConsoleMessage) -> bool:
    """A form that is refused is answered with 4xx, which a browser remarks on."""
    return said.type == "error" and not (said.location["url"].endswith("/add") and "status of 4" in said.text)


def elsewhere(asked: Request, url: str, complaints: list[str]) -> None:
    if not asked.url.startswith((url, "data:")):
        complaints.append(asked.url)


def test_an_operator_watches_a_tenant_come_fail_pause_and_begin_anew(page: Page, rig: ControlRig) -> None:
    page.goto("/")
    expect(page.get_by_text("No destinations yet")).to_be_visible()
    name = "mallardine"
    page.get_by_text("Add a destination").click()
    page.get_by_label("Id", exact=True).fill(name)
    page.get_by_label("Routing value").fill("株式会社 & Söhne")
    page.get_by_label("Or the catalog itself").fill("sqlite:lakes/mallardine.sqlite")
    page.get_by_role("button", name="add").click()
    expect(page).to_have_url(re.compile(f"/destinations/{name}$"))
    expect(page.get_by_text("株式会社 & Söhne")).to_be_visible()
    page.get_by_role("link", name="Viaduck").click()
    expect(page.get_by_role("link", name=name, exact=True).first).to_be_visible()

    rig.said(progress(Outcome.PARKED, name, error=problem("access_denied", retryable=False)))
    expect(page.get_by_role("cell", name="access_denied")).to_be_visible()
    page.get_by_role("cell", name=name).get_by_role("link").click()
    expect(page.get_by_role("heading", name=name)).to_be_visible()
    expect(page.get_by_text("it is access_denied")).to_be_visible()

    page.get_by_role("link", name="pause").click()
    expect(page.get_by_text("until it is resumed")).to_be_visible()
    page.get_by_role("button", name="pause").click()
    expect(page.locator("dd.paused")).to_have_text("paused")
    page.get_by_role("link", name="resume").click()
    page.get_by_role("button", name="resume").click()

    page.get_by_role("link", name="reseed").click()
    page.get_by_role("button", name="reseed").click()
    expect(page.get_by_text("reseeded by loopback, generation 2")).to_be_visible()
    rig.applied(name, 2, 12)
    expect(page.locator("dd.running")).to_have_text("running")


def test_a_destination_that_is_refused_says_why_where_it_is_mended(page: Page, rig: ControlRig) -> None:
    rig.add("there")
    page.goto("/add")
    for name, value, catalog, faulty, said in [
        ("a b", "x", "sqlite:lakes/x.sqlite", "Id", "must be 1 to 200 letters"),
        ("there", "x", "sqlite:lakes/x.sqlite", "Id", "is taken"),
        ("new", "value of there", "sqlite:lakes/x.sqlite", "Routing value", "there"),
        ("new", "x", "postgres:host=h password=s3cret", "Or the catalog itself", "holds a password"),
    ]:
        page.get_by_label("Id", exact=True).fill(name)
        page.get_by_label("Routing value").fill(value)
        page.get_by_label("Or the catalog itself").fill(catalog)
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_contain_text(said)
        field = page.get_by_label(faulty, exact=faulty == "Id")
        expect(field).to_be_focused()
        expect(field).to_have_accessible_description(re.compile(said))
        expect(field).to_have_attribute("aria-invalid", "true")
    assert "s3cret" not in page.content()
    assert set(rig.registry.destinations()) == {"there"}
    page.get_by_label("Or the catalog itself").fill("sqlite:lakes/x.sqlite")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("/destinations/new$"))
    page.get_by_role("link", name="remove").click()
    expect(page.get_by_text("It is removed")).to_be_visible()
    page.get_by_role("button", name="remove").click()
    expect(page.get_by_role("link", name="there", exact=True).first).to_be_visible()
    assert rig.published("new") is None


def test_a_stranger_logs_in_and_out_and_the_browser_misses_nothing(browser: Browser, tmp_path: Path) -> None:
    with closing(ControlRig(tmp_path, loopback=False)) as rig, served(rig) as url:
        _, text = rig.tokens.create("olga", "write", START)
        page = browser.new_page(base_url=url)
        complaints: list[str] = []
        page.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
        page.goto("/")
        expect(page).to_have_url(f"{url}/login")
        page.get_by_label("Token").fill(text)
        page.get_by_role("button", name="log in").click()
        expect(page.get_by_text("No destinations yet")).to_be_visible()
        expect(page.locator(".plot canvas")).to_have_count(3)  # or what they ask for would be refused
        page.get_by_role("button", name="log out").click()
        expect(page).to_have_url(f"{url}/login")
        page.close()
    assert complaints == []


def test_it_works_by_keyboard_and_fits_a_phone(page: Page, rig: ControlRig) -> None:
    for number in range(60):
        rig.add(f"tenant-{number:02}")
    page.set_viewport_size({"width": 375, "height": 700})
    page.goto("/")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="to the content")).to_be_focused()
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
    page.get_by_label("Search").fill("tenant-42")
    page.keyboard.press("Enter")
    expect(page.locator("tbody[sse-swap] tr")).to_have_count(1)
    expect(page.locator(".plot canvas")).to_have_count(3)


def test_an_update_leaves_the_keyboard_where_it_is(page: Page, rig: ControlRig) -> None:
    for name in ("a", "b", "c"):
        rig.add(name)
    page.goto("/")
    row = page.locator("tbody[sse-swap]").get_by_role("link", name="b", exact=True)
    row.focus()
    rig.said(progress(Outcome.PARKED, "b", error=problem("access_denied", retryable=False)))
    expect(page.get_by_role("cell", name="access_denied")).to_be_visible()
    expect(row).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.locator("tbody[sse-swap]").get_by_role("link", name="c", exact=True)).to_be_focused()


def test_nothing_is_out_of_reach_on_a_phone_and_no_name_wraps_for_an_empty_column(
    browser: Browser, tmp_path: Path
) -> None:
    template = {"catalog": "sqlite:lakes/{routing_value}.sqlite", "data_path": "data/{routing_value}"}
    sections = {"template": template, "appear": {"policy": "propose"}}
    with closing(ControlRig(tmp_path, sections=sections)) as rig, served(rig) as url:
        rig.offered(mallard=1_200)
        rig.add("entenhausener-werke")
        page = browser.new_page(base_url=url, viewport={"width": 375, "height": 800})
        page.goto("/proposals")
        buttons = boxes(page, "main button")
        assert buttons
        assert all(each["x"] >= 0 and each["right"] <= 375 for each in buttons), buttons
        page.goto("/")
        tiles = boxes(page, ".figures li")
        assert tiles
        assert all(each["width"] > 150 and each["right"] <= 375 for each in tiles), tiles
        page.set_viewport_size({"width": 1280, "height": 800})
        names = boxes(page, "tbody[sse-swap] td.name")
        assert names
        assert all(each["height"] < 45 for each in names), "a name takes more than one line"
        page.close()


def boxes(page: Page, selector: str) -> list[dict[str, float]]:
    """Where all elements of a selector stand, in pixels, read in one step: a live update replaces them."""
    script = "found => found.map(each => each.getBoundingClientRect().toJSON())"
    found: list[dict[str, float]] = page.locator(selector).evaluate_all(script)
    return found


def test_a_reader_who_may_not_write_finds_the_login_and_comes_back(browser: Browser, tmp_path: Path) -> None:
    with closing(ControlRig(tmp_path, token="s3cret-operator")) as rig, served(rig) as url:
        put = rig.http.put(f"{D}/a?check=false", entry("a"), {"Authorization": "Bearer s3cret-operator"})
        assert put.status_code == 201
        page = browser.new_page(base_url=url)
        page.goto("/destinations/a")
        expect(page.get_by_role("link", name="pause")).to_have_count(0)
        page.goto("/destinations/a/pause")
        page.get_by_role("button", name="pause").click()
        page.get_by_label("Token").fill("s3cret-operator")
        page.get_by_role("button", name="log in").click()
        expect(page).to_have_url(f"{url}/destinations/a/pause")
        page.get_by_role("button", name="pause").click()
        expect(page.locator("dd.paused")).to_have_text("paused")
        page.close()


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a rig in the middle of its day is served."""
    with closing(busy_rig(tmp_path_factory.mktemp("busy"))) as rig, served(rig) as url:
        yield url


ACTIONS = ("pause", "rewind", "remove")
"""Of those that look different."""
PAGES = (
    "/",
    "/?sort=lag",
    "/?search=nobody",
    f"/destinations/{SHOWN}",
    f"/destinations/{PARKED}",
    *(f"/destinations/{SHOWN}/{action}" for action in ACTIONS),
    "/?state=parked",
    "/all/resume?state=parked",
    f"/destinations/{SHOWN}/edit",
    "/add",
    "/proposals",
    "/operations",
    "/work",
    "/work/replay",
    "/dead-letters",
    "/audit",
    "/tokens",
    "/deployment/audit",
    "/health",
    "/destinations/nobody",
    "/docs/errors",
    "/login",
)


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 1280), ("light", 375)])
def test_axe_finds_nothing_serious_on_any_page(
    browser: Browser, busy: str, scheme: Literal["light", "dark"], width: int
) -> None:
    # The page's policy lets no script in but its own: axe is injected past it, and past nothing else.
    context = browser.new_context(
        base_url=busy, bypass_csp=True, color_scheme=scheme, viewport={"width": width, "height": 800}
    )
    page = context.new_page()
    found = {path: serious(page, path) for path in PAGES}
    found["a refusal"] = refusal(page)
    found["the form, opened"] = opened(page)
    found["the form, refused"] = not_added(page)
    context.close()
    assert {path: what for path, what in found.items() if what} == {}


def refusal(page: Page) -> list[str]:
    """A confirmation that was not accepted, with its reason."""
    page.goto(f"/destinations/{SHOWN}/rewind")
    page.locator("input[name=to]").fill("999999999999")
    page.get_by_role("button", name="rewind").click()
    expect(page.get_by_role("alert")).to_be_visible()
    return violations(page)


def opened(page: Page) -> list[str]:
    page.goto("/")
    page.get_by_text("Add a destination").click()
    expect(page.get_by_label("Id", exact=True)).to_be_visible()
    return violations(page)


def not_added(page: Page) -> list[str]:
    page.goto("/add")
    page.get_by_label("Id", exact=True).fill(SHOWN)
    page.get_by_label("Routing value").fill("x")
    page.get_by_role("button", name="add").click()
    expect(page.get_by_role("alert")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    return violations(page)


def serious(page: Page, path: str) -> list[str]:
    page.goto(path)
    for plot in page.locator(".plot").all():
        expect(plot.locator("canvas")).to_have_count(1)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{path} is wider than its window"
    narrow = "tiles => tiles.filter(tile => tile.scrollWidth > tile.clientWidth).map(tile => tile.textContent)"
    assert page.locator(".figures li").evaluate_all(narrow) == [], "a figure that is wider than its tile"
    return violations(page)


def violations(page: Page) -> list[str]:
    response = Axe().run(page).response
    grave = [each for each in response["violations"] if each["impact"] in ("serious", "critical")]
    return [f"{each['id']}: {node['html']}: {node['failureSummary']}" for each in grave for node in each["nodes"]]
