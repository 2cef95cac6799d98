"""The registry's tables."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import BigInteger, Boolean, Column, ForeignKey, Index, MetaData, String, Table, Text
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator

NAME = 200
"""Characters of a pipeline's or a destination's name, at most (``shared.messages.Name``)."""


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
    Index("destinations_by_routing_value", "pipeline", "routing_value"),
)
"""One row for each id that ever was: a removed one keeps its generation, so that a later life fences the old items."""
