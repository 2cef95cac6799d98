"""What a lake may name that is not listed in the operator's file: from REST, from a template, or in a message.

Checked by control on arrival, and again where such a lake is opened: a message does not prove the first check.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from shared.config import libpq_words, storage, store_access
from shared.config.catalogs import (
    ENV_SUFFIX,
    POSTGRES,
    SQLITE,
    CatalogRefused,
    connection_words,
    parse_catalog,
)
from shared.config.config_errors import LONGEST_QUOTE
from shared.config.lake_rules import complete_lake, section_of, text_of
from shared.config.model import Config, Section
from shared.config.secrets import PASSWORD_WORDS, SECRET_PROPERTIES, is_variable_name

OURS = ("VIADUCK_*", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "PG[A-Z]*")
"""Variables that mean something to services and libraries by themselves."""

ADDRESS = ("s3_endpoint", "s3_use_ssl")
"""Properties that say to whom keys are sent, and whether others can read them on the way."""

OTHER_STORE = "goes with another store than that of defaults, whose keys are for it alone; name keys of your own"

NOT_THEIRS = (
    "is the identity of this deployment's own machines, which only a lake of the configuration file may use, or one"
    " that inherits just this from its defaults; name keys of your own"
)

Lake = Mapping[str, Any]
"""A lake as a file's section has it, or a message."""

Words = Mapping[str, str]
"""The connection words of a catalog on Postgres."""


