"""A template and a safe name → the entry of a destination, as for a PUT. Values in, values out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from psycopg.conninfo import conninfo_to_dict
from pydantic import ValidationError

from services.control.model.problems import FieldError, InvalidEntry
from services.control.operations.destination_entry import Entry
from shared.config.catalogs import POSTGRES, CatalogRefused, parse_catalog
from shared.config.model import PLACEHOLDER, Template
from shared.config.template_rules import LONGEST_NAME, filled

NOT_OF_AN_ENTRY = {"create_database"}


def id_of(template: Template, name: str | None) -> str | None:
    """The id of the destination that ``name`` becomes; None for no name."""
    return None if name is None else template.id.replace(PLACEHOLDER, name)


def entry_of(template: Template, name: str, value: str, folder: Path) -> Entry:
    """The entry of the destination that takes the rows of ``value``; ``name`` is a safe name.

    Raises ``InvalidEntry`` where something too long comes out of it, such as a name that Postgres would cut.
    """
    section = template.model_dump(by_alias=True, exclude_unset=True, exclude=NOT_OF_AN_ENTRY, mode="json")
    known = {key: given for key, given in filled(section, name).items() if given is not None and key != "id"}
    faults = [FieldError(key, f"is longer than {LONGEST_NAME} bytes, which is all that Postgres keeps of a name")
              for key, given in _postgres_names(known, folder) if len(given.encode()) > LONGEST_NAME]  # fmt: skip
    if faults:
        raise InvalidEntry(faults)
    try:
        return Entry.model_validate({**known, "routing_value": value})
    except ValidationError as error:
        told = error.errors(include_url=False, include_input=False)
        raise InvalidEntry([FieldError(".".join(map(str, each["loc"])), each["msg"]) for each in told]) from None


def _postgres_names(known: Mapping[str, Any], folder: Path) -> list[tuple[str, str]]:
    names = [("metadata_schema", known["metadata_schema"])] if "metadata_schema" in known else []
    try:
        catalog = parse_catalog(known.get("catalog", ""), folder)
    except CatalogRefused:
        return names  # it comes from a variable, which has no placeholder
    if catalog.startswith(POSTGRES):
        names.append(("catalog", str(conninfo_to_dict(catalog.removeprefix(POSTGRES)).get("dbname") or "")))
    return names
