"""``Idempotency-Key`` on every POST: https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/."""

from __future__ import annotations

import hashlib
from typing import Annotated

from fastapi import Depends, Header
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from services.control.store.idempotency_store import LONGEST_KEY, Answers, Kept
from services.control.web.problems import document

NAME = "Idempotency-Key"
REPLAYED = b"idempotency-replayed"
LEFT_OUT = frozenset({b"date", b"server", b"content-length", b"transfer-encoding"})


async def idempotency_key(
    key: Annotated[
        str | None,
        Header(
            alias=NAME,
            min_length=1,
            max_length=LONGEST_KEY,
            pattern=r"^[\x21-\x7e]+$",
            description="A unique name for this request: repeated within the hour, it gets the same answer and "
            "nothing is done twice",
        ),
    ] = None,
) -> None:
    """For OpenAPI, and to refuse what can't be a key; what it is for is the middleware's."""


IDEMPOTENT = [Depends(idempotency_key)]
"""``dependencies`` of every POST below ``/v1``."""


class IdempotencyMiddleware:
    """Behind the guard: keys are separate for each client, and an unauthorized client learns nothing about them."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        key = _key(scope)
        if key is None:
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        try:
            body = await request.body()
        except HTTPException as error:  # larger than it may be
            await document("too_large", str(error.detail))(scope, receive, send)
            return
        answers: Answers = scope["app"].state.answers
        caller, fingerprint = scope["state"]["caller"].name, _fingerprint(scope, body)
        held = answers.begin(caller, key, fingerprint)
        if held is None:
            await self._first(scope, body, send, answers, (caller, key))
        elif held.print != fingerprint:
            said = "this key was used for another request"
            await document("key_reused", said)(scope, receive, send)
        elif held.answer is None:
            await document("in_progress", "the first request with this key is not answered yet")(scope, receive, send)
        else:
            await _replayed(held.answer)(scope, receive, send)

    async def _first(self, scope: Scope, body: bytes, send: Send, answers: Answers, key: tuple[str, str]) -> None:
        """Let it through, and keep what it is answered; after a failure of ours it may be tried in earnest."""
        heads: list[Message] = []
        parts: list[bytes] = []

        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                heads.append(message)
            else:
                parts.append(message.get("body", b""))
            await send(message)

        kept: Kept | None = None
        try:
            await self._app(scope, _again(body), sending)
            if heads and heads[0]["status"] < 500:
                headers = tuple((name, value) for name, value in heads[0]["headers"] if name.lower() not in LEFT_OUT)
                kept = Kept(heads[0]["status"], headers, b"".join(parts))
        finally:
            answers.end(*key, kept)


def _key(scope: Scope) -> str | None:
    """None where there is none, or none that can be used: then the route says so."""
    if scope["type"] != "http" or scope["method"] != "POST" or not scope["path"].startswith("/v1/"):
        return None
    key = Headers(scope=scope).get(NAME.lower())
    return key if key and len(key) <= LONGEST_KEY and key.isascii() and key.isprintable() and " " not in key else None


def _fingerprint(scope: Scope, body: bytes) -> str:
    asked = hashlib.sha256(f"{scope['path']}?{scope['query_string'].decode('latin-1')}\n".encode())
    asked.update((Headers(scope=scope).get("if-match", "") + "\n").encode())
    asked.update(body)
    return asked.hexdigest()


def _again(body: bytes) -> Receive:
    """``receive`` of a body that was read already."""
    sent = False

    async def receive() -> Message:
        nonlocal sent
        if sent:
            return {"type": "http.disconnect"}
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive


def _replayed(kept: Kept) -> Response:
    answer = Response(kept.body, kept.status)
    answer.raw_headers = [
        *kept.headers, (b"content-length", str(len(kept.body)).encode()), (REPLAYED, b"true"),
    ]  # fmt: skip
    return answer
