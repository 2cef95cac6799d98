"""What upkeep is refused because of the lakes beside a destination's: orphans above all."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from services.applier.upkeep_planner import UpkeepPlanner, overlaps
from shared.config.declared import Lakes
from shared.config.loading import load
from shared.config.model import Config
from shared.contracts.messages import Destination, ItemKind, LakeRef, Problem, WorkItem
from shared.contracts.upkeep import LAKE_WIDE, UPKEEP_DAMAGED, Damage, UpkeepOrder, UpkeepOverride, UpkeepStep

ALL_ON = 'upkeep: {expire_after: "30d", clean_after: "2d", orphans_after: "7d"}\n'


def config(folder: Path, name: str = "p", text: str = ALL_ON, source: str = "/source/data") -> Config:
    file = folder / f"{name}.yaml"
    file.write_text(
        f'pipeline: {name}\nsource: {{catalog: "sqlite:/source/{name}.sqlite", data_path: {source}, table: t}}\n'
        f"routing: {{field: f}}\n{text}"
    )
    return load(file)


def destination(name: str, data_path: str | None, pipeline: str = "p", **changes: Any) -> Destination:
    lake = LakeRef(catalog=changes.pop("catalog", f"sqlite:/lakes/{name}.sqlite"), data_path=data_path)
    fields = {"pipeline": pipeline, "destination": name, "generation": 1, "routing_value": name, "state": "running",
              "table": "t", "seed_mode": "scan", "revision": "1"}  # fmt: skip
    return Destination.model_validate({**fields, "lake": lake, **changes})


def refused(configs: Sequence[Config], own: Destination, *others: Destination) -> dict[UpkeepStep, str]:
    planner = UpkeepPlanner(lambda: configs[0], lambda: configs, lambda: [own, *others])
    lake = Lakes(configs[0]).published(own)
    return dict(planner.plan(item(own), own, lake).refused)


def item(of: Destination, order: UpkeepOrder | None = UpkeepOrder()) -> WorkItem:  # noqa: B008 - frozen
    return WorkItem(item="i", kind=ItemKind.UPKEEP, pipeline=of.pipeline, destination=of.destination, generation=1,
                    through=0, upkeep=order)  # fmt: skip


@pytest.mark.parametrize(
    ("other", "is_refused"),
    [
        ("/lakes/a/data", True), ("/lakes/a", True), ("/", True), ("/lakes/a/data/below", True),
        ("/lakes/a/data/", True), ("/lakes/a/database", False), ("/lakes/a/dat", False), ("/lakes/b", False),
        ("s3://lakes/a/data", False),
    ],
)  # fmt: skip
def test_orphans_are_refused_beside_a_lake_at_above_or_below_by_slash(
    tmp_path: Path, other: str, is_refused: bool
) -> None:
    found = refused([config(tmp_path)], destination("a", "/lakes/a/data"), destination("b", other))
    assert (UpkeepStep.ORPHANS in found) is is_refused
    if is_refused:
        assert set(found) == {UpkeepStep.ORPHANS}
        assert "p/a and p/b" in found[UpkeepStep.ORPHANS]


def test_lakes_of_other_pipelines_and_sources_count_and_unknown_places_are_refused(tmp_path: Path) -> None:
    own = destination("a", "/lakes/a")
    two = [config(tmp_path), config(tmp_path, "q", source="/lakes/a/source")]
    assert "the source of q" in refused(two, own)[UpkeepStep.ORPHANS]
    ours = [config(tmp_path)]
    assert "p/a and q/b" in refused(ours, own, destination("b", "/lakes", "q"))[UpkeepStep.ORPHANS]
    unknown = destination("b", None, catalog="postgres:host=h dbname=d")
    assert "the data path of p/b is not known here" in refused(ours, own, unknown)[UpkeepStep.ORPHANS]
    hidden = destination("a", None, catalog="postgres:host=h dbname=a user=u")
    assert "write its data_path" in refused(ours, hidden)[UpkeepStep.ORPHANS]


@pytest.mark.parametrize(
    ("template", "is_refused"),
    [
        ("/lakes/{routing_value}", False), ("/lakes/{routing_value}/data", True), ("/other/{routing_value}", False),
        ("/{routing_value}", True),
    ],
)  # fmt: skip
def test_what_a_template_would_make_counts(tmp_path: Path, template: str, is_refused: bool) -> None:
    """A lake of its own beside this one is fine; above or below it is not."""
    made = f'template: {{catalog: "sqlite:/cat/{{routing_value}}.sqlite", data_path: "{template}"}}\n'
    found = refused([config(tmp_path, text=ALL_ON + made)], destination("a", "/lakes/a"))
    assert (UpkeepStep.ORPHANS in found) is is_refused


def test_paths_overlap_part_by_part() -> None:
    assert overlaps(("", "a"), ("", "a", "b"))
    assert overlaps(("", "a", "b"), ("", "a"))
    assert not overlaps(("", "ab"), ("", "a"))


def test_policies_of_one_lake_that_contradict_each_other_refuse_what_is_lake_wide(tmp_path: Path) -> None:
    own = destination("a", "/lakes/a")
    same: dict[str, Any] = {"catalog": own.lake.catalog, "table": "t_b"}
    differing = destination("b", "/lakes/a", upkeep=UpkeepOverride(expire_after="60d"), **same)
    found = refused([config(tmp_path)], own, differing)
    assert set(found) == set(LAKE_WIDE)
    assert "p/a and p/b are in one lake" in found[UpkeepStep.EXPIRE]
    assert refused([config(tmp_path)], own, destination("b", "/lakes/a", **same)) == {}


def test_a_lake_that_is_a_source_is_not_expired_from_here(tmp_path: Path) -> None:
    own = destination("a", "/source/data", catalog="sqlite:/source/q.sqlite")
    found = refused([config(tmp_path), config(tmp_path, "q")], own)
    assert "is the source of q" in found[UpkeepStep.EXPIRE]


def test_tables_of_all_destinations_in_the_lake_are_ours(tmp_path: Path) -> None:
    own, files = destination("a", "/lakes/a"), [config(tmp_path)]
    beside = destination("b", "/lakes/a", catalog=own.lake.catalog, table="T_B", schema_name="S")
    planner = UpkeepPlanner(lambda: files[0], lambda: files, lambda: [own, beside, destination("c", "/lakes/c")])
    task = planner.plan(item(own), own, Lakes(files[0]).published(own))
    assert task.ours == {("main", "t"), ("s", "t_b")}
    assert task.steps == tuple(UpkeepStep)


def test_a_reader_asks_for_compaction_alone_and_an_order_for_what_it_names(tmp_path: Path) -> None:
    files = [config(tmp_path)]
    own = destination("a", "/lakes/a")
    planner = UpkeepPlanner(lambda: files[0], lambda: files, lambda: [own])
    lake = Lakes(files[0]).published(own)
    assert planner.plan(item(own, None), own, lake).steps == (UpkeepStep.COMPACT,)
    order = UpkeepOrder(steps=(UpkeepStep.CLEAN,), dry_run=True)
    asked = planner.plan(item(own, order), own, lake)
    assert (asked.steps, asked.dry_run, asked.policy.clean_after_s) == ((UpkeepStep.CLEAN,), True, 172_800)


HARM = Damage(
    at=datetime(2026, 1, 1, tzinfo=UTC),
    problem=Problem(type=UPKEEP_DAMAGED, message="other rows", hint="", retryable=False),
)


@pytest.mark.parametrize("order", [None, UpkeepOrder(), UpkeepOrder(steps=(UpkeepStep.COMPACT,), dry_run=True)])
def test_nothing_is_done_while_upkeep_has_damaged_a_destination_of_the_pipeline(
    tmp_path: Path, order: UpkeepOrder | None
) -> None:
    """Of a compaction that a reader asks for no control knows: the applier is the last to look."""
    served, own = [config(tmp_path)], destination("a", "/lakes/a")
    for harm, pipeline, is_refused in ((HARM, "p", True), (HARM, "q", False),
                                       (HARM.model_copy(update={"lifted": True}), "p", False)):  # fmt: skip
        other = destination("b", "/lakes/b", pipeline, damage=harm)
        planner = UpkeepPlanner(lambda: served[0], lambda: served, functools.partial(list, [own, other]))
        task = planner.plan(item(own, order), own, Lakes(served[0]).published(own))
        assert {step: "p/b" in why for step, why in task.refused} == (
            dict.fromkeys(UpkeepStep, True) if is_refused else {}
        )
