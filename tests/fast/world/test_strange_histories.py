"""Histories in which destinations may park: what they hold, and that just what is due is let through."""

from __future__ import annotations

from pathlib import Path
from random import Random

import duckdb
import pytest

from shared.contracts.messages import ItemKind, Outcome, Problem, Progress, WorkItem
from tests.world.destination import Destination
from tests.world.forge import Forge
from tests.world.history import History, strange_history
from tests.world.holdings import Holdings
from tests.world.hostile import WORDS, holds_uncarried
from tests.world.lake import Lake
from tests.world.layouts import lay_out
from tests.world.model import Model
from tests.world.oracle import check_all
from tests.world.recovery import Past, Recovery
from tests.world.referee import Circumstances, Seen, complaints
from tests.world.rows import Column, plain
from tests.world.statements import ColumnChange, Insert, ReplaceColumn, Transaction
from tests.world.truth import RecordedTruth
from tests.world.upkeep import Chore, Upkeep

COLUMNS = (Column("tenant", "VARCHAR"), Column("k", "INTEGER"), Column("v", "VARCHAR"))


# -- what histories hold ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def drawn() -> list[History]:
    return [strange_history(Random(seed), steps=20, recovers=True) for seed in range(80)]


def test_one_seed_is_one_strange_history() -> None:
    made = [strange_history(Random(seed), steps=20, recovers=True) for seed in (7, 7, 8)]
    assert made[0] == made[1] != made[2]


@pytest.mark.parametrize("layout", ["bucket(", "year(", "SORTED BY", 'PARTITIONED BY ("', "RESET PARTITIONED BY"])
def test_sources_are_laid_out_in_every_way_and_again(drawn: list[History], layout: str) -> None:
    by_history = [[s.layout for s in one.steps if isinstance(s, Upkeep) and s.chore is Chore.LAYOUT] for one in drawn]
    assert any(layout in each for made in by_history for each in made)
    assert any(len(made) > 1 for made in by_history)


@pytest.mark.parametrize("step", sorted(Recovery))
def test_sources_are_kept_restored_and_replaced(drawn: list[History], step: Recovery) -> None:
    assert any(step in one.steps for one in drawn)


def test_texts_are_hostile_in_every_column(drawn: list[History]) -> None:
    for text in ("\x00", "{", "'", "--", "$$", "ab{'" * 2_500):
        held = {column for one in drawn for column, cell in cells(one) if cell is not None and text in cell}
        assert {"v", "Key 2"} <= held, text
        assert held & {"tenant", "company id"}, text


def test_a_text_that_can_not_be_carried_comes_seldom_and_goes_again(drawn: list[History]) -> None:
    wordy = [one for one in drawn if one.shape.words]
    assert wordy
    assert any(cell in WORDS for one in wordy for column, cell in cells(one) if column != one.shape.routing)
    assert any("mended" in str(step) for one in wordy for step in one.steps)
    assert all(s.chore is not Chore.INLINING for one in wordy for s in one.steps if isinstance(s, Upkeep))


def test_some_tenants_are_giants_and_columns_are_replaced(drawn: list[History]) -> None:
    inserts = [len(s.rows) for one in drawn for s in statements(one) if isinstance(s, Insert)]
    assert max(inserts) > 300
    assert any(isinstance(s, ReplaceColumn) for one in drawn for s in statements(one))


def test_a_row_with_a_word_in_braces_is_no_other_row() -> None:
    assert all(holds_uncarried([("a", word)]) for word in WORDS)
    assert not holds_uncarried([("{x}", "{AUTHOR", "AUTHOR}", "{ AUTHOR}", None)])


def test_a_zero_has_no_sign() -> None:
    assert plain(("a", "-0.0", None)) == ("a", "0.0", None)


def statements(history: History) -> list[object]:
    return [one for step in history.steps if isinstance(step, Transaction) for one in step.statements]


def cells(history: History) -> list[tuple[str, str | None]]:
    """What was inserted, by the names that columns had first."""
    model, found = Model(history.shape.columns), list[tuple[str, str | None]]()
    kept = model
    for step in (step for step in history.steps if isinstance(step, Transaction | Recovery)):
        if isinstance(step, Recovery):
            kept = model if step is Recovery.BACK_UP else kept
            model = {Recovery.RESTORE: kept, Recovery.REPLACE: Model(history.shape.columns)}.get(step, model)
            continue
        after = model.copy()
        for one in step.statements:
            if isinstance(one, Insert):
                origins = [origin for origin, _ in after.ids]
                found += [(name, cell) for row in one.rows for name, cell in zip(origins, row, strict=False)]
            elif isinstance(one, ColumnChange):
                one.apply(after)
        model = model if step.rollback else after
    return found


# -- the referee ------------------------------------------------------------------------------------------------------

HERE, LOST, REPLACED = Seen(1, 2), Seen(1, 2, lost=True), Seen(1, 2, lost=True, replaced=True)
REFUSES = Circumstances(must_refuse=True, may_refuse=True)

