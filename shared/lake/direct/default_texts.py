"""How DuckLake spells the default of a column that a direct commit adds."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb

from shared.lake.columns.history import Field

MOST_TEXTS = 1_000
"""Remembered; a source that has more defaults is asked about again."""


class KeptTexts:
    """Which defaults are the texts by which DuckLake keeps what they mean. Any thread may ask; DuckDB is asked once for
    each, since all destinations of a source get the same."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], bool] = {}

    def hold(self, con: duckdb.DuckDBPyConnection, fields: Sequence[Field]) -> bool:
        """Whether each field's default is one."""
        asked = dict.fromkeys((field.declared, field.default) for field in fields if field.default is not None)
        return all(self._is_kept(con, declared, text) for declared, text in asked)

    def _is_kept(self, con: duckdb.DuckDBPyConnection, declared: str, text: str) -> bool:
        known = self._known.get((declared, text))
        if known is None:
            ((spelled,),) = con.execute(f"SELECT CAST(TRY_CAST(? AS {declared}) AS VARCHAR)", [text]).fetchall()
            known = spelled == text
            if len(self._known) >= MOST_TEXTS:
                self._known = {}
            self._known[declared, text] = known
        return known
