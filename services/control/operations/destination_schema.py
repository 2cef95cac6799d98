"""A destination's columns beside the source's, as the two catalogs have them now. Nothing is attached or written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass

from services.control.model.lifecycle import Refused, Registered
from services.control.operations.column_following import NO_TABLE, FollowingPlan, SourceColumns, Table, following
from services.control.operations.destination_past import applied
from services.control.operations.preflight import looking
from services.control.view.destination_status import View
from shared.config.catalogs import ResolvedLake
from shared.config.declared import Lakes
from shared.config.model import Config
from shared.contracts.errors import DependencyError, SourceError, ViaduckError
from shared.contracts.evolution import EvolutionPolicy
from shared.lake.catalog.reader import CatalogReader, TableInfo
from shared.lake.catalog.stamps import stamped_for
from shared.lake.columns.history import Field, fields_at
from shared.lake.columns.identity import Identifying
from shared.lake.columns.terms import NO_COMMENTS
from shared.lake.failure import LakeAbsent

NOTHING_TO_DO = FollowingPlan({})


@dataclass(frozen=True)
class SchemaComparison:
    """``position``, and what is of it, is None before the seed, which makes the table as the source's is then. What is
    of the source is None where that is a topic."""

    policy: EvolutionPolicy
    position: int | None
    head: int | None
    at_position: tuple[Field, ...] | None
    at_head: tuple[Field, ...] | None
    snapshot: int | None
    """Of the destination's lake; None where there is none yet."""
    columns: tuple[Field, ...]
    following: FollowingPlan


@dataclass(frozen=True)
class _Own:
    """What the destination's lake says: its newest snapshot, the position of its present life, and its table."""

    snapshot: int | None = None
    position: int | None = None
    table: Table = NO_TABLE


class DestinationSchemas:
    """Of one pipeline's destinations. Raises ``Refused``, and what says of a lake that it does not answer."""

    def __init__(self, config: Callable[[], Config], view: Callable[[], View], environ: Mapping[str, str]) -> None:
        self._config = config
        self._view = view
        self._environ = environ

    def of(self, destination: str) -> SchemaComparison:
        """The destination is read first: a source that moves on meanwhile is only further ahead of it."""
        held, config = self._view().destinations[destination], self._config()
        lake = self._lake(config, held)
        with looking():
            own = _own(lake, config.pipeline, held)
            return self._beside_source(config, held, own)

    def _beside_source(self, config: Config, held: Registered, own: _Own) -> SchemaComparison:
        policy = held.message(config.pipeline).policy
        if config.topic is not None:
            fields = own.table.fields
            return SchemaComparison(policy, own.position, None, None, None, own.snapshot, fields, NOTHING_TO_DO)
        source, columns = self._source(config, own.position)
        now = fields_at(source.versions, source.snapshot)
        then, found = None, NOTHING_TO_DO
        if own.position is not None:
            then = fields_at(source.versions, own.position)
            found = _following(config, held, own.position, source, columns, own.table)
        return SchemaComparison(policy, own.position, source.snapshot, then, now, own.snapshot, own.table.fields, found)

    def _source(self, config: Config, position: int | None) -> tuple[TableInfo, SourceColumns]:
        schema, name = config.source.schema_name, config.source.table
        try:
            with closing(CatalogReader(Lakes(config, self._environ).source())) as catalog:
                found = catalog.source_table(schema, name, catalog.head().snapshot)
                if found is not None:
                    now, then = (catalog.comments(found.table_id, at) for at in (found.snapshot, position or 0))
                    return found, SourceColumns(found.versions, found.snapshot, now, then, found.commented)
        except ViaduckError as error:
            raise DependencyError("source", f"{error.type}: {error.message}", error.hint) from None
        except LookupError as error:
            raise DependencyError("source", str(error), "wait until its lake exists") from None
        said, hint = f"source_gone: it has no table {schema}.{name}", "create it again, or correct the file"
        raise DependencyError("source", said, hint)

    def _lake(self, config: Config, held: Registered) -> ResolvedLake:
        try:
            return Lakes(config, self._environ).published(held.message(config.pipeline))
        except ViaduckError as error:
            raise Refused("not_visible", error.message, error.hint) from None


def _own(lake: ResolvedLake, pipeline: str, held: Registered) -> _Own:
    declared = held.declared
    try:
        with closing(CatalogReader(lake)) as catalog:
            head = catalog.head().snapshot
            newest = next(applied(catalog, pipeline, held.id, head + 1), None)
            table = catalog.table(declared.schema_name, declared.table, head)
            arrangement = catalog.arrangement(declared.schema_name, declared.table, head)
            comments = NO_COMMENTS if table is None else catalog.comments(table.table_id, head)
            stamped = stamped_for(pipeline, held.id)
            altered = catalog.look(declared.schema_name, declared.table, head, stamped).altered
    except (LakeAbsent, LookupError):
        return _Own()
    fields = () if table is None else fields_at(table.versions, head)
    is_ours = newest is not None and newest.stamp.generation == held.generation
    position = newest.stamp.through if newest is not None and is_ours else None
    return _Own(head, position, Table(fields, arrangement, comments, altered))


def _following(
    config: Config, held: Registered, position: int, source: TableInfo, columns: SourceColumns, table: Table
) -> FollowingPlan:
    routing = config.routing
    if not source.begin_snapshot <= position <= source.snapshot:
        return FollowingPlan({}, refused=_of_another(position, source).problem())
    identifying = Identifying(routing.field, routing.key_columns)
    message = held.message(config.pipeline)
    return following(columns, identifying, position, message, table)


def _of_another(position: int, source: TableInfo) -> SourceError:
    hint = "reseed the destination; routing.on_gap: reseed does so by itself"
    if position > source.snapshot:
        said = f"the source's head is snapshot {source.snapshot}, and this destination is at {position} already"
        return SourceError("source_moved", said, hint)
    said = f"the source's table was created at snapshot {source.begin_snapshot}, after position {position}"
    return SourceError("source_recreated", said, hint)
