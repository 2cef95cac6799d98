"""Expiry and clean-up of a destination's lake, each in one transaction with a write to cursors.

A snapshot that is expired takes with it what DuckLake finds conflicts by, so a transaction that began before it could
commit over a later one (H6). The write to the cursors is younger than that transaction and stays, so its
compare-and-set fails. Snapshots go by their ids: ``older_than`` compares times as text on SQLite catalogs, and takes
everything of the cutoff's date (docs/explanation/hazards.md).
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta

import duckdb

from services.applier.apply.cursor import fence
from services.applier.apply.cursor.decide import Cursor
from services.applier.apply.destination.table_options import tables_of
from services.applier.model.expiry_plan import ExpiryPlan, plan
from services.applier.model.task import Limits, Target
from shared.config.path_overlap import table_names
from shared.contracts.errors import DestinationError
from shared.contracts.upkeep import StepOutcome, StepResult, UpkeepStep
from shared.lake.attached.pool import OpenLake
from shared.lake.cursor import SCHEMA, cursor_name
from shared.lake.sql import path
from shared.lake.table import require_table
from shared.lake.upkeep import facts
from shared.lake.upkeep.retention import newest_but, snapshot_at

MOST_FENCED = 500
"""Cursors that one transaction writes to: other writers of the lake wait for it, or try again."""

SHOWN_TABLES = 3
SIZED_AT_ONCE = 200


def expire(
    con: duckdb.DuckDBPyConnection, lake: OpenLake, target: Target, limits: Limits, cursor: Cursor
) -> StepResult:
    """Expire the oldest snapshots of the lake that nothing holds, at most ``most_snapshots``. TLA: ``KeepUp``."""
    task = target.upkeep
    found = _expirable(lake, target, limits)
    result = StepResult(
        step=UpkeepStep.EXPIRE, outcome=StepOutcome.DONE, snapshots_expired=len(found.versions), left=found.left
    )
    if task.dry_run or not found.versions:
        return result
    with _fenced(con, lake, target, limits, cursor, facts.cursor_tables(lake.catalog)):
        con.execute("CALL ducklake_expire_snapshots(?, versions => ?)", [lake.alias, list(found.versions)]).fetchall()
    return result


def clean(con: duckdb.DuckDBPyConnection, lake: OpenLake, target: Target, limits: Limits, cursor: Cursor) -> StepResult:
    """Delete files that were let go at least ``clean_after`` ago, some ``most_files`` of them.

    Files that were let go at one moment go together, whatever the limit is. Files are deleted before COMMIT, and stay
    deleted after a ROLLBACK; the next run then finds the entries again and removes them.
    """
    policy, now = target.upkeep.policy, lake.catalog.head().catalog_now
    age_s = max(policy.clean_after_s or 0.0, limits.least_age_s)
    cutoff = now - timedelta(seconds=age_s)
    waiting = [each for each in facts.waiting_files(lake.catalog) if each.since <= cutoff]
    call = "CALL ducklake_cleanup_old_files(?, older_than => ?::TIMESTAMPTZ, dry_run => ?)"
    cut = _cut if lake.lake.sqlite_file is None else _cut_by_date
    older_than = cut([each.since for each in waiting], cutoff, policy.most_files)
    if older_than is None:
        return StepResult(step=UpkeepStep.CLEAN, outcome=StepOutcome.DONE, left=len(waiting))
    listed = _listed(con, call, [lake.alias, older_than, True])
    _require_known(listed, {each.name for each in waiting})
    freed = _bytes_of(con, listed)
    if listed and not target.upkeep.dry_run:
        own = cursor_name(target.destination.pipeline, target.destination.destination)
        with _fenced(con, lake, target, limits, cursor, [own]):
            con.execute(call, [lake.alias, older_than, False]).fetchall()
    return StepResult(
        step=UpkeepStep.CLEAN,
        outcome=StepOutcome.DONE,
        files_removed=len(listed),
        bytes_freed=freed,
        left=len(waiting) - len(listed),
    )


def sweep_orphans(con: duckdb.DuckDBPyConnection, lake: OpenLake, target: Target, limits: Limits) -> StepResult:
    """Delete Parquet files below the lake's data path that its catalog does not name and that are old enough.

    A file of a transaction that has not committed is named by no catalog either: only its age protects it.
    """
    policy, now = target.upkeep.policy, lake.catalog.head().catalog_now
    age_s = max(policy.orphans_after_s or 0.0, limits.least_age_s, 86_400.0)
    call = "CALL ducklake_delete_orphaned_files(?, older_than => ?::TIMESTAMPTZ, dry_run => ?)"
    cutoff = min(now, datetime.now(UTC)) - timedelta(seconds=age_s)
    listed = _listed(con, call, [lake.alias, cutoff, True])
    _require_own(listed, lake.catalog.data_path())
    times = sorted(_times_of(con, listed))
    older_than = _cut(times, cutoff, policy.most_files)
    result = StepResult(step=UpkeepStep.ORPHANS, outcome=StepOutcome.DONE)
    if older_than is None:
        return result
    now_listed = _listed(con, call, [lake.alias, older_than, True])
    freed = _bytes_of(con, now_listed)
    if not target.upkeep.dry_run:
        _listed(con, call, [lake.alias, older_than, False])
    counts = {"files_removed": len(now_listed), "bytes_freed": freed, "left": len(listed) - len(now_listed)}
    return result.model_copy(update=counts)


def foreign_tables(lake: OpenLake, target: Target) -> list[str]:
    """Tables of the lake that are neither a known destination's nor a cursor."""
    tables = lake.catalog.tables()
    own = target.upkeep.ours | {table_names(target.destination.schema_name, target.destination.table)}
    others = ((schema, name) for schema, name in tables if schema != SCHEMA)
    return [f"{schema}.{name}" for schema, name in others if table_names(schema, name) not in own]


