"""Mistakes with changes of the source's columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from services.applier.apply import transaction
from services.applier.apply.columns import evolve
from services.applier.apply.destination.change import Applied, DestinationChange
from services.applier.apply.destination.table_schema import columns_there
from services.applier.apply.direct import columns as direct_columns
from services.applier.apply.direct import commit as direct_commit
from services.applier.apply.direct import look as direct_look
from services.applier.apply.direct.columns import FollowedStructure
from services.applier.apply.direct.look import CommitBasis
from services.applier.apply.maintenance import catalog_rows
from services.applier.apply.source import columns as source_columns
from services.applier.apply.source import feed
from services.applier.apply.transaction import DestinationApplier
from services.applier.worker import task_run
from services.control.operations import reconciler
from services.reader.planner.reshapes import Reshapes
from services.reader.source.lake_source import LakeSource
from shared.contracts.messages import ItemKind
from shared.lake.catalog import reader as catalog
from shared.lake.catalog import table_names
from shared.lake.catalog.reader import TableInfo
from shared.lake.catalog.table_names import TableName, TableNames
from shared.lake.columns import evolution
from shared.lake.columns import followed as followed_columns
from shared.lake.columns import identity as column_identity
from shared.lake.columns.evolution import ColumnStep, StepKind
from shared.lake.columns.history import Field, Versions
from shared.lake.columns.mapping import columns_as_of
from shared.lake.columns.terms import Carried
from shared.lake.connection.statements import Row
from shared.lake.direct import structure
from shared.lake.direct.lakes import DirectLake
from shared.lake.direct.structure import Structure
from tests.mutants.mistake import Mistake, put

EVOLUTION = "tests/lake/test_evolution.py"
RENAMED = "tests/lake/test_renamed_columns.py"
TERMS = "tests/lake/test_terms.py"
OWNERS = "tests/lake/test_owners_columns.py"
WIDENED = "tests/lake/test_widened_columns.py"


def _columns_first() -> None:
    delete, changed = DestinationApplier._delete, evolve.evolve

    def columns_then_delete(self: Any, con: Any, lake: Any, change: Any, *rest: Any) -> int:
        destination = change.target.destination
        have = columns_there(con, lake.alias, destination)
        steps = evolve.pending_steps(con, destination, have, change.reading, change.evolution)
        changed(con, lake.alias, destination, steps)
        return delete(self, con, lake, change, *rest)

    put(DestinationApplier, "_delete", columns_then_delete)
    put(evolve, "evolve", lambda *_: None)


def _add_then_alter() -> None:
    """A struct is added with another name of its first field, which is renamed in the same transaction."""
    right = evolution.steps_between

    def in_two(then: Sequence[Field], now: Sequence[Field]) -> Iterator[ColumnStep]:
        added = {field.id: field for field in now}
        for step in right(then, now):
            whole = added.get(step.column)
            if step.kind is not StepKind.ADD or whole is None or whole.type != "struct":
                yield step
                continue
            first, *others = whole.fields
            unfinished = replace(whole, fields=(replace(first, name="unfinished"), *others))
            yield replace(step, type=unfinished.declared)
            yield ColumnStep(StepKind.RENAME, (*step.path, "unfinished"), first.id, name=first.name)

    for module in (evolve, direct_columns, followed_columns):
        put(module, "steps_between", lambda then, now: tuple(in_two(then, now)))


def _advance_forgets_columns() -> None:
    """Only the position moves."""
    followed, moved = direct_columns.follow, DestinationApplier._move

    def follow(lake: DirectLake, change: DestinationChange, look: CommitBasis) -> FollowedStructure:
        is_advance = change.target.item.kind is ItemKind.ADVANCE
        return FollowedStructure(look.structure) if is_advance else followed(lake, change, look)

    def move(self: DestinationApplier, con: Any, lake: Any, change: DestinationChange, token: str) -> Applied:
        if change.target.item.kind is ItemKind.ADVANCE:
            change.reading = None
        return moved(self, con, lake, change, token)

    put(direct_columns, "follow", follow)
    put(DestinationApplier, "_move", move)


def _any_column_of_that_name() -> None:
    put(column_identity, "_replaced", lambda *_: None)


def _columns_by_name() -> None:
    put(source_columns, "evolution", lambda *_: None)


def _narrow_types_stay() -> None:
    put(evolution, "_widened", lambda *_: ())


def _defaults_stay() -> None:
    put(evolution, "_require_default", lambda *_: None)


def _every_policy_follows() -> None:
    put(followed_columns, "first_not_allowed", lambda *_: None)


def _routed_by_name() -> None:
    put(TableInfo, "identified", TableInfo.column)


def _any_spelling() -> None:
    put(column_identity, "keeps_texts", lambda *_: True)


def _exact_by_rows() -> None:
    put(Reshapes, "lacking", lambda *_: None)


def _appended_by_name() -> None:
    def by_name(then: Sequence[Field], now: Sequence[Field]) -> str:
        ids = {field.name.lower(): field.id for field in then}
        return columns_as_of(then, [replace(field, id=ids.get(field.name.lower(), field.id)) for field in now])

    put(feed, "columns_as_of", by_name)


def _no_null_before_rows() -> None:
    put(Carried, "before", property(lambda carried: carried.clauses))
    put(Carried, "after", ())


def _nulls_after_rows() -> None:
    put(Carried, "before", ())
    put(Carried, "after", property(lambda carried: carried.clauses))


def _past_its_terms() -> None:
    put(DestinationChange, "carries", property(lambda _: False))


def _lives_by_name() -> None:
    put(reconciler, "_own_names", lambda *_: frozenset())


def _names_of_anyone() -> None:
    def every(versions: Versions, name: str, at: int) -> frozenset[str]:
        meant = column_identity.identified(versions, name, at)
        return frozenset(each.name.lower() for each in versions if meant is not None and each.id == meant.id)

    put(catalog, "own_names", every)


def _one_table_name() -> None:
    def newest(rows: Sequence[Row]) -> tuple[TableName, ...]:
        return tuple(TableName(name.schema, name.table, 0, None) for name in known(rows)[-1:])

    known = table_names.names_in
    for module in (table_names, catalog):
        put(module, "names_in", newest)


def _former_table_names_mean_nothing() -> None:
    put(TableNames, "called_otherwise", lambda *_: None)


def _only_former_names() -> None:
    def without_later(versions: Versions, name: str, at: int) -> Field | None:
        return known([each for each in versions if each.begin <= at], name, at)

    known = column_identity.identified
    put(catalog, "identified", without_later)


def _routed_by_anything() -> None:
    put(task_run, "routed_otherwise", lambda *_: [])


def _widened_bounds_stay() -> None:
    for module in (catalog_rows, transaction):
        put(module, "forget_bounds", lambda *_: None)


def _widened_bounds_grow() -> None:
    parsed = structure.parse_structure

    def without_former_types(text: str) -> Structure | None:
        found = parsed(text)
        return None if found is None else replace(found, widened=frozenset())

    put(direct_look, "parse_structure", without_former_types)


def _owners_columns_pass_directly() -> None:
    put(direct_commit, "require_kept", lambda *_: None)


def _owners_columns_pass_by_extension() -> None:
    put(transaction, "require_kept", lambda *_: None)


def _counted_by_a_former_name() -> None:
    put(LakeSource, "_look_at", lambda *_: None)


MISTAKES = (
    Mistake("counted-by-a-former-name", "a range is counted by the name that its routing column had when it was seen",
            _counted_by_a_former_name,
            ("tests/fast/reader/source/test_lake_source.py::test_what_is_there_is_grouped_by_the_routing_column_though_another_one_has_its_name_by_now",)),
    Mistake("owners-columns-pass-directly", "a direct commit takes columns for what their names and types say",
            _owners_columns_pass_directly, (OWNERS, "-k", "went_with and last and added and sqlite and auto")),
    Mistake("owners-columns-pass", "so does a commit by the extension", _owners_columns_pass_by_extension,
            (OWNERS, "-k", "went_with and last and sqlite and extension")),
    Mistake("widened-bounds-stay", "bounds of a column that has become wider are kept", _widened_bounds_stay,
            (WIDENED, "-k", "extension and sqlite")),
    Mistake("widened-bounds-grow", "a direct commit merges bounds of a column that has become wider",
            _widened_bounds_grow, (WIDENED, "-k", "earlier_version")),
    Mistake("columns-first", "columns are changed before touched keys are deleted", _columns_first,
            (EVOLUTION, "-k", "together and key and sqlite")),
    Mistake("add-then-alter", "a struct is added, and a field of it altered then", _add_then_alter,
            (EVOLUTION, "-k", "after_that_are_direct and struct and added and sqlite")),
    Mistake("advance-forgets-columns", "an advance moves the position without the columns", _advance_forgets_columns,
            ("tests/lake/test_evolution.py::test_they_are_followed_without_any_row[sqlite-renamed]",)),
    Mistake("any-column-of-that-name", "rows are told by whichever column has the name", _any_column_of_that_name,
            (EVOLUTION, "-k", "parks_under_every_policy and sqlite")),
    Mistake("columns-by-name", "a column is its name and type", _columns_by_name,
            ("tests/lake/test_evolution.py::test_they_are_followed_without_any_row[sqlite-dropped]",)),
    Mistake("narrow-types-stay", "types that become wider are left out", _narrow_types_stay,
            ("tests/lake/test_evolution.py::test_they_are_followed_without_any_row[sqlite-widened]",)),
    Mistake("defaults-stay", "a field is taken to keep its default", _defaults_stay,
            (EVOLUTION, "-k", "forgotten_its and sqlite")),
    Mistake("every-policy-follows", "a destination's policy is not asked", _every_policy_follows,
            (EVOLUTION, "-k", "policy_decides and freeze-widened and sqlite")),
    Mistake("routed-by-name", "a routing column that is renamed is gone", _routed_by_name,
            (EVOLUTION, "-k", "without_any_row and routing and sqlite")),
    Mistake("lives-by-name", "a life is told by the name of its routing column", _lives_by_name,
            (RENAMED, "-k", "takes_the_new_names and after")),
    Mistake("names-of-anyone", "a name means the column that it ever meant", _names_of_anyone,
            ("tests/lake/test_renamed_columns.py::test_two_columns_that_exchange_their_names_begin_another_life_once_the_file_follows[sqlite]",)),
    Mistake("one-table-name", "a renamed table is looked for by its newest name at every snapshot", _one_table_name,
            ("tests/lake/test_histories.py", "-k", "renamed and 94012")),
    Mistake("former-table-names-mean-nothing", "a file that names a renamed table by its former name names none",
            _former_table_names_mean_nothing, ("tests/lake/test_histories.py", "-k", "renamed and 94012")),
    Mistake("only-former-names", "a column has no name yet that it gets later", _only_former_names,
            (RENAMED, "-k", "before_it_are_read and new and sqlite")),
    Mistake("routed-by-anything", "an applier routes every life by its own file", _routed_by_anything,
            (RENAMED, "-k", "column_of_an_older_file")),
    Mistake("any-spelling", "a routing column may have any wider type", _any_spelling,
            (EVOLUTION, "-k", "spelled_otherwise and sqlite")),
    Mistake("exact-by-rows", "a destination with the columns that were is exact where its rows are", _exact_by_rows,
            ("tests/fast/reader/planner/test_frontier.py", "-k", "columns")),
    Mistake("appended-by-name", "appended rows of older runs are mapped by names", _appended_by_name,
            (EVOLUTION, "-k", "appended and True and another and sqlite")),
    Mistake("no-null-before-rows", "NOT NULL is set before rows are inserted", _no_null_before_rows,
            (TERMS, "-k", "without_rows and sqlite")),
    Mistake("nulls-after-rows", "NULLs are allowed after rows are inserted", _nulls_after_rows,
            (TERMS, "-k", "nulls and gone and sqlite")),
    Mistake("past-its-terms", "what columns ask of rows to come is never new", _past_its_terms,
            (TERMS, "-k", "next_rows and sqlite")),
)  # fmt: skip
