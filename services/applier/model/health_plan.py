"""Which catalogs an applier asks how their lakes fare, and in which order. Values only."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from zlib import crc32

from shared.config.catalogs import ResolvedLake

NEVER = float("-inf")

SOURCE = "@source"
"""Stands for the source where a destination's id would be; no id begins like this."""

Database = tuple[str, bool]
"""What a connection leads to: a catalog in normal form, and whether the ambient settings of this process apply."""

LakeKey = tuple[Database, str]
"""A lake: its database, and the schema of DuckLake's own tables in it."""


@dataclass(frozen=True)
class TableWanted:
    """A table whose figures are wanted: a destination's, or without ``destination`` the source's."""

    pipeline: str
    destination: str | None
    generation: int | None
    schema: str
    table: str

    @property
    def key(self) -> str:
        return f"{self.pipeline}/{self.destination or SOURCE}"


@dataclass(frozen=True)
class LakeWanted:
    """One lake, and what is wanted of it."""

    lake: ResolvedLake
    tables: tuple[TableWanted, ...]

    @property
    def database(self) -> Database:
        return self.lake.catalog, self.lake.untrusted

    @property
    def key(self) -> LakeKey:
        return self.database, self.lake.schema


def is_ours(key: str, assigned: frozenset[int], partitions: int) -> bool:
    """Whether this member of the pipeline's group looks at ``key``: each partition has one member, and each key one
    partition. It may differ from the partition of the key's work items."""
    return crc32(key.encode()) % partitions in assigned


def by_lake(found: Iterable[tuple[TableWanted, ResolvedLake]]) -> list[LakeWanted]:
    """Every lake once, with all tables that are wanted of it."""
    lakes: dict[LakeKey, LakeWanted] = {}
    for table, lake in found:
        each = LakeWanted(lake, (table,))
        known = lakes.get(each.key)
        lakes[each.key] = each if known is None else replace(known, tables=(*known.tables, table))
    return list(lakes.values())


def in_order(lakes: Collection[LakeWanted], asked_at: Mapping[LakeKey, float]) -> list[LakeWanted]:
    """Lakes of one database next to each other. What was not asked for longest comes first, so that a sweep which ran
    out of time goes on with the others the next time."""
    at = {each.key: asked_at.get(each.key, NEVER) for each in lakes}
    first: dict[Database, float] = {}
    for each in lakes:
        first[each.database] = min(at[each.key], first.get(each.database, float("inf")))
    return sorted(lakes, key=lambda each: (first[each.database], each.database, at[each.key], each.lake.schema))
