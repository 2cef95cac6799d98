"""A profile accounts for the time of a task, and reads Spark's log as Spark's own page does."""

from __future__ import annotations

import json
from pathlib import Path

from bench.cycle import Cycles
from bench.lakes import SqliteLakes
from bench.phases import BY_EXTENSION, REST, PhaseClock
from bench.profile import cycled, seeded
from bench.spark_times import JobTimes, job_times
from bench.stand import standing
from bench.workload import Workload, tenant_names
from services.applier.worker import worker_state

TINY = Workload("tiny", tenants=4, seeded=400, commits=2, inserts=60, updates=30, deletes=10, touched_tenants=3)
LEAST, MOST = 0.7, 1.001
"""What part of a task's time its phases explain; they must not explain more than there is."""


def test_phases_sum_to_about_the_whole(tmp_path: Path) -> None:
    try:
        with standing(SqliteLakes(tmp_path), tenant_names(TINY)[: TINY.touched_tenants]) as stand:
            cycles = Cycles(stand, TINY)
            (cycle,) = [cycled(cycles) for _ in seeded(cycles, 1)]
            assert stand.require_equal() == TINY.touched_tenants
    finally:
        worker_state.forget()
    named = {phase: ms for phase, ms in cycle.phases.items() if phase != REST}
    assert LEAST * cycle.whole <= sum(named.values()) <= MOST * cycle.whole
    assert named.pop("attach") == named.pop(BY_EXTENSION) == 0, "every lake is known, and committed to directly"
    assert all(ms > 0 for ms in named.values()), named


def test_time_inside_another_phase_counts_once() -> None:
    now = [0.0]
    clock = PhaseClock(lambda: now[0])

    def spend(seconds: float) -> None:
        now[0] += seconds

    insert = clock.timed(spend, "destinations: data file")

    def transaction() -> None:
        spend(1.0)
        insert(2.0)
        insert(4.0)

    clock.timed(transaction, "destinations: connection, keys")()
    assert clock.seconds["destinations: data file"] == 6.0
    assert clock.seconds["destinations: connection, keys"] == 1.0


def test_what_is_left_of_the_task_that_ended_last_is_scheduler_delay(tmp_path: Path) -> None:
    said = [
        {"Event": "SparkListenerJobStart", "Job ID": 0, "Submission Time": 100, "Stage IDs": [0]},
        _task(launched=105, finished=120, deserialize=1, run=10, serialize=1),
        _task(launched=105, finished=150, deserialize=2, run=30, serialize=3),
        {"Event": "SparkListenerStageCompleted",
         "Stage Info": {"Stage ID": 0, "Submission Time": 102, "Completion Time": 151}},
        {"Event": "SparkListenerJobEnd", "Job ID": 0, "Completion Time": 155},
    ]  # fmt: skip
    (tmp_path / "log").write_text("\n".join(map(json.dumps, said)))
    assert job_times(tmp_path) == [
        JobTimes(
            job=55, stage=49, task=45, scheduler_delay=10, deserialize=2, run=30, result_serialize=3, getting_result=0
        )
    ]


def _task(*, launched: int, finished: int, deserialize: int, run: int, serialize: int) -> dict[str, object]:
    return {
        "Event": "SparkListenerTaskEnd", "Stage ID": 0,
        "Task Info": {"Launch Time": launched, "Finish Time": finished, "Getting Result Time": 0},
        "Task Metrics": {"Executor Deserialize Time": deserialize, "Executor Run Time": run,
                         "Result Serialization Time": serialize},
    }  # fmt: skip
