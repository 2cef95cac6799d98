"""Mistakes with what a lake can't keep: columns that come late, defaults, and values that a COMMIT refuses."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from services.applier.apply import transaction
from services.applier.apply.source import identity as source_identity
from shared.config import catalogs, lake_rules, storage
from shared.lake import failure
from shared.lake.catalog import reader as catalog
from tests.mutants.mistake import Mistake, put

IDENTITY = "tests/lake/test_identity.py"


def _columns_are_checked_at_the_start_alone() -> None:
    put(source_identity, "not_carried", lambda *_: None)


def _null_by_its_text() -> None:
    right = catalog._version

    def version(row: Any) -> Any:
        made = right(row)
        return replace(made, default=None) if made.default == "NULL" else made

    put(catalog, "_version", version)


def _negative_intervals_are_tried_again() -> None:
    others = tuple(each for each in failure.PATTERNS if "negative intervals" not in each.said.pattern)
    assert len(others) < len(failure.PATTERNS)
    put(failure, "PATTERNS", others)


def _every_commit_is_in_doubt() -> None:
    put(failure, "REFUSED_AT_COMMIT", re.compile("(?!)"))
    put(transaction, "was_refused", lambda _: False)


def _any_name() -> None:
    for reader in (lake_rules, storage, catalogs):
        put(reader, "SUBSTITUTED_WORD", re.compile("(?!)"))


MISTAKES = (
    Mistake("columns-at-the-start", "columns that can't be carried are looked for at the start alone",
            _columns_are_checked_at_the_start_alone, (IDENTITY, "-k", "can_not_be_carried and sqlite")),
    Mistake("null-by-its-text", "a text default that spells NULL is none", _null_by_its_text,
            (IDENTITY, "-k", "spells_null and sqlite")),
    Mistake("negative-intervals-again", "a negative INTERVAL is tried again", _negative_intervals_are_tried_again,
            ("tests/lake/test_refused.py", "-k", "negative and sqlite")),
    Mistake("refused-is-in-doubt", "a COMMIT whose statements are none may have happened", _every_commit_is_in_doubt,
            ("tests/fast/shared/lake/test_failure.py",)),
    Mistake("any-name", "paths and names may hold words that DuckLake replaces", _any_name,
            ("tests/fast/shared/config/test_strangers.py", "-k", "data_path_that_is_read_otherwise")),
)  # fmt: skip
