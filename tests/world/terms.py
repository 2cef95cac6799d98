"""Defaults for rows to come, comments, NOT NULL and the table's name: statements that change no row, between the steps
of a history."""

from __future__ import annotations

from random import Random

from tests.world.kinds import Declared
from tests.world.model import Model
from tests.world.shape import Shape
from tests.world.statements import CommentOn, RenameTable, SetDefault, SetNotNull, Statement, Transaction

RATE = 0.15
"""How often a step is one of these."""

RENAMES = 0.3
CONSTRAINS = 0.4
"""Of them, those that rename the table, and those that set or drop NOT NULL."""

RELIEVES = 0.3
"""How often a step drops NOT NULL where a column has it: soon, or a short history would end before."""

DEFAULTS = {"INTEGER": "5", "BIGINT": "5", "DECIMAL(10,2)": "2.50", "DECIMAL(18,2)": "2.50", "VARCHAR": "it's"}


def terms_rng(rng: Random) -> Random:
    """Another one that ``rng`` determines and does not notice: other steps are drawn as they were without terms."""
    return Random(repr(rng.getstate()))


def random_terms(rng: Random, model: Model, shape: Shape) -> Transaction:
    kind = rng.random()
    if kind < RENAMES:
        return Transaction((RenameTable(shape.called(not model.renamed)),), bare=rng.random() < 0.5)
    if kind < RENAMES + CONSTRAINS and (constraint := _constraint(rng, model)) is not None:
        return Transaction((constraint,), bare=rng.random() < 0.5)
    return _default_or_comment(rng, model)


def relief(rng: Random, model: Model) -> Transaction | None:
    """One that drops a constraint again, where there is one and its time has come."""
    there = sorted(model.required & {*model.ids})
    if not there or rng.random() >= RELIEVES:
        return None
    return Transaction((SetNotNull(rng.choice(there)[0], False),), bare=rng.random() < 0.5)


def _constraint(rng: Random, model: Model) -> SetNotNull | None:
    """One that a column without a NULL gets; DuckLake refuses it for one that came later."""
    free = [known for known in model.ids if known not in model.required and not known[1] and not model.has_null(known)]
    return SetNotNull(rng.choice(free)[0], True) if free and model.rows else None


def _default_or_comment(rng: Random, model: Model) -> Transaction:
    named = [(origin, column.type) for (origin, _), column in zip(model.ids, model.columns, strict=True)]
    origin, declared = rng.choice(named)
    default = None if isinstance(declared, Declared) else DEFAULTS.get(declared)
    made: list[Statement] = [CommentOn(origin, rng.choice([None, f"remark {rng.randrange(9)}"]))]
    if default is not None and rng.random() < 0.7:
        made = [SetDefault(origin, rng.choice([default, default, None])), *made[: rng.randrange(2)]]
    return Transaction(tuple(made), bare=len(made) == 1 and rng.random() < 0.5)
