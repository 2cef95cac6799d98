"""Destinations as they are declared: by a file, as the registry holds them; over REST, as a client puts them back.

Of a file's, routing values are cast and secrets left out.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services.control.model.lifecycle import Declared
from shared.config.catalogs import ResolvedLake, located
from shared.config.loading import public_lake
from shared.config.model import Config
from shared.config.path_overlap import PathClaim, claim_of
from shared.config.upkeep_rules import override_of
from shared.contracts.errors import ViaduckError
from shared.contracts.evolution import EvolutionPolicy
from shared.contracts.layout import NO_LAYOUT
from shared.contracts.messages import LakeRef

OF_A_LAKE = ("catalog", "catalog_env", "postgres_uri_env", "metadata_schema", "data_path")


@dataclass(frozen=True)
class DeclaredSource:
    """``identity``: as that of a destination's lake. ``claim``: where its files are, as far as the file says."""

    identity: str
    claim: PathClaim | None


def declared_source(config: Config, lake: ResolvedLake | None) -> DeclaredSource | None:
    """None of a topic, which no destination can lie in."""
    if lake is None:
        return None
    known = config.source.lake.model_copy(update={"catalog": lake.catalog})
    return DeclaredSource(digest_of(lake), claim_of("the source", digest_of(lake), known))


def declarations(
    config: Config, routing_values: Mapping[str, str], environ: Mapping[str, str] = os.environ
) -> list[Declared]:
    """``routing_values``: by destination id, in the spelling of the routing column's type."""
    routed_by = config.routing.routed_by
    evolutions = {each.id: each.evolution.over(config.evolution) for each in config.destinations}
    return [
        Declared(
            id=each.id,
            routing_value=routing_values[each.id],
            lake=public_lake(each),
            identity=identity(each.lake, config.path.parent, environ),
            schema_name=each.schema_name,
            table=each.table,
            seed_mode=each.seed_mode or config.routing.seed_mode,
            routed_by=routed_by,
            name=each.name,
            layout=each.layout.over(config.table_layout),
            upkeep=override_of(each),
            evolution=evolutions[each.id].policy,
            comments=evolutions[each.id].comments,
        )
        for each in config.destinations
    ]


def identity(lake: LakeRef, folder: Path, environ: Mapping[str, str]) -> str | None:
    """Which lake this is, whatever it is called; None without the variable that holds its catalog.

    Digested, because a variable may be meant to keep even the name of a host to itself. Control needs no tenant's
    credentials: without them it goes by the lake's name.
    """
    try:
        return digest_of(located(lake, environ, folder))
    except ViaduckError:
        return None


def digest_of(lake: ResolvedLake) -> str:
    """A lake's identity, opaque."""
    return hashlib.sha256(lake.identity.encode()).hexdigest()


def as_put(declared: Declared) -> dict[str, Any]:
    """The keys of a ``destinations`` entry, without the id. Putting it again changes nothing.

    As it was written where it came over REST; of the file's, and of what an older control registered, as it was read.
    """
    return dict(declared.written) if declared.written is not None else _as_read(declared)


def _as_read(declared: Declared) -> dict[str, Any]:
    lake = declared.lake
    given = {name: getattr(lake, name) for name in OF_A_LAKE}
    return {
        "routing_value": declared.routing_value,
        **({"name": declared.name} if declared.name else {}),
        **{name: value for name, value in given.items() if value is not None},
        "schema": declared.schema_name,
        "table": declared.table,
        **({"properties": dict(lake.properties)} if lake.properties else {}),
        "seed_mode": declared.seed_mode.value,
        **({"layout": declared.layout.model_dump()} if declared.layout != NO_LAYOUT else {}),
        **({"evolution": evolution} if (evolution := _evolution(declared)) else {}),
        **({} if declared.upkeep is None else {"upkeep": declared.upkeep.model_dump(exclude_none=True)}),
    }


def _evolution(declared: Declared) -> dict[str, Any]:
    """What is otherwise than by default."""
    policy = {} if declared.evolution is EvolutionPolicy.FOLLOW else {"policy": declared.evolution.value}
    return policy if declared.comments else {**policy, "comments": False}
