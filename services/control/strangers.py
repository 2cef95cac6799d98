"""What may come over REST from anybody who may write: no secrets, and only what the server's lists allow.

Sections of one lake, as the rules of a file read them. Paths of faults are those within the section.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from psycopg.conninfo import conninfo_to_dict

from shared.config.catalogs import ENV_SUFFIX, POSTGRES, SQLITE, CatalogRefused, has_password, parse_catalog
from shared.config.lake_rules import complete_lake, section_of, text_of
from shared.config.mistakes import LONGEST_QUOTE
from shared.config.model import Server
from shared.config.secrets import SECRET_PROPERTIES

SECRET = "secret_in_request"  # noqa: S105 - the name of a problem

RELATIVE = "a relative path, and there is no file that it could be relative to; write the whole path"

Section = Mapping[str, Any]


@dataclass(frozen=True)
class Fault:
    """What is wrong with one field. ``kind`` is a key of ``problems.KINDS``."""

    path: str
    message: str
    kind: str = "invalid"


class Unfit(Exception):
    """What was sent can't be used; with everything that is wrong with it."""

    def __init__(self, faults: list[Fault]) -> None:
        super().__init__("; ".join(f"{fault.path}: {fault.message}" for fault in faults))
        self.faults = faults


def secret(section: Section, folder: Path) -> Iterator[Fault]:
    """Secrets among a lake's values. To be looked for first, so that no other message quotes one."""
    for name in section_of(section, "properties"):
        if name.lower() in SECRET_PROPERTIES:
            yield Fault(f"properties.{name}", f"is a secret; write {name}_env with a variable's name", SECRET)
    catalog = text_of(section, "catalog")
    try:
        holds = catalog is not None and has_password(parse_catalog(catalog, folder))
    except CatalogRefused:
        return
    if holds:
        yield Fault("catalog", "holds a password; name a variable (catalog_env) or a file (passfile=…)", SECRET)


def relative(section: Section, environ: Mapping[str, str]) -> Iterator[Fault]:
    """Paths that every service would look for in a folder of its own: a pipeline that came over REST has no file."""
    catalogs = [("catalog", text_of(section, "catalog"))]
    catalogs += [(key, environ.get(text_of(section, key) or "")) for key in ("catalog_env", "postgres_uri_env")]
    for key, catalog in catalogs:
        kind, _, path = (catalog or "").strip().partition(":")
        if f"{kind}:" == SQLITE and not path.strip().startswith("/"):
            yield Fault(key, f"{'is' if key == 'catalog' else 'its value is'} {RELATIVE}")
    data_path = text_of(section, "data_path")
    if data_path is not None and "://" not in data_path and not data_path.startswith("/"):
        yield Fault("data_path", f"is {RELATIVE}")


def foreign(section: Section, server: Server, folder: Path) -> Iterator[Fault]:
    """Hosts, paths and variables that are not on the server's lists; a list that is empty allows everything."""
    for path, variable in _variables(section):
        if server.allowed_variables and not _matches(variable, server.allowed_variables):
            yield Fault(path, f"{variable[:LONGEST_QUOTE]} is not among the variables that may be named", "not_allowed")
    for path, host in _hosts(section, folder):
        if server.allowed_hosts and not _matches(host.lower(), server.allowed_hosts):
            yield Fault(
                path,
                f"{host[:LONGEST_QUOTE] or 'the local socket'} is not among the hosts that may be used",
                "not_allowed",
            )
    for path, place in _places(section, folder):
        if server.allowed_paths and not _is_below(place, server.allowed_paths):
            yield Fault(path, "is not below one of the paths that may be used", "not_allowed")


def _variables(section: Section) -> Iterator[tuple[str, str]]:
    properties = section_of(section, "properties")
    named = [(key, text_of(section, key)) for key in ("catalog_env", "postgres_uri_env")]
    named += [(f"properties.{key}", text_of(properties, key)) for key in properties if key.endswith(ENV_SUFFIX)]
    for path, variable in named:
        if variable is not None:
            yield path, variable


def _hosts(section: Section, folder: Path) -> Iterator[tuple[str, str]]:
    for host in _catalog_hosts(text_of(section, "catalog") or "", folder):
        yield "catalog", host
    endpoint = text_of(section_of(section, "properties"), "s3_endpoint")
    if endpoint is not None:
        host, _, port = endpoint.rpartition(":")
        yield "properties.s3_endpoint", host or port


def _catalog_hosts(catalog: str, folder: Path) -> list[str]:
    try:
        normal = parse_catalog(catalog, folder)
    except CatalogRefused:
        return []
    if not normal.startswith(POSTGRES):
        return []
    words = conninfo_to_dict(normal.removeprefix(POSTGRES))
    given = [str(words[key]) for key in ("host", "hostaddr") if words.get(key)]
    return [host for each in given for host in each.split(",")] or [""]


def _places(section: Section, folder: Path) -> Iterator[tuple[str, str]]:
    whole = complete_lake(section, {}, folder)
    if str(whole.get("catalog", "")).startswith(SQLITE):
        yield "catalog", whole["catalog"].removeprefix(SQLITE)
    if text_of(whole, "data_path") is not None:
        yield "data_path", whole["data_path"]


def _matches(value: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(value, pattern) for pattern in patterns)


def _is_below(place: str, allowed: tuple[str, ...]) -> bool:
    """A prefix counts up to a slash, and a path that steps back is below nothing."""
    if ".." in place.split("/"):
        return False
    return any(f"{place.rstrip('/')}/".startswith(f"{prefix.rstrip('/')}/") for prefix in allowed)
