"""``python -m tests.torture [--fault NAME]... [--seed N] [--share F]``: the fault matrix, as a table and as JSON.

Each fault gets a fresh site on shared servers; afterwards the oracle looks at every snapshot of every destination. The
exit code is 1 if anything was wrong; the command that repeats it is printed.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from tests.servers.kafka import Kafka
from tests.servers.postgres import Postgres
from tests.torture.arena import Servers
from tests.torture.faults.all import FAULTS
from tests.torture.verdict import Verdict, tortured


def main() -> int:
    asked = _arguments()
    verdicts: list[Verdict] = []
    with Kafka(faulty=True) as kafka, Postgres(durable=asked.durable) as postgres:
        for name in asked.fault or FAULTS:
            fault = FAULTS[name]
            count = asked.count or max(1, round(fault.full * asked.share))
            folder = Path(tempfile.mkdtemp(prefix=f"viaduck-torture-{name}-"))
            verdict = tortured(
                fault, count, asked.seed, Servers(kafka, postgres), folder, append_only=asked.append_only
            )
            print(verdict.line(), flush=True)
            if not verdict.passed:
                print(f"    logs in {folder}; again: {verdict.again()}", flush=True)
            verdicts.append(verdict)
            if asked.json:
                _keep(asked.json, verdict)
    return 0 if all(verdict.passed for verdict in verdicts) else 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.torture", description=__doc__)
    parser.add_argument("--fault", action="append", choices=list(FAULTS), help="only this one; may be repeated")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--share", type=float, default=1.0, help="of the counts of a full run")
    parser.add_argument("--count", type=int, help="instead of a share")
    parser.add_argument("--append-only", action="store_true", help="a pipeline without key columns")
    parser.add_argument("--durable", action="store_true", help="Postgres with fsync")
    parser.add_argument("--json", type=Path, help="add the verdicts to this file, one a line")
    return parser.parse_args()


def _keep(file: Path, verdict: Verdict) -> None:
    at = datetime.now(UTC).isoformat(timespec="seconds")
    with file.open("a") as out:
        out.write(json.dumps({"at": at, "python": platform.python_version(), **verdict.record()}) + "\n")


if __name__ == "__main__":
    began = time.monotonic()
    code = main()
    print(f"{time.monotonic() - began:.0f} s in all", file=sys.stderr)
    sys.exit(code)
