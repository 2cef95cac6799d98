"""What starts, stops, kills and freezes a server: a local process, or a container on the host's network."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import psutil

from shared.runtime.process import signal_at_parents_end
from tests.servers.way import Way, way

STOP_WITHIN_S = 20.0
LOOK_EVERY_S = 0.05


class Machine(Protocol):
    """One server that can be started again after it ended, with the files it left."""

    @property
    def runs(self) -> bool: ...

    @property
    def pid(self) -> int:
        """Its process id on this machine."""
        ...

    def start(self) -> None: ...

    def stop(self) -> None:
        """Ask it to end in order, and wait."""
        ...

    def kill(self) -> None:
        """SIGKILL, as a crash would."""
        ...

    def freeze(self) -> None:
        """Connections stay open, nothing is answered any more."""
        ...

    def thaw(self) -> None: ...

    def log(self) -> str: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Local:
    """A command of this machine. ``stop_by`` is the signal of an orderly end; ``as_whom`` goes to ``Popen``."""

    command: Sequence[str]
    environ: Mapping[str, str] = field(default_factory=dict)
    stop_by: signal.Signals = signal.SIGTERM
    as_whom: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Image:
    """An image and what it is told; ``as_us`` where it writes to the mounted folder."""

    name: str
    command: Sequence[str] = ()
    environ: Mapping[str, str] = field(default_factory=dict)
    entrypoint: Sequence[str] | None = None
    stop_by: signal.Signals = signal.SIGTERM
    as_us: bool = True


def machine(folder: Path, local: Local | None, image: Image) -> Machine:
    """A server that keeps its files in ``folder``, by the way that this run takes."""
    if way() is Way.CONTAINERS:
        return Container(folder, image)
    assert local is not None, "only asked for where the way is local"
    return Process(folder, local)


class Process:
    """A local process that leads a session of its own and ends with us."""

    def __init__(self, folder: Path, local: Local) -> None:
        self._folder, self._local = folder, local
        self._log = folder / "log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                list(self._local.command),
                cwd=self._folder,
                env={"PATH": os.environ["PATH"], **self._local.environ},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=self._before_start(),
                **self._local.as_whom,
            )

    def stop(self) -> None:
        self._end(self._local.stop_by)

    def kill(self) -> None:
        """The whole tree: Postgres's backends and Spark's executors are children of what we started."""
        if self._process is None:
            return
        for process in tree(self._process.pid):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._end(signal.SIGKILL)

    def freeze(self) -> None:
        os.killpg(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.killpg(self.pid, signal.SIGCONT)

    def log(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def close(self) -> None:
        self.kill()

    def _before_start(self) -> Any:
        """The kernel ends the child when the *thread* that started it ends, so only the main thread may ask for it."""
        if threading.current_thread() is not threading.main_thread():
            return None
        number = self._local.stop_by
        return partial(signal_at_parents_end, number)

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(how)
        try:
            self._process.wait(timeout=STOP_WITHIN_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._process = None


def tree(pid: int) -> list[psutil.Process]:
    """A process and all that it started; none of an unknown one."""
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


class Container:
    """A container, started by testcontainers so that its reaper clears up after a run that died.

    It shares the host's network: a server advertises addresses (Kafka above all), and here they are true for everybody.
    """

    def __init__(self, folder: Path, image: Image) -> None:
        from testcontainers.core.container import DockerContainer

        wanted: dict[str, Any] = {"network_mode": "host", "stop_signal": image.stop_by.name}
        if image.as_us:
            wanted["user"] = f"{os.getuid()}:{os.getgid()}"
        if image.entrypoint is not None:
            wanted["entrypoint"] = list(image.entrypoint)
        container = DockerContainer(image.name, **wanted).with_volume_mapping(str(folder), str(folder), "rw")
        for name, value in image.environ.items():
            container = container.with_env(name, value)
        self._container = container.with_command(list(image.command)) if image.command else container
        self._started = False

    @property
    def runs(self) -> bool:
        return self._started and self._state()["Running"]

    @property
    def pid(self) -> int:
        return int(self._state()["Pid"])

    def start(self) -> None:
        if self._started:
            self._container.get_wrapped_container().start()
        else:
            self._container.start()
            self._started = True

    def stop(self) -> None:
        if self.runs:
            self._container.get_wrapped_container().stop(timeout=int(STOP_WITHIN_S))

    def kill(self) -> None:
        if self.runs:
            self._container.get_wrapped_container().kill()
            self._container.get_wrapped_container().wait()

    def freeze(self) -> None:
        self._container.get_wrapped_container().pause()

    def thaw(self) -> None:
        self._container.get_wrapped_container().unpause()

    def log(self) -> str:
        if not self._started:
            return ""
        said: bytes = self._container.get_wrapped_container().logs()
        return said.decode(errors="replace")

    def close(self) -> None:
        if self._started:
            self._container.stop(force=True, delete_volume=True)
            self._started = False

    def _state(self) -> Any:
        wrapped = self._container.get_wrapped_container()
        wrapped.reload()
        return wrapped.attrs["State"]


def run_to_end(folder: Path, local: Local | None, image: Image, timeout_s: float = 60.0) -> None:
    """Run a command of the same kind that ends by itself, such as a server's formatting of its storage."""
    if way() is Way.CONTAINERS:
        _run_container(folder, image)
        return
    assert local is not None, "only asked for where the way is local"
    done = subprocess.run(
        list(local.command),
        cwd=folder,
        env={"PATH": os.environ["PATH"], **local.environ},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        **local.as_whom,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{local.command[0]} ended with {done.returncode}:\n{done.stdout}{done.stderr}")


def _run_container(folder: Path, image: Image) -> None:
    from testcontainers.core.docker_client import DockerClient

    DockerClient().client.containers.run(
        image.name,
        list(image.command),
        entrypoint=list(image.entrypoint) if image.entrypoint is not None else None,
        environment=dict(image.environ),
        user=f"{os.getuid()}:{os.getgid()}" if image.as_us else None,
        volumes={str(folder): {"bind": str(folder), "mode": "rw"}},
        network_mode="host",
        remove=True,
    )


def wait_until_ready(machine: Machine, what: str, ready: Any, within_s: float) -> None:
    """Return once ``ready()`` is true. Raises ``RuntimeError`` with the server's log if it ends or takes longer."""
    deadline = time.monotonic() + within_s
    while not ready():
        if not machine.runs or time.monotonic() > deadline:
            raise RuntimeError(f"{what} did not start:\n{machine.log()[-4000:]}")
        time.sleep(LOOK_EVERY_S)
