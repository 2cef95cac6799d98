"""Stands in for Azure's blob service: containers in memory, and just the requests that DuckDB makes.

It checks no signature, so it proves where files go and that they come back, and nothing of rights.
"""

from __future__ import annotations

import re
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, unquote, urlsplit

from tests.servers.http_stand_in import HttpStandIn

WHEN = "Thu, 26 Nov 2026 10:00:00 GMT"
OF_A_BLOB = {
    "etag": '"1"', "last-modified": WHEN, "x-ms-creation-time": WHEN, "x-ms-blob-type": "BlockBlob",
    "x-ms-server-encrypted": "true", "x-ms-lease-state": "available", "x-ms-lease-status": "unlocked",
    "x-ms-version": "2020-10-02", "accept-ranges": "bytes",
}  # fmt: skip
ACCEPTED = {"etag": '"1"', "last-modified": WHEN, "x-ms-request-server-encrypted": "true"}
LISTED = (
    "<Blob><Name>{name}</Name><Properties><Content-Length>{size}</Content-Length><Etag>1</Etag>"
    f"<Last-Modified>{WHEN}</Last-Modified><BlobType>BlockBlob</BlobType></Properties></Blob>"
)
ACCOUNT = "devstore"

Answer = tuple[int, bytes, dict[str, str]]


class Blobs(HttpStandIn):
    """``content``: bytes by ``CONTAINER/NAME``; ``signed_by``: accounts that requests name. Use as a context."""

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}
        self.signed_by: set[str] = set()
        self._blocks: dict[str, bytes] = {}
        super().__init__()

    @property
    def connection_string(self) -> str:
        endpoint = f"{self.url}/{ACCOUNT}"
        return f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey=c2VjcmV0;BlobEndpoint={endpoint};"

    def _answer(self, method: str, path: str, body: bytes, range_: str | None) -> Answer:
        url = urlsplit(path)
        asked = {name: values[0] for name, values in parse_qs(url.query).items()}
        name = unquote(url.path).removeprefix(f"/{ACCOUNT}/")
        if method == "PUT":
            return self._put(name, asked, body)
        if method == "DELETE":
            return (404, b"", {}) if self.content.pop(name, None) is None else (202, b"", {})
        if asked.get("comp") == "list":
            return 200, self._list(name, asked.get("prefix", "")), {"content-type": "application/xml"}
        if name not in self.content:
            return 404, b"", {"x-ms-error-code": "BlobNotFound"}
        return self._read(self.content[name], range_)

    def _put(self, name: str, asked: dict[str, str], body: bytes) -> Answer:
        if asked.get("comp") == "block":
            self._blocks[f"{name} {asked['blockid']}"] = body
        elif asked.get("comp") == "blocklist":
            ids = re.findall(rb"<(?:Latest|Uncommitted|Committed)>([^<]*)<", body)
            self.content[name] = b"".join(self._blocks[f"{name} {each.decode()}"] for each in ids)
        else:
            self.content[name] = body
        return 201, b"", ACCEPTED

    def _list(self, container: str, prefix: str) -> bytes:
        begin = f"{container}/{prefix}"
        found = [(name, len(content)) for name, content in sorted(self.content.items()) if name.startswith(begin)]
        blobs = "".join(LISTED.format(name=name.partition("/")[2], size=size) for name, size in found)
        return f"<EnumerationResults><Blobs>{blobs}</Blobs><NextMarker/></EnumerationResults>".encode()

    def _read(self, content: bytes, range_: str | None) -> Answer:
        part = re.fullmatch(r"bytes=(\d+)-(\d*)", range_ or "")
        if part is None:
            return 200, content, OF_A_BLOB
        first, last = int(part[1]), min(int(part[2] or len(content)), len(content) - 1)
        whole = {**OF_A_BLOB, "content-range": f"bytes {first}-{last}/{len(content)}"}
        return 206, content[first : last + 1], whole

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        blobs = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one(self) -> None:
                signed = re.match(r"SharedKey (\w+):", self.headers.get("authorization") or "")
                blobs.signed_by.add(signed[1] if signed else "")
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                asked = self.headers.get("x-ms-range") or self.headers.get("range")
                status, content, headers = blobs._answer(self.command, self.path, body, asked)
                self.send_response(status)
                for name, value in {**headers, "content-length": str(len(content))}.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(content)

            do_GET = do_HEAD = do_PUT = do_DELETE = handle_one  # noqa: N815 - names of the base class

            def log_message(self, format: str, *args: object) -> None:
                """Tests look at ``content`` instead."""

        return Handler
