"""The services as processes of their own, each started again when it dies, on a broker that somebody else keeps."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import psutil
from viaduck_client import ClientError

from services.cli.runtime.client import Control
from shared.runtime.own_address import OWN_PORT, PEERS
from shared.runtime.process import SUPERVISED
from tests import prepared
from tests.fast.asking import HTTP
from tests.prepared import Prepared
from tests.servers.ports import free_port
from tests.torture.site import PIPELINE

LOOK_EVERY_S = 0.1
ASK_EVERY_S = 0.3
END_WITHIN_S = 30.0
READY_WITHIN_S = 180.0


class Member:
    """One service. While it is ``held`` nobody starts it again."""

    def __init__(
        self, name: str, arguments: Sequence[str], environ: Mapping[str, str], log: Path, port: int,
        imported: tuple[str, ...],
    ) -> None:  # fmt: skip
        """``imported``: by the process from which it is forked (``tests.prepared``)."""
        self.name, self.starts, self.held = name, 0, False
        self.port = port
        self._arguments, self._environ, self._log = arguments, dict(environ), log
        self._imported = imported
        self._process: Prepared | None = None

    @property
    def pid(self) -> int | None:
        alive = self._process is not None and self._process.poll() is None
        return self._process.pid if alive and self._process is not None else None

    def is_ready(self) -> bool:
        """As it says itself, on its own port."""
        try:
            return HTTP.get(f"http://127.0.0.1:{self.port}/readyz").status_code == 200
        except httpx.HTTPError:
            return False

    def is_alive(self) -> bool:
        """As it says itself: it answers, be it that something it needs does not."""
        try:
            return HTTP.get(f"http://127.0.0.1:{self.port}/healthz").status_code == 200
        except httpx.HTTPError:
            return False

    def problems(self) -> list[str]:
        """What its ``/readyz`` complains of; empty where it does not answer."""
        try:
            checks = HTTP.get(f"http://127.0.0.1:{self.port}/readyz").json()["checks"]
        except httpx.HTTPError:
            return []
        return [f"{name}: {wrong}" for name, wrong in checks.items() if wrong]

    def tell(self, variable: str, value: str | None) -> None:
        """What it finds in its environment the next time that it is started; None: nothing."""
        self._environ.pop(variable, None)
        if value is not None:
            self._environ[variable] = value

    def start(self) -> None:
        self._process = prepared.start(self._arguments, self._environ, self._log, self._log, self._imported, leads=True)
        self.starts += 1

    def family(self) -> list[psutil.Process]:
        """It and everything that it started."""
        if self.pid is None:
            return []
        try:
            root = psutil.Process(self.pid)
            return [root, *root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def send(self, number: signal.Signals) -> bool:
        """To the whole family at once; whether there was one."""
        family = self.family()
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)
        return bool(family)

    def ask(self, number: signal.Signals) -> None:
        """To the service alone."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def wait(self, timeout_s: float) -> int | None:
        if self._process is None:
            return None
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None


