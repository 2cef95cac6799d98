"""What may happen to the batch of a direct commit: something comes before it, or its acknowledgement is lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import duckdb
import psycopg
import pytest

from shared.lake.connection.query import Question
from shared.lake.direct.batch import CommitBatch
from shared.lake.direct.catalogs import PostgresCatalog, SqliteCatalog


def before_commit(monkeypatch: pytest.MonkeyPatch, act: Callable[[], None], times: int = 1) -> None:
    """Have something happen between the files of a commit and its batch, in the first so many ``times``."""
    waiting = [act] * times

    def first(commit_: Callable[..., None]) -> Callable[..., None]:
        def passing(catalog: Any, commit: CommitBatch) -> None:
            if waiting:
                waiting.pop()()
            commit_(catalog, commit)

        return passing

    for each in (PostgresCatalog, SqliteCatalog):
        monkeypatch.setattr(each, "commit", first(each.commit))


def lose_acknowledgements(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have each batch committed by Postgres, and its connection broken before the answer."""
    real = PostgresCatalog.commit

    def lost(catalog: PostgresCatalog, commit: CommitBatch) -> None:
        real(catalog, commit)
        raise psycopg.OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr(PostgresCatalog, "commit", lost)


def fill_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no catalog in a file take a batch with a data file."""
    real = SqliteCatalog._say

    def full(catalog: SqliteCatalog, question: Question) -> list[Any]:
        if "INTO {}ducklake_data_file" in question.text:
            raise duckdb.IOException("database or disk is full")
        return real(catalog, question)

    monkeypatch.setattr(SqliteCatalog, "_say", full)
