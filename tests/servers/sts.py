"""Stands in for AWS's Security Token Service: it takes a role to be assumed by anybody, and hands out one key.

It proves what is asked, for which role, and that what is answered is used. Of signatures and policies it knows nothing.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qsl

from tests.servers.http_stand_in import HttpStandIn

ANSWER = """<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult><Credentials>
<AccessKeyId>{id}</AccessKeyId><SecretAccessKey>{secret}</SecretAccessKey><SessionToken>{token}</SessionToken>
<Expiration>{until}</Expiration></Credentials><AssumedRoleUser><Arn>{arn}/session</Arn>
<AssumedRoleId>AROA:session</AssumedRoleId></AssumedRoleUser></AssumeRoleResult></AssumeRoleResponse>"""

REFUSAL = """<ErrorResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><Error><Type>Sender</Type>
<Code>AccessDenied</Code><Message>not authorized to perform sts:AssumeRole</Message></Error></ErrorResponse>"""


class Sts(HttpStandIn):
    """``asked``: the parameters of every request; ``signed_by``: who signed it. Use as a context."""

    def __init__(self, id: str, secret: str, token: str, *, refuses: bool = False) -> None:
        self.asked: list[dict[str, str]] = []
        self.signed_by: list[str] = []
        self._credentials = {"id": id, "secret": secret, "token": token}
        self._refuses = refuses
        super().__init__()

    def _answer(self, asked: dict[str, str]) -> tuple[int, bytes]:
        if self._refuses:
            return 403, REFUSAL.encode()
        until = (datetime.now(UTC) + timedelta(minutes=15)).strftime("%Y-%m-%dT%H:%M:%SZ")
        return 200, ANSWER.format(**self._credentials, until=until, arn=asked.get("RoleArn", "")).encode()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        sts = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0)).decode()
                sts.asked.append(dict(parse_qsl(body)))
                sts.signed_by.append(self.headers.get("authorization") or "")
                status, content = sts._answer(sts.asked[-1])
                self.send_response(status)
                self.send_header("content-type", "text/xml")
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: object) -> None:
                """Tests read ``asked`` instead."""

        return Handler
