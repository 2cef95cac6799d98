"""Mistakes of a commit that Viaduck writes itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa

from services.applier.apply.cursor_answers import CursorAnswers
from services.applier.apply.direct import files as direct_files
from services.applier.apply.direct import seed as direct_seed
from services.applier.apply.direct.commit import DirectApplier
from shared.lake.catalog.reader import CatalogReader
from shared.lake.connection import new_catalog
from shared.lake.connection import postgres as postgres_connections
from shared.lake.connection.query import Question
from shared.lake.direct import batch, few_rows, files, new_table, positions, statistics, store
from shared.lake.direct.batch import NextCommit
from shared.lake.direct.catalogs import PostgresCatalog, RivalCommitted
from shared.lake.direct.file_memory import NOBODY, Dead
from shared.lake.direct.first_commit import FirstCommit
from shared.lake.direct.lakes import DirectInstance
from shared.lake.direct.positions import Losing
from shared.lake.direct.rows import data_file
from shared.lake.direct.written import NewDeleteFile
from tests.mutants.mistake import Mistake, put

TESTS = "tests/lake/test_direct_commit.py"
FEW_ROWS = "tests/fast/shared/lake/direct/test_few_rows.py"
SEEDS = "tests/lake/test_direct_seed.py"
CHANGED_TWINS = ("tests/lake/test_direct_twins.py", "-k", "every_type and sqlite")
MAINTAINED_TWINS = ("tests/lake/test_direct_twins.py", "-k", "maintenance and sqlite")


def _commit_whatever_came() -> None:
    put(NextCommit, "_condition", lambda self: Question("SELECT 1 AS held", {}, {}))


def _unknown_is_refused() -> None:
    def resolve(self: Any, lake: Any, folder: str, commit: Any, token: str, written: Any, error: Exception) -> None:
        store.remove(lake.lake, folder, written.names)
        raise RivalCommitted from error

    put(DirectApplier, "_resolve", resolve)


def _keys_side_by_side() -> None:
    held = DirectInstance._held

    def any_held(self: Any, found: Any, key: Any, begin: Any, end: Any, rules_out: Any = None) -> Any:
        return held(self, found, key, begin, end)

    put(DirectInstance, "_held", any_held)


def _unknown_bounds() -> None:
    put(statistics, "_bounds", lambda old, new: (None, None))


def _cursors_are_sure() -> None:
    def any_cursor(self: Any, target: Any) -> Any:
        found = self._direct.cursor(target)
        return None if found is None else (found, None)

    put(CursorAnswers, "_sure_cursor", any_cursor)


def _catalogs_without_a_path() -> None:
    made = new_catalog._creation

    def creation(*given: Any) -> list[Question]:
        return [replace(each, values={**each.values, "data_path": "/"}) for each in made(*given)]

    put(new_catalog, "_creation", creation)


def _old_deletes_are_left_out() -> None:
    right = files._dead_with

    def dead_with(lost: Losing, snapshot: int) -> Dead:
        return right(replace(lost, dead=NOBODY), snapshot)

    put(files, "_dead_with", dead_with)


def _row_ids_come_again() -> None:
    right = data_file
    put(batch, "data_file", lambda names, id_, table, snapshot, _, data: right(names, id_, table, snapshot, 0, data))


def _deletes_of_one_snapshot() -> None:
    right = NewDeleteFile

    def at_once(*given: Any) -> NewDeleteFile:
        made = right(*given)
        return made if made.replaces is None else replace(made, through=None)

    put(files, "NewDeleteFile", at_once)


def _replaced_deletes_are_left() -> None:
    right = NextCommit._replaced
    put(NextCommit, "_replaced", lambda self, replaced: list(right(self, replaced))[:1])


def _clean_up_takes_new_deletes() -> None:
    right = NextCommit._replaced

    def replaced(self: Any, _: Any) -> Any:
        found = [(each.replaces[0], each.name) for each in self.written.deletes if each.replaces is not None]
        folder = [each.replaces[1].rpartition("/")[0] for each in self.written.deletes if each.replaces is not None]
        return right(self, [(n, f"{above}/{name}") for (n, name), above in zip(found, folder, strict=True)])

    put(NextCommit, "_replaced", replaced)


def _living_rows_are_counted() -> None:
    right = NextCommit._stats_of

    def stats_of(self: Any, table: int, records: int, row: int, size: int) -> Any:
        return right(self, table, records - self.written.deleted_rows, row, size)

    put(NextCommit, "_stats_of", stats_of)


def _scans_fold_case() -> None:
    put(positions, "_comparable", lambda expression, _: f"lower({expression})")


def _batches_without_an_end() -> None:
    made = postgres_connections._shared_settings
    put(postgres_connections, "_shared_settings", lambda: made().replace(b"transaction_timeout", b"none"))


def _seeds_beside_a_life() -> None:
    parsed = new_table.parse_place
    put(direct_seed, "parse_place", lambda said: replace(parsed(said), taken=False, whole=True))


def _reseeds_end_nothing() -> None:
    written = direct_files.write_over
    put(direct_files, "write_over", lambda *given: replace(written(*given), ended=()))


def _gaps_are_not_seen() -> None:
    put(CatalogReader, "is_whole", lambda self: self.exists(0))


def _rivals_go_on() -> None:
    put(PostgresCatalog, "_keep_others_out", lambda self: False)


def _seeds_whatever_came() -> None:
    put(FirstCommit, "_condition", lambda self: Question("SELECT 1 AS held", {}, {}))


def _few_rows_of_one_value() -> None:
    """The greatest value of a file of few rows is said to be its least."""
    described = few_rows._Column.described

    def narrow(self: Any, size: int) -> Any:
        found = described(self, size)
        return replace(found, greatest=found.least)

    put(few_rows._Column, "described", narrow)


def _numbers_without_order() -> None:
    """Arrow, which leaves NaN out of a file's bounds, writes floating columns, too."""
    put(few_rows, "KINDS", {**few_rows.KINDS, "float64": few_rows.Kind(pa.float64(), str)})