@dataclass(frozen=True)
class LakeLimits:
    """``files``: the template is the operator's own, who may name files among the connection words.

    ``own``: variables that the deployment itself uses. ``defaults``: properties that the operator gives to every lake.
    """

    variables: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    own: frozenset[str] = frozenset()
    defaults: Mapping[str, str] = field(default_factory=dict, hash=False)
    files: bool = False
    folder: Path = Path("/")

    def refusals(self, lake: Lake) -> Iterator[tuple[str, str]]:
        """Path within the lake, and message, of all that it may not name; one for each path."""
        first: dict[str, str] = {}
        words = _catalog_words(lake, self.folder)
        found = (*self._named(lake), *self._identities(lake), *self._words(lake, words), *self._elsewhere(lake, words))
        for path, said in found:
            first.setdefault(path, said)
        yield from first.items()

    def visible(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The variables that may be named: an error about another one would reveal its value."""
        return {name: value for name, value in environ.items() if self._refused(name) is None}

    def refused_variable(self, name: str) -> str | None:
        """Why a variable may not be named; None if it may."""
        return self._refused(name)

    def refused_host(self, host: str) -> str | None:
        """Why a host may not be connected to; None if it may."""
        if not self.hosts or _matches(host.lower(), self.hosts):
            return None
        return f"{host[:LONGEST_QUOTE] or 'it'} is not among the hosts that may be used (server.allowed_hosts)"

    def _named(self, lake: Lake) -> Iterator[tuple[str, str]]:
        for path, name in _variables(lake):
            if (said := self._variable(path, name, lake)) is not None:
                yield path, said

    def _identities(self, lake: Lake) -> Iterator[tuple[str, str]]:
        """The machine's own credentials belong to nothing that its operator does not say: who can have requests signed
        by them reaches whatever they open."""
        properties = section_of(lake, "properties")
        for identity in () if self.files else store_access.IDENTITIES:
            given = next((name for name in identity for name in (name, name + ENV_SUFFIX) if name in properties), None)
            if given is None:
                continue
            if any(_either(properties, name) != _either(self.defaults, name) for name in identity):
                yield f"properties.{given}", NOT_THEIRS
            elif self._other_store(lake):
                yield f"properties.{given}", OTHER_STORE

    def _elsewhere(self, lake: Lake, words: Words | None) -> Iterator[tuple[str, str]]:
        whole = complete_lake(lake, {}, self.folder)
        for path, host in _hosts(whole, words):
            if self.hosts and not _matches(host.lower(), self.hosts):
                shown = host[:LONGEST_QUOTE] or "the local socket"
                yield path, f"{shown} is not among the hosts that may be used (server.allowed_hosts)"
        for path, place in _places(whole):
            if self.paths and not _is_below(place, self.paths):
                yield path, "is not below one of the paths that may be used (server.allowed_paths)"

    def _variable(self, path: str, name: str, lake: Lake) -> str | None:
        key = path.removeprefix("properties.")
        if key != path and self.defaults.get(key) == name:  # inherited, with the store that the operator meant it for
            is_key = key.removesuffix(ENV_SUFFIX) in SECRET_PROPERTIES
            return OTHER_STORE if is_key and self._other_store(lake) else None
        if key != path and key.removesuffix(ENV_SUFFIX) not in SECRET_PROPERTIES:
            return "is no secret, and a variable could be one; write the value itself"
        return self._refused(name)

    def _refused(self, name: str) -> str | None:
        shown = name[:LONGEST_QUOTE] if is_variable_name(name) else "it"
        if name in self.own or _matches(name, OURS):
            return f"{shown} is a variable of the deployment itself, which no lake may name"
        if not _matches(name, self.variables):
            return f"{shown} is not among the variables that may be named (server.allowed_variables)"
        return None

    def _other_store(self, lake: Lake) -> bool:
        properties = section_of(lake, "properties")
        return any(_either(properties, key) != _either(self.defaults, key) for key in ADDRESS)

    def _words(self, lake: Lake, words: Words | None) -> Iterator[tuple[str, str]]:
        if lake.get("from_defaults") is True and self._other_store(lake):
            yield "properties.s3_endpoint", OTHER_STORE
        for name in SECRET_PROPERTIES & section_of(lake, "properties").keys():
            yield f"properties.{name}", f"is a secret; write {name}_env with a variable's name"
        if words is not None:
            holds = PASSWORD_WORDS & words.keys()
            if holds:
                yield "catalog", "holds a password; name a variable (catalog_env)"
            public = {word: value for word, value in words.items() if word not in holds}
            yield from (("catalog", said) for said in libpq_words.faults(public, files=self.files))


def limits_of(config: Config, *, template: bool = False, over_rest: bool | None = None) -> LakeLimits:
    """Those of a pipeline. ``template``: for what its template is made into. ``over_rest``: the pipeline came so."""
    server, foreign = config.server, config.over_rest if over_rest is None else over_rest
    return LakeLimits(
        variables=server.allowed_variables,
        hosts=server.allowed_hosts,
        paths=server.allowed_paths,
        own=own_variables(config) | config.reserved,
        defaults={} if foreign else config.defaults.properties,
        files=template and not foreign,
        folder=config.path.parent,
    )


def own_variables(config: Config) -> frozenset[str]:
    """Variables that a deployment uses for itself: those of every section but its destinations'."""
    others = ANYBODYS if config.over_rest else TENANTS
    sections = type(config).model_fields.keys() - others
    return frozenset(name for section in sections for name in _named(getattr(config, section)))


TENANTS = frozenset({"destinations", "template"})
ANYBODYS = TENANTS | {"source", "topic", "defaults"}
"""Sections of a pipeline that came over REST."""


def _named(value: object) -> Iterator[str]:
    """The variables that a section names, in keys and properties that end in ``_env``."""
    if isinstance(value, Section):
        yield from _named({name: getattr(value, name) for name in type(value).model_fields})
    elif isinstance(value, Mapping):
        for key, each in value.items():
            if isinstance(each, str) and str(key).endswith(ENV_SUFFIX):
                yield each
            else:
                yield from _named(each)


def _variables(lake: Lake) -> Iterator[tuple[str, str]]:
    properties = section_of(lake, "properties")
    named = [(key, lake.get(key)) for key in ("catalog_env", "postgres_uri_env")]
    named += [(f"properties.{key}", name) for key, name in properties.items() if key.endswith(ENV_SUFFIX)]
    return ((path, name) for path, name in named if isinstance(name, str))


def _hosts(whole: Lake, words: Words | None) -> Iterator[tuple[str, str]]:
    """The hosts that a complete lake names. ``words``: those of its catalog."""
    if words is not None:
        given = [words[key] for key in ("host", "hostaddr") if words.get(key)]
        yield from (("catalog", host) for each in given or [""] for host in each.split(","))
    properties, path = section_of(whole, "properties"), text_of(whole, "data_path")
    kind = None if path is None else storage.kind_of(path)
    if kind != storage.AZURE and {"s3_endpoint_env", "s3_region_env"} & properties.keys():
        return  # the operator's own, of defaults: others may not name variables there
    known = {key: each for key, each in properties.items() if isinstance(each, str)}
    host = storage.asked_host(path, known)
    if host is not None:
        key = "azure_account" if kind == storage.AZURE else "s3_endpoint"
        yield (f"properties.{key}" if key in properties else "data_path"), host


def _places(whole: Lake) -> Iterator[tuple[str, str]]:
    """The paths that a complete lake names."""
    catalog, data_path = whole.get("catalog"), whole.get("data_path")
    if isinstance(catalog, str) and catalog.startswith(SQLITE):
        yield "catalog", catalog.removeprefix(SQLITE)
    if isinstance(data_path, str):
        yield "data_path", data_path


def _either(properties: Mapping[str, Any], key: str) -> tuple[object, object]:
    return properties.get(key), properties.get(f"{key}{ENV_SUFFIX}")


def _catalog_words(lake: Lake, folder: Path) -> Words | None:
    """The connection words of a catalog that is written out; None for another kind."""
    try:
        normal = parse_catalog(text_of(lake, "catalog") or "", folder)
    except CatalogRefused:
        return None
    return connection_words(normal) if normal.startswith(POSTGRES) else None


def _matches(value: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(value, pattern) for pattern in patterns)


def _is_below(place: str, allowed: tuple[str, ...]) -> bool:
    """A prefix counts up to a slash, and a path that steps back is below nothing."""
    if ".." in place.split("/"):
        return False
    return any(f"{place.rstrip('/')}/".startswith(f"{prefix.rstrip('/')}/") for prefix in allowed)
