"""A Chromium that the machine has; none is downloaded."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

CHROMIUM = os.environ.get("VIADUCK_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
MISSING = "no Chromium: `apt-get install chromium`, or name one in VIADUCK_CHROMIUM"
ARGUMENTS = ("--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu")


@contextmanager
def chromium() -> Iterator[Browser]:
    with sync_playwright() as browsers:
        browser = browsers.chromium.launch(executable_path=CHROMIUM, headless=True, args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()
