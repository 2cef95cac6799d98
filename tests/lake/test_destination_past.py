"""Which snapshot of a destination shows a moment or a position: on lakes that were really applied to, over REST."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from services.control.operations.destination_past import (
    AppliedSnapshot,
    ExactSnapshot,
    newest_at,
    newest_through,
    with_ends,
)
from shared.contracts.messages import ItemKind
from shared.lake.stamp import StampRead
from tests.fast.control.rig import ControlRig
from tests.lake.rig import ApplyRig, schema_of

EPOCH = datetime(2026, 3, 1, tzinfo=UTC)


def an_apply(snapshot: int, through: int, *, after: int = 0, generation: int = 1) -> AppliedSnapshot:
    stamp = StampRead(pipeline="p", destination="a", kind="changes", generation=generation, after=after,
                      through=through, item="i", deleted=0, inserted=0)  # fmt: skip
    return AppliedSnapshot(snapshot, EPOCH + timedelta(seconds=snapshot), stamp)


HISTORY = [an_apply(9, 20, after=16), an_apply(7, 15, after=12), an_apply(5, 10)]
"""The newest first."""


@pytest.mark.parametrize(
    ("position", "snapshot", "exact"),
    [(10, 5, 12), (14, 5, 12), (15, 7, 16), (16, 7, 16), (19, 7, 16), (20, 9, 30), (99, 9, 30)],
)
def test_the_furthest_snapshot_up_to_a_position_is_told_with_where_the_next_range_begins(
    position: int, snapshot: int, exact: int
) -> None:
    found = newest_through(HISTORY, position, 30)
    assert found is not None
    assert (found.snapshot, found.exact_through) == (snapshot, exact)
    assert newest_through(HISTORY, 9, 30) is None


def test_a_snapshot_is_not_exact_where_the_next_one_has_followed_other_columns() -> None:
    newest = an_apply(9, 20, after=20)
    followed = replace(newest, stamp=newest.stamp.model_copy(update={"columns": ("rename v to w",)}))
    assert [each.exact_through for each in with_ends([followed, *HISTORY[1:]], 20)] == [20, 15, 12]


def test_after_a_rewind_an_older_snapshot_may_reach_further() -> None:
    rewound = [an_apply(12, 13, after=10, generation=2), *HISTORY]
    found = newest_through(rewound, 17, 13)
    assert found == ExactSnapshot(**vars(HISTORY[1]), exact_through=16)
    again = newest_through(rewound, 13, 13)
    assert again is not None
    assert again.snapshot == 12


def test_a_moment_is_what_was_there_then_or_came_later_with_nothing_newer() -> None:
    times = {10: EPOCH + timedelta(seconds=1), 15: EPOCH + timedelta(seconds=5.5), 20: EPOCH + timedelta(seconds=8)}

    def source_times(snapshots: Any) -> dict[int, datetime]:
        return {each: times[each] for each in snapshots}

    for second, snapshot in ((1.0, 5), (5.0, 5), (5.5, 7), (7.9, 7), (8.0, 9), (100.0, 9)):
        found = newest_at(HISTORY, EPOCH + timedelta(seconds=second), source_times)
        assert found is not None
        assert found.snapshot == snapshot, second
    assert newest_at(HISTORY, EPOCH, source_times) is None
    by_commits = newest_at(HISTORY, EPOCH + timedelta(seconds=8.5), lambda _: {})
    assert by_commits is not None
    assert by_commits.snapshot == 7, "a source that does not answer leaves the destination's own times"


@dataclass
class Site:
    lakes: ApplyRig
    control: ControlRig

    def at(self, code: int = 200, **asked: object) -> Any:
        answer = self.control.http.get(
            "/v1/pipelines/p/destinations/a/at", {name: str(value) for name, value in asked.items()}
        )
        assert answer.status_code == code, answer.text
        return answer.json()

    def shows(self, found: Any, rows: list[tuple[Any, ...]]) -> bool:
        """Whether the ready statement reads these rows."""
        there = self.lakes.look("a", found["select"].replace(" FROM ", " FROM dst."))
        return sorted(map(repr, there)) == sorted(map(repr, rows))


@pytest.fixture
def unseeded(rig: ApplyRig, tmp_path: Path) -> Iterator[Site]:
    """The destination ``a`` is declared, and its lake is not there yet."""
    environ = {"LAKE_A": rig.lake("a").catalog}
    sections = {
        "source": {"catalog": rig.source.catalog, "table": "t"} | schema_of(rig.source),
        "routing": {"field": "tenant", "key_columns": ["id"]},
        "server": {"port": 0, "allowed_variables": ["LAKE_*"]},
    }
    with closing(ControlRig(tmp_path, pipeline="p", sections=sections, environ=environ)) as control:
        entry = {"routing_value": "a", "catalog_env": "LAKE_A", "table": "t"} | schema_of(rig.lake("a"))
        assert control.http.put("/v1/pipelines/p/destinations/a?check=false", entry).status_code == 201
        yield Site(rig, control)


@pytest.fixture
def site(unseeded: Site) -> Site:
    unseeded.lakes.seed()
    return unseeded


def test_of_a_lake_that_is_not_there_yet_there_is_no_past(unseeded: Site) -> None:
    assert "wait until it is seeded" in unseeded.at(409, position=1)["hint"]
    answer = unseeded.control.http.get("/v1/pipelines/p/destinations/a/history")
    assert (answer.status_code, answer.json()["items"]) == (200, [])


def test_the_ready_statement_shows_what_the_source_had_then(site: Site) -> None:
    lakes = site.lakes
    seeded, then = lakes.head, lakes.expected("a")
    time.sleep(0.05)
    between = datetime.now(UTC)
    time.sleep(0.05)
    moved = lakes.sql("INSERT INTO src.main.t VALUES (500, 'a', 'x')", 'ALTER TABLE src.main.t ADD COLUMN "w""w" INT')
    lakes.changes(seeded, "a")
    found = site.at(time=between.isoformat())
    assert (found["kind"], found["through"], found["source_at"] is not None) == ("seed", seeded, True)
    assert [each["name"] for each in found["columns"]] == ["id", "tenant", "v"]
    assert site.shows(found, then)
    assert site.at(position=seeded) == found
    newest = site.at(position=moved)
    assert (newest["kind"], newest["through"], newest["exact_through"]) == ("changes", moved, moved)
    assert '"w""w"' in newest["select"]
    assert site.shows(newest, lakes.expected("a"))
    assert site.at(time="2100-01-01T00:00:00Z") == newest


def test_what_is_not_retained_names_the_oldest(site: Site) -> None:
    refused = site.at(code=409, position=1)
    assert refused["type"].endswith("#not_retained")
    assert f"which shows position {site.lakes.head}" in refused["detail"]
    assert "its oldest snapshot is" in site.at(code=409, time="2001-01-01T00:00:00Z")["detail"]


def test_a_compacted_table_is_told_and_maintenance_is_no_snapshot_to_use(site: Site) -> None:
    lakes = site.lakes
    seeded = lakes.head
    lakes.sql("INSERT INTO src.main.t SELECT 600 + i, 'a', 'x' FROM range(30) r(i)")
    lakes.changes(seeded, "a")
    assert site.at(position=seeded)["note"] is None
    lakes.run(ItemKind.UPKEEP, "a", expected=lakes.head, after=lakes.head)
    assert "merged or rewritten" in site.at(position=seeded)["note"]
    assert site.at(position=lakes.head)["kind"] == "changes"


def test_neither_both_nor_a_time_without_an_offset_is_taken(site: Site) -> None:
    for wrong in (
        {},
        {"time": "2026-03-01T00:00:00Z", "position": 3},
        {"time": "2026-03-01T00:00:00"},
        {"position": -1},
    ):
        assert site.at(code=422, **wrong)["type"].endswith("#invalid")


def test_the_history_has_the_source_s_times(site: Site) -> None:
    found = site.control.http.get("/v1/pipelines/p/destinations/a/history").json()["items"]
    with_times = [each["source_at"] for each in found if each["kind"] == "seed"]
    assert len(with_times) == 1
    assert with_times[0] is not None