RIGHT = {
    "a text that can't be carried": (HERE, REFUSES, Outcome.PARKED, "value_not_carried"),
    "such a text that was there before, touched": (
        HERE, Circumstances(may_refuse=True), Outcome.PARKED, "value_not_carried"
    ),
    "such a text that was there before, untouched": (HERE, Circumstances(may_refuse=True), Outcome.APPLIED, None),
    "a source that was restored": (LOST, Circumstances(), Outcome.PARKED, "source_moved"),
    "a source that was replaced": (REPLACED, Circumstances(), Outcome.PARKED, "source_recreated"),
    "a source that was replaced by a shorter one": (
        REPLACED, Circumstances(ahead=True), Outcome.PARKED, "source_recreated"
    ),
    "a source that was restored and not written since": (
        LOST, Circumstances(ahead=True), Outcome.ALREADY_APPLIED, None
    ),
    "a plan of another history": (HERE, Circumstances(unplanned=True), Outcome.FAILED, "source_behind"),
}  # fmt: skip

WRONG = {
    "applied in spite of such a text": (HERE, REFUSES, Outcome.APPLIED, None),
    "failed for ever by such a text": (HERE, REFUSES, Outcome.FAILED, "commit_unknown"),
    "parked without such a text": (HERE, Circumstances(), Outcome.PARKED, "value_not_carried"),
    "parked for another reason": (HERE, REFUSES, Outcome.PARKED, "schema_change"),
    "goes on from a history that is no more": (LOST, Circumstances(), Outcome.APPLIED, None),
    "moved, though nothing was": (HERE, Circumstances(), Outcome.PARKED, "source_moved"),
    "a plan of another history is carried out": (HERE, Circumstances(unplanned=True), Outcome.APPLIED, None),
}


@pytest.mark.parametrize("why", RIGHT)
def test_what_is_due_is_let_through(why: str) -> None:
    assert judged(*RIGHT[why]) == []


@pytest.mark.parametrize("why", WRONG)
def test_what_is_not_due_is_told(why: str) -> None:
    assert len(judged(*WRONG[why])) == 1


def judged(seen: Seen, at: Circumstances, outcome: Outcome, error: str | None) -> list[str]:
    item = WorkItem(item="i", kind=ItemKind.CHANGES, pipeline="p", destination="d", generation=1, expected=2, after=2,
                    through=3)  # fmt: skip
    position = 3 if outcome is Outcome.APPLIED else 2
    problem = None if error is None else Problem(type=error, message="m", hint="h", retryable=False)
    fields = item.model_dump(include={"item", "kind", "pipeline", "destination", "generation"})
    answer = Progress(**fields, outcome=outcome, position=position, through=3, error=problem, applier="a")
    return complaints(seen, item, answer, Holdings(destination(Path()), told("a")), at)


# -- the oracle -------------------------------------------------------------------------------------------------------


def destination(folder: Path) -> Destination:
    lake = Lake.in_folder(folder) if folder != Path() else Lake("sqlite:nowhere")
    return Destination(lake=lake, table="t", pipeline="p", id="d", value="a")


def told(*values: str) -> RecordedTruth:
    """A source that holds one more row of tenant a at each snapshot, from 1 on."""
    truth, model = RecordedTruth("tenant"), Model(COLUMNS)
    for number, value in enumerate(values, 1):
        model = Transaction((Insert((("a", str(number), value),)),)).effect(model)
        truth.record(number, model)
    return truth


@pytest.fixture
def forge(world: duckdb.DuckDBPyConnection, tmp_path: Path) -> Forge:
    return Forge(world, destination(tmp_path), told("x", "old", "old too"))


def rules(forge: Forge, truth: RecordedTruth, head: int | None = None, pasts: list[Past] | None = None) -> set[str]:
    found = check_all(forge.con, [forge.destination], truth, head=head, pasts=pasts or [])
    return {each.rule for each in found}


def test_an_owner_may_lay_out_a_destination_and_nothing_else(forge: Forge) -> None:
    forge.open()
    forge.seed(2)
    forge.close()
    lay_out(forge.con, forge.destination.lake, "main", "t", "SET PARTITIONED BY (bucket(3, k))")
    assert rules(forge, told("x", "old", "old too")) == set()
    lay_out(forge.con, forge.destination.lake, "main", "t", "ADD COLUMN w INTEGER")
    assert "columns" in rules(forge, told("x", "old", "old too"))


@pytest.mark.parametrize(("kind", "found"), [("changes", {"history"}), ("seed", set())])
def test_only_a_seed_leaves_a_history_behind_that_is_no_more(forge: Forge, kind: str, found: set[str]) -> None:
    """Snapshot 2 was one thing, and is another since the source was restored to snapshot 1."""
    forge.open()
    forge.seed(2)
    forge.close()
    past, now = told("x", "old"), told("x", "new", "more")
    pasts = [Past(past, 1, {forge.destination.lake: newest(forge)})]
    assert rules(forge, now, head=3, pasts=pasts) == {"behind"}
    assert "exact" in rules(forge, now)
    forge.truth = now
    forge.open()
    forge.commit(kind, 2, 3, generation=1 if kind == "changes" else 2)
    forge.close()
    assert rules(forge, now, head=3, pasts=pasts) == found


def newest(forge: Forge) -> int:
    forge.open()
    ((snapshot,),) = forge.con.execute("SELECT id FROM forged.current_snapshot()").fetchall()
    forge.close()
    return int(snapshot)
