"""The code and the specification name each other: a function says which action it is, and no action is left over."""

from __future__ import annotations

import re
from pathlib import Path

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


def specification() -> str:
    return "".join((ROOT / "tla" / f"{name}.tla").read_text() for name in ("Fence", "Viaduck"))


def cited() -> set[str]:
    text = "".join(file.read_text() for file in sorted((ROOT / "services").rglob("*.py")))
    return {name for names in CITED.findall(text) for name in re.findall(r"\w+", names)}


def test_every_citation_names_something_that_the_specification_defines() -> None:
    assert cited() <= set(DEFINED.findall(specification()))


def test_every_action_is_cited_by_the_code_or_is_the_worlds() -> None:
    whole = specification()
    steps = whole[whole.index("\nPlan(r, d) ==") : whole.index("\nSpec ==")]
    actions = set(TAKEN.findall(steps)) | set(re.findall(r"Take\w+(?=\(a, item\) ==)", whole))
    assert actions - cited() == WORLD
