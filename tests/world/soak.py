"""Plays random histories by their seeds: ``python -m tests.world.soak --first 60000 --count 1000``.

What `make soak` plays is other ones in every run; these are the same wherever they are played, so that a figure can be
repeated. With ``--unusual`` the conditions are those of ``tests.world.shape``. The last line sums up; the exit code is
not 0 if any history was wrong or failed.

``--catalog postgres`` plays them on a Postgres of its own, where an applier keeps its lakes open while the source is
restored.
"""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import duckdb

from tests.servers.postgres import Postgres
from tests.world.duck import connect
from tests.world.places import Database, Places
from tests.world.play import FOLDERS, play


def main() -> int:
    parser = argparse.ArgumentParser(description="random histories by their seeds")
    parser.add_argument("--first", type=int, required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--unusual", action="store_true")
    parser.add_argument("--owned", action="store_true", help="owners of destinations alter their columns")
    parser.add_argument("--catalog", choices=("sqlite", "postgres"), default="sqlite")
    asked = parser.parse_args()
    began_s, bad = time.monotonic(), list[int]()
    with connect() as con, _places(asked.catalog) as places:
        for played, seed in enumerate(range(asked.first, asked.first + asked.count), 1):
            fault = _fault(con, seed, places, unusual=asked.unusual, owned=asked.owned)
            if fault is not None:
                bad.append(seed)
                sys.stdout.write(f"{fault}\n")
            took_s = time.monotonic() - began_s
            sys.stdout.write(f"{played} played, up to {seed}, {took_s:.0f} s; not exact: {bad}\n")
            sys.stdout.flush()
    return 1 if bad else 0


@contextmanager
def _places(catalog: str) -> Iterator[Places]:
    if catalog == "sqlite":
        yield FOLDERS
        return
    with Postgres() as server:
        yield Database(server)


def _fault(con: duckdb.DuckDBPyConnection, seed: int, places: Places, *, unusual: bool, owned: bool) -> str | None:
    """What is wrong with a history; None where every destination is exact."""
    try:
        life = play(con, seed, strange=unusual, owned=owned, places=places)
    except Exception:
        return f"seed {seed} failed:\n{traceback.format_exc()}"
    return str(life) if life.wrong else None


if __name__ == "__main__":
    sys.exit(main())
