"""What a Postgres catalog and a SQLite catalog call the same things."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from shared.lake.connection.query import Value


@dataclass(frozen=True)
class Dialect:
    """``functions``: the names that statements leave open; ``binary_text``: inlined texts are kept as bytes.

    ``looks_for_deletes``: DuckLake asks for a table's inlined deletes in every transaction, and a missing table is
    looked for each time, so that an empty one spares work.
    """

    functions: Mapping[str, str]
    binary_text: bool
    looks_for_deletes: bool

    def text_in(self, text: str | None) -> Value:
        """A text as an inlined row keeps it."""
        return text.encode() if self.binary_text and text is not None else text

    def text_out(self, kept: str | None) -> str | None:
        """What was kept, as it stands in JSON: Postgres shows bytes in hexadecimal behind a mark."""
        if not self.binary_text or kept is None:
            return kept
        return bytes.fromhex(kept.removeprefix("\\x")).decode()


POSTGRES = Dialect(
    {"array": "json_build_array", "collect": "json_agg", "boolean": "boolean", "uuid": "uuid", "text": "bytea"},
    binary_text=True,
    looks_for_deletes=True,
)
SQLITE = Dialect(
    {"array": "json_array", "collect": "json_group_array", "boolean": "BIGINT", "uuid": "VARCHAR", "text": "VARCHAR"},
    binary_text=False,
    looks_for_deletes=False,
)


def timestamptz(when: datetime) -> str:
    """A moment as DuckDB writes a TIMESTAMPTZ in UTC, which is how an inlined row and SQLite keep it."""
    text = when.strftime("%Y-%m-%d %H:%M:%S.%f").rstrip("0").rstrip(".")
    return f"{text}+00"
