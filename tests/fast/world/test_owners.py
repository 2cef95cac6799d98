"""What an owner makes of a table's columns is believed while it lasts, and no longer."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pytest

from tests.fast.world.test_strange_histories import destination, rules, told
from tests.world.duck import name
from tests.world.forge import Forge
from tests.world.owners import Act, Owner

TRUTH = told("x", "old", "old too")


@pytest.fixture
def forge(world: duckdb.DuckDBPyConnection, tmp_path: Path) -> Forge:
    made = Forge(world, destination(tmp_path), TRUTH)
    made.open()
    made.seed(2)
    made.close()
    return made


class Only(Random):
    """Draws the act, and any column."""

    def __init__(self, act: Act) -> None:
        super().__init__(1)
        self._act = act

    def choice(self, seq: Any) -> Any:
        return self._act if self._act in seq else super().choice(seq)


def altered(forge: Forge, act: Act) -> None:
    assert Owner(Only(act)).alter(forge.con, forge.destination.lake, "main", "t") is act


@pytest.mark.parametrize("act", Act)
def test_what_an_owner_does_is_no_finding(forge: Forge, act: Act) -> None:
    altered(forge, act)
    assert rules(forge, TRUTH) == set()


@pytest.mark.parametrize("kind", ["changes", "seed"])
def test_what_comes_over_lost_values_has_to_be_right(forge: Forge, kind: str) -> None:
    altered(forge, Act.LAST_DROPPED)
    forge.open()
    dropped = TRUTH.columns(2)[-1]
    forge.commit(
        kind, 2, 3,
        generation=1 if kind == "changes" else 2,
        before=[f"ALTER TABLE {forge.table} ADD COLUMN {name(dropped.name)} {dropped.type}"],
        tamper=[f"UPDATE {forge.table} SET v = 'oops'"],
    )  # fmt: skip
    forge.close()
    assert "exact" in rules(forge, TRUTH)


@pytest.mark.parametrize("act", [act for act in Act if not act.loses])
def test_after_what_keeps_values_every_snapshot_has_to_be_right(forge: Forge, act: Act) -> None:
    altered(forge, act)
    forge.open()
    forge.commit("advance", 2, 3, tamper=[f"UPDATE {forge.table} SET v = 'oops'"])
    forge.close()
    assert "exact" in rules(forge, TRUTH)
