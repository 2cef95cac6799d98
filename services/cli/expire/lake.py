"""What expiry reads of the source and writes to it. Snapshots go by their ids: ``older_than`` compares times as text on
SQLite catalogs, and takes everything of the cutoff's date (docs/explanation/hazards.md)."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import datetime, timedelta
from typing import Any

import duckdb

from services.cli.expire.plan import Hold, batches
from shared.config.catalogs import ResolvedLake
from shared.contracts.errors import ViaduckError
from shared.lake.catalog.reader import CatalogReader
from shared.lake.connection.attach import attach, scanners
from shared.lake.connection.engine import connect
from shared.lake.failure import classify
from shared.lake.upkeep.retained import LakeSnapshot, Retained
from shared.lake.upkeep.retention import newest_but, snapshot_at
from shared.runtime.backoff import delay_s

AT_ONCE = 1_000
"""Snapshots of one transaction: other writers of the catalog wait for it, or it fails and is tried again."""

TRIES = 6
ALIAS = "source"


def kept_newest(catalog: CatalogReader, span: Retained, kept: int) -> Hold:
    """``--keep``: where there are fewer snapshots, the oldest stays."""
    found = newest_but(catalog, kept, span.head)
    return Hold(span.oldest if found is None else found.id, f"--keep {kept}")


def kept_younger(catalog: CatalogReader, span: Retained, age: timedelta, written: str) -> Hold:
    """``--older-than``, by the catalog's own clock."""
    newest = snapshot_at(catalog, span.catalog_now - age)
    return Hold(span.oldest if newest is None else newest.id + 1, f"--older-than {written}")


class WritableSource:
    """A source that is open for writing. Raises a ``ViaduckError`` for what the lake refuses."""

    def __init__(self, lake: ResolvedLake) -> None:
        self._lake = lake
        self._con = connect(catalogs=scanners(lake))
        try:
            attach(self._con, ALIAS, lake, read_only=False)
        except ViaduckError:
            self._con.close()
            raise

    def close(self) -> None:
        self._con.close()

    def expire(self, snapshots: Sequence[LakeSnapshot]) -> Iterator[int]:
        """A transaction for each thousand, the oldest first; yields how many each took."""
        for batch in batches(snapshots, AT_ONCE):
            self._run("CALL ducklake_expire_snapshots($1, versions => $2)", [ALIAS, [each.id for each in batch]])
            yield len(batch)

    def clean(self, age: timedelta) -> int:
        """Delete files that were let go at least so long ago. Returns how many.

        On SQLite catalogs the times are compared as text, and all of the cutoff's date goes: there the cutoff is a day
        earlier, so that nothing goes too soon.
        """
        if self._lake.sqlite_file is not None:
            age += timedelta(days=1)
        call = "SELECT count(*) FROM ducklake_cleanup_old_files($1, older_than => $2::TIMESTAMPTZ)"
        return int(self._run(call, [ALIAS, self._now() - age])[0][0])

    def _now(self) -> datetime:
        with closing(CatalogReader.attached(self._lake, self._con, ALIAS)) as catalog:
            return catalog.head().catalog_now

    def _run(self, statement: str, values: list[object]) -> list[tuple[Any, ...]]:
        for attempt in range(1, TRIES + 1):
            try:
                return self._con.execute(statement, values).fetchall()
            except duckdb.Error as error:
                found = classify(error, f"expiring snapshots of {self._lake}")
                if found.type != "destination_busy" or attempt == TRIES:
                    raise found from None
            time.sleep(delay_s(attempt, 0.0))
        raise AssertionError("not reached")
