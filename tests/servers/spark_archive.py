"""Spark's classes in the form that this machine's Java can map (AppCDS), which takes a third off the CPU of a start.

Tests start the applier more than a hundred times. The archive is made once, and kept in the Python environment whose
jars it is of.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pyspark

from shared.config.model import Config, Routing, Source
from shared.contracts.errors import DependencyError
from shared.runtime import spark
from shared.runtime.java import java_home, look
from tests.cache import locked

FOLDER = Path(sys.prefix) / "share" / "viaduck"
NO_CONF = FOLDER / "no-spark-conf"
"""An empty folder of settings: it is first on the class path that the archive is of."""

MADE_WITHIN_S = 300
OPTIONS = "SPARK_SUBMIT_OPTS"
LAUNCHER = "SPARK_LAUNCHER_OPTS"
"""Of the JVM that puts the command line of the other one together."""

LOGGING = Path(spark.__file__).parent / "spark_conf" / "log4j2.properties"


def environment() -> Mapping[str, str]:
    """For processes that start Spark. Empty where there is no Java, or one that can't archive."""
    try:
        java = look(java_home())
    except DependencyError:
        return {}
    if java is None:
        return {}
    FOLDER.mkdir(parents=True, exist_ok=True)
    archive = FOLDER / f"spark-{_identity(java.version)}.jsa"
    with locked(archive.stem):
        if not archive.exists() and not _make(archive):
            return {}
    return _mapped(f"-XX:SharedArchiveFile={archive}")


def _identity(java: object) -> str:
    """What the archive depends on: Java, and Spark's jars where they are."""
    jars = sorted((Path(pyspark.__file__).parent / "jars").glob("*.jar"))
    known = [f"{jar} {jar.stat().st_size} {jar.stat().st_mtime_ns}" for jar in jars]
    return hashlib.sha256("\n".join([str(java), *known]).encode()).hexdigest()[:16]


def _make(archive: Path) -> bool:
    unfinished = archive.with_suffix(".new")
    environ = {**os.environ, **_mapped(f"-XX:ArchiveClassesAtExit={unfinished}")}
    command = [sys.executable, "-m", __name__]
    done = subprocess.run(command, env=environ, capture_output=True, timeout=MADE_WITHIN_S, check=False)
    if done.returncode != 0 or not unfinished.exists():
        return False
    unfinished.rename(archive)
    return True


def _mapped(option: str) -> Mapping[str, str]:
    """An archive needs a class path of jars alone, so Spark is told of its log's settings in another way."""
    NO_CONF.mkdir(parents=True, exist_ok=True)
    logging = shlex.quote(f"-Dlog4j2.configurationFile={LOGGING.as_uri()}")
    return {
        "SPARK_CONF_DIR": str(NO_CONF),
        LAUNCHER: "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        OPTIONS: f"{option} -Xshare:auto {logging}",
    }


def _run_a_job() -> None:
    """What is archived: all that a session loads until its first job is done."""
    routing, source = Routing(field="tenant"), Source(table="t")
    config = Config(path=Path("viaduck.yaml"), pipeline="model", source=source, routing=routing, state_dir=Path())
    context = spark.session(config, "model")
    context.parallelize(range(4), 2).map(str).collect()
    context.stop()
    gateway = context._gateway  # nothing public ends its Java in order, which is when the archive is written
    assert gateway is not None
    java: subprocess.Popen[bytes] = gateway.proc
    assert java.stdin is not None
    java.stdin.close()
    java.wait()


if __name__ == "__main__":
    _run_a_job()
