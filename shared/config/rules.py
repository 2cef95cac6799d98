"""What a file must fulfil beyond the shape of its values, section by section.

The rules read what fitted and pass over what did not, so that one mistake never hides another.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from typing import Any

from shared.config import public_url, table_layout
from shared.config.catalogs import ResolvedLake
from shared.config.config_errors import Mistakes, join, quoted
from shared.config.lake_policies import LakePolicies
from shared.config.lake_rules import (
    ConfigContext,
    check_access,
    check_lake,
    check_properties,
    check_variable,
    check_variables,
    complete_lake,
    section_of,
    text_of,
)
from shared.config.path_overlap import ONE_TABLE_EACH, THE_SOURCES, PathClaim, Paths, claim_of, table_names
from shared.config.template_rules import check_template
from shared.config.topic_rules import check_flush, check_topic
from shared.config.upkeep_rules import check_upkeep, policy_in
from shared.contracts.messages import LakeRef

Sections = Mapping[str, Any]

TOPIC_PREFIX = r"[A-Za-z0-9._-]{1,200}"
MEMORY = r"\d+(\.\d+)?\s*[KMGT](i?B)?"
DATABASES = ("sqlite", "postgresql")


def check(sections: Sections, world: ConfigContext, mistakes: Mistakes) -> None:
    """Note every mistake that a look at one value alone does not show."""
    source = section_of(sections, "source")
    is_lake = isinstance(sections.get("source"), dict) and "topic" not in sections
    lake = check_lake(source, "source", world, mistakes) if is_lake else None
    check_flush(sections, mistakes)
    if "topic" in sections:
        check_topic(sections, world, mistakes)
    check_properties(section_of(section_of(sections, "defaults"), "properties"), "defaults.properties", world, mistakes)
    lakes = _check_destinations(destinations_of(sections), source, lake, world, mistakes)
    _check_paths(sections, lake, lakes, world, mistakes)
    _check_access(sections, is_lake, mistakes)
    check_template(section_of(sections, "template"), section_of(sections, "appear"), world, mistakes)
    _check_routing(section_of(sections, "routing"), mistakes)
    _check_layouts(sections, mistakes)
    check_upkeep(sections, destinations_of(sections), mistakes, world.least_age_s)
    _check_policies(sections, lakes, mistakes)
    check_common(sections, world, mistakes)


def _check_access(sections: Sections, is_lake: bool, mistakes: Mistakes) -> None:
    """Note what lakes can't be opened with; a destination's with what it inherits."""
    defaults = section_of(section_of(sections, "defaults"), "properties")
    if is_lake:
        check_access(section_of(sections, "source"), "source", {}, mistakes)
    for number, each in enumerate(destinations_of(sections)):
        check_access(each, join("destinations", number), defaults, mistakes)
    if template := section_of(sections, "template"):
        check_access(template, "template", defaults, mistakes)


def check_common(sections: Sections, world: ConfigContext, mistakes: Mistakes) -> None:
    """The same for the sections that the pipelines of a deployment share."""
    _check_partition(section_of(section_of(sections, "instance"), "partition"), mistakes)
    _check_instance(section_of(sections, "instance"), mistakes)
    _check_kafka(section_of(sections, "kafka"), world, mistakes)
    _check_registry(section_of(sections, "registry"), world, mistakes)
    _check_token(section_of(sections, "server"), world, mistakes)
    _check_public_url(section_of(sections, "server"), mistakes)
    _check_memory(section_of(sections, "applier"), mistakes)


def destinations_of(sections: Sections) -> list[dict[str, Any]]:
    """The destinations by their number in the file; an empty one where it was refused."""
    given = sections.get("destinations")
    return [entry if isinstance(entry, dict) else {} for entry in given] if isinstance(given, list) else []


def _check_destinations(
    destinations: list[dict[str, Any]],
    source: Sections,
    lake: ResolvedLake | None,
    world: ConfigContext,
    mistakes: Mistakes,
) -> list[ResolvedLake | None]:
    """The lakes of the destinations, as far as they are known."""
    places = [join("destinations", number) for number in range(len(destinations))]
    lakes = [
        check_lake(each, place, world, mistakes) if not mistakes.covers(place) else None
        for each, place in zip(destinations, places, strict=True)
    ]
    default = text_of(source, "table")
    tables = [table_of(found, each, default) for found, each in zip(lakes, destinations, strict=True)]
    origin = table_of(lake, source, None)
    for place, table in zip(places, tables, strict=True):
        if table is not None and table == origin:
            mistakes.note(join(place, "table"), THE_SOURCES)
    _check_repeated("id", [text_of(each, "id") for each in destinations], "ids must differ", mistakes)
    values = [text_of(each, "routing_value") for each in destinations]
    _check_repeated("routing_value", values, "each routing value goes to one destination", mistakes)
    _check_repeated("table", tables, ONE_TABLE_EACH, mistakes, "lake and table")
    return lakes


def _check_paths(
    sections: Sections,
    source: ResolvedLake | None,
    lakes: list[ResolvedLake | None],
    world: ConfigContext,
    mistakes: Mistakes,
) -> None:
    """Note data paths that lie in another lake's."""
    defaults, paths = section_of(section_of(sections, "defaults"), "properties"), Paths()
    if (claim := _claim("the source", section_of(sections, "source"), source, {}, world)) is not None:
        paths.add(claim)
    for number, (lake, each) in enumerate(zip(lakes, destinations_of(sections), strict=True)):
        place = join("destinations", number)
        claim = _claim(f"{place} ({text_of(each, 'id')})", each, lake, defaults, world)
        if claim is None:
            continue
        if (said := paths.clash(claim)) is not None:
            mistakes.note(join(place, "data_path"), said)
        paths.add(claim)


