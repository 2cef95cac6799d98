"""What ``viaduck up --once`` waits for: each pipeline's destinations at the head that its source had."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from viaduck_client import ClientError

from services.cli.runtime.client import Control
from services.cli.up.outcome import ExitVerdict, ProgressSummary, reasons
from shared.config.model import Config
from shared.config.partition import assigned

DONE, BEHIND, BAD_CONFIGURATION, UNREACHABLE = 0, 1, 2, 3
SEVERITY = (DONE, BEHIND, UNREACHABLE, BAD_CONFIGURATION)
"""Exit codes by severity: with several pipelines, the command returns the most severe one."""


class Goal:
    """One pipeline. ``code`` is the exit code once it is decided; ``why`` is told beside it."""

    def __init__(self, config: Config, head: int, code: int | None = None, why: Sequence[str] = ()) -> None:
        self.code = code
        self.tally: ProgressSummary | None = None
        self._config = config
        self._head = head
        self._why = list(why)
        self._verdict = ExitVerdict()

    def look(self, control: Control, since: datetime, now: float) -> None:
        """Ask how far it is, unless it is there or has failed for good. ``now``: monotonic seconds."""
        if self.code in (DONE, UNREACHABLE, BAD_CONFIGURATION):
            return
        found, tally = ask(control, self._config, self._head, since)
        if found.get("refused"):
            self.code, self._why = BAD_CONFIGURATION, list(found["refused"])
        elif tally is not None:
            self.tally, self.code = tally, self._verdict.code(tally, now)

    def said(self, *, named: bool) -> list[str]:
        """The outcome in words; ``named``: with the pipeline's name."""
        where = f"{self._config.pipeline}: " if named else ""
        if self._why or self.tally is None:
            return [f"{where}{line}" for line in self._why]
        wanted, behind = self.tally.wanted, self.tally.behind
        if self.code == DONE:
            return [f"{where}{len(wanted)} destinations are exact at snapshot {self.tally.head} or later"]
        return [f"{where}{len(behind)} of {len(wanted)} destinations:", *reasons(behind)]

    def missing(self, *, named: bool) -> list[str]:
        """Who is not there, where time is over."""
        if self.code == DONE:
            return []
        if self._why or self.tally is None:
            where = f"{self._config.pipeline}: " if named else ""
            return [f"{where}{line}" for line in self._why or ["control never answered"]]
        return reasons(self.tally.behind)


def worst(codes: Sequence[int | None]) -> int | None:
    """None while one of them is not decided."""
    decided = [code for code in codes if code is not None]
    return max(decided, key=SEVERITY.index) if len(decided) == len(codes) else None


def ask(
    control: Control, config: Config, head: int, since: datetime
) -> tuple[Mapping[str, Any], ProgressSummary | None]:
    """A pipeline, and how far the destinations of this instance's share are; nothing while control does not answer."""
    partition = config.instance.partition
    try:
        found = control.pipeline(config.pipeline)
        ours = [status for status in control.destinations(config.pipeline) if assigned(partition, status["id"])]
    except ClientError:  # it is starting, or being started again
        return {}, None
    declared = frozenset(d.id for d in config.destinations if assigned(partition, d.id))
    return found, ProgressSummary(
        head, found["source_snapshot"], found["settled"], _is_fresh(found, since), ours, declared
    )


def _is_fresh(pipeline: Mapping[str, Any], since: datetime) -> bool:
    looked_at = (pipeline["frontier"] or {}).get("at")
    return looked_at is not None and datetime.fromisoformat(looked_at) >= since
