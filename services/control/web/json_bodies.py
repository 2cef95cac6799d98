"""JSON as it is defined: a name once in an object, and numbers that are numbers.

Python takes ``NaN`` and lets the last of two equal names win; another reader of the same body may take the first.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

LONGEST_NAME = 80

SPACE = re.compile(r"[ \t\n\r]*+")
FIRST_LOOK, FURTHER = 4_096, 16
"""Characters in which the end of a member is looked for first, and by how many times more where it is not there."""


def strictly(body: bytes) -> Any:
    """What a body holds. Raises ``ValueError`` where it is no JSON, and ``RecursionError`` where it is too deep."""
    return json.loads(body, parse_constant=_constant, parse_float=_float, object_pairs_hook=_once)


def members(body: bytes, longest: int) -> Iterator[Any]:
    """The members of an array, read one by one: a caller that has enough pays for no more of them.

    Raises what ``strictly`` raises, and ``ValueError`` for a member of more than ``longest`` characters.
    """
    text = body.decode(errors="surrogatepass")
    at = _behind(text, 0, "[")
    if text.startswith("]", at):
        _require_end(text, at)
        return
    while True:
        value, at = _member(text, at, longest)
        yield value
        if text.startswith("]", at):
            _require_end(text, at)
            return
        at = _behind(text, at, ",")


def _member(text: str, at: int, longest: int) -> tuple[Any, int]:
    """The value that begins at ``at``, and where the next word does. Nothing behind ``longest`` is parsed for it."""
    looked = FIRST_LOOK
    while True:
        looked = min(looked, longest)
        part = text[at : at + looked]
        is_whole = at + len(part) == len(text)
        try:
            value, end = DECODER.raw_decode(part)
        except json.JSONDecodeError:
            if is_whole:
                raise
        else:
            if is_whole or end < len(part):  # else it may be the beginning of a longer number
                return value, _space(text, at + end)
        if looked == longest:
            raise ValueError(f"a member of the array is longer than {longest:,} characters, or is no JSON")
        looked *= FURTHER


def _behind(text: str, at: int, sign: str) -> int:
    """Where the next word behind a ``sign`` begins. Raises ``ValueError`` where another one stands there."""
    at = _space(text, at)
    if not text.startswith(sign, at):
        raise ValueError(f"a {sign} is missing at character {at + 1}")
    return _space(text, at + 1)


def _require_end(text: str, at: int) -> None:
    if _space(text, at + 1) != len(text):
        raise ValueError(f"something follows the array at character {at + 2}")


def _space(text: str, at: int) -> int:
    found = SPACE.match(text, at)
    return at if found is None else found.end()


class StrictRoute(APIRoute):
    """A route that reads its body so."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def strict(request: Request) -> Response:
            return await handle(_StrictRequest(request.scope, request.receive))

        return strict


class _StrictRequest(Request):
    async def json(self) -> Any:
        body = await self.body()
        try:
            return strictly(body)
        except json.JSONDecodeError:
            raise
        except (ValueError, RecursionError) as error:
            said = str(error) if isinstance(error, ValueError) else "it is nested too deep"
            raise json.JSONDecodeError(said, "", 0) from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{json.dumps(name[:LONGEST_NAME])} is given twice in one object; keep one of them")
        found[name] = value
    return found


def _constant(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number; write a number, or null")


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("a number exceeds the supported range; write a smaller one")
    return value


DECODER = json.JSONDecoder(parse_constant=_constant, parse_float=_float, object_pairs_hook=_once)