class Fleet:
    """``with Fleet(files, folder, …) as fleet``: control, a reader, and as many appliers as there should be."""

    def __init__(
        self, files: Sequence[Path], folder: Path, port: int, environ: Mapping[str, str], *, appliers: int = 2,
        imported: tuple[str, ...] = prepared.UP,
    ) -> None:  # fmt: skip
        self._named = [word for file in files for word in ("-c", str(file))]
        self._folder = folder
        self._environ = {**os.environ, **environ, SUPERVISED: "1"}
        self._imported = imported
        self._control_port, self._reader_port = port, free_port()
        self.members: dict[str, Member] = {}
        self._add("reader", self._reader_port)
        for number in range(1, appliers + 1):
            self._add(f"applier-{number}", free_port())
        self._add("control", None)
        self._control = Control(f"http://127.0.0.1:{port}", timeout_s=5.0)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._supervise, name="fleet", daemon=True)

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Ask everybody to end, wake whoever is frozen, and kill what is left."""
        self._hold_all()
        for member in self.members.values():
            member.send(signal.SIGCONT)
            member.ask(signal.SIGTERM)
        deadline = time.monotonic() + END_WITHIN_S
        for member in self.members.values():
            member.wait(max(0.0, deadline - time.monotonic()))
            member.send(signal.SIGKILL)
        self._ended.set()
        self._thread.join()
        self._control.close()

    @property
    def appliers(self) -> list[Member]:
        return [member for name, member in self.members.items() if name.startswith("applier")]

    def applier_of(self, pid: int) -> Member | None:
        return next((member for member in self.appliers if member.pid == pid), None)

    def add_applier(self) -> Member:
        taken = {member.name for member in self.appliers}
        name = next(name for number in range(1, 100) if (name := f"applier-{number}") not in taken)
        return self._add(name, free_port())

    def add_reader(self) -> Member:
        """A second one that plans the same destinations, as after a deployment that went wrong."""
        return self._add("reader-2", free_port())

    def dismiss(self, member: Member) -> None:
        """Ask a service to end, as a deployment that scales down would."""
        member.held = True
        member.ask(signal.SIGTERM)

    def forget_ended(self) -> None:
        for member in [each for each in self.appliers if each.held and each.pid is None]:
            del self.members[member.name]

    def tell(self, variable: str, value: str | None) -> None:
        """Let every service find this in its environment, or not, the next time that it is started."""
        for member in self.members.values():
            member.tell(variable, value)

    def starts(self) -> dict[str, int]:
        """How often each service was started so far."""
        return {name: member.starts for name, member in self.members.items()}

    def are_ready(self) -> bool:
        """Whether each service says so itself, but for those that nobody starts again."""
        return all(member.is_ready() for member in self.members.values() if not member.held)

    def complaints(self) -> str:
        """What the services that are not ready say of themselves."""
        waited_for = [member for member in self.members.values() if not member.held and not member.is_ready()]
        return "; ".join(f"{each.name}: {each.problems() or 'does not answer'}" for each in waited_for) or "all are now"

    def who_waits(self, head: int) -> str:
        """Each destination that is not known to be exact at ``head``: where it stands, and why, as its status says."""
        late = [status for status in self.destinations() if (status["known_through"] or 0) < head]
        told = ("id", "state", "generation", "position", "known_through", "source_snapshot", "error")
        return "; ".join(str({name: status[name] for name in told}) for status in late) or "all are there now"

    def destinations(self) -> list[dict[str, Any]]:
        """The status of each destination; empty while control does not answer."""
        try:
            return self._control.destinations(PIPELINE)
        except ClientError:
            return []

    def wait_until(self, what: str, done: Callable[[], bool], timeout_s: float) -> float:
        """Seconds that it took. Raises ``TimeoutError``."""
        began = time.monotonic()
        while not done():
            if time.monotonic() - began > timeout_s:
                raise TimeoutError(f"{what}: took longer than {timeout_s:.0f} s; see {self._folder}")
            time.sleep(ASK_EVERY_S)
        return time.monotonic() - began

    def log(self, name: str) -> str:
        return (self._folder / f"{name}.log").read_text(errors="replace")

    def _add(self, name: str, port: int | None) -> Member:
        service = name.partition("-")[0]
        told = {OWN_PORT: str(port)} if port is not None else {PEERS: f"reader=http://127.0.0.1:{self._reader_port}"}
        listens = self._control_port if port is None else port
        environ = {**self._environ, **told}
        log = self._folder / f"{name}.log"
        self.members[name] = Member(name, [service, *self._named], environ, log, listens, self._imported)
        return self.members[name]

    def _hold_all(self) -> None:
        for member in self.members.values():
            member.held = True

    def _supervise(self) -> None:
        while not self._ended.wait(LOOK_EVERY_S):
            for member in list(self.members.values()):
                if member.pid is None and not member.held:
                    member.start()
