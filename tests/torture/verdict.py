"""One fault played to its end, and what the oracle says of it."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.model.judge import judge
from tests.model.trace import dump
from tests.torture.arena import Arena, Servers
from tests.torture.fault import Fault
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
    """Snapshots of destinations that were compared with the truth."""
    source_snapshots: int = 0
    healed_s: list[float] = field(default_factory=list)
    """Seconds from the end of a fault until everybody was at the head."""
    seconds: float = 0.0
    findings: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return not self.findings

    def line(self) -> str:
        what = ", ".join(f"{times} {kind}" for kind, times in sorted(self.done.items()))
        healed = f"healed within {max(self.healed_s):.0f} s" if self.healed_s else "never healed"
        verdict = "exact" if self.passed else "\n    ".join(["WRONG", *self.findings[:SHOWN_FINDINGS]])
        return (
            f"{self.fault:<15} {what}; {self.source_snapshots} source snapshots, {self.snapshots} destination snapshots"
            f" checked, {healed}, {self.seconds:.0f} s: {verdict}"
        )

    def again(self) -> str:
        extra = " --append-only" if self.append_only else ""
        return f"python -m tests.torture --fault {self.fault} --count {self.count} --seed {self.seed}{extra}"

    def record(self) -> dict[str, Any]:
        return {
            "fault": self.fault,
            "count": self.count,
            "seed": self.seed,
            "append_only": self.append_only,
            "done": dict(self.done),
            "source_snapshots": self.source_snapshots,
            "destination_snapshots": self.snapshots,
            "healed_s_max": round(max(self.healed_s, default=0.0), 1),
            "seconds": round(self.seconds),
            "wrong": len(self.findings),
        }


def _unexplained(arena: Arena, scratch: Path) -> list[str]:
    """What the specification can't explain of all that was seen; the trace is kept beside the logs."""
    try:
        seen = trace(arena)
        (scratch / "trace.jsonl").write_text(dump(seen))
        refused = judge([seen], scratch)[0]
    except (TimeoutError, RuntimeError) as error:
        return [f"the trace was not judged: {error}"]
    return [] if refused is None else [f"the specification refuses event {refused} of {scratch / 'trace.jsonl'}"]


def tortured(
    fault: Fault, count: int, seed: int, servers: Servers, folder: Path, *, append_only: bool = False
) -> Verdict:
    """Play one fault on a fresh site, let everything come to rest, and ask the oracle."""
    verdict, began = Verdict(fault.name, count, seed, append_only), time.monotonic()
    with Arena(folder, seed, servers, append_only=append_only, appliers=fault.appliers) as arena:
        try:
            verdict.done = fault.play(arena, count)
            arena.wait_until_exact()
        except (TimeoutError, AssertionError) as error:
            verdict.findings.append(str(error))
        verdict.healed_s = arena.healed_s
        verdict.findings += arena.findings(may_lose_files=fault.may_lose_files)
        verdict.findings += _unexplained(arena, folder)
        verdict.source_snapshots = arena.site.source.head()
        verdict.snapshots = sum(arena.site.head_of(each) for each in arena.site.destinations)
    verdict.seconds = time.monotonic() - began
    return verdict
