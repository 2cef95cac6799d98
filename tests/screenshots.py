"""``python -m tests.screenshots [FOLDER]``: the pictures of the page in docs/images.

They show a rig in the middle of its day. Nothing else writes them. Look at them before you commit them.
"""

from __future__ import annotations

import sys
import tempfile
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser

from tests.fast.control.browser import CHROMIUM, MISSING, chromium
from tests.fast.control.live_server import served
from tests.fast.control.sample_deployment import SHOWN, busy_rig

IMAGES = Path(__file__).parent.parent / "docs" / "images"
MAX_BYTES = 200_000


@dataclass(frozen=True)
class Picture:
    """``below`` is what the window is scrolled to."""

    name: str
    path: str
    width: int = 1280
    height: int = 860
    scheme: Literal["light", "dark"] = "light"
    below: str | None = None
    scale: float = 1.0


PICTURES = (
    Picture("overview", "/"),
    Picture("list", "/?sort=lag", below="form.filter"),
    Picture("detail", f"/destinations/{SHOWN}"),
    Picture("dark", "/", scheme="dark"),
    Picture("phone", "/", width=375, height=812, scale=2.0),
)


def main(folder: Path) -> int:
    if CHROMIUM is None:
        sys.stderr.write(MISSING + "\n")
        return 2
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="viaduck-rig-") as home, closing(busy_rig(Path(home))) as rig, (
        served(rig)
    ) as url, chromium() as browser:  # fmt: skip
        for picture in PICTURES:
            taken = folder / f"{picture.name}.png"
            take(browser, url, picture, taken)
            assert taken.stat().st_size < MAX_BYTES, f"{taken} has {taken.stat().st_size} bytes"
    return 0


def take(browser: Browser, url: str, picture: Picture, file: Path) -> None:
    page = browser.new_page(
        base_url=url,
        viewport={"width": picture.width, "height": picture.height},
        color_scheme=picture.scheme,
        device_scale_factor=picture.scale,
    )
    page.goto(picture.path)
    page.locator(".plot canvas").first.wait_for()
    page.get_by_text("live", exact=True).wait_for()
    if picture.below is not None:
        page.locator(picture.below).evaluate("shown => scrollTo(0, shown.getBoundingClientRect().top - 12)")
    page.screenshot(path=file)
    page.close()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES))
