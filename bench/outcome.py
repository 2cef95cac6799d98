"""What every case of the benchmark is and comes to: figures, and checks that hold them against targets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bench.setting import Setting


VIADUCK, LIMIT = "Viaduck", "single process"

Beside = Mapping[str, Sequence[float]]
"""Seconds of each run, of ``VIADUCK`` and of the ``LIMIT``; figures hold it as ``beside``."""


class Size(StrEnum):
    QUICK = "quick"
    FULL = "full"


@dataclass(frozen=True)
class Check:
    """One target and what was found. ``strain`` is the share of the target that was used: above 1 it is missed.

    A target of nothing at all has no share; there ``strain`` is None.
    """

    what: str
    target: str
    found: str
    met: bool
    strain: float | None


@dataclass(frozen=True)
class Measured:
    """What a case found. ``figures`` are JSON: everything behind the checks, for whoever wants to know more."""

    checks: Sequence[Check]
    figures: Mapping[str, Any]


@dataclass(frozen=True)
class Case:
    """A case: how it is called, what it does in a sentence, and how it is measured.

    ``sqlite``: whether it means something on catalogs that are files as well.
    """

    name: str
    what: str
    measure: Callable[[Setting], Measured]
    sqlite: bool = False


@dataclass(frozen=True)
class Outcome:
    """A case that was measured, as it is kept in a file. ``seconds`` is what the whole of it took."""

    case: str
    what: str
    catalog: str
    size: Size
    runs: int
    checks: Sequence[Check] = ()
    figures: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def met(self) -> bool:
        return all(check.met for check in self.checks)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Outcome:
        checks = tuple(Check(**check) for check in found["checks"])
        return cls(**{**found, "checks": checks, "size": Size(found["size"])})


def at_most(what: str, found: float, limit: float, unit: str = "", digits: int = 2) -> Check:
    return Check(
        what, f"≤ {_shown(limit, unit, digits)}", _shown(found, unit, digits), found <= limit, _share(found, limit)
    )


def at_least(what: str, found: float, limit: float, unit: str = "", digits: int = 2) -> Check:
    return Check(
        what, f"≥ {_shown(limit, unit, digits)}", _shown(found, unit, digits), found >= limit, _share(limit, found)
    )


def nothing(what: str, found: float) -> Check:
    """A target of 0."""
    return Check(what, "0", f"{found:g}", found == 0, None)


def ratio(what: str, beside: Beside, target: float) -> Check:
    """Medians of Viaduck's seconds, as a share of those of the single process."""
    ours, limit = median(beside[VIADUCK]), median(beside[LIMIT])
    share = ours / limit
    found = f"{share:.2f} x ({ours:.2f} s to {limit:.2f} s)"
    return Check(what, f"≤ {target:g} x the single process", found, share <= target, _share(share, target))


def _share(part: float, whole: float) -> float | None:
    return round(part / whole, 3) if whole > 0 else None


def _shown(value: float, unit: str, digits: int) -> str:
    text = f"{value:,.{digits}f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return f"{text} {unit}".rstrip()