def _claim(
    owner: str, section: Sections, lake: ResolvedLake | None, defaults: Mapping[str, Any], world: ConfigContext
) -> PathClaim | None:
    if lake is None:
        return None
    whole = complete_lake(section, defaults, world.folder)
    properties = {key: each for key, each in section_of(whole, "properties").items() if isinstance(each, str)}
    ref = LakeRef(catalog=lake.catalog, data_path=text_of(whole, "data_path"), properties=properties)
    return claim_of(owner, lake.identity, ref)


def table_of(lake: ResolvedLake | None, section: Sections, default: str | None) -> tuple[str, str, str] | None:
    """Lake, schema and table, equal for equal tables."""
    table = text_of(section, "table") or default
    if lake is None or table is None:
        return None
    return lake.identity, *table_names(text_of(section, "schema") or "main", table)


def _check_repeated(key: str, values: list[Any], advice: str, mistakes: Mistakes, what: str | None = None) -> None:
    first: dict[Hashable, int] = {}
    for number, value in enumerate(values):
        if value is None:
            continue
        if value in first:
            shown = what or quoted(value)
            earlier = join("destinations", first[value])
            mistakes.note(join(join("destinations", number), key), f"{shown} is that of {earlier} too; {advice}")
        first.setdefault(value, number)


def _check_layouts(sections: Sections, mistakes: Mistakes) -> None:
    places = [("", sections), ("template", section_of(sections, "template"))]
    places += [(join("destinations", number), each) for number, each in enumerate(destinations_of(sections))]
    for place, section in places:
        for key, said in table_layout.faults(section_of(section, "layout")):
            mistakes.note(join(join(place, "layout"), key), said)


def _check_policies(sections: Sections, lakes: list[ResolvedLake | None], mistakes: Mistakes) -> None:
    """Note destinations of one lake that are not kept by one policy."""
    known = LakePolicies()
    for number, (lake, each) in enumerate(zip(lakes, destinations_of(sections), strict=True)):
        place = join("destinations", number)
        policy = policy_in(section_of(sections, "upkeep"), section_of(each, "upkeep"))
        if lake is None or policy is None:
            continue
        owner = f"{place} ({text_of(each, 'id')})"
        if (found := known.contradiction(lake.identity, owner, policy)) is not None:
            mistakes.note(f"{place}.upkeep.{found[0]}", found[1])
        else:
            known.add(lake.identity, owner, policy)


