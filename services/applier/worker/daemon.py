"""The daemon of an applier's Python workers, which has all that their tasks need."""

from __future__ import annotations

from typing import Any

from shared.runtime import spark_daemon


def preload() -> Any:
    """Returns PySpark's module of a daemon."""
    return spark_daemon.preload("services.applier.worker.spark_calls", "services.applier.worker.spark_task")


if __name__ == "__main__":
    preload().manager()
