"""What a lake's snapshots say of themselves."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import Any

import duckdb

from tests.world.lake import Lake, metadata

AUTHOR = "viaduck"
KINDS = ("seed", "changes", "advance", "provision", "maintenance", "drop")
PATHS = ("direct", "extension")
UPKEEP_MARKS = ("inline_flush", "merge_adjacent", "rewrite_delete", "deleted_from_table")
"""What compaction leaves in ``changes_made``; a flush of deletes says ``deleted_from_table`` too."""

TEXTS = ("pipeline", "destination", "kind", "item", "token")
NUMBERS = ("viaduck", "generation", "after", "through", "deleted", "inserted")


@dataclass(frozen=True)
class Stamp:
    pipeline: str
    destination: str
    kind: str
    generation: int
    after: int
    through: int
    item: str
    token: str
    deleted: int
    inserted: int
    snapshot: int
    path: str
    """By which the commit came; a stamp that does not say so is the extension's."""
    looked: int | None
    """Of the direct path, where it is told: the newest snapshot of the lake when the applier looked."""
    through_at: Mapping[int, int] | None = field(default=None, hash=False)
    """Of a topic: the next offset by partition, of which ``through`` is the sum."""
    rejected: int = 0
    """Records of a topic of which no row was made."""
    skipped: Mapping[int, tuple[int, int]] = field(default_factory=dict, hash=False)
    """Of a topic: the offsets that were gone before they were read, by partition: the first, and behind the last."""
    rewound: bool = False
    """Of a topic's seed: it keeps the rows of the records before ``through_at``."""

    @property
    def range(self) -> str:
        return f"({self.after}, {self.through}]"


@dataclass(frozen=True)
class Commit:
    """One snapshot of a lake as its catalog tells it."""

    snapshot: int
    changes: str
    author: str | None
    message: str | None
    extra: str | None

    @property
    def is_ours(self) -> bool:
        return self.author == AUTHOR

    @property
    def changes_columns(self) -> bool:
        """Whether it made, changed or dropped a table, be it any."""
        return "_table:" in re.sub("(inserted_into|deleted_from)_table:", "", self.changes)

    def names(self, tables: Set[int]) -> bool:
        """Whether it did anything to one of these tables."""
        return any(int(found) in tables for found in re.findall(r":(\d+)", self.changes))

    @property
    def is_upkeep(self) -> bool:
        """Whether it moved rows between files, stamped or not."""
        return '"kind": "maintenance"' in (self.extra or "") or (bool(self.changes) and self.is_bare_upkeep)

    @property
    def is_bare_upkeep(self) -> bool:
        """An unstamped compaction: it rewrote files and nothing else, but for a comment that was there already.

        A delete alone, or a change of the table alone, is somebody's own.
        """
        marks = {part.split(":")[0] for part in self.changes.split(",") if part}
        return marks <= {*UPKEEP_MARKS, "altered_table"} and not marks <= {"deleted_from_table", "altered_table"}


class BadStamp(ValueError):
    """A stamp that is not what the interface promises; says why."""


def commits_of(con: duckdb.DuckDBPyConnection, alias: str, lake: Lake) -> list[Commit]:
    """Every retained snapshot, oldest first."""
    changes = metadata(con, alias, "ducklake_snapshot_changes", lake)
    snapshots = metadata(con, alias, "ducklake_snapshot", lake)
    rows = con.execute(
        f"SELECT s.snapshot_id, coalesce(c.changes_made, ''), c.author, c.commit_message, c.commit_extra_info"
        f" FROM {snapshots} s LEFT JOIN {changes} c ON c.snapshot_id = s.snapshot_id ORDER BY s.snapshot_id"
    ).fetchall()
    return [Commit(*row) for row in rows]


def parse(commit: Commit) -> Stamp:
    """Raises ``BadStamp``."""
    if not commit.message:
        raise BadStamp("no message that a person can read")
    given = _object(commit.extra)
    for key in TEXTS:
        if not isinstance(given.get(key), str) or not given[key]:
            raise BadStamp(f"{key} is {given.get(key)!r}, not a text")
    for key in NUMBERS:
        if type(given.get(key)) is not int:
            raise BadStamp(f"{key} is {given.get(key)!r}, not a number")
    if given["kind"] not in KINDS or given["viaduck"] != 1:
        raise BadStamp(f"kind {given['kind']!r} of version {given['viaduck']!r} is unknown")
    told = {key: given[key] for key in (*TEXTS, *NUMBERS) if key != "viaduck"}
    return Stamp(**told, snapshot=commit.snapshot, **_path(given), **_of_topic(given))


def _path(given: dict[str, Any]) -> dict[str, Any]:
    path, looked = given.get("commit", "extension"), given.get("looked")
    if path not in PATHS or (looked is not None and (path != "direct" or type(looked) is not int)):
        raise BadStamp(f"commit is {path!r} and looked is {looked!r}")
    return {"path": path, "looked": looked}


def _of_topic(given: dict[str, Any]) -> dict[str, Any]:
    """What only a topic's stamps say: both of it, or nothing."""
    if "through_at" not in given and "rejected" not in given:
        return {}
    rejected = given.get("rejected")
    if type(rejected) is not int or rejected < 0:
        raise BadStamp(f"rejected is {rejected!r}, not a number")
    return {
        "through_at": offsets(given.get("through_at"), given["through"]), "rejected": rejected,
        "skipped": _skipped(given.get("skipped", {})), "rewound": given.get("rewound") is True,
    }  # fmt: skip


def _skipped(given: Any) -> dict[int, tuple[int, int]]:
    """Raises ``BadStamp``."""
    try:
        found = {int(partition): (int(first), int(behind)) for partition, (first, behind) in dict(given).items()}
    except (TypeError, ValueError):
        raise BadStamp(f"skipped is {given!r}, not offsets by partition") from None
    if not all(0 <= first < behind for first, behind in found.values()):
        raise BadStamp(f"skipped is {given!r}, which names no record")
    return found


def offsets(spelled: Any, total: int) -> dict[int, int]:
    """Next offsets by partition as Viaduck spells them: one vector has one spelling. Raises ``BadStamp``."""
    try:
        found = {int(partition): offset for partition, offset in json.loads(spelled).items()}
    except (TypeError, ValueError, AttributeError):
        raise BadStamp(f"{spelled!r} is no vector of offsets") from None
    canonical = "{" + ",".join(f'"{partition}":{found[partition]}' for partition in sorted(found)) + "}"
    if spelled != canonical or any(type(each) is not int or each < 1 for each in found.values()):
        raise BadStamp(f"{spelled!r} is not spelled as a vector is")
    if sum(found.values()) != total:
        raise BadStamp(f"{spelled!r} has {sum(found.values())} records before it, not {total}")
    return found


def _object(extra: str | None) -> dict[str, Any]:
    try:
        given = json.loads(extra or "null")
    except ValueError as error:
        raise BadStamp(f"no JSON: {error}") from None
    if not isinstance(given, dict):
        raise BadStamp(f"{extra!r} is no JSON object")
    return given
