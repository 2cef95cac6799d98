"""A schema registry within the process: the REST calls that clients make, and nothing else."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PROTOBUF = "PROTOBUF"


@dataclass
class Registry:
    """``schemas`` and ``subjects`` (with their versions) are what it answers with; ``status`` to answer otherwise."""

    url: str = ""
    schemas: dict[int, dict[str, Any]] = field(default_factory=dict)
    subjects: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)
    """Path and credentials of each request."""
    status: int = 0

    def add(self, number: int, schema: Any, kind: str | None = None, *references: dict[str, Any]) -> None:
        """AVRO, unless another kind is named. A schema of PROTOBUF is its descriptor in base64."""
        more: dict[str, Any] = {} if kind is None else {"schemaType": kind}
        if references:
            more["references"] = list(references)
        self.schemas[number] = {"schema": schema if kind == PROTOBUF else json.dumps(schema), **more}

    def answer(self, path: str) -> tuple[int, Any]:
        """A descriptor is for those who ask for it; others get the text of a file that has no messages."""
        status, found = self._found(path.partition("?")[0])
        if found.get("schemaType") == PROTOBUF and not path.endswith("?format=serialized"):
            return status, {**found, "schema": 'syntax = "proto3";'}
        return status, found

    def _found(self, path: str) -> tuple[int, dict[str, Any]]:
        parts = path.strip("/").split("/")
        if self.status:
            return self.status, {"error_code": self.status, "message": "as the test wants it"}
        if parts[:2] == ["schemas", "ids"]:
            found = self.schemas.get(int(parts[2]))
            return (200, found) if found else (404, {"error_code": 40403, "message": "Schema not found"})
        if parts[0] == "subjects":
            found = self.subjects.get((parts[1], int(parts[3])))
            return (200, found) if found else (404, {"error_code": 40402, "message": "Version not found"})
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}


@contextmanager
def running_registry(tls: ssl.SSLContext | None = None) -> Iterator[Registry]:
    registry = Registry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            registry.asked.append((self.path, self.headers.get("Authorization", "")))
            status, found = registry.answer(self.path)
            data = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            """Nothing: tests look at ``asked``."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    registry.url = f"http{'' if tls is None else 's'}://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
