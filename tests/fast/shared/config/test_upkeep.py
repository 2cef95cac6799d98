"""The section ``upkeep``: what is refused and how it is said, and which policy holds for a destination."""

from __future__ import annotations

from pathlib import Path

import pytest

from shared.config.loading import load
from shared.config.upkeep_rules import Policy, compaction_of, least_age_s, policy_of
from shared.contracts.errors import ConfigError
from shared.contracts.upkeep import Compaction, UpkeepOverride, UpkeepStep, hours_of, seconds_of

HEAD = """
source: {catalog: "sqlite:s.sqlite", table: t}
routing: {field: f}
"""
ONE = '\ndestinations: [{id: a, routing_value: a, catalog: "sqlite:a.sqlite", upkeep: {%s}}]\n'


def refused(folder: Path, text: str) -> list[str]:
    file = folder / "viaduck.yaml"
    file.write_text(HEAD + text)
    with pytest.raises(ConfigError) as refusal:
        load(file)
    return list(refusal.value.mistakes)


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("clean_after: 2 days", "upkeep.clean_after: '2 days' is no duration; write a number and s, m, h, d or w"),
        ("expire_after: 9h", "upkeep.expire_after: must be 36000s or more, ten times the longest deadline"),
        ("clean_after: 0s", "upkeep.clean_after: must be 36000s or more"),
        ("orphans_after: 23h", "upkeep.orphans_after: must be 86400s or more, a day"),
        ("every: 59s", "upkeep.every: must be 1m or more"),
        ('hours: "25:00-05:00"', "upkeep.hours: '25:00-05:00' is no span of hours; write it like 22:00-05:00"),
        ('hours: "05:00-05:00"', "upkeep.hours: '05:00-05:00' begins when it ends"),
        ("most_files: 0", "upkeep.most_files: must be 1 or more"),
        ("most_snapshots: many", "upkeep.most_snapshots: must be a whole number"),
        ("keep_snapshots: 0", "upkeep.keep_snapshots: must be 1 or more"),
        ("at_once: -1", "upkeep.at_once: must be 1 or more"),
        ("whole_lake: 2", "upkeep.whole_lake: must be true or false"),
        ("expire_afer: 30d", "upkeep.expire_afer: is not a key; did you mean expire_after?"),
        ("compact_after_applies: -1", "upkeep.compact_after_applies: must be 0 or more"),
    ],
)
def test_what_is_no_policy_is_refused_by_its_path(tmp_path: Path, written: str, said: str) -> None:
    (line,) = refused(tmp_path, f"upkeep: {{{written}}}")
    assert line.startswith(said), line


def test_a_destinations_own_keys_are_held_to_the_same_rules(tmp_path: Path) -> None:
    lines = refused(tmp_path, ONE % "expire_after: 1m, every: 1d, keep_snapshots: 0")
    assert [line.split(":")[0] for line in lines] == [
        "destinations[0].upkeep.expire_after", "destinations[0].upkeep.every", "destinations[0].upkeep.keep_snapshots",
    ]  # fmt: skip


def test_ages_are_held_against_the_deadlines_that_are_configured(tmp_path: Path) -> None:
    file = tmp_path / "viaduck.yaml"
    lower = "applier: {deadline_seconds: 30, seed_deadline_seconds: 60}\n"
    file.write_text(f"{HEAD}{lower}upkeep: {{expire_after: 11m, clean_after: 10m}}\n")
    assert load(file).upkeep.expire_after == "11m"
    (line,) = refused(tmp_path, f"{lower}upkeep: {{expire_after: 9m}}")
    assert line.startswith("upkeep.expire_after: must be 600s or more")
    assert least_age_s(30, 60) == 600


def test_destinations_of_one_lake_that_are_kept_otherwise_are_refused_by_the_key(tmp_path: Path) -> None:
    entry = "{id: %s, routing_value: %s, catalog: 'sqlite:shared.sqlite', table: %s, upkeep: {%s}}"
    entries = [entry % (name, name, name, own) for name, own in
               (("a", "expire_after: 30d"), ("b", "expire_after: 60d"), ("c", "expire_after: 720h"))]  # fmt: skip
    lines = refused(tmp_path, f"destinations: [{', '.join(entries)}]\n")
    assert lines == [
        "destinations[1].upkeep.expire_after: differs from that of destinations[0] (a), which is in the same lake;"
        " write the same for both"
    ]
    wrong = entry % ("d", "d", "d", "expire_after: soon")
    assert len(refused(tmp_path, f"destinations: [{entries[0]}, {wrong}]\n")) == 1, "a mistake is said once"


def test_compaction_has_two_names_that_may_not_contradict_each_other(tmp_path: Path) -> None:
    lines = refused(tmp_path, "upkeep: {compact_after_applies: 5}\nreader: {upkeep_after_applies: 6}\n")
    assert lines == ["upkeep.compact_after_applies: is another name of reader.upkeep_after_applies; keep one of them"]


def test_a_destinations_own_keys_come_before_its_pipelines(tmp_path: Path) -> None:
    file = tmp_path / "viaduck.yaml"
    file.write_text(f"{HEAD}upkeep: {{compact_after_applies: 7, expire_after: 30d}}{ONE % 'expire_after: 60d'}")
    config = load(file)
    own = UpkeepOverride(expire_after="60d", keep_snapshots=3)
    found = policy_of(config.upkeep, own)
    assert (found.expire_after_s, found.keep_snapshots, found.clean_after_s) == (60 * 86_400, 3, None)
    assert policy_of(config.upkeep, None).expire_after_s == 30 * 86_400
    assert compaction_of(config) == Compaction(files=100, dead_share=0.5, applies=7)
    assert compaction_of(config).overridden(UpkeepOverride(compact_after_applies=0)).applies == 0


def test_compaction_goes_by_need_and_the_number_of_transactions_has_two_names(tmp_path: Path) -> None:
    file = tmp_path / "viaduck.yaml"
    file.write_text(
        f"{HEAD}upkeep: {{compact_files: 7, compact_dead_share: 0.2}}\nreader: {{upkeep_after_applies: 50}}\n"
    )
    assert compaction_of(load(file)) == Compaction(files=7, dead_share=0.2, applies=50)


def test_nothing_but_compaction_is_on_unless_it_is_asked_for() -> None:
    assert Policy().steps == (UpkeepStep.COMPACT,)
    assert Policy(clean_after_s=1, expire_after_s=1, orphans_after_s=1).steps == tuple(UpkeepStep)


def test_durations_and_hours_are_read_as_they_are_written() -> None:
    assert [seconds_of(text) for text in ("90s", "1.5h", "2d", "1w", "off")] == [90, 5_400, 172_800, 604_800, None]
    assert [hours_of(text) for text in ("", "22:00-05:30")] == [None, (1_320, 330)]
    for wrong in ("", "1", "d", "-1d", "1 d", "123456d", "OFF", "1e3s", "٣d"):
        with pytest.raises(ValueError, match="is no duration"):
            seconds_of(wrong)