def whole_lake_refusal(lake: OpenLake, target: Target) -> str | None:
    """Why a step that concerns the whole lake may not touch it; None where it may."""
    if target.upkeep.policy.whole_lake or not (found := foreign_tables(lake, target)):
        return None
    more = f" and {len(found) - SHOWN_TABLES} more" if len(found) > SHOWN_TABLES else ""
    named = ", ".join(found[:SHOWN_TABLES])
    return f"the lake holds tables that are not Viaduck's: {named}{more}; set upkeep.whole_lake to include them"


def _expirable(lake: OpenLake, target: Target, limits: Limits) -> ExpiryPlan:
    catalog, policy = lake.catalog, target.upkeep.policy
    head = catalog.head()
    age_s = max(policy.expire_after_s or 0.0, limits.least_age_s)
    newest = snapshot_at(catalog, head.catalog_now - timedelta(seconds=age_s))
    counted = newest_but(catalog, policy.keep_snapshots, head.snapshot)
    if newest is None or counted is None:
        return ExpiryPlan(())
    before = min(newest.id + 1, counted.id, head.snapshot)
    kept = facts.kept_stamps(catalog, on_sqlite=lake.lake.sqlite_file is not None)
    candidates = facts.oldest_before(catalog, before, policy.most_snapshots + len(kept))
    found = plan(candidates, kept, policy.most_snapshots)
    unread = facts.count_before(catalog, before) - len(candidates)
    return ExpiryPlan(found.versions, found.left + max(0, unread))


@contextlib.contextmanager
def _fenced(
    con: duckdb.DuckDBPyConnection,
    lake: OpenLake,
    target: Target,
    limits: Limits,
    cursor: Cursor,
    cursors: Sequence[str],
) -> Iterator[None]:
    """A stamped transaction that writes to these cursor tables first. It commits at the end of the block.

    Raises ``destination_busy`` where the destination's own cursor moved, and ``deadline_exceeded``.
    """
    if len(cursors) > MOST_FENCED:
        raise DestinationError(
            "lake_incompatible",
            f"the lake holds {len(cursors)} cursors, and upkeep fences {MOST_FENCED} at most in one transaction",
            "expire snapshots of this lake yourself, while its destinations are paused",
        )
    tables = tables_of(target.destination)
    lake.inspect(*tables, *((SCHEMA, name) for name in cursors), anew=True)
    began = time.monotonic()
    lake.begin(con)
    try:
        _touch_own(con, lake, target, cursor)
        own = cursor_name(target.destination.pipeline, target.destination.destination)
        _touch(con, lake, (name for name in cursors if name != own))
        yield
        at = cursor.position
        token = uuid.uuid4().hex
        fence.stamp(con, lake.alias, fence.Stamp(target.item, "maintenance", at, at, token, 0, 0))
        _require_in_time(target, limits, began)
        con.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(duckdb.Error):
            con.execute("ROLLBACK")
        raise


