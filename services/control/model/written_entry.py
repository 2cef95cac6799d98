"""A destination's entry as somebody wrote it: what a GET gives back, so that it can be changed and put again."""

from __future__ import annotations

from typing import Any

from services.control.model.lifecycle import Declared

OF_A_LAKE = ("catalog", "catalog_env", "postgres_uri_env", "metadata_schema", "data_path")


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
    }
