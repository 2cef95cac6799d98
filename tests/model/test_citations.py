"""The code and the specification name each other: a function says which action it is, and no action is left over."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CITED = re.compile(r"TLA: ((?:``\w+``(?:,\s+)?)+)")
DEFINED = re.compile(r"^(\w+)(?:\([\w, ]*\))? ==", re.MULTILINE)
TAKEN = re.compile(r"\b(?!WF_vars\b)([A-Z]\w+)\((?:\w+)(?:, \w+)?\)")

WORLD = {
    "LoseRegistry",
    "LoseProgress",
    "Restart",
    "Refuse",
    "Crash",
    "ExpireDestination",
    "FindDamage",
    "Commit",
    "Work",
}
"""Actions that are no code of ours: what processes, brokers, catalogs, owners and readers of lakes do."""

WORLD_OF_A_LAKE = {
    "Crash",
    "LoseAnswer",
    "LoseBatch",
    "BecomeDurable",
    "OpenExtension",
    "CommitExtension",
    "RollBack",
    "Expire",
    "EndBackend",
}
"""The same of ``DirectCommit.tla``; the path of the extension is cited as ``Viaduck.tla`` has it."""


WORLD_OF_A_TOPIC = {"Produce", "ExpireRecords", "Save", "Restore"}
"""The same of ``Topics.tla``: producers commit, retention takes records, and a lake's owner restores a backup."""


WORLD_OF_COLUMNS = {"AlterSource", "WriteSource", "Die"}
"""The same of ``Columns.tla``: the source's owner writes and alters, and appliers die."""


def module(*names: str) -> str:
    return "".join((ROOT / "tla" / f"{name}.tla").read_text() for name in names)


def cited() -> set[str]:
    files = [file for folder in ("services", "shared") for file in sorted((ROOT / folder).rglob("*.py"))]
    text = "".join(file.read_text() for file in files)
    return {name for names in CITED.findall(text) for name in re.findall(r"\w+", names)}


def test_every_citation_names_something_that_the_specification_defines() -> None:
    assert cited() <= set(DEFINED.findall(module("Fence", "Viaduck", "DirectCommit", "Topics", "Columns")))


def test_every_action_is_cited_by_the_code_or_is_the_worlds() -> None:
    whole = module("Fence", "Viaduck")
    steps = whole[whole.index("\nPlan(r, d) ==") : whole.index("\nSpec ==")]
    actions = set(TAKEN.findall(steps)) | set(re.findall(r"Take\w+(?=\(a, item\) ==)", whole))
    assert actions - cited() == WORLD


def test_every_action_of_a_direct_commit_is_cited_by_the_code_or_is_the_worlds() -> None:
    whole = module("DirectCommit")
    actions = set(TAKEN.findall(whole[whole.index("\nNext ==") : whole.index("\nSpec ==")]))
    assert actions - cited() == WORLD_OF_A_LAKE


@pytest.mark.parametrize(("name", "world"), [("Topics", WORLD_OF_A_TOPIC), ("Columns", WORLD_OF_COLUMNS)])
def test_every_action_of_a_small_module_is_cited_by_the_code_or_is_the_worlds(name: str, world: set[str]) -> None:
    whole = module(name)
    actions = set(re.findall(r"\w+", whole[whole.index("\nNext ==") : whole.index("\nSpec ==")])) - {"Next"}
    assert actions - cited() == world
