"""Apache Kafka's jars from a Maven repository: fetched once into a cache, and then never again."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from shared.contracts.errors import DependencyError
from shared.runtime.java import java_home, look
from tests.cache import cache, locked

VERSION = "4.3.1"
HERE = Path(__file__).parent / "kafka_jars"
FETCHED_WITHIN_S = 600
SMALL = ("-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def jars() -> Path:
    """The folder of jars. Skips the test where they are not there and can't be fetched."""
    folder = cache() / f"kafka-{VERSION}"
    with locked("jars"):
        if not folder.is_dir():
            _fetch(folder)
    return folder


def _fetch(folder: Path) -> None:
    if shutil.which("mvn") is None:
        pytest.skip(
            "real Kafka needs Maven (`apt-get install maven`), which fetches its jars once,"
            " or a Docker engine, which brings it as an image; neither is here"
        )
    unfinished = folder.with_suffix(".new")
    shutil.rmtree(unfinished, ignore_errors=True)
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={unfinished}"]
    command = ["mvn", "-B", "-q", "-Dstyle.color=never", "-f", str(HERE / "pom.xml"), *goal]
    done = subprocess.run(command, capture_output=True, text=True, timeout=FETCHED_WITHIN_S, check=False)
    if done.returncode != 0:
        shutil.rmtree(unfinished, ignore_errors=True)
        pytest.skip(f"Maven could not fetch Kafka {VERSION}; give it a repository it can reach:\n{done.stdout[-1000:]}")
    unfinished.rename(folder)


def java_command(*jvm: str) -> list[str]:
    """Java with Kafka on its class path; the main class and its arguments follow."""
    try:
        java = java_home() / "bin" / "java"
    except DependencyError as error:
        pytest.skip(f"real Kafka needs Java: {error.message}; {error.hint}")
    log = f"-Dlog4j2.configurationFile=file:{HERE / 'log4j2.properties'}"
    classpath = ":".join(map(str, sorted(jars().glob("*.jar"))))  # in one order always, or no archive fits
    return [str(java), *SMALL, *jvm, log, "-cp", classpath]


def archive() -> Path:
    """Where the classes of a broker are kept in the form that this very Java can map (AppCDS); it may not exist yet."""
    java = look(java_home())
    return cache() / f"kafka-{VERSION}-java-{java.version if java else 0}.jsa"
