"""What the single-process Viaduck's file says in other words than ours, in ours.

There, ``table`` may be ``SCHEMA.TABLE``: what stands before the first dot is the schema. It is read so beside
``postgres_uri_env``, which is that program's name for a catalog, where no ``schema`` is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shared.config.config_errors import Mistakes, join
from shared.config.lake_rules import text_of

CATALOG = "postgres_uri_env"


def with_schemas(sections: Mapping[str, Any], mistakes: Mistakes) -> dict[str, Any]:
    """The sections with schema and table apart. Notes a table with nothing before or behind its dot."""
    if "source" not in sections:
        return dict(sections)
    told = _apart(sections["source"], "source", mistakes)
    schema = text_of(told, "schema") if told is not sections["source"] else None
    whole = {**sections, "source": told}
    if isinstance(given := sections.get("destinations"), list):
        whole["destinations"] = [
            _apart(_inheriting(each, schema), join("destinations", number), mistakes)
            for number, each in enumerate(given)
        ]
    return whole


def _inheriting(destination: object, schema: str | None) -> object:
    """A destination without a table of its own has the source's, schema and all."""
    if schema is None or not isinstance(destination, dict) or not _is_meant(destination) or "table" in destination:
        return destination
    return {**destination, "schema": schema}


def _apart(section: object, path: str, mistakes: Mistakes) -> object:
    table = text_of(section, "table")
    if table is None or "." not in table or not isinstance(section, dict) or not _is_meant(section):
        return section
    schema, _, name = table.partition(".")
    if not schema.strip() or not name.strip():
        said = "has nothing on one side of its dot; write schema: and table: apart, or schema: main for such a name"
        mistakes.note(join(path, "table"), said)
        return section
    return {**section, "schema": schema, "table": name}


def _is_meant(section: object) -> bool:
    return isinstance(section, dict) and CATALOG in section and "schema" not in section
