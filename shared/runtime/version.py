"""Which build of Viaduck this is."""

from __future__ import annotations

import importlib.metadata
import os
from functools import cache

REVISION = "VIADUCK_REVISION"
"""Variable that an image is built with: the commit that it is made of."""


@cache
def version() -> str:
    """The package's version; a source tree that was not installed has none."""
    try:
        return importlib.metadata.version("viaduck")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def revision() -> str | None:
    return os.environ.get(REVISION) or None


def build_version() -> str:
    """The version, and the commit if it is known."""
    made_of = revision()
    return version() if made_of is None else f"{version()} ({made_of[:12]})"
