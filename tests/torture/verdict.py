"""One fault played to its end, and what the oracle says of it."""

from __future__ import annotations

import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.model.judge import judge
from tests.model.trace import dump
from tests.servers.kafka import Kafka
from tests.servers.postgres import Postgres
from tests.torture.fault import Fault
from tests.torture.rig import FaultRig, Servers
from tests.torture.witness import trace

SHOWN_FINDINGS = 10


@dataclass
class Verdict:
    """``findings`` are what is wrong: nothing, if all is well."""

    fault: str
    count: int
    seed: int
    append_only: bool
    done: Counter[str] = field(default_factory=Counter)
    snapshots: int = 0
    """Stamped snapshots of destinations that the oracle compared with the truth."""
    source_snapshots: int = 0
    looks: int = 0
    """How often what is shown was held against the truth."""
    healed_s: list[float] = field(default_factory=list)
    """Seconds from the end of a fault until everybody was at the head."""
    worst_lag_s: dict[str, float] = field(default_factory=dict)
    """The longest wait of each destination while the fault went on, where the fault looks at it."""
    seconds: float = 0.0
    findings: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return not self.findings

    def line(self) -> str:
        what = ", ".join(f"{times} {kind}" for kind, times in sorted(self.done.items()))
        healed = f"healed within {max(self.healed_s):.0f} s" if self.healed_s else "never healed"
        lag = f", behind for {max(self.worst_lag_s.values()):.0f} s at most" if self.worst_lag_s else ""
        verdict = "exact" if self.passed else "\n    ".join(["WRONG", *self.findings[:SHOWN_FINDINGS]])
        return (
            f"{self.fault:<15} {what}; {self.source_snapshots} source snapshots, {self.snapshots} destination snapshots"
            f" and {self.looks} looks checked, {healed}{lag}, {self.seconds:.0f} s: {verdict}"
        )

    def again(self) -> str:
        return again(self.fault, self.count, self.seed, append_only=self.append_only)

    def record(self) -> dict[str, Any]:
        return {
            "fault": self.fault,
            "count": self.count,
            "seed": self.seed,
            "append_only": self.append_only,
            "done": dict(self.done),
            "source_snapshots": self.source_snapshots,
            "compared_snapshots": self.snapshots,
            "looks": self.looks,
            "healed_s_max": round(max(self.healed_s, default=0.0), 1),
            "worst_lag_s": {who: round(lag_s, 1) for who, lag_s in sorted(self.worst_lag_s.items())},
            "seconds": round(self.seconds),
            "wrong": len(self.findings),
        }


def again(fault: str, count: int, seed: int, *, append_only: bool = False) -> str:
    """The command that plays a fault so on a fresh site."""
    extra = " --append-only" if append_only else ""
    return f"python -m tests.torture --fault {fault} --count {count} --seed {seed}{extra}"


def _unexplained(rig: FaultRig, scratch: Path) -> list[str]:
    """What the specification can't explain of all that was seen; the trace is kept beside the logs."""
    seen = trace(rig)
    (scratch / "trace.jsonl").write_text(dump(seen))
    refused = judge([seen], scratch)[0]
    return [] if refused is None else [f"the specification refuses event {refused} of {scratch / 'trace.jsonl'}"]


def tortured(fault: Fault, count: int, seed: int, folder: Path, *, append_only: bool = False) -> Verdict:
    """Play one fault on servers and a site of its own, let everything come to rest, and ask the oracle."""
    verdict, began = Verdict(fault.name, count, seed, append_only), time.monotonic()
    with _noted(verdict, "the site", folder), ExitStack() as standing:
        servers = standing.enter_context(_servers(fault))
        rig = FaultRig(folder, seed, servers, append_only=append_only, appliers=fault.appliers)
        standing.enter_context(rig)
        with _noted(verdict, "the play", folder):
            verdict.done = fault.play(rig, count)
            rig.wait_until_exact()
        _judge(verdict, rig, folder, fault)
    verdict.seconds = time.monotonic() - began
    return verdict


def _judge(verdict: Verdict, rig: FaultRig, folder: Path, fault: Fault) -> None:
    verdict.healed_s, verdict.worst_lag_s = rig.healed_s, rig.worst_lag_s
    with _noted(verdict, "the oracle", folder):
        verdict.source_snapshots = rig.site.source.head()
        verdict.findings += rig.findings(shown=fault.shown)
        verdict.looks = rig.observer.looks
        verdict.snapshots = rig.site.compared.total() + rig.clicks.compared
    with _noted(verdict, "the trace", folder):
        verdict.findings += _unexplained(rig, folder)


@contextmanager
def _servers(fault: Fault) -> Iterator[Servers]:
    with Kafka(faulty=True) as kafka, Postgres(durable=fault.durable) as postgres:
        yield Servers(kafka, postgres)


@contextmanager
def _noted(verdict: Verdict, what: str, folder: Path) -> Iterator[None]:
    """Whatever goes wrong is a finding, so that a run always has a verdict; where it was is told beside the logs."""
    try:
        yield
    except Exception as error:
        verdict.findings.append(f"{what}: {type(error).__name__}: {error}")
        with (folder / "errors.log").open("a") as out:
            traceback.print_exception(error, file=out)
