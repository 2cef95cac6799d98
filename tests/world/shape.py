"""What a random source looks like: its columns, who is routed by which of them, and what its cells may hold."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from tests.world.rows import Cell, Column

TENANTS = ("acme", "Zoë & Söhne", "o'brien")
NUMBERED = ("7", "-3", "0")
STRAYS: tuple[Cell, ...] = ("nobody", "", None)
NUMBERED_STRAYS: tuple[Cell, ...] = ("99", None)

TEXTS: tuple[Cell, ...] = ("a", "b", "", "NULL", "ä ö", "it's", "two\nlines", None)
NUMBERS: tuple[Cell, ...] = ("0", "1", "-7", "2147480000", None)
AMOUNTS: tuple[Cell, ...] = ("0.00", "1.50", "-99.99", None)
FLOATS: tuple[Cell, ...] = ("0.0", "-2.5e-300", "1.5", "nan", "-inf", "1e+300", None)
"""No -0.0: Parquet's dictionary takes it for 0.0, whichever of the two comes first, so no lake keeps them apart."""
SECOND_KEYS: tuple[Cell, ...] = ("", "x", "NULL", None)


@dataclass(frozen=True)
class Shape:
    """``tenants`` are routing values that destinations are for, ``strays`` those that none is for."""

    columns: tuple[Column, ...]
    routing: str
    keys: tuple[str, ...]
    tenants: tuple[str, ...]
    strays: tuple[Cell, ...]
    null_keys: bool
    schema: str = "main"
    table: str = "events"
    append_only: bool = False
    spread: int = 24
    """How many values the first key takes: few, so that keys come back."""
    many: tuple[int, int] = (12, 30)
    """Rows of a large insert: too many to be inlined by DuckLake's defaults (10 rows)."""

    def cells(self, column: str) -> tuple[Cell, ...]:
        """Values that a column that is neither a key nor routed by may hold."""
        return {"v": TEXTS, "n": NUMBERS, "amount": AMOUNTS, "f": FLOATS}.get(column, NUMBERS)


def random_shape(rng: Random, *, append_only: bool = False) -> Shape:
    by_number = rng.random() < 0.25
    routing = Column("company id" if rng.random() < 0.3 else "tenant", "INTEGER" if by_number else "VARCHAR")
    keys = [Column("k", rng.choice(["INTEGER", "BIGINT"]))]
    if rng.random() < 0.5:
        keys.append(Column("Key 2", "VARCHAR"))
    values = [Column("v", "VARCHAR"), Column("n", "INTEGER"), Column("amount", "DECIMAL(10,2)")]
    if rng.random() < 0.4:
        values.append(Column("f", "DOUBLE"))
    columns = [routing, *keys, *values]
    if rng.random() < 0.3:
        rng.shuffle(columns)
    return Shape(
        columns=tuple(columns),
        routing=routing.name,
        keys=tuple(key.name for key in keys),
        tenants=NUMBERED if by_number else TENANTS,
        strays=NUMBERED_STRAYS if by_number else STRAYS,
        null_keys=rng.random() < 0.5,
        schema="main" if rng.random() < 0.7 else "Sales, EU",
        append_only=append_only,
    )


SIMPLE = Shape(
    columns=(Column("tenant", "VARCHAR"), Column("k", "INTEGER"), Column("v", "VARCHAR")),
    routing="tenant",
    keys=("k",),
    tenants=("a", "b"),
    strays=("nobody",),
    null_keys=False,
)
"""Two tenants, one key column without NULLs: for tests whose point is elsewhere."""
