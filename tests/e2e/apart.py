"""Services that run one by one, each with the rights of its own user on a broker with an authorizer."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import httpx

from shared.kafka.acls import Service
from tests.servers.kafka_security import Security

WITHIN_S = 240.0


class Apart:
    """The processes of some files, which take user and password from ``KAFKA_USER`` and ``KAFKA_PASSWORD``."""

    def __init__(self, files: Sequence[Path], port: int, environ: Mapping[str, str], security: Security) -> None:
        self._files, self._environ, self._security = files, environ, security
        self.url = f"http://127.0.0.1:{port}"
        self._processes: list[subprocess.Popen[bytes]] = []

    def environ(self, service: Service) -> dict[str, str]:
        return {**self._environ, "KAFKA_USER": service, "KAFKA_PASSWORD": self._security.password(service)}

    def start(self, service: Service) -> None:
        with self._log(service).open("ab") as log:
            self._processes.append(
                subprocess.Popen(self._command(service), env=self.environ(service), stdout=log, stderr=log)
            )

    def run(self, service: Service, command: str, *options: str) -> subprocess.CompletedProcess[str]:
        """A command to its end, with the rights of a service."""
        return subprocess.run(
            [*self._command(command), *options], capture_output=True, text=True, timeout=WITHIN_S, check=False,
            env=self.environ(service),
        )  # fmt: skip

    def _command(self, command: str) -> list[str]:
        named = [word for file in self._files for word in ("-c", str(file))]
        return [sys.executable, "-m", "services.cli.main", command, *named]

    def wait(self, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WITHIN_S
        while not done():
            assert time.monotonic() < deadline, "not done in time"
            assert all(process.poll() is None for process in self._processes), "a service ended"
            time.sleep(0.2)

    def answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/healthz").status_code == 200
        except httpx.HTTPError:
            return False

    def said(self, service: Service) -> str:
        return self._log(service).read_text()

    def end(self) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.wait(40)
        self._processes.clear()

    def _log(self, service: Service) -> Path:
        return self._files[0].with_name(f"{service}.log")
