"""The daemon of the Python workers that compare for ``viaduck verify``."""

from __future__ import annotations

from typing import Any

from shared.runtime import spark_daemon


def preload() -> Any:
    """Returns PySpark's module of a daemon."""
    return spark_daemon.preload("services.cli.verify.comparison")


if __name__ == "__main__":
    preload().manager()
