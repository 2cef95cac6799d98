"""The registry's tables."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    false,
)
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator

NAME = 200
"""Characters of a pipeline's or a destination's name, at most (``shared.contracts.messages.Name``)."""


class Moment(TypeDecorator[datetime]):
    """A time with its zone, as text that sorts: SQLite has no type that keeps zones."""

    impl = String(32)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> str | None:  # noqa: ARG002 - SQLAlchemy's
        return None if value is None else value.astimezone(UTC).isoformat(timespec="microseconds")

    def process_result_value(self, value: Any | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        return None if value is None else datetime.fromisoformat(value)


metadata = MetaData()

pipelines = Table(
    "pipelines",
    metadata,
    Column("name", String(NAME), primary_key=True),
    Column("created_at", Moment, nullable=False),
    # Of its last change. Every change locks this row, so versions are committed in their order.
    Column("version", BigInteger, nullable=False, default=0, server_default="0"),
)

destinations = Table(
    "destinations",
    metadata,
    Column("pipeline", String(NAME), ForeignKey("pipelines.name"), primary_key=True),
    Column("id", String(NAME), primary_key=True),
    # Everything of ``Declared`` but the id and the routing value, as JSON. Never a secret: those stay in variables.
    Column("spec", Text, nullable=False),
    Column("routing_value", Text, nullable=False),
    Column("generation", BigInteger, nullable=False),
    Column("desired", String(16), nullable=False),
    Column("replace", Boolean, nullable=False),
    Column("managed_by", String(8), nullable=False),
    Column("author", String(NAME)),
    Column("revision", String(64), nullable=False),
    Column("removed", Boolean, nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("updated_at", Moment, nullable=False),
    # The pipeline's version at the last change of this row: what is newer than one has seen is found by it.
    Column("version", BigInteger, nullable=False, server_default="0"),
    Column("seed_at", BigInteger),
    Column("removing", Boolean, nullable=False, server_default=false()),
    # When it appeared by itself: the policy's limits are counted by it.
    Column("appeared_at", Moment),
    # Of a topic: ``earliest``, or the offsets by partition at which its present life begins.
    Column("seed_from", Text),
    Index("destinations_by_routing_value", "pipeline", "routing_value"),
    Index("destinations_by_version", "pipeline", "version"),
)
"""One row for each id that ever was: a removed one keeps its generation, so that a later life fences the old items."""

audit = Table(
    "audit",
    metadata,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("pipeline", String(NAME), nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("at", Moment, nullable=False),
    Column("author", String(NAME)),
    Column("destination", String(NAME), nullable=False),
    Column("deed", String(32), nullable=False),
    Column("generation", BigInteger, nullable=False),
    Column("changes", Text, nullable=False),
    Index("audit_by_destination", "pipeline", "destination", "id"),
)
"""What was done to whom, when and by whom; written in the transaction that did it, never changed."""

redriven = Table(
    "redriven",
    metadata,
    Column("pipeline", String(NAME), primary_key=True),
    # A digest of where the record stood in its topic, and of its time there: a topic may be created again.
    Column("place", String(64), primary_key=True),
    # Where it lies on the topic of rejected records: what is gone from there is forgotten here.
    Column("partition", BigInteger, nullable=False),
    Column("offset", BigInteger, nullable=False),
    Column("at", Moment, nullable=False),
    Column("author", String(NAME)),
    # Whether the broker has confirmed it; where not, it may have arrived.
    Column("confirmed", Boolean, nullable=False),
)
"""Rejected records that were sent to their topic again."""

proposals = Table(
    "proposals",
    metadata,
    Column("pipeline", String(NAME), primary_key=True),
    # A digest of the routing value, which is untrusted data and never a key.
    Column("id", String(32), primary_key=True),
    # As a JSON string in ASCII: Postgres takes no NUL. Only the beginning of a long value.
    Column("value", Text, nullable=False),
    Column("whole", Boolean, nullable=False),
    Column("rows", BigInteger, nullable=False),
    Column("first_seen", BigInteger, nullable=False),
    Column("state", String(16), nullable=False),
    Column("reason", String(16), nullable=False),
    Column("message", Text, nullable=False),
    Column("author", String(NAME)),
    Column("created_at", Moment, nullable=False),
    Column("updated_at", Moment, nullable=False),
)
"""Routing values that have no destination, and what an operator said to them."""

documents = Table(
    "documents",
    metadata,
    Column("pipeline", String(NAME), primary_key=True),
    # The keys of a file that are the pipeline's own, as JSON; null where it is gone. Never a secret.
    Column("content", Text),
    # ``there``, ``deleted`` with all its destinations, or ``ceded`` to a file that declares it now.
    Column("state", String(8), nullable=False),
    # One count for all: what is newer than one has seen is found by it.
    Column("version", BigInteger, nullable=False),
    Column("author", String(NAME)),
    Column("updated_at", Moment, nullable=False),
)
"""Pipelines that came over REST; one row for each that ever did."""

operations = Table(
    "operations",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("pipeline", String(NAME), nullable=False),
    Column("destination", String(NAME), nullable=False),
    Column("kind", String(16), nullable=False),
    Column("generation", BigInteger, nullable=False),
    Column("seed_at", BigInteger),
    Column("author", String(NAME)),
    Column("created_at", Moment, nullable=False),
    Column("finished_at", Moment),
    Column("state", String(16), nullable=False),
    Column("error", Text),
    # Of an upkeep: the order and what came of it, as JSON.
    Column("details", Text),
    Index("operations_by_state", "pipeline", "state"),
)
"""What takes longer than a request: each waits for a generation to be reached, or for its upkeep's answer."""

tokens = Table(
    "tokens",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("name", String(NAME), nullable=False),
    Column("scope", String(8), nullable=False),
    Column("salt", String(64), nullable=False),
    Column("digest", String(64), nullable=False),
    Column("author", String(NAME)),
    Column("created_at", Moment, nullable=False),
    Column("revoked_at", Moment),
    Column("revoked_by", String(NAME)),
    # A JSON list of names; null for all pipelines.
    Column("pipelines", Text),
)
"""Bearer tokens, as salted digests: the token itself is shown once and kept nowhere. No row ever goes."""
