"""``/v1/version``: which build answers."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel

from shared.runtime.version import revision, version

router = APIRouter(tags=["health"])


class Version(BaseModel):
    """``revision``: the commit that the image was built of; null where it does not say."""

    version: str
    revision: str | None


@router.get("/v1/version")
async def show_version() -> Version:
    """The version of the control that answers."""
    return Version(version=version(), revision=revision())
