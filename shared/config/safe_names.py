"""Routing value → safe name, or None. Values in, values out.

A routing value is untrusted. Its name becomes an id and a part of a path, of a URI and of a name in Postgres, so the
value must be safe in all of them *as it is*. It is never rewritten into a name, because two values could result in the
same name.
"""

from __future__ import annotations

import re

RULE = "1 to 63 letters, digits, dots, dashes and underscores, the first a letter or digit, no dot at the end or twice"

SAFE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9_-])?")
"""No separator of paths, URIs, connection words or SQL; no more bytes than Postgres keeps of a name."""

RESERVED = frozenset({"postgres", "template0", "template1", "public", "main", "information_schema"})
"""What is there before any tenant: databases and schemas."""

COMPANIONS = ("-wal", "-shm", "-journal", ".files")
"""How files end that SQLite and DuckLake make beside a catalog: they must not be another tenant's catalog."""


def safe_name(value: str) -> str | None:
    """``value`` itself where it is a safe name; None where it is none."""
    if not SAFE.fullmatch(value) or ".." in value:
        return None
    folded = value.casefold()
    is_taken = folded in RESERVED or folded.startswith("pg_") or folded.endswith(COMPANIONS)
    return None if is_taken else value
