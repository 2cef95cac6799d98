"""What became of one target → what the driver is told."""

from __future__ import annotations

from services.applier.apply.destination.change import Applied
from services.applier.apply.source.reading import ChangeCounts, Reading
from services.applier.apply.source.row_counts import matched_rows
from services.applier.model.immediate_answers import answer
from services.applier.model.task import Target, TargetResult
from shared.contracts.messages import Outcome


def result_of(
    target: Target, applied: Applied, counts: ChangeCounts, reading: Reading | None, seconds: float | None, applier: str
) -> TargetResult:
    """``counts`` are those of what was committed, ``seconds`` what it took; None where nothing was tried."""
    wrote = applied.outcome is Outcome.APPLIED
    phases = dict(reading.seconds) if reading is not None else {}
    if seconds is not None:
        phases["apply"] = seconds
    records = reading.records if reading is not None and wrote else None
    progress = answer(target.item, applied.outcome, applier).model_copy(
        update={
            "generation": applied.generation or target.item.generation,
            "position": applied.position,
            "position_at": applied.position_at or None,
            "through": applied.through,
            "through_at": applied.through_at or None,
            "deleted": applied.deleted,
            "upserted": counts.upserts,
            "inserted": applied.inserted,
            "rows_applied": applied.rows_applied,
            "layout": applied.layout,
            "left": applied.left,
            "commit": applied.commit,
            "commit_reason": applied.reason,
            "record_bytes": None if records is None else records.record_bytes,
            "wear": applied.wear,
            "skipped": applied.skipped,
            "upkeep": applied.upkeep if target.item.upkeep is not None else None,
            "seconds": {phase: round(spent, 6) for phase, spent in phases.items()},
        }
    )
    matched = matched_rows(counts, applied.deleted)
    gone = max(0, counts.touched - counts.upserts)
    return TargetResult(progress, matched, gone, seconds if wrote else None, applied.upkeep, records)
