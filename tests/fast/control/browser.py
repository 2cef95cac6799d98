"""A Chromium that the machine has; none is downloaded."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, expect, sync_playwright

CHROMIUM = os.environ.get("VIADUCK_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
MISSING = "no Chromium: `apt-get install chromium`, or name one in VIADUCK_CHROMIUM"
SHOWN_WITHIN_MS = 60_000
"""A page is as quick as its machine, and tests share theirs with others."""

ARGUMENTS = ("--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu")


@contextmanager
def chromium() -> Iterator[Browser]:
    expect.set_options(timeout=SHOWN_WITHIN_MS)
    with sync_playwright() as browsers:
        browser = browsers.chromium.launch(executable_path=CHROMIUM, headless=True, args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()
