"""What two entries must not share: a table of a lake, and the place where two lakes keep their files.

Nor may one lake's place lie within the other's: each takes what it finds for its own. As many destinations as like may
be in one lake. The entries of a file, those of two files, and destinations over REST are compared by this. Values in,
values out.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from shared.config import storage
from shared.contracts.messages import LakeRef

SQLITE = "sqlite:"
FILES = ".files"
"""Where the files of a lake on SQLite go that was given no place for them: beside its catalog."""

Path: TypeAlias = tuple[str, ...]
"""The store, and the parts of a path from its root on."""

ADVICE = "write a data path of its own"

ONE_TABLE_EACH = "choose another catalog, schema or table"
THE_SOURCES = f"is the source's own table; {ONE_TABLE_EACH}"


def table_names(schema: str, table: str) -> tuple[str, str]:
    """Equal for equal tables of one lake: DuckLake's names compare without regard to case."""
    return schema.lower(), table.lower()


@dataclass(frozen=True)
class PathClaim:
    """``lake``: equal for equal lakes. ``owner``: what a message calls the owner of the path."""

    owner: str
    lake: Hashable
    path: Path


def claim_of(owner: str, lake: Hashable, ref: LakeRef) -> PathClaim | None:
    """What a lake claims; None where only its catalog knows. ``ref`` is complete: absolute, properties inherited."""
    data_path = ref.data_path
    if data_path is None and (ref.catalog or "").startswith(SQLITE):
        data_path = f"{(ref.catalog or '').removeprefix(SQLITE)}{FILES}"
    return None if data_path is None else PathClaim(owner, lake, _path(data_path, ref.properties))


def _path(data_path: str, properties: Mapping[str, str]) -> Path:
    place = storage.place_of(data_path)
    if place is None:
        return "", *_parts(posixpath.normpath(data_path))
    return _store(storage.kind_of(data_path), properties), place.bucket, *_parts(place.prefix)


def _parts(path: str) -> Iterator[str]:
    return (part for part in path.split("/") if part)


def _store(kind: str | None, properties: Mapping[str, str]) -> str:
    """Which of two stores it is whose buckets may have the same name."""
    if kind == storage.AZURE:
        return f"azure:{_account(properties)}"
    if "s3_endpoint" in properties:
        return properties["s3_endpoint"].lower()
    if "s3_endpoint_env" in properties:
        return f"${properties['s3_endpoint_env']}"
    return storage.GOOGLE if kind == storage.GCS else "s3"


def _account(properties: Mapping[str, str]) -> str:
    """Of Azure, or the variable that knows; empty where a connection string was left out, being a secret."""
    found = re.search(r"(?:^|;)\s*AccountName=([^;]+)", properties.get("azure_connection_string", ""), re.IGNORECASE)
    if "azure_account" in properties or found is not None:
        return properties.get("azure_account") or (found[1] if found else "")
    return next((f"${properties[f'{name}_env']}" for name in ("azure_account", "azure_connection_string")
                 if f"{name}_env" in properties), "")  # fmt: skip


Owners: TypeAlias = dict[Hashable, dict[str, None]]
"""By lake."""


FEW = 4
"""Questions for which looking at every claim costs less than to sort them all first."""


@dataclass
class Paths:
    """What is claimed. Many questions cost as much with ten thousand lakes as with one; a few are answered unsorted."""

    _at: dict[Path, Owners] = field(default_factory=dict)
    _below: dict[Path, Owners] = field(default_factory=dict)
    _unsorted: dict[PathClaim, None] = field(default_factory=dict)
    _asked: int = 0

    def add(self, claim: PathClaim) -> None:
        self._unsorted[claim] = None

    def discard(self, claim: PathClaim) -> None:
        self._unsorted.pop(claim, None)
        for owners in self._owners(claim):
            owners.get(claim.lake, {}).pop(claim.owner, None)
            if not owners.get(claim.lake):
                owners.pop(claim.lake, None)

    def clash(self, claim: PathClaim) -> str | None:
        """What is wrong with a claim, as a text; None if no other lake overlaps."""
        self._asked += 1
        if self._asked > FEW:
            self._sort()
        return self._among_unsorted(claim) or self._among_sorted(claim)

    def _sort(self) -> None:
        for claim in self._unsorted:
            for owners in self._owners(claim):
                owners.setdefault(claim.lake, {})[claim.owner] = None
        self._unsorted.clear()

    def _among_unsorted(self, claim: PathClaim) -> str | None:
        path, length = claim.path, len(claim.path)
        for other in self._unsorted:
            shared = min(length, len(other.path))
            if other.path[:shared] == path[:shared] and other.lake != claim.lake and other.owner != claim.owner:
                return _said(length - len(other.path), other.owner)
        return None

    def _among_sorted(self, claim: PathClaim) -> str | None:
        length = len(claim.path)
        for end in range(length, 0, -1):
            if (other := _foreign(self._at.get(claim.path[:end]), claim)) is not None:
                return _said(length - end, other)
        other = _foreign(self._below.get(claim.path), claim)
        return None if other is None else _said(-1, other)

    def _owners(self, claim: PathClaim) -> Iterator[Owners]:
        """Those at its path, and those below each path that it lies within."""
        yield self._at.setdefault(claim.path, {})
        for end in range(1, len(claim.path)):
            yield self._below.setdefault(claim.path[:end], {})


def _foreign(there: Owners | None, claim: PathClaim) -> str | None:
    others = (owners for lake, owners in (there or {}).items() if lake != claim.lake)
    return next((owner for owners in others for owner in owners if owner != claim.owner), None)


def _said(deeper: int, owner: str) -> str:
    """``deeper``: by how many parts a path is longer than the other's."""
    how = "is that of" if deeper == 0 else "lies within that of" if deeper > 0 else "holds that of"
    return f"{how} {owner}, which is another lake; {ADVICE}"
