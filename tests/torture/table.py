"""``python -m tests.torture.table``: the table of docs/explanation/safety.md, from the verdicts in docs/safety.jsonl.

``python -m tests.torture --json docs/safety.jsonl`` adds verdicts. Several of one fault are one row: counts and
snapshots are summed, of times the longest is shown.
"""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tests.torture.faults.all import FAULTS
from tests.torture.verdict import again

DOCS = Path(__file__).parents[2] / "docs"
KEPT, PAGE = DOCS / "safety.jsonl", DOCS / "explanation/safety.md"
BEGIN, END = "<!-- made by python -m tests.torture.table -->\n", "<!-- end of what was made -->"
UNKNOWN = "–"

HEADER = (
    "| fault | what happened | snapshots of the source | compared | wrong | healed within | behind at most | minutes"
    " | date | commit |",
    "|---|---|---|---|---|---|---|---|---|---|",
)

Record = dict[str, Any]
"""What ``Verdict.record`` makes, with ``at`` and ``commit``. What nobody wrote down at the time is None, or missing."""


def made(records: Sequence[Record]) -> str:
    """Records → Markdown: a row for each fault, in the order of the matrix, and the commands that play the same."""
    groups = _by_fault(records)
    commands = "\n".join(_command(record) for group in groups for record in group if record["count"] is not None)
    return "\n".join([*HEADER, *map(_row, groups)]) + f"\n\nThe commands:\n\n```bash\n{commands}\n```\n"


def put_into(page: str, table: str) -> str:
    """The page with this table instead of the one that it has."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + table + END + after


def kept(file: Path = KEPT) -> list[Record]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def _by_fault(records: Iterable[Record]) -> list[list[Record]]:
    groups: dict[tuple[int, bool], list[Record]] = {}
    order = list(FAULTS)
    for record in records:
        groups.setdefault((order.index(record["fault"]), record["append_only"]), []).append(record)
    return [groups[key] for key in sorted(groups)]


def _row(records: Sequence[Record]) -> str:
    first = records[0]
    mode = ", append-only" if first["append_only"] else ""
    cells = (
        f"`{first['fault']}`: {FAULTS[first['fault']].what}{mode}",
        _done(records),
        sum(record["source_snapshots"] for record in records),
        _compared(records),
        f"**{sum(record['wrong'] for record in records)}**",
        f"{max(record['healed_s_max'] for record in records):.0f} s",
        _behind(records),
        _minutes(records),
        _span(sorted(str(record["at"])[:10] for record in records if record["at"])),
        _span(sorted({str(record["commit"]) for record in records if record.get("commit")}), ", "),
    )
    return "| " + " | ".join(map(str, cells)) + " |"


def _done(records: Sequence[Record]) -> str:
    """Sums of what happened, but of what says itself that it is the most."""
    total: Counter[str] = Counter()
    for record in records:
        for kind, times in record["done"].items():
            total[kind] = max(total[kind], times) if kind.endswith("the most") else total[kind] + times
    return ", ".join(f"{times} {kind}" for kind, times in sorted(total.items()))


def _compared(records: Sequence[Record]) -> str:
    """``~`` where a record of old is among them: it has the destinations' newest snapshot numbers, summed."""
    of_old = [record["destination_snapshots"] for record in records if "compared_snapshots" not in record]
    of_now = [record["compared_snapshots"] for record in records if "compared_snapshots" in record]
    return f"{'~' if of_old else ''}{sum(of_old) + sum(of_now)}"


def _behind(records: Sequence[Record]) -> str:
    lags = [lag_s for record in records for lag_s in record.get("worst_lag_s", {}).values()]
    return f"{max(lags):.0f} s" if lags else UNKNOWN


def _minutes(records: Sequence[Record]) -> str:
    seconds = [record["seconds"] for record in records]
    return UNKNOWN if None in seconds else f"{sum(seconds) / 60:.0f}"


def _span(values: Sequence[str], joint: str = " to ") -> str:
    ends = values if joint != " to " else list(dict.fromkeys([*values[:1], *values[-1:]]))
    return joint.join(ends) or UNKNOWN


def _command(record: Record) -> str:
    return again(record["fault"], record["count"], record["seed"], append_only=record["append_only"])


if __name__ == "__main__":
    PAGE.write_text(put_into(PAGE.read_text(), made(kept())))
    sys.stdout.write(f"{len(re.findall('^[|] `', PAGE.read_text(), re.MULTILINE))} faults in {PAGE}\n")
