"""A real schema registry: Apicurio's, which keeps its schemas in memory and speaks Confluent's REST interface, too.

``with RealRegistry() as registry: registry.register("clicks-value", schema)``. Its archive comes from a Maven
repository, once; where containers run, it comes as an image.
"""

from __future__ import annotations

import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import Any

import httpx

from tests.servers.jars import SMALL
from tests.servers.machine import Image, Local, Machine, machine, wait_until_ready
from tests.servers.maven import fetched, java_for
from tests.servers.ports import free_port
from tests.servers.server import Server
from tests.servers.way import Way, way

WHAT = "a real schema registry"
VERSION = "3.0.9"
"""The last one that runs in Java 17."""

IMAGE = f"apicurio/apicurio-registry:{VERSION}"
ARCHIVE = f"io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"
FETCH = "org.apache.maven.plugins:maven-dependency-plugin:2.8:copy"
"""Later ones also want the POM's parents, which a repository may not have."""

READY_WITHIN_S = 120.0
ANSWER_WITHIN_S = 30.0


class RealRegistry(Server):
    def __init__(self) -> None:
        self._root = Path(tempfile.mkdtemp(prefix="viaduck-registry-"))
        port = free_port()
        self.url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
        self._environ = {"QUARKUS_HTTP_HOST": "127.0.0.1", "QUARKUS_HTTP_PORT": str(port)}
        self._machine: Machine | None = None

    def open(self) -> None:
        local = Local(_command(), self._environ) if way() is Way.LOCAL else None
        self._machine = machine(self._root, local, Image(IMAGE, environ=self._environ, as_us=False))
        self._machine.start()
        wait_until_ready(self._machine, "the schema registry", self._answers, READY_WITHIN_S)

    def close(self) -> None:
        if self._machine is not None:
            self._machine.close()
        shutil.rmtree(self._root, ignore_errors=True)

    def register(self, subject: str, schema: str, kind: str, *references: str) -> int:
        """The id of a schema that refers to the first versions of these subjects, each by its name."""
        named = [{"name": each, "subject": each, "version": 1} for each in references]
        body = {"schemaType": kind, "schema": schema, "references": named}
        answer = httpx.post(f"{self.url}/subjects/{subject}/versions", json=body, timeout=ANSWER_WITHIN_S)
        found: dict[str, Any] = answer.raise_for_status().json()
        return int(found["id"])

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/subjects", timeout=ANSWER_WITHIN_S).is_success
        except httpx.HTTPError:
            return False


def _command() -> list[str]:
    goal = (FETCH, f"-Dartifact={ARCHIVE}")
    folder = fetched(WHAT, f"apicurio-{VERSION}", goal, _unpack)
    return [java_for(WHAT), *SMALL, "-jar", str(folder / f"apicurio-registry-app-{VERSION}-runner.jar")]


def _unpack(folder: Path) -> None:
    (packed,) = folder.glob("*.tar.gz")
    with tarfile.open(packed) as archive:
        archive.extractall(folder, filter="data")
    packed.unlink()
