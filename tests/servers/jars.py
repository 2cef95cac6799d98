"""Apache Kafka's jars from a Maven repository: fetched once into a cache, and then never again."""

from __future__ import annotations

from pathlib import Path

from shared.runtime.java import java_home, look
from tests.cache import cache
from tests.servers.maven import fetched, java_for

VERSION = "4.3.1"
HERE = Path(__file__).parent / "kafka_jars"
SMALL = ("-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


def jars() -> Path:
    """The folder of jars. Skips the test where they are not there and can't be fetched."""
    goal = ("-f", str(HERE / "pom.xml"), "dependency:copy-dependencies", "-DincludeScope=runtime")
    return fetched("real Kafka", f"kafka-{VERSION}", goal)


def java_command(*jvm: str) -> list[str]:
    """Java with Kafka on its class path; the main class and its arguments follow."""
    java = java_for("real Kafka")
    log = f"-Dlog4j2.configurationFile=file:{HERE / 'log4j2.properties'}"
    classpath = ":".join(map(str, sorted(jars().glob("*.jar"))))  # in one order always, or no archive fits
    return [java, *SMALL, *jvm, log, "-cp", classpath]


def archive() -> Path:
    """Where the classes of a broker are kept in the form that this very Java can map (AppCDS); it may not exist yet."""
    java = look(java_home())
    return cache() / f"kafka-{VERSION}-java-{java.version if java else 0}.jsa"
