"""What a lake may name depends on where it was declared: in the operator's file, or elsewhere.

=====================================  ==================  ====================  ======================
declared                               connection words    variables             environment (PG*, AWS)
=====================================  ==================  ====================  ======================
in a file: source, destinations        all                 all                   yes
by a file's template                   those of a lake,    server.               yes
                                       and files           allowed_variables
over REST, or by a message alone       those of a lake     server.               none
                                                           allowed_variables
=====================================  ==================  ====================  ======================

A message does not say where a lake was declared: a lake that equals one of the file is treated like it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

from shared.config.catalogs import ENV_SUFFIX, ResolvedLake, resolve
from shared.config.lake_rules import complete_lake, section_of
from shared.config.limits import ADDRESS, LakeLimits, limits_of
from shared.config.loading import lake_of, public_lake, with_defaults
from shared.config.model import PLACEHOLDER, Config, FileDestination
from shared.config.safe_names import safe_name
from shared.config.secrets import SECRET_PROPERTIES
from shared.config.template_rules import filled
from shared.contracts.errors import ViaduckError
from shared.contracts.messages import Destination, LakeRef

HOW_TO_ALLOW = (
    "give every service the same configuration file where it declares this lake; else let it be named there"
    " (server.allowed_variables, allowed_hosts, allowed_paths), or correct it"
)


class Lakes:
    """The lakes of one pipeline, resolved. Every method raises what ``resolve`` raises, and ``not_allowed``."""

    def __init__(self, config: Config, environ: Mapping[str, str] = os.environ) -> None:
        self.config = config
        self.environ = environ
        self.over_rest = config.over_rest
        self._listed = {} if self.over_rest else {each.id: each for each in config.destinations}

    @cached_property
    def limits(self) -> LakeLimits:
        """What a lake may name that the file does not list."""
        return limits_of(self.config, over_rest=self.over_rest)

    def source(self) -> ResolvedLake:
        """Raises ``ViaduckError``, also where the source is a topic."""
        if self.config.topic is not None:
            said = f"the source of {self.config.pipeline} is the topic {self.config.topic.topic}, which is no lake"
            raise ViaduckError("not_allowed", said, "name a pipeline whose source is a lake")
        return self._of_pipeline(self.config.source.lake)

    def listed(self, destination: FileDestination) -> ResolvedLake:
        """The lake of a destination as the file has it: listed by the pipeline, or registered beside it."""
        if self.over_rest or self._listed.get(destination.id) == destination:
            return self._of_pipeline(destination.lake)
        lake, defaults = destination.lake, self.config.defaults.properties
        own = {name: value for name, value in lake.properties.items()
               if name not in SECRET_PROPERTIES or defaults.get(name) != value}  # fmt: skip
        public = lake.model_copy(update={"properties": own, "from_defaults": own != lake.properties})
        return self._limited(public, lake, self._limits(destination.id, destination.routing_value, public))

    def published(self, destination: Destination) -> ResolvedLake:
        """That of a destination as control publishes it. Raises also what ``lake_of`` raises."""
        encrypted = destination.layout is not None and destination.layout.encrypted
        return replace(self._published(destination), encrypted=encrypted)

    def _published(self, destination: Destination) -> ResolvedLake:
        known = self._known(destination.destination, destination.lake)
        if known is not None:
            return self._resolved(known.lake)
        limits = self._limits(destination.destination, destination.routing_value, destination.lake)
        return self._limited(destination.lake, lake_of(self.config, destination), limits)

    def declared(self, destination: str, routing_value: str, lake: LakeRef) -> ResolvedLake:
        """That of a destination which is registered, or about to be, as far as control knows its credentials."""
        whole = with_defaults(self.config, lake)
        if self._known(destination, lake) is not None:
            return self._resolved(whole)
        return self._limited(lake, whole, self._limits(destination, routing_value, lake))

    def catalog(self, destination: str, routing_value: str, lake: LakeRef) -> ResolvedLake:
        """The same without its properties, for a look at its catalog alone."""
        public = lake.model_copy(update={"properties": {}, "from_defaults": False})
        if self._known(destination, lake) is not None:
            return self._resolved(public)
        return self._limited(lake, public, self._limits(destination, routing_value, lake))

    def refusals(self, destination: str, routing_value: str, lake: LakeRef) -> Iterator[tuple[str, str]]:
        """Path within the lake, and message, of what it may not name."""
        if self._known(destination, lake) is None:
            yield from self._limits(destination, routing_value, lake).refusals(lake.model_dump(exclude_none=True))

    def _known(self, destination: str, lake: LakeRef) -> FileDestination | None:
        """The file's own, where it is listed there as it is."""
        known = self._listed.get(destination)
        return known if known is not None and public_lake(known) == lake else None

    def _limits(self, destination: str, routing_value: str, lake: LakeRef) -> LakeLimits:
        of_template = self._is_of_template(destination, routing_value, lake)
        return replace(self.limits, files=True) if of_template else self.limits

    def _of_pipeline(self, lake: LakeRef) -> ResolvedLake:
        return self._limited(lake, lake, self.limits) if self.over_rest else self._resolved(lake)

    def _limited(self, public: LakeRef, whole: LakeRef, limits: LakeLimits) -> ResolvedLake:
        for path, said in limits.refusals(public.model_dump(exclude_none=True)):
            raise ViaduckError("not_allowed", f"{path}: {said}", HOW_TO_ALLOW)
        return self._resolved(whole, untrusted=not limits.files)

    def _resolved(self, lake: LakeRef, *, untrusted: bool = False) -> ResolvedLake:
        return resolve(lake, self.environ, self.config.path.parent, untrusted=untrusted)

    def _is_of_template(self, destination: str, routing_value: str, lake: LakeRef) -> bool:
        """Whether the file's own template makes just this of that routing value: a safe name, as it is."""
        config, template = self.config, self.config.template
        if self.over_rest or not template.is_given or safe_name(routing_value) is None:
            return False
        if destination != template.id.replace(PLACEHOLDER, routing_value):
            return False
        section = template.model_dump(by_alias=True, exclude_unset=True, mode="json")
        return entry_lake(filled(section, routing_value), config) == lake


def entry_lake(section: Mapping[str, Any], config: Config) -> LakeRef:
    """The lake of an entry over REST. Keys that the file's defaults hold stay in the file: every service has it."""
    own = section_of(section, "properties")
    whole = complete_lake(section, _inheritable(own, config.defaults.properties), config.path.parent)
    properties = whole.get("properties", {})
    inherited = {name for name in SECRET_PROPERTIES & properties.keys() if name not in own}
    public = {name: value for name, value in properties.items() if name not in inherited}
    known = {name: value for name, value in whole.items() if name in LakeRef.model_fields}
    return LakeRef.model_validate({**known, "properties": public, "from_defaults": bool(inherited)})


def _inheritable(own: Mapping[str, str], defaults: Mapping[str, str]) -> Mapping[str, str]:
    """Defaults without their keys, where a lake has keys of its own for a store of its own."""
    own_keys = any(_is_key(name) for name in own)
    own_store = any(own.get(name, defaults.get(name)) != defaults.get(name) for name in ADDRESS)
    if not own_keys or not own_store:
        return defaults
    return {name: value for name, value in defaults.items() if not _is_key(name)}


def _is_key(name: str) -> bool:
    return name.removesuffix(ENV_SUFFIX) in SECRET_PROPERTIES
