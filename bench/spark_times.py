"""What Spark's event log says of jobs, in milliseconds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SETTINGS = {"spark.eventLog.enabled": "true", "spark.eventLog.rolling.enabled": "false",
            "spark.eventLog.compress": "false"}  # fmt: skip
"""And ``spark.eventLog.dir``, which must exist."""


@dataclass(frozen=True)
class JobTimes:
    """One job of one stage; what is said of a task is said of the one that ended last.

    ``scheduler_delay`` is what Spark's own page calls so: what is left of the task's time without the other parts.
    """

    job: float
    stage: float
    task: float
    scheduler_delay: float
    deserialize: float
    run: float
    result_serialize: float
    getting_result: float


def settings(folder: Path) -> dict[str, str]:
    return {**SETTINGS, "spark.eventLog.dir": folder.as_uri()}


def job_times(folder: Path) -> list[JobTimes]:
    """Every job of the only log in the folder, in the order in which they began. Read it after Spark has stopped."""
    (log,) = folder.iterdir()
    events = [json.loads(line) for line in log.read_text().splitlines()]
    ended = {event["Job ID"]: event["Completion Time"] for event in _of("JobEnd", events)}
    stages = {event["Stage Info"]["Stage ID"]: event["Stage Info"] for event in _of("StageCompleted", events)}
    last: dict[int, Mapping[str, Any]] = {}
    for event in _of("TaskEnd", events):
        before = last.get(event["Stage ID"])
        if before is None or before["Task Info"]["Finish Time"] <= event["Task Info"]["Finish Time"]:
            last[event["Stage ID"]] = event
    found = []
    for event in sorted(_of("JobStart", events), key=lambda event: int(event["Job ID"])):
        (stage,) = event["Stage IDs"]
        lasted = ended[event["Job ID"]] - event["Submission Time"]
        found.append(_times(lasted, stages[stage], last[stage]))
    return found


def _of(kind: str, events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event for event in events if event["Event"] == f"SparkListener{kind}"]


def _times(job: float, stage: Mapping[str, Any], task: Mapping[str, Any]) -> JobTimes:
    info, metrics = task["Task Info"], task["Task Metrics"]
    whole, fetched = info["Finish Time"] - info["Launch Time"], info["Getting Result Time"]
    parts = (
        metrics["Executor Deserialize Time"], metrics["Executor Run Time"], metrics["Result Serialization Time"],
        info["Finish Time"] - fetched if fetched else 0,
    )  # fmt: skip
    lasted = stage["Completion Time"] - stage["Submission Time"]
    return JobTimes(job, lasted, whole, whole - sum(parts), *parts)
