"""Conditional requests: a version in a header limits a change to the state that the client has seen."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Header

ETAG = r'(W/)?"[0-9]{1,18}"'
ETAGS = rf"^(\*|{ETAG}( *, *{ETAG})*)$"
IfMatch = Annotated[
    str | None,
    Header(alias="If-Match", pattern=ETAGS, description="The ETag that you have seen: refused if it changed since"),
]
IfNoneMatch = Annotated[
    str | None,
    Header(alias="If-None-Match", pattern=r"^\*$", description="`*`: refused if it exists already"),
]


@dataclass(frozen=True)
class PutConditions:
    """What must hold for a PUT: ``if_match`` names what is there, and ``new`` says that nothing is."""

    if_match: str | None
    new: bool


def _put_conditions(if_match: IfMatch = None, if_none_match: IfNoneMatch = None) -> PutConditions:
    return PutConditions(if_match, if_none_match is not None)


GivenConditions = Annotated[PutConditions, Depends(_put_conditions)]

SENT = {
    "ETag": {"description": "Its version, for If-Match", "schema": {"type": "string"}},
    "Location": {"description": "Where it is", "schema": {"type": "string"}},
}


def sends(*names: str) -> dict[str, Any]:
    """Headers of an answer, for OpenAPI."""
    return {"headers": {name: SENT[name] for name in names}}


def put_answers(model: type[Any]) -> dict[int | str, dict[str, Any]]:
    """What a PUT answers where it changes something, and where it creates it, for OpenAPI."""
    created = {"description": "It was created.", "model": model, **sends("ETag", "Location")}
    return {200: sends("ETag"), 201: created}


def etag(version: int) -> str:
    return f'"{version}"'


def matching(if_match: str | None) -> Callable[[int], bool] | None:
    """A check whether the client named a version; None if the client named none."""
    if if_match is None:
        return None
    if if_match == "*":
        return lambda _: True
    seen = {int(found) for found in re.findall(r'"([0-9]+)"', if_match)}
    return lambda version: version in seen
