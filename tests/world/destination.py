"""A destination as its operator knows it, and what is found wrong with one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tests.world.lake import Lake
from tests.world.rows import Row


class Promise(StrEnum):
    """What a destination holds by the nature of its pipeline."""

    SLICE = "slice"
    LATEST = "latest"
    APPEND_ONLY = "append_only"


@dataclass(frozen=True)
class Destination:
    """``value`` is the routing value as text; ``keys`` are only needed for ``LATEST``."""

    lake: Lake
    table: str
    pipeline: str
    id: str
    value: str
    schema: str = "main"
    promise: Promise = Promise.SLICE
    keys: tuple[str, ...] = ()


@dataclass(frozen=True)
class Finding:
    """Something that is not as promised, at one snapshot of the destination's lake."""

    rule: str
    destination: str
    snapshot: int | None
    detail: str
    missing: tuple[Row, ...] = ()
    extra: tuple[Row, ...] = ()

    def __str__(self) -> str:
        at = "" if self.snapshot is None else f" at snapshot {self.snapshot}"
        rows = [f"missing {row}" for row in self.missing] + [f"extra {row}" for row in self.extra]
        return f"{self.destination}{at}: {self.rule}: {self.detail}" + "".join(f"\n    {row}" for row in rows)
