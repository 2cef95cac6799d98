"""What a random source looks like: its columns, who is routed by which of them, and what its cells may hold."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from tests.world import hostile
from tests.world.layouts import layouts
from tests.world.rows import Cell, Column

TENANTS = ("acme", "Zoë & Söhne", "o'brien")
NUMBERED = ("7", "-3", "0")
STRAYS: tuple[Cell, ...] = ("nobody", "", None)
NUMBERED_STRAYS: tuple[Cell, ...] = ("99", None)

TEXTS: tuple[Cell, ...] = ("a", "b", "", "NULL", "ä ö", "it's", "two\nlines", None)
NUMBERS: tuple[Cell, ...] = ("0", "1", "-7", "2147480000", None)
AMOUNTS: tuple[Cell, ...] = ("0.00", "1.50", "-99.99", None)
FLOATS: tuple[Cell, ...] = ("0.0", "-0.0", "-2.5e-300", "1.5", "nan", "inf", "-inf", "1e+300", None)
MOMENTS: tuple[Cell, ...] = (
    "2024-02-29 23:59:59.999999",
    "2024-03-01 00:00:00",
    "1969-12-31 23:59:59.999999",
    "0001-01-01 00:00:00",
    "290309-12-22 (BC) 00:00:00",
    "294247-01-10 04:00:54.775806",
    "infinity",
    "-infinity",
    None,
)
BLOBS: tuple[Cell, ...] = ("\\xFF\\xFE", "\\x00", "{x}", "plain", "", None)
MOMENT = "when"
"""A column that is never replaced by another one, so that tables may be partitioned by it."""
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
    giant: int = 0
    """Rows of a very large insert, most of them the first tenant's; 0 if there is none."""
    texts: tuple[Cell, ...] = TEXTS
    second_keys: tuple[Cell, ...] = SECOND_KEYS
    words: tuple[str, ...] = ()
    """Texts that no destination can hold; they come seldom, in any column, and never to an inlined row."""
    layouts: tuple[str, ...] = ()
    """Layouts that the owner of the source, or of a destination, may give to the table at any time."""

    def called(self, renamed: bool) -> str:
        """What the table is called before and after its owner renames it."""
        return f"{self.table} as renamed" if renamed else self.table

    def cells(self, column: str) -> tuple[Cell, ...]:
        """Values that a column that is neither a key nor routed by may hold."""
        cells = {"v": self.texts, "amount": AMOUNTS, "f": FLOATS, MOMENT: MOMENTS, "b": BLOBS}
        return cells.get(column, NUMBERS)

    @property
    def replaceable(self) -> tuple[str, ...]:
        """Columns that may be dropped and added again: no table is laid out by them."""
        return tuple(column.name for column in self.columns if column.name in ("v", "n", "amount", "f"))


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


def strange_shape(rng: Random, *, append_only: bool = False) -> Shape:
    """A random shape that has every layout, and maybe hostile texts, words that can't be carried, or a giant tenant."""
    plain = random_shape(rng, append_only=append_only)
    extra = [Column(MOMENT, "TIMESTAMP")] * (rng.random() < 0.6) + [Column("b", "BLOB")] * (rng.random() < 0.3)
    shape = replace(plain, columns=(*plain.columns, *extra))
    kind = rng.random()
    if kind < 0.45 and shape.tenants is TENANTS:
        shape = _with_hostile_texts(rng, shape, words=kind < 0.2)
    elif kind > 0.9:
        shape = replace(shape, giant=rng.choice([400, 1500]), spread=20_000)
    return replace(shape, layouts=_layouts_of(shape))


def _with_hostile_texts(rng: Random, shape: Shape, *, words: bool) -> Shape:
    """With ``words`` texts are tame otherwise, so that tables may be partitioned by them."""
    texts = tuple(text for text in hostile.TEXTS if not words or hostile.fits_a_folder([text]))
    tenants = [tenant for tenant in hostile.TENANTS if not words or hostile.fits_a_folder([tenant])]
    strays = [stray for stray in hostile.STRAYS if not words or hostile.fits_a_folder([stray])]
    chosen = rng.sample(tenants, 3)
    if words and rng.random() < 0.3:
        chosen[2] = hostile.WORD_TENANT
    return replace(
        shape,
        texts=texts,
        second_keys=(*(text for text in texts if text is not None), None),
        tenants=tuple(chosen),
        strays=(*strays, *(hostile.WORDS if words else ())),
        words=hostile.WORDS if words else (),
    )


def _layouts_of(shape: Shape) -> tuple[str, ...]:
    held = {shape.routing: (*shape.tenants, *shape.strays)} | dict.fromkeys(shape.keys[1:], shape.second_keys)
    texts = [column for column, cells in held.items() if hostile.fits_a_folder(cells)]
    moment = MOMENT if any(column.name == MOMENT for column in shape.columns) else None
    return layouts(moment, texts, shape.keys[:1])


SIMPLE = Shape(
    columns=(Column("tenant", "VARCHAR"), Column("k", "INTEGER"), Column("v", "VARCHAR")),
    routing="tenant",
    keys=("k",),
    tenants=("a", "b"),
    strays=("nobody",),
    null_keys=False,
)
"""Two tenants, one key column without NULLs: for tests whose point is elsewhere."""
