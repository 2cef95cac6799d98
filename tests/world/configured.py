"""The destinations of a configuration file as the oracle knows them."""

from __future__ import annotations

import os
from collections.abc import Mapping

from shared.config.catalogs import ResolvedLake, resolve
from shared.config.model import Config
from shared.contracts.messages import SeedMode
from tests.world.destination import Destination, Promise
from tests.world.lake import Lake


def destinations_of(config: Config, environ: Mapping[str, str] = os.environ) -> list[Destination]:
    """Every destination that the file declares, with what its pipeline promises."""
    return [
        Destination(
            lake=lake_of(resolve(declared.lake, environ, config.path.parent)),
            table=declared.table,
            pipeline=config.pipeline,
            id=declared.id,
            value=declared.routing_value,
            schema=declared.schema_name,
            promise=_promise(config, declared.seed_mode or config.routing.seed_mode),
            keys=config.routing.key_columns,
        )
        for declared in config.destinations
    ]


def source_of(config: Config, environ: Mapping[str, str] = os.environ) -> Lake:
    return lake_of(resolve(config.source.lake, environ, config.path.parent))


def lake_of(lake: ResolvedLake) -> Lake:
    return Lake(lake.catalog, lake.data_path, lake.metadata_schema)


def _promise(config: Config, mode: SeedMode) -> Promise:
    if config.routing.append_only:
        return Promise.APPEND_ONLY
    return Promise.LATEST if mode is SeedMode.LATEST else Promise.SLICE
