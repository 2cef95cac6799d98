"""A standalone Spark cluster of real processes: one master, and workers that can be killed.

It needs nothing but the wheel and Java, which every installation of ours has, so there is no other way to start it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import psutil

from shared.runtime.code_archive import PACKAGES
from shared.runtime.java import java_home
from tests.servers import spark_archive
from tests.servers.machine import Local, Process, tree, wait_until_ready
from tests.servers.ports import free_ports
from tests.servers.server import Server

READY_WITHIN_S = 120.0
WORKER_MEMORY = "900m"


def short_lived() -> str:
    """Options of JVMs that live for a minute: half of the CPU of one went into compiling."""
    archived = spark_archive.environment().get(spark_archive.OPTIONS, "").split()
    return " ".join(["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *archived[:2]])


class SparkCluster(Server):
    """``environ`` is the workers' own, on top of a bare one: what a cluster's machines know of us and no more."""

    def __init__(self, workers: int = 2, environ: Mapping[str, str] | None = None) -> None:
        self._root = Path(tempfile.mkdtemp(prefix="viaduck-spark-"))
        self._port, self._page, *ports = free_ports(2 + 2 * workers)
        self._environ = {**self._bare(), "PYTHONPATH": str(self._something_old()), **(environ or {})}
        where = ("--host", "127.0.0.1", "--port", str(self._port), "--webui-port", str(self._page))
        self._master = self._process("master", "org.apache.spark.deploy.master.Master", *where)
        self._workers = [
            self._worker(number, *pair) for number, pair in enumerate(zip(ports[::2], ports[1::2], strict=True))
        ]

    def open(self) -> None:
        self._master.start()
        for worker in self._workers:
            worker.start()
        wait_until_ready(self._master, "Spark", lambda: self.alive() == len(self._workers), READY_WITHIN_S)

    @property
    def master(self) -> str:
        return f"spark://127.0.0.1:{self._port}"

    def alive(self) -> int:
        """How many workers the master counts on; none while it does not answer, or not yet with its state."""
        with contextlib.suppress(httpx.HTTPError, json.JSONDecodeError):
            return sum(worker["state"] == "ALIVE" for worker in self._state()["workers"])
        return 0

    def cores_used(self) -> int:
        """Cores that executors of an application hold."""
        return int(self._state()["coresused"])

    def connected_from(self, port: int) -> int | None:
        """The worker one of whose processes has a connection that comes from this port."""
        for number, worker in enumerate(self._workers):
            if worker.runs and any(port in _ports(process) for process in tree(worker.pid)):
                return number
        return None

    def kill_worker(self, number: int) -> None:
        """SIGKILL a worker and its executors, Python workers too."""
        self._workers[number].kill()

    def start_worker(self, number: int) -> None:
        self._workers[number].start()

    def log(self) -> str:
        return "\n".join(process.log() for process in (self._master, *self._workers))

    def close(self) -> None:
        for process in (*self._workers, self._master):
            process.close()
        shutil.rmtree(self._root, ignore_errors=True)

    def _state(self) -> Any:
        return httpx.get(f"http://127.0.0.1:{self._page}/json/", timeout=2.0).raise_for_status().json()

    def _worker(self, number: int, port: int, page: int) -> Process:
        where = ("--host", "127.0.0.1", "--port", str(port), "--webui-port", str(page))
        bounds = ("--cores", "1", "--memory", WORKER_MEMORY)
        return self._process(f"worker-{number}", "org.apache.spark.deploy.worker.Worker", *where, *bounds, self.master)

    def _process(self, name: str, *arguments: str) -> Process:
        folder = self._root / name
        folder.mkdir()
        own = {"SPARK_WORKER_DIR": str(folder / "work"), "SPARK_LOCAL_DIRS": str(folder / "local")}
        command = [str(_home() / "bin" / "spark-class"), *arguments]
        return Process(folder, Local(command, {**self._environ, **own}))

    def _something_old(self) -> Path:
        """A Viaduck that can't be used, first on the workers' path: whoever took it for ours would fail."""
        folder = self._root / "installed"
        for package in PACKAGES:
            (folder / package).mkdir(parents=True)
            (folder / package / "__init__.py").write_text('raise ImportError("a Viaduck that is installed here")\n')
        return folder

    @staticmethod
    def _bare() -> dict[str, str]:
        return {
            "HOME": tempfile.gettempdir(),
            "JAVA_HOME": str(java_home()),
            "SPARK_HOME": str(_home()),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": short_lived(),
            "SPARK_CONF_DIR": str(spark_archive.NO_CONF),
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        }


def _ports(process: psutil.Process) -> set[int]:
    try:
        return {each.laddr.port for each in process.net_connections("tcp")}
    except psutil.NoSuchProcess:
        return set()


def _home() -> Path:
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None, "pyspark is not installed"
    assert spec.submodule_search_locations, "pyspark is not a package"
    return Path(spec.submodule_search_locations[0])
