"""Starts commands by forking a process that has imported their code.

An interpreter's start and its imports take up to a second and a half of CPU, and most of what a service keeps in
memory. A fork takes some hundredths of a second, and shares that memory. The fork server does nothing but import and
fork: it has no thread, connection or lock that a fork would copy while it is in use.

Each process leads a session of its own, and is a child of the process that asked for it, which learns its exit code:
the fork server forks twice, and Linux gives the orphan to the nearest ancestor that adopts orphans. Elsewhere, and
where the fork server was killed, commands start as programs (``supervisor.start_program``).
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import NoReturn, Self

import setproctitle
import structlog

from services.cli.up.supervisor import Process, Spec, start_program
from shared.runtime.garbage import importing, spare_what_exists
from shared.runtime.process import adopt_orphans
from shared.runtime.signals import HEARD

log = structlog.get_logger(__name__)

COMMAND_LINE = "services.cli.main"
OURS = (sys.executable, "-m", COMMAND_LINE)
"""What a command begins with that is forked. Any other starts as a program."""

TITLE = "viaduck: fork server"
LARGEST = 1 << 20
"""Bytes of a request. Linux takes less at a time; what it does not take starts as a program."""

LOOK_EVERY_S = 0.001


class ForkedProcess:
    """A child of this process, as ``subprocess.Popen`` shows one."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None

    def poll(self) -> int | None:
        """The exit code, negative after a signal; None while it runs."""
        if self._code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self._code = os.waitstatus_to_exitcode(status) if pid else None
        return self._code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


class ForkServer:
    """``with ForkServer(modules) as server: Supervisor(specs, launch=server.launch)``, on the main thread.

    Enter it before this process has locks on files, connections, or threads that take locks: a fork copies them. What
    waits for signals or for the parent's end may run: handlers are reset, and loops forgotten (``Background``).
    """

    def __init__(self, modules: Sequence[str]) -> None:
        """``modules``: what to import in advance."""
        self._modules = modules
        self._server: socket.socket | None = None
        self._pid = 0

    def __enter__(self) -> Self:
        if sys.platform == "linux":
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # where it is ignored, exit codes are lost
            adopt_orphans()
            _end_threads_of_imports()
            self._server, asked = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self._pid = os.fork()
            if self._pid == 0:
                self._server.close()
                _serve(asked, self._modules)
            asked.close()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the fork server. What it has started goes on; calling it again does nothing."""
        if self._server is not None:
            self._server.close()
            self._server = None
            with contextlib.suppress(ChildProcessError):  # it has ended, and its exit code is collected
                if os.waitpid(self._pid, os.WNOHANG) == (0, 0):
                    os.kill(self._pid, signal.SIGKILL)
                    os.waitpid(self._pid, 0)

    def launch(self, spec: Spec, environ: Mapping[str, str], output: int) -> Process:
        """Start a process that writes to ``output`` and has ``environ`` beside this process's own."""
        pid = self._fork(spec.command, environ, output) if tuple(spec.command[:3]) == OURS else None
        return start_program(spec, environ, output) if pid is None else ForkedProcess(pid)

    def _fork(self, command: Sequence[str], environ: Mapping[str, str], output: int) -> int | None:
        if self._server is None:
            return None
        asked = json.dumps({"arguments": command[3:], "title": " ".join(command), "environ": dict(environ)})
        try:
            socket.send_fds(self._server, [asked.encode()], [output])
            answer = self._server.recv(LARGEST)
        except OSError as error:
            log.warning("fork_server_lost", reason=str(error))
        else:
            if answer:
                return int(answer)
            log.warning("fork_server_lost", reason="it has ended")
        self.close()
        return None


def _end_threads_of_imports() -> None:
    """DuckDB comes with an unused instance, whose thread a fork would not copy."""
    if "duckdb" in sys.modules:
        sys.modules["duckdb"].default_connection().close()


def _serve(asked: socket.socket, modules: Sequence[str]) -> NoReturn:
    """Fork a process for each request, until the other end is closed, and import while there is none: what is asked for
    earlier imports the rest for itself."""
    os.setsid()  # a Ctrl-C on the terminal is not for this process
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})  # in what is forked, until it has a handler
    signal.set_wakeup_fd(-1)
    for number in HEARD:
        signal.signal(number, signal.SIG_DFL)
    setproctitle.setproctitle(f"{TITLE}, importing")
    missing = [COMMAND_LINE, *modules]
    requests = select.poll()
    requests.register(asked, select.POLLIN)
    while True:
        if missing and not requests.poll(0):
            _import(missing.pop(0))
            if not missing:
                setproctitle.setproctitle(TITLE)
            continue
        message, outputs, _, _ = socket.recv_fds(asked, LARGEST, maxfds=1)
        if not message:
            os._exit(0)
        request = json.loads(message)
        (output,) = outputs
        if _is_forked(asked, request["title"]):
            _run(output, request["arguments"], request["environ"])
        os.close(output)


def _import(module: str) -> None:
    had_duckdb = "duckdb" in sys.modules
    with importing():
        importlib.import_module(module)
    if not had_duckdb:
        _end_threads_of_imports()
    spare_what_exists()


def _is_forked(asked: socket.socket, title: str) -> bool:
    """Whether this is the process that was forked. It tells its id itself, as soon as it is a child of the process that
    asked, and leads a session: so none is forked that is not known."""
    between = os.fork()
    if between > 0:
        os.waitpid(between, 0)
        return False
    parent = os.getpid()
    if os.fork() > 0:
        os._exit(0)
    while os.getppid() == parent:
        time.sleep(LOOK_EVERY_S)
    os.setsid()
    setproctitle.setproctitle(title)
    asked.send(str(os.getpid()).encode())
    asked.close()
    return True


def _run(output: int, arguments: Sequence[str], environ: Mapping[str, str]) -> NoReturn:
    """Be the command, as a program would."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, file in enumerate((nothing, output, output)):
        os.dup2(file, number)
    for file in {nothing, output} - {0, 1, 2}:
        os.close(file)
    os.environ.update(environ)
    sys.argv[1:] = arguments
    importlib.import_module(COMMAND_LINE).main()
    sys.exit()
