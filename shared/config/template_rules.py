"""What the sections ``template`` and ``appear`` must fulfil: no two routing values may come to one id, lake or path."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from psycopg.conninfo import conninfo_to_dict

from shared.config.catalogs import POSTGRES, CatalogRefused, ResolvedLake, has_password, parse_catalog
from shared.config.config_errors import Mistakes, join
from shared.config.lake_rules import CATALOG_KEYS, ConfigContext, check_lake, section_of, text_of
from shared.config.model import PLACEHOLDER
from shared.config.secrets import SECRET_PROPERTIES
from shared.contracts.messages import NAME

HERE = "template"
PLACES = ("id", "name", "catalog", "metadata_schema", "data_path", "schema", "table")
"""Keys that may hold the placeholder; plain properties may as well. Never the name of a variable: only the author of
the file decides which variables are read."""

LONGEST_NAME = 63
"""Bytes of a name in Postgres; longer ones are cut there, and two could become one."""

Section = Mapping[str, Any]


def check_template(section: Section, appear: Section, world: ConfigContext, mistakes: Mistakes) -> None:
    """Note what is wrong with either; an empty template is none."""
    _check_allow(appear, mistakes)
    if not section:
        if text_of(appear, "policy") in ("propose", "create"):
            mistakes.note("appear.policy", "needs the section template; write one, or off")
        return
    _check_braces(section, mistakes)
    _check_secrets(section, world, mistakes)
    _check_hosts(section, world, mistakes)
    lake = check_lake(filled(section, "tenant"), HERE, world, mistakes)
    _check_id(section, mistakes)
    if lake is not None:
        _check_apart(section, lake, mistakes)


def filled(section: Section, name: str) -> dict[str, Any]:
    """The section as it is for a routing value that makes the safe name ``name``."""
    known = {
        key: value.replace(PLACEHOLDER, name) if key in PLACES and isinstance(value, str) else value
        for key, value in section.items()
    }
    properties = section_of(section, "properties")
    if properties:
        known["properties"] = {key: _filled(key, value, name) for key, value in properties.items()}
    return known


def _filled(key: str, value: Any, name: str) -> Any:
    return value.replace(PLACEHOLDER, name) if isinstance(value, str) and not key.endswith("_env") else value


def _check_allow(appear: Section, mistakes: Mistakes) -> None:
    pattern = text_of(appear, "allow")
    try:
        re.compile(pattern or "")
    except re.error as error:
        mistakes.note("appear.allow", f"is no regular expression: {error}; write one like [a-z0-9-]+")


def _check_braces(section: Section, mistakes: Mistakes) -> None:
    for key in CATALOG_KEYS:
        if key.endswith("_env") and _holds_brace(section.get(key)):
            mistakes.note(join(HERE, key), f"names a variable, and has no {PLACEHOLDER}; put it into metadata_schema")
    for key in PLACES:
        _check_text(section.get(key), join(HERE, key), mistakes)
    for name, value in section_of(section, "properties").items():
        place = join(join(HERE, "properties"), name)
        if name.endswith("_env") and _holds_brace(value):
            mistakes.note(place, f"names a variable, and has no {PLACEHOLDER}; write one variable for all")
        _check_text(value, place, mistakes)


def _check_text(value: Any, place: str, mistakes: Mistakes) -> None:
    if isinstance(value, str) and _holds_brace(value.replace(PLACEHOLDER, "")):
        mistakes.note(place, f"holds a brace that is not of {PLACEHOLDER}; write that, or leave braces out")


def _holds_brace(value: Any) -> bool:
    return isinstance(value, str) and ("{" in value or "}" in value)


def _check_secrets(section: Section, world: ConfigContext, mistakes: Mistakes) -> None:
    """What is made from a template is registered and travels, as what comes over REST."""
    for name in section_of(section, "properties"):
        if name in SECRET_PROPERTIES:
            place = join(join(HERE, "properties"), name)
            mistakes.note(place, f"is a secret; write {name}_env with a variable's name, or put it under defaults")
    catalog = text_of(section, "catalog")
    try:
        holds = catalog is not None and has_password(parse_catalog(catalog, world.folder))
    except CatalogRefused:
        return
    if holds:
        advice = "write catalog_env with a variable's name, or passfile=… among the words"
        mistakes.note(join(HERE, "catalog"), f"holds a password; {advice}")


def _check_hosts(section: Section, world: ConfigContext, mistakes: Mistakes) -> None:
    """A routing value may name a database, and never choose to whom passwords and rows are sent: names have dots."""
    properties = section_of(section, "properties")
    for name in ("s3_endpoint", "azure_account"):
        if PLACEHOLDER in (text_of(properties, name) or ""):
            place = join(join(HERE, "properties"), name)
            mistakes.note(place, f"would let a routing value choose a host; leave {PLACEHOLDER} out")
    role = text_of(properties, "s3_assume_role_arn") or ""
    if PLACEHOLDER in role.partition(":role/")[0]:
        place = join(join(HERE, "properties"), "s3_assume_role_arn")
        mistakes.note(place, f"would let a routing value choose an account; write {PLACEHOLDER} behind :role/ alone")
    try:
        one, other = (_words(text_of(filled(section, name), "catalog"), world) for name in ("one", "other"))
    except CatalogRefused:
        return
    chosen = [word for word in one if one[word] != other.get(word) and word != "dbname"]
    if chosen:
        said = f"would let a routing value choose {', '.join(chosen)}; write {PLACEHOLDER} in dbname alone"
        mistakes.note(join(HERE, "catalog"), said)


def _words(catalog: str | None, world: ConfigContext) -> dict[str, str]:
    """Connection words; none for another kind of catalog."""
    normal = "" if catalog is None else parse_catalog(catalog, world.folder)
    if not normal.startswith(POSTGRES):
        return {}
    return {word: str(value) for word, value in conninfo_to_dict(normal.removeprefix(POSTGRES)).items()}


def _check_id(section: Section, mistakes: Mistakes) -> None:
    name = text_of(section, "id")
    if name is None:
        return
    if PLACEHOLDER not in name:
        mistakes.note(join(HERE, "id"), f"is the same for every routing value; write {PLACEHOLDER} in it")
    elif not re.fullmatch(NAME, name.replace(PLACEHOLDER, "x" * LONGEST_NAME)):
        longest = 200 - LONGEST_NAME
        said = f"must be letters, digits and . _ : @ + - around {PLACEHOLDER}, {longest} of them at most"
        mistakes.note(join(HERE, "id"), said)


def _check_apart(section: Section, lake: ResolvedLake, mistakes: Mistakes) -> None:
    """Two routing values must differ in where their rows go, and in nothing that their lake has once."""
    is_postgres = lake.sqlite_file is None
    own_lake, given = has_own_lake(section, is_postgres=is_postgres), text_of(section, "data_path")
    if not own_lake and not any(PLACEHOLDER in (text_of(section, key) or "") for key in ("schema", "table")):
        key = next(key for key in CATALOG_KEYS if key in section)
        others = "metadata_schema, schema or table" if is_postgres else "the catalog, schema or table"
        mistakes.note(join(HERE, key), f"leads every routing value to one table; write {PLACEHOLDER} in {others}")
    place = join(HERE, "data_path")
    if given is None and own_lake:
        mistakes.note(place, f"is missing; each new lake needs one, write {PLACEHOLDER} in it")
    if given is not None and own_lake and PLACEHOLDER not in given:
        mistakes.note(place, f"is the same for every routing value; write {PLACEHOLDER} in it")
    if given is not None and not own_lake and PLACEHOLDER in given:
        mistakes.note(place, f"differs by routing value, but the lake is one for all; leave {PLACEHOLDER} out")
    if section.get("create_database") is True and not is_postgres:
        mistakes.note(join(HERE, "create_database"), "is for catalogs on Postgres; leave it out")


def has_own_lake(section: Section, *, is_postgres: bool) -> bool:
    """Whether every routing value gets a lake of its own. A SQLite file holds one, whatever metadata_schema says."""
    keys = ("catalog", "metadata_schema") if is_postgres else ("catalog",)
    return any(PLACEHOLDER in (text_of(section, key) or "") for key in keys)
