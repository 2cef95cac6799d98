"""Upkeep of a destination's lake as services speak of it: what is to be done, by which policy, and what came of it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

from shared.contracts.errors import Problem

Count = Annotated[int, Field(ge=0, le=2**62)]
Text = Annotated[str, Field(max_length=2_000)]

OFF: Final = "off"
UNITS: Final = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0, "w": 604_800.0}
DURATION: Final = r"[0-9]{1,5}(?:\.[0-9]{1,6})?[smhdw]"
HOURS: Final = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]-(?:[01][0-9]|2[0-3]):[0-5][0-9]"


class UpkeepStep(StrEnum):
    """In the order in which they are done."""

    COMPACT = "compact"
    """Merge small files, and write dead rows out of large ones."""
    EXPIRE = "expire"
    """Forget old snapshots of the lake."""
    CLEAN = "clean"
    """Delete files that compaction and expiry let go."""
    ORPHANS = "orphans"
    """Delete files below the lake's data path that its catalog never names."""


UPKEEP_DAMAGED: Final = "upkeep_damaged"
"""The type of the error where upkeep's own proof finds other rows than before."""

LAKE_WIDE: Final = (UpkeepStep.EXPIRE, UpkeepStep.CLEAN, UpkeepStep.ORPHANS)
"""Steps that concern all tables of a lake."""


class UpkeepOrder(BaseModel):
    """Steps that were asked for. None means every step that the policy does not switch off."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    steps: tuple[UpkeepStep, ...] | None = Field(default=None, max_length=len(UpkeepStep))
    dry_run: bool = False


class UpkeepOverride(BaseModel):
    """The keys of ``upkeep`` that a destination has for itself; those that it leaves out are its pipeline's."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    compact_files: int | None = Field(default=None, ge=2)
    compact_dead_share: float | None = Field(default=None, gt=0, le=1)
    compact_after_applies: int | None = Field(default=None, ge=0)
    clean_after: str | None = None
    expire_after: str | None = None
    keep_snapshots: int | None = Field(default=None, ge=1)
    orphans_after: str | None = None
    whole_lake: bool | None = None
    most_files: int | None = Field(default=None, ge=1)
    most_snapshots: int | None = Field(default=None, ge=1)


class Damage(BaseModel):
    """That a snapshot of a destination shows other rows since an upkeep. While that stands, the destination is parked
    and no upkeep of its pipeline begins: it would do the same to the next lake."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    at: datetime
    """When it was found, by the applier's clock: a later answer means another one."""
    problem: Problem
    lifted: bool = False
    """An operator has looked at it, and resumed the destination."""


@dataclass(frozen=True, slots=True)
class Compaction:
    """When a destination's table is compacted by itself: at so many files, at such a share of deleted rows among all
    rows that a reader reads, and at the latest after so many applies, of which 0 means never."""

    files: int = 100
    dead_share: float = 0.5
    applies: int = 1_000

    def overridden(self, own: UpkeepOverride | None) -> Compaction:
        """With the keys that a destination has for itself."""
        if own is None:
            return self
        files, share, applies = own.compact_files, own.compact_dead_share, own.compact_after_applies
        return Compaction(
            self.files if files is None else files,
            self.dead_share if share is None else share,
            self.applies if applies is None else applies,
        )


class TableWear(BaseModel):
    """What a commit leaves of a destination's table that a compaction would replace.

    ``files``: small ones, where there are several, and those that have lost many rows. ``dead_rows``: of the latter.
    ``rows``: live ones in files.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    files: Count
    rows: Count
    dead_rows: Count


class StepOutcome(StrEnum):
    DONE = "done"
    OFF = "off"
    """The policy switches the step off."""
    REFUSED = "refused"
    """It would do harm, or the policy does not allow it here; ``reason`` says why."""
    FAILED = "failed"
    """The lake or its store refused; the next run tries again."""


class UpkeepFigures(BaseModel):
    """A table's live files, its lake's snapshots, and the files that wait for clean-up. ``bytes``: of live files."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    files: Count
    bytes: Count
    delete_files: Count
    snapshots: Count
    waiting_files: Count


class StepResult(BaseModel):
    """What one step came to. In a dry run: what it would have done."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    step: UpkeepStep
    outcome: StepOutcome
    seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    files_removed: Count = 0
    bytes_freed: Count = 0
    """As far as the store told the sizes of the removed files."""
    snapshots_expired: Count = 0
    left: Count = 0
    """Files or snapshots that the next run takes, since a limit was reached."""
    reason: Text | None = None


class UpkeepResult(BaseModel):
    """What an upkeep came to. ``before`` and ``after`` are None where the catalog could not be read."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    dry_run: bool = False
    before: UpkeepFigures | None = None
    after: UpkeepFigures | None = None
    steps: tuple[StepResult, ...] = Field(default=(), max_length=len(UpkeepStep))

    @property
    def failed(self) -> tuple[StepResult, ...]:
        return tuple(each for each in self.steps if each.outcome is StepOutcome.FAILED)


def seconds_of(text: str) -> float | None:
    """A duration such as ``30d`` in seconds; None for ``off``. Raises ``ValueError`` for what is neither."""
    return None if text == OFF else duration_s(text, ", or off")


def duration_s(text: str, otherwise: str = "") -> float:
    """A duration such as ``7d``, ``36h`` or ``0.5d`` in seconds. Raises ``ValueError`` with what to write instead."""
    if re.fullmatch(DURATION, text) is None:
        raise ValueError(f"{text!r} is no duration; write a number and s, m, h, d or w, such as 7d{otherwise}")
    return float(text[:-1]) * UNITS[text[-1]]


def hours_of(text: str) -> tuple[int, int] | None:
    """A span such as ``22:00-05:00`` as minutes since midnight, UTC; None for every hour. Raises ``ValueError``."""
    if not text:
        return None
    if re.fullmatch(HOURS, text) is None:
        raise ValueError(f"{text!r} is no span of hours; write it like 22:00-05:00, in UTC")
    start, end = (60 * int(each[:2]) + int(each[3:]) for each in text.split("-"))
    if start == end:
        raise ValueError(f"{text!r} begins when it ends; leave hours out for every hour")
    return start, end
