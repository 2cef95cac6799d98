"""What one lake of a file must fulfil beyond its shape: one catalog that can be used, variables that are set."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shared.config import storage, store_access
from shared.config.catalogs import (
    ENV_SUFFIX,
    CatalogRefused,
    ResolvedLake,
    absolute_data_path,
    parse_catalog,
)
from shared.config.config_errors import Mistakes, join
from shared.config.secrets import is_variable_name, scrub, shown_variable
from shared.config.substituted_words import SUBSTITUTED_WORD, refusal

CATALOG_KEYS = ("catalog", "catalog_env", "postgres_uri_env")
NAMES = ("metadata_schema", "schema", "table")


@dataclass(frozen=True)
class ConfigContext:
    """What a file's values are looked up against."""

    environ: Mapping[str, str]
    folder: Path
    kafka: Mapping[str, Any] = field(default_factory=dict)
    """Of the deployment, for a pipeline that came over REST and has no such section."""
    least_age_s: float | None = None
    """Below which upkeep takes nothing; None: by the file's own deadlines, which may be in another file."""


def text_of(section: object, key: str) -> str | None:
    """A text that fitted; None where there is none, or something was wrong with it."""
    value = section.get(key) if isinstance(section, dict) else None
    return value if isinstance(value, str) else None


def section_of(section: object, key: str) -> dict[str, Any]:
    value = section.get(key) if isinstance(section, dict) else None
    return value if isinstance(value, dict) else {}


def check_lake(section: Mapping[str, Any], path: str, world: ConfigContext, mistakes: Mistakes) -> ResolvedLake | None:
    """Note what is wrong with a lake; the lake as far as its catalog is known, properties left out."""
    check_properties(section_of(section, "properties"), join(path, "properties"), world, mistakes)
    data_path = text_of(section, "data_path")
    if data_path is not None and scrub(data_path) != data_path:
        mistakes.note(join(path, "data_path"), "holds a password or key; write it under properties instead")
    elif data_path is not None and (said := storage.faulty_data_path(data_path)) is not None:
        mistakes.note(join(path, "data_path"), said)
    for key in NAMES:
        if found := SUBSTITUTED_WORD.search(text_of(section, key) or ""):
            mistakes.note(join(path, key), refusal(found))
    catalog = _catalog(section, path, world, mistakes)
    return None if catalog is None else ResolvedLake(catalog, text_of(section, "metadata_schema"))


def check_access(section: Mapping[str, Any], path: str, defaults: Mapping[str, Any], mistakes: Mistakes) -> None:
    """Note keys and identities that do not go together, those that the lake inherits among them."""
    properties = inherit(section_of(section, "properties"), defaults)
    spelled = {name.removesuffix(ENV_SUFFIX): name for name in properties}
    for place, said in store_access.contradictions(text_of(section, "data_path"), spelled):
        name = place.removeprefix("properties.")
        at = join(path, place) if name == place else join(join(path, "properties"), spelled[name])
        if not mistakes.covers(at):
            mistakes.note(at, said)


def _catalog(section: Mapping[str, Any], path: str, world: ConfigContext, mistakes: Mistakes) -> str | None:
    given = [key for key in CATALOG_KEYS if key in section]
    if not given and not any(mistakes.covers(join(path, key)) for key in CATALOG_KEYS):
        example = "catalog: sqlite:lake/source.sqlite, or catalog_env or postgres_uri_env with the name of a variable"
        mistakes.note(join(path, "catalog"), f"is missing; write {example}")
    if len(given) > 1:
        mistakes.note(join(path, given[1]), f"is given beside {given[0]}; keep one of them")
    texts = [(key, text_of(section, key)) for key in given]
    found = [_one_catalog(key, text, path, world, mistakes) for key, text in texts if text is not None]
    return found[0] if len(found) == 1 else None


