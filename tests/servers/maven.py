"""What servers for tests consist of, from a Maven repository: fetched once into a cache, and then never again."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from shared.contracts.errors import DependencyError
from shared.runtime.java import java_home
from tests.cache import cache, locked

FETCHED_WITHIN_S = 600


def _as_it_came(_: Path) -> None:
    pass


def fetched(what: str, name: str, goal: Sequence[str], unpack: Callable[[Path], None] = _as_it_came) -> Path:
    """The folder ``name`` of the cache, with what Maven's ``goal`` brings and ``unpack`` makes of it there.

    Skips the test, which needs ``what``, where that is not there and can't be fetched.
    """
    folder = cache() / name
    with locked(name):
        if not folder.is_dir():
            _fetch(what, folder, goal, unpack)
    return folder


def _fetch(what: str, folder: Path, goal: Sequence[str], unpack: Callable[[Path], None]) -> None:
    if shutil.which("mvn") is None:
        pytest.skip(
            f"{what} needs Maven (`apt-get install maven`), which fetches it once, or a Docker engine, which brings it"
            " as an image; neither is here"
        )
    unfinished = folder.with_suffix(".new")
    shutil.rmtree(unfinished, ignore_errors=True)
    command = ["mvn", "-B", "-q", "-Dstyle.color=never", *goal, f"-DoutputDirectory={unfinished}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=FETCHED_WITHIN_S, check=False)
    if done.returncode != 0:
        shutil.rmtree(unfinished, ignore_errors=True)
        said = done.stdout[-1000:]
        pytest.skip(f"Maven could not fetch {folder.name} for {what}; give it a repository it can reach:\n{said}")
    unpack(unfinished)
    unfinished.rename(folder)


def java_for(what: str) -> str:
    """The command. Skips the test where there is none."""
    try:
        return str(java_home() / "bin" / "java")
    except DependencyError as error:
        pytest.skip(f"{what} needs Java: {error.message}; {error.hint}")
