"""What one task adds to the report of its worker."""

from __future__ import annotations

from dataclasses import dataclass

from services.applier.model.task import WorkerReport


@dataclass
class Tally:
    """What one task adds to the report."""

    rows_read: int = 0
    read_seconds: float = 0.0
    routing_mutations: int = 0
    conflicts_resolved: int = 0

    def report(self, pid: int, open_lakes: int, evictions: int) -> WorkerReport:
        return WorkerReport(pid, open_lakes, evictions, **vars(self))
