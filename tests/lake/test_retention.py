"""How far back a lake's snapshots reach, on both kinds of catalog."""

from __future__ import annotations

import time
from contextlib import closing
from datetime import timedelta

from shared.lake.catalog.reader import CatalogReader
from shared.lake.upkeep.retention import freed_from, newest_but, retained, snapshot_at, snapshots_since
from tests.lake.rig import ApplyRig


def test_the_ends_of_a_history_are_told_with_their_times(rig: ApplyRig) -> None:
    head = rig.sql("INSERT INTO src.main.t VALUES (100, 'a', 'x')")
    rig.sql("CALL ducklake_expire_snapshots('src', versions => [0, 1])")
    with closing(CatalogReader(rig.source)) as catalog:
        found = retained(catalog)
        assert (found.oldest, found.head, found.length) == (2, head, head - 2)
        assert found.oldest_at <= found.catalog_now
        assert found.lake == catalog.table("main", "t", head).lake_uuid  # type: ignore[union-attr]
        assert [each.id for each in snapshots_since(catalog, 0, 10)] == list(range(2, head + 1))
        kept = newest_but(catalog, 2, head)
        assert kept is not None
        assert (kept.id, newest_but(catalog, 100, head)) == (head - 1, None)


def test_a_moment_is_the_newest_snapshot_that_was_there_then(rig: ApplyRig) -> None:
    for number in range(6):
        rig.sql(f"INSERT INTO src.main.t VALUES ({200 + number}, 'a', 'x')")
        time.sleep(0.01)
    rig.sql("CALL ducklake_expire_snapshots('src', versions => [0, 4, 5])")
    with closing(CatalogReader(rig.source)) as catalog:
        there = snapshots_since(catalog, 0, 100)
        for each in there:
            assert snapshot_at(catalog, each.at) == each
        between = there[2].at + (there[3].at - there[2].at) / 2
        assert snapshot_at(catalog, between) == there[2]
        assert snapshot_at(catalog, there[0].at - timedelta(microseconds=1)) is None
        assert snapshot_at(catalog, there[-1].at + timedelta(days=1)) == there[-1]


def test_files_that_only_expired_snapshots_show_are_counted(rig: ApplyRig) -> None:
    with closing(CatalogReader(rig.source)) as catalog:
        before = rig.head
        assert freed_from(catalog, before).files == 0
        gone = rig.sql("DELETE FROM src.main.t")
        assert freed_from(catalog, before).files == 0
        freed = freed_from(catalog, gone)
        assert (freed.files > 0, freed.bytes > 0) == (True, True)
