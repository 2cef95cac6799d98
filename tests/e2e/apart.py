"""Services that run one by one, each with the rights of its own user on a broker with an authorizer."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import httpx

from shared.kafka.acls import Service
from tests.servers.kafka_security import Security

WITHIN_S = 240.0


class Apart:
    """The processes of one file, which takes user and password from ``KAFKA_USER`` and ``KAFKA_PASSWORD``."""

    def __init__(self, file: Path, port: int, environ: Mapping[str, str], security: Security) -> None:
        self._file, self._environ, self._security = file, environ, security
        self.url = f"http://127.0.0.1:{port}"
        self._processes: list[subprocess.Popen[bytes]] = []

    def environ(self, service: Service) -> dict[str, str]:
        return {**self._environ, "KAFKA_USER": service, "KAFKA_PASSWORD": self._security.password(service)}

    def start(self, service: Service) -> None:
        command = [sys.executable, "-m", "services.cli.main", service, "-c", str(self._file)]
        with self._log(service).open("ab") as log:
            self._processes.append(subprocess.Popen(command, env=self.environ(service), stdout=log, stderr=log))

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
        return self._file.with_name(f"{service}.log")
