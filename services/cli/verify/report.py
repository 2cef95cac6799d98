"""The output of ``viaduck verify``: a table with the differences, or one JSON object per destination for scripts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from services.cli.output.sanitize import legible
from services.cli.verify.comparison import ComparisonResult, Verdict
from services.cli.verify.differences import Difference, Differences, Row
from services.cli.verify.past_proof import PastProof
from shared.contracts.messages import Problem

FULL_TABLE = 40
"""Up to that many destinations are all listed; of more only those that are not equal."""

STYLES = {
    ComparisonResult.EQUAL: "green",
    ComparisonResult.DIFFERENT: "red",
    ComparisonResult.FAILED: "red",
    ComparisonResult.NOT_SEEDED: "yellow",
}


@dataclass(frozen=True)
class Report:
    """All verdicts of one run, and why some destinations are parked."""

    pipeline: str
    verdicts: Sequence[Verdict]
    parked: Mapping[str, Problem]
    seconds: float

    @property
    def all_equal(self) -> bool:
        """Whether every destination is equal and none is parked."""
        return not self.bad

    @property
    def bad(self) -> list[Verdict]:
        return [v for v in self.verdicts if v.finding is not ComparisonResult.EQUAL or v.destination in self.parked]

    def print(self, console: Console) -> None:
        listed = self.verdicts if len(self.verdicts) <= FULL_TABLE else self.bad
        if listed:
            console.print(self._table(listed))
        for verdict in self.bad:
            for line in explain(verdict, self.parked.get(verdict.destination)):
                console.print(legible(line), highlight=False, soft_wrap=True, markup=False)
        for verdict in self.verdicts:
            if verdict.note and verdict not in self.bad:
                console.print(
                    legible(f"{verdict.destination}: {verdict.note}"), highlight=False, soft_wrap=True, markup=False
                )
        console.print(self.summary(), style="red" if self.bad else "green", highlight=False, soft_wrap=True)

    def summary(self) -> str:
        count, equal = len(self.verdicts), len(self.verdicts) - len(self.bad)
        rows = sum(verdict.rows or 0 for verdict in self.verdicts)
        unseen = sum(verdict.finding is ComparisonResult.FAILED for verdict in self.verdicts)
        but = f", {unseen} could not be compared" if unseen else ""
        proven = f"{equal} of {count} destinations of {self.pipeline} proven equal"
        return f"{proven}{but}{self._past()}, {rows:,} rows in {self.seconds:.1f} s"

    def _past(self) -> str:
        """Of the retained snapshots, where they were asked for."""
        proofs = [verdict.past for verdict in self.verdicts if verdict.past is not None]
        if not proofs:
            return ""
        proven, unproven = sum(each.proven for each in proofs), sum(each.unproven for each in proofs)
        different = sum(each.different for each in proofs)
        wrong = f", {different:,} different" if different else ""
        return f", {proven:,} retained snapshots proven, {unproven:,} not to be proven any more{wrong}"

    def to_json(self) -> Iterator[str]:
        """One line per destination."""
        for verdict in self.verdicts:
            yield json.dumps(_as_dict(self.pipeline, verdict, self.parked.get(verdict.destination)))

    def _table(self, listed: Sequence[Verdict]) -> Table:
        table = Table(box=SIMPLE_HEAD)
        table.add_column("destination", overflow="fold")
        for column in ("rows", "position", "proven at"):
            table.add_column(column, justify="right", no_wrap=True)
        table.add_column("result")
        for verdict in listed:
            numbers = (verdict.rows, verdict.position, verdict.proven_at)
            table.add_row(verdict.destination, *map(_number, numbers), self._result(verdict))
        return table

    def _result(self, verdict: Verdict) -> Text:
        parked = verdict.destination in self.parked
        parts = [
            verdict.finding.value.replace("_", " "),
            *_counts(verdict.differences),
            *(["parked"] if parked else []),
        ]
        return Text(", ".join(parts), style="red" if parked else STYLES[verdict.finding])


def _counts(differences: Differences) -> Iterator[str]:
    for what in ("missing", "extra", "changed"):
        count = getattr(differences, what)
        if count:
            yield f"{count:,} {what}"


def explain(verdict: Verdict, parked: Problem | None) -> Iterator[str]:
    """Lines that say why a destination is not proven equal."""
    for label, problem in (("parked", parked), (verdict.finding.value.replace("_", " "), verdict.problem)):
        if problem is not None:
            yield f"{verdict.destination}: {label}: {problem.message}"
            yield f"  hint: {problem.hint}"
    for difference in verdict.differences.shown:
        yield f"{verdict.destination}: {_in_words(difference)}"
    for stamped, said in () if verdict.past is None else verdict.past.shown:
        yield f"{verdict.destination}: snapshot {stamped.snapshot}, position {stamped.position}: {said}"
    if verdict.note:
        yield f"{verdict.destination}: {verdict.note}"


def _in_words(difference: Difference) -> str:
    if difference.kind == "changed":
        expected, found = _values(difference.expected), _values(difference.found)
        return f"row {_values(difference.key)} has {found} instead of {expected}"
    row = difference.expected if difference.kind == "missing" else difference.found
    return f"{difference.kind} row {_values(difference.key or row)}"


def _values(row: Row | None) -> str:
    return ", ".join(f"{name} = {'NULL' if value is None else value}" for name, value in (row or {}).items())


def _as_dict(pipeline: str, verdict: Verdict, parked: Problem | None) -> dict[str, object]:
    differences = verdict.differences
    return {
        "pipeline": pipeline,
        "destination": verdict.destination,
        "result": verdict.finding.value,
        "parked": parked is not None,
        "position": verdict.position,
        "proven_at": verdict.proven_at,
        "rows": verdict.rows,
        "missing": differences.missing,
        "extra": differences.extra,
        "changed": differences.changed,
        "differences": [{"kind": difference.kind, **asdict(difference)} for difference in differences.shown],
        "snapshots": _past_as_dict(verdict.past),
        "note": verdict.note or None,
        "error": _error(verdict.problem or parked),
        "seconds": verdict.seconds,
    }


def _past_as_dict(past: PastProof | None) -> dict[str, object] | None:
    if past is None:
        return None
    shown = [{**asdict(stamped), "message": said} for stamped, said in past.shown]
    counts = {"proven": past.proven, "unproven": past.unproven, "different": past.different}
    return {**counts, "differences": shown, "note": past.note or None}


def _error(problem: Problem | None) -> dict[str, object] | None:
    return None if problem is None else problem.model_dump()


def _number(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"
