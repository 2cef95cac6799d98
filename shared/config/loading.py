"""From a configuration file to a ``Config``, or to the list of its mistakes; and from a destination to its lake.

::

    read      YAML → tree: lines, duplicate keys             document.py
    fit       tree → shape of the model, unknown keys        fitting.py
    part      the single-process Viaduck's SCHEMA.TABLE     original.py
    check     one catalog each, variables, duplicates        rules.py, lake_rules.py
    complete  inheritance, defaults, absolute paths          here
    validate  what a single value must fulfil                model.py
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from shared.config.catalogs import has_password, without_password
from shared.config.coercion import fit_section
from shared.config.config_errors import Mistakes, join
from shared.config.document import Tree, read
from shared.config.lake_rules import ConfigContext, complete_lake, inherit, section_of, text_of
from shared.config.model import Config, FileDestination
from shared.config.original_file import with_schemas
from shared.config.rules import check, destinations_of
from shared.config.secrets import SECRET_PROPERTIES
from shared.config.topic_rules import split_topic, with_topic
from shared.contracts.errors import ViaduckError
from shared.contracts.messages import Destination, LakeRef

STATE_DIR = ".viaduck"

NAME_RULE = "must be 1 to 200 letters, digits and . _ : @ + - only, the first a letter or digit"

MISSING = {
    "source": "is missing; write the section with the catalog and the shared table",
    "routing": "is missing; write the section with field, and key_columns unless rows are only ever appended",
    "source.table": "is missing; write the name of the shared table",
    "source.topic": "is missing; write the name of the topic",
    "routing.field": "is missing; write the column whose value picks the destination",
    "id": "is missing; write a name of your choice for the destination",
    "routing_value": "is missing; write the value of the routing column whose rows go there",
}
"""By path, or by key."""


@dataclass(frozen=True)
class Loaded:
    """A file. ``sections``: the keys at its left edge that are written in it."""

    config: Config
    sections: frozenset[str]


def load(path: Path | str, environ: Mapping[str, str] = os.environ) -> Config:
    """Read and check a file. Raises ``ConfigError`` with one line for each mistake, and nothing else."""
    return load_file(Path(path), environ).config


def load_file(
    path: Path,
    environ: Mapping[str, str] = os.environ,
    kafka: Mapping[str, Any] | None = None,
    least_age_s: float | None = None,
) -> Loaded:
    """The same, with what the file says and what it leaves to others. ``kafka``, ``least_age_s``: as for
    ``load_tree``."""
    mistakes = Mistakes()
    document = read(path, mistakes)
    loaded = load_tree(document.tree, path, environ, mistakes, kafka, least_age_s)
    if loaded is None:
        raise mistakes.error(document.positions)
    return loaded


def load_tree(
    tree: dict[str, Tree],
    path: Path,
    environ: Mapping[str, str],
    mistakes: Mistakes,
    kafka: Mapping[str, Any] | None = None,
    least_age_s: float | None = None,
) -> Loaded | None:
    """The tree of a file that is, or is to be, at ``path``; None where there are mistakes, which are noted.

    ``kafka``: the deployment's section, for a pipeline that can't have its own. ``least_age_s``: of the deployment,
    below which upkeep takes nothing; None: by the file's own deadlines.
    """
    rest, topic = split_topic(tree, mistakes)
    sections = with_schemas(fit_section(rest, Config, "", mistakes), mistakes)
    if topic is not None:
        sections = with_topic(sections, topic, mistakes)
    folder = Path(os.path.abspath(path)).parent  # noqa: PTH100 - a link's own folder counts, not its target's
    world = ConfigContext(environ, folder, kafka or {}, least_age_s)
    check(sections, world, mistakes)
    config = _validated(_complete(sections, world.folder / path.name), mistakes)
    return None if mistakes or config is None else Loaded(config, frozenset(sections))


def lake_of(config: Config, destination: Destination) -> LakeRef:
    """Where a published destination's lake is, with what only the file may hold.

    Raises ``secret_missing`` where the file of this process does not say what the published destination came from.
    """
    if not destination.lake.from_file:
        return with_defaults(config, destination.lake)
    for known in config.destinations:
        if known.id == destination.destination and public_lake(known) == destination.lake:
            return known.lake
    raise ViaduckError(
        "secret_missing",
        f"the lake of {destination.destination} has its credentials in the configuration file,"
        f" and {config.path.name} as this service read it does not hold that lake",
        "give every service the same file and restart this one, or name environment variables in it",
    )


def with_defaults(config: Config, lake: LakeRef) -> LakeRef:
    """``lake`` with the credentials of ``defaults``, where it has them from there."""
    if not lake.from_defaults:
        return lake
    keys = {name: value for name, value in config.defaults.properties.items() if name in SECRET_PROPERTIES}
    return lake.model_copy(update={"properties": inherit(lake.properties, keys), "from_defaults": False})


def public_lake(destination: FileDestination) -> LakeRef:
    """A destination's lake as it may travel. Where the file itself holds secrets they are left out, and it says so."""
    lake = destination.lake
    secret = {name for name in lake.properties if name in SECRET_PROPERTIES}
    holds_password = lake.catalog is not None and has_password(lake.catalog)
    if not secret and not holds_password:
        return lake
    catalog = lake.catalog if lake.catalog is None else without_password(lake.catalog)
    properties = {name: value for name, value in lake.properties.items() if name not in secret}
    return lake.model_copy(update={"catalog": catalog, "properties": properties, "from_file": True})


