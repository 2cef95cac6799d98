"""``python -m tests.torture [--fault NAME]... [--seed N] [--share F]``: the fault matrix, as a table and as JSON.

Each fault gets servers and a site of its own; afterwards the oracle looks at every snapshot of every destination. The
exit code is 1 if anything was wrong; the command that repeats it is printed.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from tests.torture.fault import Fault
from tests.torture.faults.all import FAULTS
from tests.torture.verdict import Verdict, tortured

BY_CLOCK = ", ".join(name for name, fault in FAULTS.items() if fault.by_clock)


def main() -> int:
    asked = _arguments()
    verdicts: list[Verdict] = []
    for name in asked.fault or FAULTS:
        fault = FAULTS[name]
        folder = Path(tempfile.mkdtemp(prefix=f"viaduck-torture-{name}-"))
        verdict = tortured(fault, _count(fault, asked), asked.seed, folder, append_only=asked.append_only)
        print(verdict.line(), flush=True)
        if not verdict.passed:
            print(f"    logs in {folder}; again: {verdict.again()}", flush=True)
        verdicts.append(verdict)
        if asked.json:
            _keep(asked.json, verdict)
    return 0 if all(verdict.passed for verdict in verdicts) else 1


def _count(fault: Fault, asked: argparse.Namespace) -> int:
    if fault.by_clock and asked.minutes is not None:
        return max(1, round(60 * float(asked.minutes)))
    return int(asked.count or max(1, round(fault.full * asked.share)))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("--fault", action="append", choices=list(FAULTS), help="only this one; may be repeated")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--share", type=float, default=1.0, help="of the counts of a full run")
    parser.add_argument("--count", type=int, help=f"instead of a share; seconds of {BY_CLOCK}")
    parser.add_argument("--minutes", type=float, help=f"how long {BY_CLOCK} is played; of no other fault")
    parser.add_argument("--append-only", action="store_true", help="a pipeline without key columns")
    parser.add_argument("--json", type=Path, help="add the verdicts to this file, one a line")
    asked = parser.parse_args()
    if asked.minutes is not None and not any(FAULTS[name].by_clock for name in asked.fault or FAULTS):
        parser.error(f"only {BY_CLOCK} is played by the clock: --minutes says nothing of {', '.join(asked.fault)}")
    return asked


def _keep(file: Path, verdict: Verdict) -> None:
    at = datetime.now(UTC).isoformat(timespec="seconds")
    told = {"at": at, "commit": _commit(), "python": platform.python_version(), **verdict.record()}
    with file.open("a") as out:
        out.write(json.dumps(told) + "\n")


def _commit() -> str | None:
    """What is played: git's short hash, and whether anything was changed since; None where there is no git."""
    head, changed = ["rev-parse", "--short", "HEAD"], ["status", "--porcelain", "--", "services", "shared", "tests"]
    try:
        return _git(head) + ("-dirty" if _git(changed) else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(asked: list[str]) -> str:
    root = Path(__file__).parents[2]
    return subprocess.run(["git", *asked], cwd=root, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    began = time.monotonic()
    code = main()
    print(f"{time.monotonic() - began:.0f} s in all", file=sys.stderr)
    sys.exit(code)
