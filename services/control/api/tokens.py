"""``/v1/tokens``: for holders of the scope ``admin`` (``guard.ADMIN``)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Self

from fastapi import APIRouter, Path, Response
from pydantic import BaseModel, ConfigDict, Field, model_validator

from services.control.api.models import Page
from services.control.store.tokens import Scope, Token, fit
from services.control.web.context import CurrentCaller, CurrentTokens
from services.control.web.idempotency import IDEMPOTENT
from services.control.web.json_bodies import StrictRoute
from services.control.web.paging import AskedPage, cut, read_id, write_id
from services.control.web.problems import HttpProblem, declared
from shared.contracts.messages import Name

router = APIRouter(prefix="/v1/tokens", tags=["tokens"], route_class=StrictRoute)

TokenId = Annotated[str, Path(pattern="^[0-9a-f]{16}$", description="Its id")]


class NewToken(BaseModel):
    """What a token is to be for, and what it may do."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"name": "deploy", "scope": "write"}]})

    name: Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]
    scope: Scope = "read"
    pipelines: list[Name] | None = None
    """The pipelines that the token is limited to; null for all."""

    @model_validator(mode="after")
    def fits(self) -> Self:
        fit(self.name, self.scope, self.pipelines)
        return self


class TokenShown(BaseModel):
    """A token without its secret."""

    id: str
    name: str
    scope: Scope
    pipelines: list[str] | None
    author: str | None
    """Who made it."""
    created_at: datetime
    revoked_at: datetime | None
    revoked_by: str | None


class TokenMade(TokenShown):
    """A new token; ``token`` is shown this once."""

    token: str


@router.get("")
def list_tokens(tokens: CurrentTokens, asked: AskedPage) -> Page[TokenShown]:
    """The tokens that there are and were, the oldest first; who made them, and who revoked them."""
    found = tokens.all(asked.limit + 1, read_id(asked.after, tokens.find))
    shown, following = cut(found, asked.limit, lambda token: write_id(token.id))
    return Page(items=[TokenShown(**_shown(each)) for each in shown], next=following)


@router.post("", status_code=201, dependencies=IDEMPOTENT, responses=declared("in_progress", "too_large"))
def create_token(wanted: NewToken, tokens: CurrentTokens, caller: CurrentCaller) -> TokenMade:
    """Create a token."""
    token, text = tokens.create(wanted.name, wanted.scope, datetime.now(UTC), caller.name, wanted.pipelines)
    return TokenMade(**_shown(token), token=text)


@router.delete("/{token}", status_code=204, responses=declared("not_found"))
def revoke_token(token: TokenId, tokens: CurrentTokens, caller: CurrentCaller) -> Response:
    """Revoke a token; every control refuses it within seconds."""
    if not tokens.revoke(token, datetime.now(UTC), caller.name):
        raise HttpProblem("not_found", f"there is no token {token} that is valid", "GET /v1/tokens lists them")
    return Response(status_code=204)


def _shown(token: Token) -> dict[str, Any]:
    told = {name: value for name, value in vars(token).items() if name not in ("salt", "digest")}
    return {**told, "pipelines": None if token.pipelines is None else sorted(token.pipelines)}
