"""Any history of a source, cut and delivered in any way, leaves every destination exact at each of its snapshots.

The applier's own functions run here, on real lakes and without a Spark session.
"""

from __future__ import annotations

import duckdb
import pytest
from hypothesis import given

from tests.world.places import Database
from tests.world.play import Life, history_of, play
from tests.world.replay import SEED, SEEDS, again, histories, parts, seed_of
from tests.world.statements import RenameTable, SetNotNull, Statement, Transaction


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", parts(20))
@histories(10, soak=50)
@given(drawn=SEEDS)
def test_every_destination_of_any_history_is_exact(world: duckdb.DuckDBPyConnection, part: int, drawn: int) -> None:
    seed = seed_of(part, drawn)
    life = play(world, seed)
    assert not life.wrong, f"{life}\n{again(seed, 'tests/lake/test_histories.py')}"


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", parts(20))
@histories(1, soak=50)
@given(drawn=SEEDS)
def test_so_is_every_destination_of_a_strange_one_or_it_parks_for_its_reason(
    world: duckdb.DuckDBPyConnection, part: int, drawn: int
) -> None:
    """Layouts, hostile texts, restored and replaced sources, encrypted lakes, giants: `tests.world.shape`."""
    seed = seed_of(part, drawn)
    life = play(world, seed, strange=True)
    assert not life.wrong, f"{life}\n{again(seed, 'tests/lake/test_histories.py -k strange')}"


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", parts(4))
@histories(2, soak=50)
@given(drawn=SEEDS)
def test_so_is_every_destination_whose_owner_alters_its_columns_or_it_parks(
    world: duckdb.DuckDBPyConnection, part: int, drawn: int
) -> None:
    seed = seed_of(part, drawn)
    life = play(world, seed, owned=True)
    assert not life.wrong, f"{life}\n{again(seed, 'tests/lake/test_histories.py -k owner')}"


OWNED = (98_006, 98_007)
"""Histories in which an owner drops columns that the source has, and the next change parks."""


@pytest.mark.parametrize("seed", OWNED)
def test_what_an_owner_has_lost_parks(world: duckdb.DuckDBPyConnection, seed: int) -> None:
    life = play(world, seed, owned=True)
    assert not life.wrong, life
    _lost_and_parked(life)


@pytest.mark.parametrize("seed", OWNED)
def test_so_it_does_on_postgres(world: duckdb.DuckDBPyConnection, on_postgres: Database, seed: int) -> None:
    life = play(world, seed, owned=True, places=on_postgres)
    assert not life.wrong, life
    _lost_and_parked(life)


def _lost_and_parked(life: Life) -> None:
    assert life.owner is not None
    assert any(act.loses for act in life.owner.done)
    assert any(": parked" in line for line in life.log)


HOLDING = (94_012, 94_080)
"""Histories in which the source's table is renamed. In the second a column gets NOT NULL and loses it again, and upkeep
is ordered beside stray files."""


@pytest.mark.parametrize("seed", HOLDING)
def test_so_is_one_whose_table_is_renamed_or_whose_lakes_have_strays(
    world: duckdb.DuckDBPyConnection, seed: int
) -> None:
    life = play(world, seed)
    assert not life.wrong, life


def test_these_hold_what_they_are_for() -> None:
    renamed, all_of_it = (_statements(seed) for seed in HOLDING)
    assert any(isinstance(each, RenameTable) for each in renamed)
    assert any(isinstance(each, RenameTable) for each in all_of_it)
    assert {each.required for each in all_of_it if isinstance(each, SetNotNull)} == {True, False}


def _statements(seed: int) -> list[Statement]:
    steps = history_of(seed).steps
    return [statement for step in steps if isinstance(step, Transaction) for statement in step.statements]


RESTORED = (70_004, 70_008, 70_012, 70_016)
"""Histories in which the source is restored at least once after a backup."""


@pytest.mark.parametrize("seed", HOLDING)
def test_so_is_a_usual_one_on_postgres(world: duckdb.DuckDBPyConnection, on_postgres: Database, seed: int) -> None:
    life = play(world, seed, places=on_postgres)
    assert not life.wrong, life


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", [int(SEED)] if SEED else RESTORED)
def test_so_is_one_on_postgres_whose_source_is_restored_while_the_applier_has_it_open(
    world: duckdb.DuckDBPyConnection, on_postgres: Database, seed: int
) -> None:
    life = play(world, seed, strange=True, places=on_postgres)
    assert not life.wrong, f"{life}\n{again(seed, 'tests/lake/test_histories.py -k on_postgres')}"
