"""What may come over REST from anybody who may write: no secrets, and only what the server's lists allow.

Sections of one lake, as the rules of a file read them. Paths of faults are those within the section.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shared.config.catalogs import SQLITE, CatalogRefused, has_password, parse_catalog
from shared.config.lake_rules import section_of, text_of
from shared.config.secrets import SECRET_PROPERTIES

SECRET = "secret_in_request"  # noqa: S105 - the name of a problem
NOT_ALLOWED = "not_allowed"

RELATIVE = "a relative path, and there is no file that it could be relative to; write the whole path"

Section = Mapping[str, Any]


@dataclass(frozen=True)
class FieldError:
    """What is wrong with one field. ``kind`` is a key of ``problems.KINDS``."""

    path: str
    message: str
    kind: str = "invalid"


class InvalidEntry(Exception):
    """What was sent can't be used; with everything that is wrong with it."""

    def __init__(self, faults: list[FieldError]) -> None:
        super().__init__("; ".join(f"{fault.path}: {fault.message}" for fault in faults))
        self.faults = faults


def secret(section: Section, folder: Path) -> Iterator[FieldError]:
    """Secrets among a lake's values. To be looked for first, so that no other message quotes one."""
    for name in section_of(section, "properties"):
        if name.lower() in SECRET_PROPERTIES:
            yield FieldError(f"properties.{name}", f"is a secret; write {name}_env with a variable's name", SECRET)
    catalog = text_of(section, "catalog")
    try:
        holds = catalog is not None and has_password(parse_catalog(catalog, folder))
    except CatalogRefused:
        return
    if holds:
        yield FieldError("catalog", "holds a password; name a variable (catalog_env)", SECRET)


def relative(section: Section, environ: Mapping[str, str]) -> Iterator[FieldError]:
    """Paths that every service would look for in a folder of its own: a pipeline that came over REST has no file."""
    catalogs = [("catalog", text_of(section, "catalog"))]
    catalogs += [(key, environ.get(text_of(section, key) or "")) for key in ("catalog_env", "postgres_uri_env")]
    for key, catalog in catalogs:
        kind, _, path = (catalog or "").strip().partition(":")
        if f"{kind}:" == SQLITE and not path.strip().startswith("/"):
            yield FieldError(key, f"{'is' if key == 'catalog' else 'its value is'} {RELATIVE}")
    data_path = text_of(section, "data_path")
    if data_path is not None and "://" not in data_path and not data_path.startswith("/"):
        yield FieldError("data_path", f"is {RELATIVE}")
