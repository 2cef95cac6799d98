"""A Spark session as our jobs want it: RDDs of small tasks whose Python workers keep their state.

Everything runs through the RDD API: RDD and DataFrame jobs use different worker processes, so using both would double
attached lakes, memory and backends.
"""

from __future__ import annotations

import importlib
import math
import os
import shlex
import signal
import sys
import tempfile
import threading
import warnings
from array import array
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import cast

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException

from shared.config.model import Config
from shared.contracts.errors import DependencyError
from shared.runtime.code_archive import parcel
from shared.runtime.java import java_home

ALL_CORES = "local[*]"
CPU_QUOTA = Path("/sys/fs/cgroup/cpu.max")

SETTINGS = {
    "spark.python.unix.domain.socket.enabled": "true",  # over TCP each task loses 40 ms
    "spark.python.worker.reuse": "true",
    "spark.scheduler.mode": "FAIR",  # a long seed must not hold up small changes
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}

LOCAL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "512m",
    # Small jobs on few cores: quick to warm up matters more than the last percent, and what a job leaves behind is
    # little, while a young generation of the usual third of the memory is used up before it is collected.
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xmn16m",
}


DAEMON = "spark.python.daemon.module"

LOOKS, UNUSED = "pyspark.testing.utils", ("pandas", "pyarrow")
"""The module of PySpark's that looks for packages, and those of which no job of ours hands anything to Spark."""

CALLED = ("PythonRDD", "PythonUtils", "SimplePythonFunction")
"""Classes of the JVM that PySpark asks for by these names with each job, five times in all. Each time the JVM seeks
them in every package that it has imported, which takes it a millisecond."""


def session(config: Config, app: str, pipelines: int = 1, daemon: str | None = None) -> SparkContext:
    """Start Spark, or return this process's session, for so many pipelines. Raises ``DependencyError``.

    All sessions of a process have one JVM: settings of the JVM itself are those of the first.

    ``daemon``: the module from whose process Python workers of this machine are forked, where that is not Spark's own.
    The first start takes seconds and sets the process's ``JAVA_HOME``.
    """
    _prepare_environment(config.spark.master)
    try:
        with _signals_kept(), warnings.catch_warnings():
            # It looks for pandas and dislikes the newest; none of our jobs uses any.
            warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
            _look_for_packages()
            conf = spark_conf(config, app, pipelines, daemon)
            with _submitted(conf) as told:
                context = SparkContext.getOrCreate(told)
            _seek_classes_once(context)
            if not is_local(config.spark.master):
                # Whatever is installed over there: the code that runs is the code that sent the task.
                context.addPyFile(str(parcel()))
            return context
    except PySparkException as error:
        raise _did_not_start(config.spark.master, error) from error
    except Exception as error:
        if type(error).__module__.startswith("py4j"):  # py4j's errors of a JVM that refused or is gone
            raise _did_not_start(config.spark.master, error) from error
        raise


def _look_for_packages() -> None:
    """PySpark finds out with the first value for the JVM whether it could be one of pandas', by importing that: 70 MB
    and a second of CPU. It remembers what it found, so it looks here, where none is to be found, and once."""
    if LOOKS in sys.modules:
        return
    unseen = [name for name in UNUSED if name not in sys.modules]
    try:
        sys.modules.update(dict.fromkeys(unseen, cast(ModuleType, None)))
        importlib.import_module(LOOKS)
    finally:
        for name in unseen:
            del sys.modules[name]


def _seek_classes_once(context: SparkContext) -> None:
    """What is an attribute of PySpark's view of the JVM is not asked for."""
    view = context._jvm  # nothing public leads to it
    for name in CALLED:
        setattr(view, name, getattr(view, name))


def spark_conf(config: Config, app: str, pipelines: int = 1, daemon: str | None = None) -> SparkConf:
    """Our settings, and the user's on top."""
    master = config.spark.master
    local = LOCAL | ({} if daemon is None else {DAEMON: daemon}) if is_local(master) else {}
    if master == ALL_CORES and pipelines > 1:
        master = f"local[{slots_for(pipelines, cores())}]"
    conf = SparkConf(loadDefaults=False).setMaster(master).setAppName(app)
    return conf.setAll([*SETTINGS.items(), *local.items(), *config.spark.conf.items()])


