"""Checks that a message about a destination of the operator's file agrees with the file.

Otherwise a client that may write to the topics (with the signing key, or any client without one) could redirect a
tenant's rows to another lake, while the destination is shown as running.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

import structlog

from shared.config.loading import public_lake
from shared.config.model import Config, FileDestination
from shared.config.upkeep_rules import override_of
from shared.contracts.errors import ConfigError, DestinationError
from shared.contracts.messages import Destination, LakeRef
from shared.kafka.source_look import look

log = structlog.get_logger(__name__)


class Agreement:
    """One pipeline's file. What came over REST is in no file: of that nothing is said."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._listed = {} if config.over_rest else {each.id: each for each in config.destinations}

    def require(self, destination: Destination) -> None:
        """Raises ``destination_differs`` where the file declares the destination, and otherwise."""
        known = self._listed.get(destination.destination)
        if known is None:
            return
        differing = list(self._differing(known, destination))
        if differing:
            log.error("destination_differs", differing=differing,
                      destination=destination.key, revision=destination.revision)  # fmt: skip
            raise DestinationError(
                "destination_differs",
                f"the message about {destination.key} differs from {self._config.path.name}: {', '.join(differing)};"
                " nothing is moved",
                "let control and appliers have the same file (SIGHUP reloads it); if they have, the message is"
                " forged: check which clients may write to the destinations topic, and sign messages",
            )

    def _differing(self, known: FileDestination, said: Destination) -> Iterator[str]:
        """Names of keys of the file."""
        declared = public_lake(known)
        for name in LakeRef.model_fields:
            if getattr(declared, name) != getattr(said.lake, name):
                yield {"from_file": "catalog", "from_defaults": "properties"}.get(name, name)
        if (known.schema_name, known.table) != (said.schema_name, said.table):
            yield "schema or table"
        if said.routing_value != known.routing_value and said.routing_value != self._spelled(known):
            yield "routing_value"
        if said.upkeep != override_of(known):
            yield "upkeep"
        if said.drop:
            yield "its removal"

    def _spelled(self, known: FileDestination) -> str:
        """The file's routing value in the spelling of the routing column's type. Raises ``SourceError``."""
        return self._spellings.get(known.id, known.routing_value)

    @cached_property
    def _spellings(self) -> Mapping[str, str]:
        """By destination id; the source is asked for its column's type."""
        try:
            return look(self._config).routing_values
        except ConfigError:
            return {}  # the file no longer fits its source, so nothing of it is spelled otherwise
