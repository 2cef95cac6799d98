"""The page in a real browser: add, watch, pause, an error, a reseed, by keyboard and in a narrow window."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from playwright.sync_api import Page, Request, expect, sync_playwright

from shared.messages import Outcome
from tests.fast.control.examples import problem, progress
from tests.fast.control.office import Office
from tests.fast.control.served import served

CHROMIUM = os.environ.get("VIADUCK_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium: `apt-get install chromium`, or name one in VIADUCK_CHROMIUM"
)


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    with closing(Office(tmp_path)) as office:
        yield office


@pytest.fixture
def page(office: Office) -> Iterator[Page]:
    arguments = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
    with served(office) as url, sync_playwright() as browsers:
        browser = browsers.chromium.launch(executable_path=CHROMIUM, headless=True, args=arguments)
        page = browser.new_page(base_url=url)
        complaints: list[str] = []
        page.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda asked: elsewhere(asked, url, complaints))
        yield page
        browser.close()
    assert complaints == []


def elsewhere(asked: Request, url: str, complaints: list[str]) -> None:
    if not asked.url.startswith((url, "data:")):
        complaints.append(asked.url)


def test_an_operator_watches_a_tenant_come_fail_pause_and_begin_anew(page: Page, office: Office) -> None:
    page.goto("/")
    expect(page.get_by_text("No destinations yet")).to_be_visible()
    name = "mallardine"
    office.add(name, routing_value="株式会社 & Söhne")
    expect(page.get_by_role("link", name=name, exact=True).first).to_be_visible()
    expect(page.get_by_text("株式会社 & Söhne")).to_be_visible()

    office.said(progress(Outcome.PARKED, name, error=problem("access_denied", retryable=False)))
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
    office.applied(name, 2, 12)
    expect(page.locator("dd.running")).to_have_text("running")


def test_it_works_by_keyboard_and_fits_a_phone(page: Page, office: Office) -> None:
    for number in range(60):
        office.add(f"tenant-{number:02}")
    page.set_viewport_size({"width": 375, "height": 700})
    page.goto("/")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="to the content")).to_be_focused()
    assert page.evaluate("document.documentElement.scrollWidth") <= 375
    page.get_by_label("Search").fill("tenant-42")
    page.keyboard.press("Enter")
    expect(page.locator("tbody[sse-swap] tr")).to_have_count(1)
    expect(page.locator(".plot canvas")).to_have_count(1)
