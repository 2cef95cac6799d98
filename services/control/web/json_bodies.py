"""JSON as it is defined: a name once in an object, and numbers that are numbers.

Python takes ``NaN`` and lets the last of two equal names win; another reader of the same body may take the first.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

LONGEST_NAME = 80


def strictly(body: bytes) -> Any:
    """What a body holds. Raises ``ValueError`` where it is no JSON, and ``RecursionError`` where it is too deep."""
    return json.loads(body, parse_constant=_constant, parse_float=_float, object_pairs_hook=_once)


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
    raise ValueError(f"{name} is no number of JSON; write a number, or null")


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("a number is larger than any that can be held; write a smaller one")
    return value