MISTAKES = (
    Mistake("seed-beside-a-life", "a seed makes its tables where the destination had others", _seeds_beside_a_life,
            ("tests/lake/test_direct_seed.py::test_a_late_seed_of_a_dropped_life_makes_nothing_though_the_owner_expired_snapshots_in_between[sqlite]",)),
    Mistake("reseed-ends-nothing", "a reseed leaves the rows of the life before", _reseeds_end_nothing,
            (SEEDS, "-k", "in_the_place and sqlite")),
    Mistake("gaps-are-not-seen", "a lake that retains its first snapshot is taken to retain all", _gaps_are_not_seen,
            ("tests/lake/test_direct_seed.py::test_a_late_seed_of_a_dropped_life_makes_nothing_though_the_owner_expired_snapshots_in_between[sqlite]",)),
    Mistake("seed-without-condition", "a seed's batch does not require that nothing was committed since its look",
            _seeds_whatever_came,
            ("tests/lake/test_direct_seed.py::test_a_seed_that_was_frozen_past_the_expiry_of_others_commits_comes_after_them[sqlite]",)),
    Mistake("direct-without-condition", "the number of a snapshot is all that a direct commit compares",
            _commit_whatever_came,
            ("tests/lake/test_direct_commit.py::test_an_advance_that_was_frozen_past_the_expiry_of_others_commits_comes_after_them[sqlite]",)),
    Mistake("direct-unknown-is-refused", "a batch without an acknowledgement was not carried out",
            _unknown_is_refused, (TESTS, "-k", "may_still_come")),
    Mistake("direct-batch-without-end", "a process that freezes within a batch locks its tenant for good",
            _batches_without_an_end, (TESTS, "-k", "freezes_within")),
    Mistake("rivals-go-on", "who lost too often tries on beside the others", _rivals_go_on,
            ("tests/lake/test_alone.py", "-k", "others_wait")),
    Mistake("direct-keys-side-by-side", "an instance holds two keys for the same files", _keys_side_by_side,
            ("tests/lake/test_direct_commit.py::test_two_lakes_never_have_keys_for_the_same_files_at_once",)),
    Mistake("direct-unknown-bounds", "bounds that are hard to tell are left out", _unknown_bounds,
            (TESTS, "-k", "loses_a_row and sqlite")),
    Mistake("probes-believe-cursors", "files that an unheard commit may have lost are not looked at", _cursors_are_sure,
            (TESTS, "-k", "probe_attaches")),
    Mistake("catalogs-elsewhere", "a new catalog names another data path", _catalogs_without_a_path,
            ("tests/lake/test_new_catalog.py", "-k", "exactly")),
    Mistake("deleted-rows-again", "a delete file forgets the one that it replaces", _old_deletes_are_left_out,
            ("tests/lake/test_direct_twins.py",)),
    Mistake("row-ids-come-again", "each data file's rows are numbered from 0", _row_ids_come_again, CHANGED_TWINS),
    Mistake("deletes-of-one-snapshot", "a delete file that goes on from another is said to be of one snapshot",
            _deletes_of_one_snapshot, CHANGED_TWINS),
    Mistake("replaced-deletes-are-left", "no clean-up removes a delete file that another one replaces",
            _replaced_deletes_are_left, CHANGED_TWINS),
    Mistake("living-rows-are-counted", "a table's count of rows goes down where some are deleted",
            _living_rows_are_counted, CHANGED_TWINS),
    Mistake("scans-fold-case", "keys that differ in case alone are the same key to a scan", _scans_fold_case,
            ("tests/lake/test_scanned_keys.py", "-k", "wherever and sqlite")),
    Mistake("clean-up-takes-new-deletes", "a clean-up removes the delete file that replaces another",
            _clean_up_takes_new_deletes, MAINTAINED_TWINS),
    Mistake("few-rows-of-one-value", "bounds of a file of few rows are narrower than its values",
            _few_rows_of_one_value, (FEW_ROWS, "-k", "of_a_copy")),
    Mistake("numbers-without-order", "a file's bounds leave NaN out", _numbers_without_order,
            (FEW_ROWS, "-k", "left_to_duckdb")),
)  # fmt: skip
