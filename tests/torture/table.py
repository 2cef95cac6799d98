"""``python -m tests.torture.table FILE``: verdicts that a run has kept, as the table of docs/SAFETY.md."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.torture.faults.all import FAULTS

HEADER = (
    "| fault | what happened | snapshots of the source | of destinations | wrong | healed within | seed | minutes |",
    "|---|---|---|---|---|---|---|---|",
)


def table(records: list[dict[str, Any]]) -> str:
    """Records as ``Verdict.record`` makes them → Markdown."""
    return "\n".join([*HEADER, *map(_row, records)])


def _row(record: dict[str, Any]) -> str:
    done = ", ".join(f"{times} {kind}" for kind, times in sorted(record["done"].items()))
    mode = ", append-only" if record["append_only"] else ""
    cells = (
        f"`{record['fault']}`: {FAULTS[record['fault']].what}{mode}",
        done,
        record["source_snapshots"],
        record["destination_snapshots"],
        f"**{record['wrong']}**",
        f"{record['healed_s_max']:.0f} s",
        record["seed"],
        f"{record['seconds'] / 60:.0f}",
    )
    return "| " + " | ".join(map(str, cells)) + " |"


if __name__ == "__main__":
    lines = Path(sys.argv[1]).read_text().splitlines()
    sys.stdout.write(table([json.loads(line) for line in lines]) + "\n")
