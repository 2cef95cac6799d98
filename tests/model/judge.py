"""Holds traces of runs against ``tla/Trace.tla``.

``python -m tests.model.judge FILE …`` says of each file of events whether the specification explains it: exit code 0 if
it explains all of them, 1 if it refuses one. ``trace`` tells what a file holds.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.model.tlc import check
from tests.model.trace import CONFIG, Anything, Sent, module, parse

MODULE = "RecordedTrace"
VERDICT = re.compile(r'<<"(explained|refused)", (\d+)(?:, (\d+))?>>')


def judge(traces: Sequence[Sequence[Anything]], scratch: Path, *, within_s: float = 1800) -> list[int | None]:
    """For each trace the number, from 1, of the first event that is refused (items don't count); None if none is.

    Raises ``RuntimeError`` where TLC gives no verdict.
    """
    file = scratch / f"{MODULE}.tla"
    file.write_text(module(traces, MODULE))
    verdict = check(file, CONFIG, scratch / "tlc", within_s=within_s)
    found = {int(n): int(at) if at else None for _, n, at in VERDICT.findall(verdict.output)}
    if not verdict.holds or found.keys() != set(range(1, len(traces) + 1)):
        raise RuntimeError(f"TLC did not judge every trace:\n{verdict.output[-4000:]}")
    return [found[n] for n in range(1, len(traces) + 1)]


def main(files: Sequence[str]) -> int:
    traces = [parse(Path(file).read_text().splitlines()) for file in files]
    with tempfile.TemporaryDirectory(prefix="viaduck-trace-") as scratch:
        refused = judge(traces, Path(scratch))
    for file, events, at in zip(files, traces, refused, strict=True):
        sys.stdout.write(f"{file}: {_told(events, at)}\n")
    return 1 if any(refused) else 0


def _told(events: Sequence[Anything], at: int | None) -> str:
    seen = [event for event in events if not isinstance(event, Sent)]
    return f"{len(seen)} events explained" if at is None else f"refused at event {at}: {seen[at - 1].model_dump_json()}"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
