"""Any history of a source, cut and delivered in any way, leaves every destination exact at each of its snapshots.

The applier's own functions run here, on real lakes and without a Spark session.
"""

from __future__ import annotations

import duckdb
import pytest
from hypothesis import given

from tests.world.play import play
from tests.world.replay import SEEDS, again, histories, parts, seed_of


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", parts(20))
@histories(10)
@given(drawn=SEEDS)
def test_every_destination_of_any_history_is_exact(world: duckdb.DuckDBPyConnection, part: int, drawn: int) -> None:
    seed = seed_of(part, drawn)
    life = play(world, seed)
    assert not life.wrong, f"{life}\n{again(seed, 'tests/lake/test_histories.py')}"
