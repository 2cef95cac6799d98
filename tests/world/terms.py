"""Defaults for rows to come and comments: statements that change no row, between the steps of a history."""

from __future__ import annotations

from random import Random

from tests.world.kinds import Declared
from tests.world.model import Model
from tests.world.statements import CommentOn, SetDefault, Statement, Transaction

RATE = 0.06
"""How often a step is one of these."""

DEFAULTS = {"INTEGER": "5", "BIGINT": "5", "DECIMAL(10,2)": "2.50", "DECIMAL(18,2)": "2.50", "VARCHAR": "it's"}


def terms_rng(rng: Random) -> Random:
    """Another one that ``rng`` determines and does not notice: other steps are drawn as they were without terms."""
    return Random(repr(rng.getstate()))


def random_terms(rng: Random, model: Model) -> Transaction:
    named = [(origin, column.type) for (origin, _), column in zip(model.ids, model.columns, strict=True)]
    origin, declared = rng.choice(named)
    default = None if isinstance(declared, Declared) else DEFAULTS.get(declared)
    made: list[Statement] = [CommentOn(origin, rng.choice([None, f"remark {rng.randrange(9)}"]))]
    if default is not None and rng.random() < 0.7:
        made = [SetDefault(origin, rng.choice([default, default, None])), *made[: rng.randrange(2)]]
    return Transaction(tuple(made), bare=len(made) == 1 and rng.random() < 0.5)
