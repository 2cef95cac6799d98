from __future__ import annotations

from pathlib import Path

from shared.config.model import Config, Routing, Source, Spark
from shared.spark import spark_conf


def settings(**spark: object) -> dict[str, str]:
    config = Config(
        path=Path("/etc/viaduck.yaml"),
        pipeline="events",
        source=Source(table="events"),
        routing=Routing(field="company"),
        spark=Spark.model_validate(spark),
        state_dir=Path("/var/viaduck"),
    )
    return dict(spark_conf(config, "test").getAll())


def test_a_local_session_listens_on_loopback_only_and_keeps_its_workers() -> None:
    found = settings()
    assert found["spark.master"] == "local[*]"
    assert found["spark.driver.host"] == found["spark.driver.bindAddress"] == "127.0.0.1"
    assert found["spark.python.worker.reuse"] == found["spark.python.unix.domain.socket.enabled"] == "true"
    assert found["spark.ui.enabled"] == "false"


def test_a_cluster_is_not_told_that_its_driver_is_on_loopback() -> None:
    assert "spark.driver.host" not in settings(master="spark://master:7077")


def test_what_the_file_says_wins() -> None:
    found = settings(conf={"spark.driver.memory": "3g", "spark.app.tag": "x"})
    assert (found["spark.driver.memory"], found["spark.app.tag"]) == ("3g", "x")
