from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from shared.config.model import Config, Routing, Source, Spark
from shared.runtime.spark import LANES_OF_MANY, LANES_OF_ONE, cores, slots_for, spark_conf, tasks_of_a_job


def config(**spark: object) -> Config:
    return Config(
        path=Path("/etc/viaduck.yaml"),
        pipeline="events",
        source=Source(table="events"),
        routing=Routing(field="company"),
        spark=Spark.model_validate(spark),
        state_dir=Path("/var/viaduck"),
    )


def settings(**spark: object) -> dict[str, str]:
    return dict(spark_conf(config(**spark), "test").getAll())


def test_a_local_session_listens_on_loopback_only_and_keeps_its_workers() -> None:
    found = settings()
    assert found["spark.master"] == "local[*]"
    assert found["spark.driver.host"] == found["spark.driver.bindAddress"] == "127.0.0.1"
    assert found["spark.python.worker.reuse"] == found["spark.python.unix.domain.socket.enabled"] == "true"
    assert found["spark.ui.enabled"] == "false"


def test_a_cluster_is_not_told_that_its_driver_is_on_loopback() -> None:
    assert "spark.driver.host" not in settings(master="spark://master:7077")


def test_workers_of_this_machine_alone_are_forked_from_a_daemon_of_ours() -> None:
    for master, known in (("local[2]", True), ("spark://master:7077", False)):
        found = dict(spark_conf(config(master=master), "test", daemon="some.module").getAll())
        assert (found.get("spark.python.daemon.module") == "some.module") is known


def test_what_the_file_says_wins() -> None:
    found = settings(conf={"spark.driver.memory": "3g", "spark.app.tag": "x"})
    assert (found["spark.driver.memory"], found["spark.app.tag"]) == ("3g", "x")


@pytest.mark.parametrize("count", [1, 2, 8, 64])
@pytest.mark.parametrize("pipelines", [2, 3, 10])
def test_lanes_that_all_hang_leave_every_other_pipeline_its_slots(count: int, pipelines: int) -> None:
    slots = slots_for(pipelines, count)
    tasks = tasks_of_a_job(slots, pipelines)
    held_by_one = LANES_OF_MANY * tasks + LANES_OF_ONE
    assert tasks >= 1
    assert pipelines * held_by_one <= slots


def test_a_pipeline_alone_has_all_slots_and_no_more_than_there_are_cores() -> None:
    assert tasks_of_a_job(8, 1) == 8
    assert settings()["spark.master"] == "local[*]"


def test_several_pipelines_get_slots_for_each_unless_the_file_says_how_many() -> None:
    several = dict(spark_conf(config(), "test", pipelines=3).getAll())
    assert several["spark.master"] == f"local[{slots_for(3, cores())}]"
    said = dict(spark_conf(config(master="local[4]"), "test", pipelines=3).getAll())
    assert said["spark.master"] == "local[4]"


def test_a_cluster_with_few_slots_still_runs_jobs() -> None:
    assert tasks_of_a_job(2, 5) == 1


SECRET = "s3cret: = \\ # 'quoted' \"twice\" ü \U0001f986 end"

SESSION = """
import sys
from pathlib import Path
from tests.fast.shared.runtime.test_spark import SECRET, config
from shared.runtime.spark import session
context = session(config(conf={"spark.viaduck.test": SECRET, "spark.driver.memory": "600m"}), "test")
lines = [file.read_bytes() for file in Path("/proc").glob("[0-9]*/cmdline") if file.exists()]
seen = any(SECRET[:6].encode() in line for line in lines)
heap = any(b"-Xmx600m" in line for line in lines)
print("found", seen, heap, context.getConf().get("spark.viaduck.test") == SECRET)
context.stop()
"""

TWICE = """
from tests.fast.shared.runtime.test_spark import SECRET, config
from shared.runtime.spark import session
for number in range(2):
    context = session(config(conf={"spark.viaduck.test": f"{SECRET}{number}"}), "test", daemon="pyspark.daemon")
    found = context.getConf()
    own = ("spark.ui.enabled", "spark.driver.bindAddress", "spark.driver.host", "spark.python.daemon.module")
    print("found", *map(found.get, own), found.get("spark.viaduck.test") == f"{SECRET}{number}", context.uiWebUrl)
    context.stop()
"""

JOB = """
from py4j.java_gateway import GatewayClient
from py4j.protocol import REFL_GET_UNKNOWN_SUB_COMMAND_NAME, REFLECTION_COMMAND_NAME
from tests.fast.shared.runtime.test_spark import config
from shared.runtime.spark import session
context, sought = session(config(), "test"), []
send = GatewayClient.send_command
def sent(client, command, *arguments, **named):
    if command.startswith(REFLECTION_COMMAND_NAME + REFL_GET_UNKNOWN_SUB_COMMAND_NAME):
        sought.append(command.split()[2])
    return send(client, command, *arguments, **named)
GatewayClient.send_command = sent
print("found", context.parallelize(range(4), 2).mapPartitions(list).collect(), sought)
context.stop()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="command lines of other processes are read from /proc of Linux")
def test_no_setting_of_spark_stands_on_a_command_line_and_all_arrive_to_the_letter() -> None:
    done = subprocess.run([sys.executable, "-c", SESSION], capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines()[-1:] == ["found False True True"], done.stderr


def test_a_session_after_another_has_all_settings_too() -> None:
    done = subprocess.run([sys.executable, "-c", TWICE], capture_output=True, text=True, timeout=120)
    lines = [line for line in done.stdout.splitlines() if line.startswith("found")]
    assert lines == ["found false 127.0.0.1 127.0.0.1 pyspark.daemon True None"] * 2, done.stderr


def test_a_job_asks_the_jvm_for_no_class_by_its_bare_name() -> None:
    done = subprocess.run([sys.executable, "-c", JOB], capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines()[-1:] == ["found [0, 1, 2, 3] []"], done.stderr