def pipeline_name(table: str) -> str:
    """A table's name as a pipeline's default name: as it is where it fits, else slugged, equal for equal tables."""
    slug = re.sub(r"[^A-Za-z0-9._:@+-]+", "-", table).strip("-")[:200].lstrip("._:@+-")
    return slug or f"table-{hashlib.md5(table.encode(), usedforsecurity=False).hexdigest()[:8]}"


def _complete(sections: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Fill in what follows from the rest: inherited properties, table and pipeline names, absolute paths."""
    folder, source = path.parent, section_of(sections, "source")
    table, defaults = text_of(source, "table"), section_of(section_of(sections, "defaults"), "properties")
    whole = {"pipeline": pipeline_name(table or ""), **sections, "path": path}
    if source:
        whole["source"] = complete_lake(source, {}, folder)
    given = sections.get("destinations")
    if isinstance(given, list):
        entries = zip(given, destinations_of(sections), strict=True)
        whole["destinations"] = [_entry(raw, each, table, defaults, folder) for raw, each in entries]
    state_dir = text_of(sections, "state_dir") if "state_dir" in sections else STATE_DIR
    if state_dir is not None:
        whole["state_dir"] = _absolute(state_dir, folder)
    if (url := text_of(section_of(sections, "registry"), "url")) is not None:
        whole["registry"] = {**sections["registry"], "url": _absolute_url(url, folder)}
    return whole


def _entry(raw: object, entry: dict[str, Any], table: str | None, defaults: Mapping[str, Any], folder: Path) -> object:
    if not isinstance(raw, dict):
        return raw
    inherited = {} if table is None else {"table": table}
    return complete_lake({**inherited, **entry}, defaults, folder)


def _absolute(path: str, folder: Path) -> str:
    return os.path.abspath(folder / os.path.expanduser(path))  # noqa: PTH100, PTH111 - Path's own raise, or follow links


def _absolute_url(url: str, folder: Path) -> str:
    """``sqlite:///PATH`` against the file's folder: SQLAlchemy would take the current one."""
    prefix, slashes, path = url.partition(":///")
    if not prefix.startswith("sqlite") or not slashes or not path or path.startswith((":memory:", "file:")):
        return url
    return f"{prefix}:///{_absolute(path, folder)}"


def _validated(values: Mapping[str, Any], mistakes: Mistakes) -> Config | None:
    try:
        return Config.model_validate(values)
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            path = _path(("source", *detail["loc"][1:]) if detail["loc"][0] == "topic" else detail["loc"])
            if not mistakes.covers(path):
                mistakes.note(path, _said(detail, path))
        return None


def _path(location: tuple[int | str, ...]) -> str:
    path = ""
    for part in location:
        path = join(path, part)
    return path


def _said(detail: ErrorDetails, path: str) -> str:
    kind, context = detail["type"], detail.get("ctx", {})
    match kind:
        case "missing":
            return MISSING.get(path) or MISSING.get(path.rpartition(".")[2]) or "is missing; write it"
        case "string_pattern_mismatch":
            return NAME_RULE
        case "literal_error" | "enum":
            return f"must be one of: {context['expected'].replace(' or ', ', ')}"
        case "greater_than_equal":
            return f"must be {context['ge']} or more"
        case "less_than_equal":
            return f"must be {context['le']} or less"
        case "greater_than":
            return f"must be greater than {context['gt']}"
        case _:
            return f"can't be used: {detail['msg'].lower()}"