SHOWN = ("spark.master", "spark.app.name")
"""Settings that stand on the JVM's command line, where every local user reads them."""

SUBMIT_ARGS = "PYSPARK_SUBMIT_ARGS"
DEFAULT_SUBMIT_ARGS = "pyspark-shell"


def _shown(conf: SparkConf) -> SparkConf:
    return SparkConf(loadDefaults=False).setAll([(key, value) for key, value in conf.getAll() if key in SHOWN])


@contextmanager
def _submitted(conf: SparkConf) -> Iterator[SparkConf]:
    """Hands settings to a JVM that starts meanwhile in a file of ours alone: secrets may be among them.

    Yields what PySpark is to be told: what may stand on a command line, or all, where an earlier session has started
    the JVM and no file would be read.
    """
    if SparkContext._jvm is not None:  # nothing public tells
        yield conf
        return
    before = os.environ.get(SUBMIT_ARGS)
    with tempfile.TemporaryDirectory(prefix="viaduck-spark-") as folder:  # readable by its owner alone
        file = Path(folder) / "spark.properties"
        file.write_text(properties_of(conf.getAll()), encoding="latin-1")
        os.environ[SUBMIT_ARGS] = f"--properties-file {shlex.quote(str(file))} {before or DEFAULT_SUBMIT_ARGS}"
        try:
            yield _shown(conf)
        finally:
            if before is None:
                del os.environ[SUBMIT_ARGS]
            else:
                os.environ[SUBMIT_ARGS] = before


def properties_of(settings: Iterable[tuple[str, str]]) -> str:
    """Settings as a Java properties file, whatever they hold."""
    return "".join(f"{_escaped(key)}={_escaped(value)}\n" for key, value in settings)


def _escaped(text: str) -> str:
    codes = array("H", text.encode("utf-16-le"))
    return "".join(chr(code) if chr(code).isalnum() and code < 128 else f"\\u{code:04x}" for code in codes)


LANES_OF_MANY, LANES_OF_ONE = 2, 1
"""Of a pipeline's lanes in the applier: those whose jobs have several tasks, and those whose jobs have one."""


def slots_for(pipelines: int, cores: int) -> int:
    """Spark's slots that let every lane of every pipeline run: tasks that wait for a source that hangs need no core."""
    return pipelines * (LANES_OF_MANY * max(1, cores // pipelines) + LANES_OF_ONE)


def tasks_of_a_job(slots: int, pipelines: int) -> int:
    """How many tasks a job may have, so that a pipeline never holds more than its share of the slots.

    Where the slots don't suffice for that every job has one.
    """
    if pipelines == 1:
        return max(1, slots)
    return max(1, (slots // pipelines - LANES_OF_ONE) // LANES_OF_MANY)


def cores() -> int:
    """The processors that this process may use, in a container too."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = CPU_QUOTA.read_text().split()
    except (OSError, ValueError):
        return usable
    return usable if quota == "max" else max(1, min(usable, math.ceil(int(quota) / int(period))))  # as the JVM counts


def is_local(master: str) -> bool:
    return master.startswith("local")


def _prepare_environment(master: str) -> None:
    os.environ["JAVA_HOME"] = str(java_home())
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else workers take whatever python3 is on the PATH
    os.environ.setdefault("SPARK_CONF_DIR", str(Path(__file__).parent / "spark_conf"))
    if is_local(master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # a container's host name may not resolve


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Spark puts a handler of its own on SIGINT; how a service ends is the service's business."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _did_not_start(master: str, error: Exception) -> DependencyError:
    first_line = str(error).strip().splitlines()[0]
    hint = "see the lines above; spark.master and spark.conf in the file decide how Spark starts"
    return DependencyError("spark", f"{master} did not start: {first_line}", hint)
