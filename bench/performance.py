"""``python -m bench.performance``: tables and plots of docs/explanation/performance.md, from the newest results.

Full runs count before quick ones. What stands outside the two marks on the page is written by hand and stays.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from bench.cases import CASES
from bench.outcome import VIADUCK, Outcome, Size
from bench.report import verdict
from bench.results import RESULTS, Kept, kept
from bench.svg import BAD, GOOD, OTHER, Bar, bar_chart

DOCS = Path(__file__).resolve().parents[1] / "docs"
BEGIN, END = "<!-- from here to the next mark: python -m bench.performance -->", "<!-- bench.performance ends -->"
TARGETS, BESIDE = "targets.svg", "beside.svg"
FARTHEST = 2.0
"""Times its target, in a plot; what is further off is cut."""

NOTHING_YET = "Nothing was measured yet."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--docs", type=Path, default=DOCS)
    asked = parser.parse_args()
    for file in regenerate(list(kept(asked.results)), asked.docs):
        print(f"written: {file}")


def regenerate(results: Sequence[Kept], docs: Path) -> list[Path]:
    """Write the page's own part and its plots; returns the files."""
    newest, page = newest_of_each(results), docs / "explanation" / "performance.md"
    outcomes = [each.outcome for each in newest]
    plots = {TARGETS: targets_plot(outcomes), BESIDE: beside_plot(outcomes)} if newest else {}
    for name, svg in plots.items():
        (docs / "images" / name).write_text(svg)
    page.write_text(replaced(page.read_text(), section(newest)))
    return [page, *(docs / "images" / name for name in plots)]


def newest_of_each(results: Iterable[Kept]) -> list[Kept]:
    """One result for each case and kind of catalog, in the cases' order; others last. ``results`` are oldest first."""
    chosen: dict[tuple[str, str], Kept] = {}
    for each in results:
        key = each.outcome.case, each.outcome.catalog
        before = chosen.get(key)
        if before is None or each.outcome.size is Size.FULL or before.outcome.size is Size.QUICK:
            chosen[key] = each
    order = {name: number for number, name in enumerate(CASES)}
    return sorted(
        chosen.values(),
        key=lambda each: (order.get(each.outcome.case, len(order)), each.outcome.case, each.outcome.catalog),
    )


def replaced(page: str, made: str) -> str:
    """The page with another text between its marks. Raises ``ValueError`` where they are not there."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page needs the marks {BEGIN} and {END}, in this order")
    return f"{before}{BEGIN}\n\n{made}\n\n{END}{after}"


def section(results: Sequence[Kept]) -> str:
    if not results:
        return NOTHING_YET
    outcomes = [each.outcome for each in results]
    checks = [check for outcome in outcomes for check in outcome.checks]
    missed = sum(not check.met for check in checks)
    return "\n\n".join(
        (
            f"{len(checks)} targets, {len(checks) - missed} met, {missed} missed.",
            _targets_table(outcomes),
            "How much of each target is used; what reaches beyond the line is missed:",
            f"![Each figure as a share of its target](../images/{TARGETS})",
            "Viaduck beside the single process, medians in seconds:",
            f"![Seconds of Viaduck and of the single process, by case](../images/{BESIDE})",
            "\n".join(_machines(results)),
            _runs_table(results),
        )
    )


def _targets_table(outcomes: Iterable[Outcome]) -> str:
    rows = [
        (_named(outcome), check.what, check.target, check.found, verdict(check.met) if check.met else "**missed**")
        for outcome in outcomes
        for check in outcome.checks
    ]
    return _table(("case", "what", "target", "found", ""), rows)


def _runs_table(results: Iterable[Kept]) -> str:
    rows = [
        (
            _named(each.outcome), _what(each.outcome), str(each.outcome.size), str(each.outcome.runs),
            str(each.outcome.figures.get("compared", "–")), f"`{each.file.name}`",
        )
        for each in results
    ]  # fmt: skip
    return _table(("case", "what", "size", "runs", "destinations compared", "result"), rows)


def _machines(results: Sequence[Kept]) -> Iterable[str]:
    """Which cases were measured on which machine; most often there is one."""
    by_machine: dict[str, list[str]] = {}
    for each in results:
        by_machine.setdefault(_machine(each.machine), []).append(_named(each.outcome))
    everything = len(by_machine) == 1
    for described, cases in by_machine.items():
        yield f"* {'All' if everything else ', '.join(cases)}: {described}."


def _machine(found: Mapping[str, Any]) -> str:
    versions = {"Python": "python", "Java": "java", "DuckDB": "duckdb", "PySpark": "pyspark",
                "confluent-kafka": "confluent-kafka"}  # fmt: skip
    named = [f"{name} {found[key]}" for name, key in versions.items() if found.get(key)]
    return ", ".join([f"{found['cpus']} cores, {found['memory_gb']:.0f} GB", str(found["system"]), *named])


def targets_plot(outcomes: Iterable[Outcome]) -> str:
    bars = [
        Bar(f"{_named(outcome)}: {check.what}", check.strain, f"{check.strain:.2f}", GOOD if check.met else BAD)
        for outcome in outcomes
        for check in outcome.checks
        if check.strain is not None
    ]
    return bar_chart("Found, as a share of the target", bars, most=FARTHEST, line=(1.0, "target"))


def beside_plot(outcomes: Iterable[Outcome]) -> str:
    bars: list[Bar] = []
    for outcome in outcomes:
        for who, seconds in outcome.figures.get("beside", {}).items():
            middle, colour = median(seconds), GOOD if who == VIADUCK else OTHER
            bars.append(Bar(f"{_named(outcome)}: {who}", middle, f"{middle:.2f} s", colour))
    longest = max((bar.value for bar in bars), default=1.0)
    return bar_chart("Seconds to the last destination's commit", bars, most=longest)


def _named(outcome: Outcome) -> str:
    return outcome.case if outcome.catalog == "postgres" else f"{outcome.case}, {outcome.catalog}"


def _what(outcome: Outcome) -> str:
    """As the case says it now: quick sizes may have changed since, and it tells them, too."""
    return CASES[outcome.case].what if outcome.case in CASES else outcome.what


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines)


if __name__ == "__main__":
    main()
