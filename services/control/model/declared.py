"""The file's destinations as the registry holds them: routing values cast, secrets left out."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

from services.control.model.lifecycle import Declared
from shared.config.catalogs import ResolvedLake, resolve
from shared.config.loading import public_lake
from shared.config.model import Config, Routing
from shared.contracts.errors import ViaduckError
from shared.contracts.messages import LakeRef


def declarations(
    config: Config, routing_values: Mapping[str, str], environ: Mapping[str, str] = os.environ
) -> list[Declared]:
    """``routing_values``: by destination id, in the spelling of the routing column's type."""
    slice_of = slice_name(config.routing)
    return [
        Declared(
            id=each.id,
            routing_value=routing_values[each.id],
            lake=public_lake(each),
            identity=identity(each.lake, config.path.parent, environ),
            schema_name=each.schema_name,
            table=each.table,
            seed_mode=each.seed_mode or config.routing.seed_mode,
            slice_of=slice_of,
            name=each.name,
        )
        for each in config.destinations
    ]


def slice_name(routing: Routing) -> str:
    """Another routing column makes other slices; and what was only ever appended to does not equal its slice."""
    return f"{'appended' if routing.append_only else 'equal'}: {routing.field.lower()}"


def identity(lake: LakeRef, folder: Path, environ: Mapping[str, str]) -> str | None:
    """Which lake this is, whatever it is called; None without the variable that holds its catalog.

    Digested, because a variable may be meant to keep even the name of a host to itself. Control needs no tenant's
    credentials: without them it goes by the lake's name.
    """
    try:
        resolved = resolve(lake.model_copy(update={"properties": {}}), environ, folder)
    except ViaduckError:
        return None
    return digest_of(resolved)


def digest_of(lake: ResolvedLake) -> str:
    """A lake's identity, opaque."""
    return hashlib.sha256(lake.identity.encode()).hexdigest()
