"""What was applied to a destination, as the commits of its own lake tell it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

from services.control.model.lifecycle import Refused, Registered
from services.control.operations.preflight import looking
from shared.config.declared import Lakes
from shared.config.model import Config
from shared.contracts.errors import ViaduckError
from shared.lake.catalog.reader import CatalogReader
from shared.lake.catalog.stamps import StampedCommit
from shared.lake.failure import LakeAbsent


def commits(
    config: Config, environ: Mapping[str, str], held: Registered, limit: int, before: int | None
) -> list[StampedCommit]:
    """The newest first, before a snapshot. Raises ``Refused``, and ``ViaduckError`` where the lake does not answer."""
    try:
        lake = Lakes(config, environ).published(held.message(config.pipeline))
    except ViaduckError as error:
        raise Refused("not_visible", error.message, error.hint) from None
    try:
        with looking(), closing(CatalogReader(lake)) as catalog:
            return catalog.history(f'"destination": "{held.id}"', limit, before)
    except LakeAbsent:
        return []
