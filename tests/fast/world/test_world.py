"""The world that the other tests stand on: one seed is one history, and its record is what the source really holds."""

from __future__ import annotations

from pathlib import Path
from random import Random

import duckdb
import pytest
import yaml

from shared.config.loading import load
from tests.world import history, terms
from tests.world.configured import destinations_of, source_of
from tests.world.destination import Promise
from tests.world.history import random_history, strange_history
from tests.world.lake import Lake
from tests.world.model import Model
from tests.world.oracle import check_source
from tests.world.statements import Terms, Transaction
from tests.world.upkeep import Chore, Upkeep
from tests.world.workload import Workload, busy_shape


def test_one_seed_is_one_history() -> None:
    assert random_history(Random(7), steps=30) == random_history(Random(7), steps=30)
    assert random_history(Random(7), steps=30) != random_history(Random(8), steps=30)


def test_histories_hold_every_kind_of_step() -> None:
    drawn = [strange_history(Random(seed), steps=20, expire=True) for seed in range(60)]
    drawn += [random_history(Random(seed), steps=40, replaces=True) for seed in range(60)]
    steps = [step for one in drawn for step in one.steps]
    made = [statement for step in steps if isinstance(step, Transaction) for statement in step.statements]
    kinds = {
        "Insert", "Delete", "Truncate", "Update", "Touch", "Shift", "Merge",
        "AddColumn", "DropColumn", "ReplaceColumn", "RenameColumn", "WidenColumn",
        "AddField", "DropField", "ReplaceField", "RenameField", "WidenFields",
        "SetDefault", "CommentOn", "SetNotNull", "RenameTable",
    }  # fmt: skip
    assert {type(statement).__name__ for statement in made} == kinds
    assert {step.chore for step in steps if isinstance(step, Upkeep)} == set(Chore)
    assert any(step.rollback for step in steps if isinstance(step, Transaction))
    assert any(len(step.statements) > 2 for step in steps if isinstance(step, Transaction))


def test_terms_that_constrain_no_row_disturb_no_other_step_of_a_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terms, "CONSTRAINS", 0.0)
    mixed = [random_history(Random(seed), steps=20, replaces=True).steps for seed in range(5)]
    monkeypatch.setattr(history, "RATE", 0.0)
    for seed, steps in enumerate(mixed):
        others = [step for step in steps if not _is_terms(step)]
        assert [*random_history(Random(seed), steps=len(others), replaces=True).steps] == others
    assert any(_is_terms(step) for steps in mixed for step in steps)


def test_no_step_leaves_a_null_where_there_may_be_none() -> None:
    constrained = 0
    for seed in range(40):
        one = random_history(Random(seed), steps=40, replaces=True)
        model = Model(one.shape.columns)
        for step in one.steps:
            if isinstance(step, Transaction):
                model = step.effect(model)
            constrained += bool(model.required & {*model.ids})
            assert not model.breaks_a_constraint
    assert constrained > 40


def _is_terms(step: history.Step) -> bool:
    return isinstance(step, Transaction) and all(isinstance(one, Terms) for one in step.statements)


@pytest.mark.parametrize("append_only", [False, True])
def test_a_workload_knows_every_snapshot_that_it_made(
    world: duckdb.DuckDBPyConnection, tmp_path: Path, append_only: bool
) -> None:
    lake = Lake.in_folder(tmp_path)
    workload = Workload(11, lake, busy_shape(11, append_only=append_only, spread=100, many=(20, 40)))
    try:
        for _ in range(12):
            workload.step()
            assert workload.source.differences() == []
        assert workload.run_for(0.2) >= 1
        assert workload.head == workload.source.head()
        assert check_source(world, lake, workload.truth) == []
    finally:
        workload.close()


def test_the_destinations_of_a_file_are_known_to_the_oracle(tmp_path: Path) -> None:
    file = tmp_path / "viaduck.yaml"
    one = {"id": "one", "routing_value": "a", "catalog": "sqlite:one.sqlite", "data_path": "one"}
    two = {"id": "two", "routing_value": "b", "catalog": "sqlite:two.sqlite", "table": "u", "seed_mode": "latest"}
    routing = {"field": "tenant", "key_columns": ["k"]}
    source = {"catalog": "sqlite:source.sqlite", "table": "t"}
    file.write_text(yaml.safe_dump({"source": source, "routing": routing, "destinations": [one, two]}))
    config = load(file, {})
    first, second = destinations_of(config, {})
    assert first.lake == Lake(f"sqlite:{tmp_path}/one.sqlite", f"{tmp_path}/one")
    assert (first.table, first.value) == ("t", "a")
    assert (first.promise, second.promise, second.table) == (Promise.SLICE, Promise.LATEST, "u")
    assert source_of(config, {}).catalog == f"sqlite:{tmp_path}/source.sqlite"