def _touch_own(con: duckdb.DuckDBPyConnection, lake: OpenLake, target: Target, cursor: Cursor) -> None:
    table = fence.cursor_table(lake.alias, target.destination)
    require_table(con, table)
    changed = con.execute(
        f"UPDATE {table} SET updated_at = ? WHERE generation || '/' || position = ?",
        [datetime.now(UTC), f"{cursor.generation}/{cursor.position}"],
    ).fetchall()[0][0]
    if changed != 1:
        said = f"the cursor of {target.destination.key} moved before its upkeep"
        raise DestinationError("destination_busy", said, "the next upkeep tries again")


def _touch(con: duckdb.DuckDBPyConnection, lake: OpenLake, names: Iterable[str]) -> None:
    for name in names:
        table = path(lake.alias, SCHEMA, name)
        require_table(con, table)
        con.execute(f"UPDATE {table} SET updated_at = ?", [datetime.now(UTC)]).fetchall()


def _require_in_time(target: Target, limits: Limits, began: float) -> None:
    if time.monotonic() - began > limits.deadline_s:
        raise DestinationError(
            "deadline_exceeded",
            f"upkeep of {target.destination.key} took longer than {limits.deadline_s:g} s and was rolled back (H6)",
            "lower upkeep.most_files and upkeep.most_snapshots, or raise applier.deadline_seconds",
        )


def _cut(times: Sequence[datetime], cutoff: datetime, most: int) -> datetime | None:
    """A moment up to ``cutoff`` that at most ``most`` of the ascending ``times`` precede, or else the first alone."""
    if not times:
        return None
    if len(times) <= most:
        return cutoff
    next_s = next((each for each in times if each > times[0]), cutoff)
    return min(cutoff, max(times[most], next_s))


def _cut_by_date(times: Sequence[datetime], cutoff: datetime, most: int) -> datetime | None:
    """The same for a SQLite catalog: DuckLake compares texts there, and everything of the moment's date goes."""
    day = timedelta(days=1)
    latest = cutoff - day
    if not times or times[0] > latest:
        return None
    return latest if len(times) <= most else min(latest, max(times[0], times[most] - day))


def _listed(con: duckdb.DuckDBPyConnection, call: str, values: Sequence[object]) -> list[str]:
    return [str(file) for (file,) in con.execute(call, list(values)).fetchall()]


def _require_known(listed: Iterable[str], known: set[str]) -> None:
    """Raises ``lake_incompatible`` where DuckLake would delete a file that is too young by the catalog's own times."""
    unknown = [file for file in listed if facts.name_of(file) not in known]
    if unknown:
        raise DestinationError(
            "lake_incompatible",
            f"DuckLake would delete {len(unknown)} files that were not let go long enough ago, such as"
            f" {facts.name_of(unknown[0])}",
            "upkeep deletes nothing of this lake; report this with the lake's catalog",
        )


def _require_own(listed: Iterable[str], data_path: str) -> None:
    root = data_path.rstrip("/") + "/"
    if outside := [file for file in listed if not file.startswith(root) or "/../" in file]:
        raise DestinationError(
            "foreign_files",
            f"DuckLake lists {facts.name_of(outside[0])} as an orphan, which is not below the lake's data path",
            "upkeep deletes nothing of this lake; report this with the lake's data path",
        )


def _times_of(con: duckdb.DuckDBPyConnection, files: Sequence[str]) -> Iterator[datetime]:
    for start in range(0, len(files), SIZED_AT_ONCE):
        part = list(files[start : start + SIZED_AT_ONCE])
        yield from (each for (each,) in con.execute("SELECT last_modified FROM read_blob(?)", [part]).fetchall())


def _bytes_of(con: duckdb.DuckDBPyConnection, files: Sequence[str]) -> int:
    """Sizes of those files that the store still has."""
    return sum(_size(con, list(files[start : start + SIZED_AT_ONCE])) for start in range(0, len(files), SIZED_AT_ONCE))


def _size(con: duckdb.DuckDBPyConnection, files: list[str]) -> int:
    try:
        return int(con.execute("SELECT coalesce(sum(size), 0) FROM read_blob(?)", [files]).fetchall()[0][0])
    except duckdb.Error:  # one of them is gone already
        return sum(_size(con, [file]) for file in files) if len(files) > 1 else 0