def _check_routing(routing: Sections, mistakes: Mistakes) -> None:
    columns = routing.get("key_columns")
    seen: dict[str, int] = {}
    for number, column in enumerate(columns if isinstance(columns, list) else []):
        if isinstance(column, str) and column.lower() in seen:
            place = join("routing.key_columns", number)
            mistakes.note(place, f"{quoted(column)} is a key column already; name each column once")
        if isinstance(column, str):
            seen.setdefault(column.lower(), number)


def _check_partition(partition: Sections, mistakes: Mistakes) -> None:
    place = "instance.partition"
    include, total, ordinal = (partition.get(key) for key in ("include", "total", "ordinal"))
    if partition.get("mode") == "explicit" and include in (None, []):
        mistakes.note(join(place, "include"), "is missing or empty; list the ids of the destinations to plan here")
    if partition.get("mode") != "hash":
        return
    count = total if isinstance(total, int) else 1
    if isinstance(ordinal, int) and count >= 1 and ordinal >= count:
        mistakes.note(
            join(place, "ordinal"), f"must be less than total; write 0 to {count - 1}, or a greater total than {count}"
        )


def _check_instance(instance: Sections, mistakes: Mistakes) -> None:
    name = text_of(instance, "id")
    if name is not None and ("/" in name or not name.isprintable()):
        mistakes.note("instance.id", "holds a slash or a control character; write letters, digits, dots and dashes")


def _check_kafka(kafka: Sections, world: ConfigContext, mistakes: Mistakes) -> None:
    check_variables(section_of(kafka, "properties"), "kafka.properties", world, mistakes)
    _check_signing(kafka, world, mistakes)
    prefix = text_of(kafka, "topic_prefix")
    if prefix is not None and not re.fullmatch(TOPIC_PREFIX, prefix):
        mistakes.note("kafka.topic_prefix", "must be 1 to 200 letters, digits, dots, underscores and dashes")


def _check_signing(kafka: Sections, world: ConfigContext, mistakes: Mistakes) -> None:
    for name in ("signing_key", "former_signing_key"):
        variable = text_of(kafka, f"{name}_env")
        if variable is not None:
            check_variable(variable, f"kafka.{name}_env", world, mistakes)
        if f"{name}_env" in kafka and f"{name}_file" in kafka:
            mistakes.note(f"kafka.{name}_file", f"is given beside {name}_env; keep one of them")
    if kafka.get("signing") == "off" and ("signing_key_env" in kafka or "signing_key_file" in kafka):
        mistakes.note("kafka.signing", "is off, and a key is given; leave out one of them")


def _check_registry(registry: Sections, world: ConfigContext, mistakes: Mistakes) -> None:
    url, name = text_of(registry, "url"), text_of(registry, "url_env")
    if "url" in registry and "url_env" in registry:
        mistakes.note("registry.url_env", "is given beside url; keep one of them")
    if name is not None and check_variable(name, "registry.url_env", world, mistakes):
        _check_url(world.environ[name], "registry.url_env", mistakes)
    if url is not None:
        _check_url(url, "registry.url", mistakes)


def _check_url(url: str, path: str, mistakes: Mistakes) -> None:
    kind = re.match(r"(\w+)(\+\w+)?://", url)
    if kind is None or kind[1] not in DATABASES:
        mistakes.note(path, "must be a database URL; write sqlite:///PATH or postgresql://USER@HOST/DATABASE")


def _check_public_url(server: Sections, mistakes: Mistakes) -> None:
    url = text_of(server, "public_url")
    if url is None:
        return
    try:
        public_url.read(url)
    except ValueError as error:
        mistakes.note("server.public_url", str(error))


def _check_token(server: Sections, world: ConfigContext, mistakes: Mistakes) -> None:
    name = text_of(server, "token_env")
    if name is not None:
        check_variable(name, "server.token_env", world, mistakes)


def _check_memory(applier: Sections, mistakes: Mistakes) -> None:
    limit = text_of(applier, "memory_limit")
    if limit is not None and not re.fullmatch(MEMORY, limit.strip(), re.IGNORECASE):
        mistakes.note("applier.memory_limit", "must be a size with its unit; write it like 512MB or 2GB")
