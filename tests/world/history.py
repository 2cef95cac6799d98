"""Random histories: one ``random.Random`` in, steps out. The same seed always gives the same history.

Steps are made against the model of the table, so that keys stay unique where a destination needs them to be, and so
that updates and deletes mostly find something.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from tests.world.fields import FieldChange, ReplaceField, WidenFields, random_change
from tests.world.kinds import Declared, random_cell, random_type
from tests.world.model import EVERY_ROW, Model, Where
from tests.world.recovery import Recovery
from tests.world.rows import Cell, Column, Row
from tests.world.shape import Shape, random_shape, strange_shape
from tests.world.statements import (
    AddColumn,
    ColumnChange,
    Delete,
    DropColumn,
    Insert,
    Merge,
    RenameColumn,
    ReplaceColumn,
    Shift,
    Statement,
    Touch,
    Transaction,
    Truncate,
    Update,
    WidenColumn,
)
from tests.world.terms import RATE, random_terms, relief, terms_rng
from tests.world.upkeep import Chore, Upkeep

Step = Transaction | Upkeep | Recovery
Statements = list[Statement]

TRIES = 20
FEW = (1, 3)
"""Rows of a small insert."""
MOST_ADDED = 2
WIDER = {"INTEGER": "BIGINT", "DECIMAL(10,2)": "DECIMAL(18,2)"}
"""Types, and those that spell their values alike."""
WORDY = 0.01
"""How often a text is one that no destination can hold."""

AMONG_ROWS = 0.5
"""How often columns change in one transaction with rows."""
NESTED = 2
"""Of eight changes of columns, those that are of one with fields."""

RECOVERY_RATE = 0.2
"""Of the steps of a history whose source is restored."""

SORTS = "SET SORTED BY"


@dataclass(frozen=True)
class History:
    shape: Shape
    steps: tuple[Step, ...]


def random_history(
    rng: Random, *, steps: int, append_only: bool = False, expire: bool = False, replaces: bool = False
) -> History:
    """``replaces``: columns are also dropped, replaced by others of their name, renamed and widened, and get defaults
    and comments."""
    shape = random_shape(rng, append_only=append_only)
    generator = Generator(rng, shape, expire=expire, replaces=replaces)
    return History(shape, tuple(generator.step() for _ in range(steps)))


def strange_history(
    rng: Random,
    *,
    steps: int,
    append_only: bool = False,
    expire: bool = False,
    recovers: bool = False,
    recovery_rate: float = RECOVERY_RATE,
) -> History:
    """A history in which destinations may park: texts come that can't be carried, and with ``recovers`` the source is
    restored from a backup or replaced by another lake, in so many of its steps as ``recovery_rate`` says."""
    shape = strange_shape(rng, append_only=append_only)
    rate = recovery_rate if recovers else 0.0
    generator = Generator(rng, shape, expire=expire, replaces=True, recovery_rate=rate)
    return History(shape, tuple(generator.step() for _ in range(steps)))


class Generator:
    """Makes one step after another, each fitting the table as the steps before have left it."""

    def __init__(
        self, rng: Random, shape: Shape, *, expire: bool = False, replaces: bool = False, recovery_rate: float = 0.0
    ) -> None:
        self.rng = rng
        self.shape = shape
        self.model = Model(shape.columns)
        self.expire, self.replaces, self.recovery_rate = expire, replaces, recovery_rate
        self.terms = terms_rng(rng)
        self.backup: Model | None = None
        self.last: Step | None = None
        self.sorts = self.replaced = False
        """Whether the table was ever sorted, or a column of it dropped: after both, DuckLake can't flush (H19)."""

    def step(self) -> Step:
        if self.replaces and not self.shape.append_only and (made := self._terms()) is not None:
            self.model = made.effect(self.model)
            return made
        self.last = self._step()
        return self.last

    def _terms(self) -> Transaction | None:
        made = relief(self.terms, self.model)
        if made is None and self.terms.random() < RATE:
            return random_terms(self.terms, self.model, self.shape)
        return made

    def _step(self) -> Step:
        if _deletes(self.last) and self.rng.random() < 0.25:
            return Upkeep(Chore.REWRITE)  # what was deleted is to be gone for good
        if self.recovery_rate and self.rng.random() < self.recovery_rate:
            return self._recovery()
        return self._upkeep() if self.rng.random() < 0.3 else self._transaction()

    def _recovery(self) -> Recovery:
        if self.rng.random() < 0.1:
            self.model, self.backup = Model(self.shape.columns), None
            return Recovery.REPLACE
        if self.backup is None or self.rng.random() < 0.3:
            self.backup = self.model.copy()
            return Recovery.BACK_UP
        self.model = self.backup.copy()
        return Recovery.RESTORE

    # -- maintenance and others ---------------------------------------------------------------------------------------

    def _upkeep(self) -> Upkeep:
        weights = {
            Chore.FLUSH: 5,
            Chore.MERGE_FILES: 4,
            Chore.REWRITE: 4,
            Chore.CHECKPOINT: 3,
            Chore.INLINING: 0 if self.shape.words else 3,
            Chore.OTHER_TABLE: 2,
            Chore.COMMENT: 0 if self.shape.append_only else 1,
            Chore.EXPIRE: 2 if self.expire else 0,
            Chore.LAYOUT: 6 if self.shape.layouts else 0,
        }
        chore = self.rng.choices(list(weights), list(weights.values()))[0]
        layout = self.rng.choice(self.shape.layouts) if chore is Chore.LAYOUT else ""
        if layout.startswith(SORTS) and self.replaced:
            return Upkeep(Chore.FLUSH, 0)
        self.sorts = self.sorts or layout.startswith(SORTS)
        return Upkeep(chore, self._number(chore), layout)

    def _number(self, chore: Chore) -> int:
        if chore is Chore.INLINING:
            rows = self.rng.choice([0, 0, 2, 10, 50])
            return 0 if self.replaced else rows  # H22
        return 4 if chore is Chore.EXPIRE else self.rng.randrange(1000)

    # -- transactions -------------------------------------------------------------------------------------------------

    def _transaction(self) -> Transaction:
        """A transaction after which no tenant has two rows of one key; the last resort is one that does nothing."""
        for _ in range(TRIES):
            made = self._propose()
            after = made.effect(self.model)
            may_be = not _loses_rows(made) and not (self.sorts and _replaces(made))
            if may_be and self._keys_are_unique(after) and not _breaks_a_constraint(made, self.model):
                self.model, self.replaced = after, self.replaced or _replaces(made)
                return made
        return Transaction((Delete(Where(((self.shape.keys[0], frozenset({"-1"})),))),))

    def _keys_are_unique(self, model: Model) -> bool:
        if self.shape.append_only:
            return True
        at = [model.index(column) for column in (self.shape.routing, *self.shape.keys)]
        keys = Counter(tuple(row[i] for i in at) for row in model.live())
        return all(times == 1 for key, times in keys.items() if key[0] in self.shape.tenants)

    def _propose(self) -> Transaction:
        moves = self._moves()
        several = self.rng.random() < 0.3
        chosen = self.rng.choices(list(moves), list(moves.values()), k=self.rng.randint(2, 3) if several else 1)
        if self.shape.append_only and several:
            chosen = [self._insert for _ in chosen]  # more than one kind of mark may be an update, which parks
        statements = self._with_columns([move() for move in chosen])
        bare = len(statements) == 1 and not _is_two(statements[0]) and self.rng.random() < 0.5
        return Transaction(tuple(statements), rollback=not bare and self.rng.random() < 0.05, bare=bare)

    def _with_columns(self, moves: Sequence[Statements]) -> Statements:
        """Where columns change they change alone, or between rows that are changed by both the former and the new."""
        changes = next((move for move in moves if any(isinstance(one, ColumnChange) for one in move)), None)
        if changes is None or self.rng.random() >= AMONG_ROWS:
            return changes or [statement for move in moves for statement in move]
        return self._among_rows(changes)

    def _among_rows(self, changes: Statements) -> Statements:
        """Before, rows only go: others that DuckLake inlines there invalidate its instance, or COMMIT is refused. Once
        something is wider they only come: it shows NULL in older ones until the transaction ends (H26)."""
        before = self._delete() if self.rng.random() < 0.5 and not self.shape.append_only else []
        wider = any(isinstance(one, WidenColumn | WidenFields) for one in changes)
        here = self.model
        self.model = Transaction((*before, *changes)).effect(here)
        after = (self._insert() if wider else self._some_rows()) if not before or self.rng.random() < 0.7 else []
        self.model = here
        return [*before, *changes, *after]

    def _some_rows(self) -> Statements:
        if self.shape.append_only:
            return self._insert()
        return self.rng.choice([self._insert, self._update, self._delete, self._change_key, self._move])()

    def alteration(self, nested: bool = True) -> Transaction:
        """A transaction that changes columns, with rows or without; ``nested``: also such that have fields."""
        for _ in range(TRIES):
            changes = self._change_columns(nested=nested)
            if not isinstance(changes[0], ColumnChange):
                continue
            made = Transaction(tuple(self._among_rows(changes) if self.rng.random() < 0.7 else changes))
            after = made.effect(self.model)
            if self._keys_are_unique(after) and not _loses_rows(made):
                self.model, self.replaced = after, self.replaced or _replaces(made)
                return made
        raise AssertionError(f"no column can be changed any more: {self.model.columns}")

    def flattening(self) -> Transaction:
        """The transaction that drops what has fields."""
        named = zip(self.model.ids, self.model.columns, strict=True)
        gone = tuple(DropColumn(origin) for (origin, _), column in named if isinstance(column.type, Declared))
        made = Transaction(gone)
        self.model, self.replaced = made.effect(self.model), self.replaced or bool(gone)
        return made

    def _moves(self) -> dict[Callable[[], Statements], int]:
        if self.shape.append_only:
            return {
                self._insert: 10,
                self._delete: 2,
                self._delete_all: 1,
                self._add_column: 1,
                self._change_columns: 3 if self.replaces else 0,
            }
        return {
            self._insert: 10,
            self._update: 8,
            self._delete: 5,
            self._delete_all: 1,
            self._change_key: 5,
            self._shift_keys: 1,
            self._move: 8,
            self._touch: 2,
            self._update_and_revert: 2,
            self._replace: 3,
            self._come_and_go: 2,
            self._insert_and_update: 2,
            self._merge: 3,
            self._add_column: 1,
            self._change_columns: 6 if self.replaces else 0,
            self._mend: 4 if self.shape.words else 0,
        }

    def _insert(self) -> Statements:
        return [Insert(self._new_rows(self._how_many()))]

    def _update(self) -> Statements:
        return [Update(self._some(), self._sets())]

    def _delete(self) -> Statements:
        return [Delete(self._some())]

    def _delete_all(self) -> Statements:
        return [Delete(EVERY_ROW) if self.rng.random() < 0.5 else Truncate()]

    def _change_key(self) -> Statements:
        """Rows that take another key, be it a new one or one that somebody gave up."""
        key = self.rng.choice(self.shape.keys)
        return [Update(self._one(), ((key, self._key_cell(key)),))]

    def _shift_keys(self) -> Statements:
        """Every key moved by one: each lands where another has just left."""
        return [Shift(self._some(), self.shape.keys[0], self.rng.choice([1, -1, 100]))]

    def _move(self) -> Statements:
        """Rows that move to another tenant, to none, or come from none; mostly one, to where its key is free."""
        row = self._pick()
        if row is None or self.rng.random() < 0.3:
            return [Update(self._some(), ((self.shape.routing, self._routing_cell()), *self._maybe_sets()))]
        here, *key = self._identity_of(row)
        taken = self._taken()
        homes = [home for home in (*self.shape.tenants, *self.shape.strays) if (home, *key) not in taken]
        home = self.rng.choice(homes or [here])
        return [Update(self._only(row), ((self.shape.routing, home), *self._maybe_sets()))]

    def _touch(self) -> Statements:
        return [Touch(self._some(), self.rng.choice(self._value_columns()))]

    def _update_and_revert(self) -> Statements:
        row = self._pick()
        if row is None:
            return self._insert()
        column = self.rng.choice(self._value_columns())
        there = self._only(row)
        back = row[self.model.index(column)]
        return [Update(there, ((column, self._cell(column)),)), Update(there, ((column, back),))]

    def _replace(self) -> Statements:
        """A key deleted and inserted again in one transaction."""
        row = self._pick()
        if row is None:
            return self._insert()
        again = self._row(self._identity_of(row))
        return [Delete(self._only(row)), Insert((again,))]

    def _come_and_go(self) -> Statements:
        """Rows inserted and, some of them, deleted in one transaction."""
        rows = self._new_rows(self._how_many())
        return [Insert(rows), Delete(self._only(rows[0]))]

    def _insert_and_update(self) -> Statements:
        rows = self._new_rows(self._how_many())
        return [Insert(rows), Update(self._only(rows[0]), self._sets())]

    def _merge(self) -> Statements:
        known = [row for row in (self._pick() for _ in range(self.rng.randint(*FEW))) if row is not None]
        old = {tuple(self._identity_of(row)): self._row(self._identity_of(row)) for row in known}
        new = {tuple(self._identity_of(row)): row for row in self._new_rows(self._how_many())}
        return [Merge(self._identity(), tuple((new | old).values()))]

    def _add_column(self) -> Statements:
        change = self._added(self.model)
        return self._insert() if change is None else [change]

    def _change_columns(self, *, nested: bool = True) -> Statements:
        """One or more changes of columns, which commit together."""
        model, changes = self.model.copy(), list[Statement]()
        for _ in range(self.rng.choice([1, 1, 2, 3])):
            makers = [self._added, self._dropped, self._replaced, self._renamed, self._renamed, self._wider]
            change = self.rng.choice([*makers, *[self._nested] * (NESTED if nested else 0)])(model)
            if change is not None:
                change.apply(model)
                changes.append(change)
        return changes or self._insert()

    def _added(self, model: Model) -> ColumnChange | None:
        number = model.added
        if sum(origin.startswith("added ") for origin, _ in model.ids) >= MOST_ADDED:
            return None
        column = Column(self._free_name(model, f"added {number}"), self.rng.choice(["INTEGER", "BIGINT"]))
        return AddColumn(column, self.rng.choice([None, "5"]), f"added {number}")

    def _nested(self, model: Model) -> ColumnChange | None:
        """A column with fields, to which no default can be given, or a change of a field of the one that there is.

        One in a transaction, and none of a column that is new there: DuckLake can't do that (H26).
        """
        there = next((column for column in model.columns if isinstance(column.type, Declared)), None)
        if there is None:
            column = Column(self._free_name(model, f"nested {model.added}"), random_type(self.rng))
            return AddColumn(column, None, f"added {model.added}")
        known = model.ids[model.columns.index(there)]
        before = dict(zip(self.model.ids, (column.type for column in self.model.columns), strict=True)).get(known)
        if not isinstance(before, Declared) or not isinstance(there.type, Declared) or before.kind != there.type.kind:
            return None
        return random_change(self.rng, known[0], before)

    def _dropped(self, model: Model) -> ColumnChange | None:
        """Value columns always stay that the rest of a history can update."""
        there = self._replaceable(model)
        return DropColumn(self.rng.choice(there)) if len(self._values_of(model)) > 2 and there else None

    def _replaced(self, model: Model) -> ColumnChange | None:
        there = [origin for origin in self._replaceable(model) if not origin.startswith("added ")]
        if not there:
            return None
        origin = self.rng.choice(there)
        type = model.columns[model.index(origin)].type  # noqa: A001
        wide = type in WIDER.values()
        cells = [None, *filter(None, self.shape.cells(origin))][:2]
        return None if wide else ReplaceColumn(origin, self.rng.choice(cells))

    def _renamed(self, model: Model) -> ColumnChange | None:
        """Columns that tables are laid out by keep their names, which layouts name; those with fields do in the
        transaction that adds them, since DuckLake loses the fields (H29)."""
        named = zip(model.ids, model.columns, strict=True)
        new = {known[0] for known, column in named if isinstance(column.type, Declared) and known not in self.model.ids}
        may = self._replaceable(model) if self.shape.layouts else [origin for origin, _ in model.ids]
        there = [origin for origin in may if origin not in new]
        if not there:
            return None
        origin = self.rng.choice(there)
        return RenameColumn(origin, self._free_name(model, self.rng.choice(["w", "Renamed to", origin])))

    def _wider(self, model: Model) -> ColumnChange | None:
        types = {origin: column.type for (origin, _), column in zip(model.ids, model.columns, strict=True)}
        may = self._replaceable(model) if self.shape.layouts else list(types)
        free = [origin for origin in may if types[origin] in WIDER]
        if not free:
            return None
        origin = self.rng.choice(free)
        return WidenColumn(origin, WIDER[types[origin]])

    def _free_name(self, model: Model, wanted: str) -> str:
        """A name that no column has, in whatever case, nor any that the pipeline's configuration gives to another."""
        taken = {column.name.lower() for column in model.columns} | {each.lower() for each in self._identity()}
        return next(free for n in range(99) if (free := f"{wanted} {n}" if n else wanted).lower() not in taken)

    def _replaceable(self, model: Model) -> list[str]:
        known = {*self.shape.replaceable}
        return [origin for origin, _ in model.ids if origin in known or origin.startswith("added ")]

    def _values_of(self, model: Model) -> list[str]:
        return [origin for origin, _ in model.ids if origin not in self._identity()]

    def _mend(self) -> Statements:
        """Texts that can't be carried become others, as an operator has them changed at the source."""
        named = zip(self.model.ids, self.model.columns, strict=True)
        texts = [origin for (origin, _), c in named if c.type == "VARCHAR" and origin not in self._identity()]
        if not texts:
            return self._insert()
        column = self.rng.choice(texts)
        return [Update(Where(((column, frozenset(self.shape.words)),)), ((column, "mended"),))]

    # -- choosing -----------------------------------------------------------------------------------------------------

    def _how_many(self) -> int:
        if self.shape.giant and self.rng.random() < 0.2:
            return self.shape.giant
        return self.rng.randint(*(self.shape.many if self.rng.random() < 0.3 else FEW))

    def _identity(self) -> tuple[str, ...]:
        return (self.shape.routing, *self.shape.keys)

    def _identity_of(self, row: Row) -> list[Cell]:
        return [row[self.model.index(column)] for column in self._identity()]

    def _pick(self) -> Row | None:
        rows = list(self.model.live())
        return self.rng.choice(rows) if rows else None

    def _one(self) -> Where:
        row = self._pick()
        return EVERY_ROW if row is None else self._only(row)

    def _only(self, row: Row) -> Where:
        return Where.equal(self._identity(), self._identity_of(row))

    def _taken(self) -> set[tuple[Cell, ...]]:
        return {tuple(self._identity_of(row)) for row in self.model.live()}

    def _some(self) -> Where:
        """A few keys of anybody, everything of one tenant, one row, or every row."""
        kind = self.rng.random()
        if kind < 0.45:
            return Where(((self.shape.keys[0], frozenset(self._key_cell(self.shape.keys[0]) for _ in range(4))),))
        if kind < 0.65:
            return Where(((self.shape.routing, frozenset({self._routing_cell()})),))
        return EVERY_ROW if kind < 0.7 else self._one()

    def _value_columns(self) -> Sequence[str]:
        return self._values_of(self.model)

    def _sets(self) -> tuple[tuple[str, Cell], ...]:
        """One column or two; changes of columns may have left one alone."""
        columns = self._value_columns()
        chosen = self.rng.sample(columns, min(len(columns), self.rng.randint(1, 2)))
        return tuple((column, self._cell(column)) for column in chosen)

    def _maybe_sets(self) -> tuple[tuple[str, Cell], ...]:
        return self._sets() if self.rng.random() < 0.4 else ()

    def _new_rows(self, count: int) -> tuple[Row, ...]:
        """Rows of keys that are free, as far as there are any; one statement never names a key twice."""
        taken = self._taken()
        rows: dict[tuple[Cell, ...], Row] = {}
        for _ in range(count * 2):
            row = self._row([self._routing_cell(), *(self._key_cell(key) for key in self.shape.keys)])
            identity = tuple(self._identity_of(row))
            free = identity not in taken or identity[0] not in self.shape.tenants or self.shape.append_only
            if len(rows) < count and free:
                rows[identity] = row
        return tuple(rows.values()) or (self._spare_row(),)

    def _spare_row(self) -> Row:
        """A row whose key is hardly ever taken."""
        more_keys = ["y"] * (len(self.shape.keys) - 1)
        return self._row([self.shape.tenants[0], str(self.rng.randrange(1000, 9999)), *more_keys])

    def _row(self, identity: Sequence[Cell]) -> Row:
        known = dict(zip(self._identity(), identity, strict=True))
        return tuple(known[origin] if origin in known else self._cell(origin) for origin, _ in self.model.ids)

    def _cell(self, column: str) -> Cell:
        declared = self.model.columns[self.model.index(column)].type
        if isinstance(declared, Declared):
            return random_cell(self.rng, declared.kind)
        cells = self.shape.cells(column)
        if self.shape.words and cells is self.shape.texts and self.rng.random() < WORDY:
            return self.rng.choice(self.shape.words)
        return self.rng.choice(cells)

    def _routing_cell(self) -> Cell:
        if self.shape.giant and self.rng.random() < 0.7:
            return self.shape.tenants[0]
        return self.rng.choice(self.shape.tenants if self.rng.random() < 0.8 else self.shape.strays)

    def _key_cell(self, key: str) -> Cell:
        if key != self.shape.keys[0]:
            if self.shape.words and self.rng.random() < WORDY:
                return self.rng.choice(self.shape.words)
            return self.rng.choice(self.shape.second_keys if self.shape.null_keys else self.shape.second_keys[:-1])
        if self.shape.null_keys and self.rng.random() < 0.08:
            return None
        return str(self.rng.randrange(self.shape.spread))


def _breaks_a_constraint(made: Transaction, model: Model) -> bool:
    """Whether one of the statements leaves a NULL where there may be none."""
    if not model.required:
        return False
    during = model.copy()
    for statement in made.statements:
        statement.apply(during)
        if during.breaks_a_constraint:
            return True
    return False


def _deletes(step: Step | None) -> bool:
    return isinstance(step, Transaction) and any(isinstance(one, Delete | Truncate) for one in step.statements)


def _is_two(statement: Statement) -> bool:
    """Whether it is two statements, which only a transaction makes one."""
    return isinstance(statement, ReplaceColumn | ReplaceField)


def _replaces(made: Transaction) -> bool:
    return any(isinstance(one, ReplaceColumn | DropColumn | FieldChange) for one in made.statements)


def _loses_rows(made: Transaction) -> bool:
    """Whether DuckLake may lose a row of it: it inlines some, writes others to a file, updates both at once (H18)."""
    inserts = sum(isinstance(one, Insert) for one in made.statements)
    updates = sum(isinstance(one, Update) for one in made.statements)
    return inserts > 1 and updates > 1 and not made.bare