def _one_catalog(key: str, text: str, path: str, world: ConfigContext, mistakes: Mistakes) -> str | None:
    place = join(path, key)
    if key.endswith(ENV_SUFFIX) and not check_variable(text, place, world, mistakes):
        return None
    try:
        return parse_catalog(world.environ[text] if key.endswith(ENV_SUFFIX) else text, world.folder)
    except CatalogRefused as refused:
        whose = "the variable's value " if key.endswith(ENV_SUFFIX) else ""
        mistakes.note(place, f"{whose}can't be used: {refused}")
        return None


def check_variable(name: str, path: str, world: ConfigContext, mistakes: Mistakes) -> bool:
    """Note an environment variable that is none, not set or empty; whether it can be used."""
    if not is_variable_name(name):
        mistakes.note(path, "must be the name of an environment variable, not a value; write a name such as LAKE_URI")
    elif not world.environ.get(name, "").strip():
        what = "is empty" if name in world.environ else "is not set"
        mistakes.note(path, f"the environment variable {shown_variable(name)} {what}; set it, or correct the name")
    return bool(is_variable_name(name) and world.environ.get(name, "").strip())


def check_variables(properties: Mapping[str, Any], path: str, world: ConfigContext, mistakes: Mistakes) -> None:
    """Check every ``NAME_env`` among properties, and that no NAME is given both ways."""
    for name, value in properties.items():
        plain = name.removesuffix(ENV_SUFFIX)
        if plain != name and isinstance(value, str):
            check_variable(value, join(path, name), world, mistakes)
        if plain != name and plain in properties:
            mistakes.note(join(path, name), f"is given beside {plain}; keep one of them")


def check_properties(properties: Mapping[str, Any], path: str, world: ConfigContext, mistakes: Mistakes) -> None:
    """Check the properties of a lake, or of ``defaults``, each with or without ``_env``."""
    check_variables(properties, path, world, mistakes)
    for name, value in properties.items():
        plain = name.removesuffix(ENV_SUFFIX)
        if plain not in store_access.PROPERTIES:
            mistakes.note(join(path, name), _unknown_property(name))
        elif isinstance(value, str) and (said := _faulty(name, value, world)) is not None:
            mistakes.note(join(path, name), said)


def _faulty(name: str, value: str, world: ConfigContext) -> str | None:
    """What is wrong with a property's value, or with that of its variable."""
    plain = name.removesuffix(ENV_SUFFIX)
    if plain == name:
        return store_access.faulty_property(name, value)
    given = world.environ.get(value, "") if is_variable_name(value) else ""
    said = store_access.faulty_property(plain, given) if given.strip() else None
    return None if said is None else f"the variable's value {said}"


def _unknown_property(name: str) -> str:
    near = difflib.get_close_matches(name.lower().removesuffix(ENV_SUFFIX), store_access.PROPERTIES, 1)
    suffix = ENV_SUFFIX if name.lower().endswith(ENV_SUFFIX) else ""
    if near:
        return f"is not a property; did you mean {near[0]}{suffix}?"
    known = ", ".join(store_access.PROPERTIES)
    return f"is not a property; remove it, or write one of: {known} (or one of them with _env)"


def complete_lake(section: Mapping[str, Any], defaults: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """A lake's section with inherited properties, an absolute data path and its catalog in normal form."""
    whole = dict(section)
    if defaults or "properties" in section:
        whole["properties"] = inherit(section_of(section, "properties"), defaults)
    data_path, catalog = text_of(section, "data_path"), text_of(section, "catalog")
    if data_path is not None:
        whole["data_path"] = absolute_data_path(data_path, folder)
    if catalog is not None:
        with suppress(CatalogRefused):  # reported by check_lake already
            whole["catalog"] = parse_catalog(catalog, folder)
    return whole


def inherit(own: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Defaults under own properties. NAME and NAME_env are one property, so either of them covers both; and with
    keys, or an identity, of its own a lake has none from elsewhere."""
    named = {name.removesuffix(ENV_SUFFIX) for name in own}
    covered = named.union(*(store_access.INSTEAD.get(name, ()) for name in named))
    return {name: value for name, value in defaults.items() if name.removesuffix(ENV_SUFFIX) not in covered} | dict(own)
