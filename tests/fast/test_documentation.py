"""What the documentation says about names is held against the code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from services.cli.main import app
from services.control.model.problems import KINDS
from services.control.view.destination_status import Status
from shared.contracts.errors import POLICY, Action
from tests.reference import calls, models
from tests.torture import table

ROOT = Path(__file__).resolve().parents[2]
OPERATIONS = (ROOT / "docs/how-to/fix-a-destination.md").read_text()


def anchors(text: str) -> set[str]:
    """The names that headings of a page can be linked by, as GitHub makes them."""
    outside = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.+)$", outside, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "tla").glob("*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_within_the_repository_leads_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"\w+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{page.name} links to {target}"
        if anchor and file.suffix == ".md":
            assert anchor in anchors(file.read_text()), f"{page.name} links to {target}"


GLOSSARY = re.findall(r"^\| ([\w ]+) \| [A-Z]", (ROOT / "docs/glossary.md").read_text(), re.MULTILINE)


@pytest.mark.parametrize("term", GLOSSARY)
def test_every_term_of_the_glossary_is_in_use(term: str) -> None:
    pages = " ".join(page.read_text() for page in PAGES if page.name != "glossary.md").lower()
    code = " ".join(
        file.read_text() for folder in ("services", "shared", "viaduck_demo") for file in (ROOT / folder).rglob("*.py")
    ).lower()
    assert re.search(rf"\b{term}", pages), term
    assert re.search(rf"\b{term.replace(' ', '[ _-]?')}", code), term


def test_the_glossary_is_in_order_and_names_each_term_once() -> None:
    assert sorted(set(GLOSSARY)) == GLOSSARY


def test_every_noun_of_the_rest_interface_is_in_the_glossary() -> None:
    words = {part.partition(":")[0] for path, _ in calls() for part in path.split("/") if part and "{" not in part}
    nouns = {word.removesuffix("s").replace("-", " ") for word in words - PLAIN}
    assert nouns - {"work"} <= set(GLOSSARY)
    assert "work item" in GLOSSARY


ONE_WORD = {"destination": "destination", "pipeline document": "document", "lake ref": "lake", "offered": "offer",
            "table layout": "layout", "lake figures": "health", "lake health": "health",
            "routed by": "slice", "unrouted records": "unrouted", **dict.fromkeys(
    ("upkeep order", "upkeep override", "upkeep figures", "upkeep result", "step result", "table wear", "damage"),
    "upkeep",
)}  # fmt: skip
"""Messages whose names say more than the term."""


def test_every_message_is_a_term_of_the_glossary() -> None:
    names = {re.sub(r"(?<!^)([A-Z])", r" \1", model.__name__).lower() for model in models()}
    assert {ONE_WORD.get(name, name) for name in names} <= set(GLOSSARY)


def test_every_state_of_a_destination_is_explained() -> None:
    page = (ROOT / "docs/concepts.md").read_text()
    listed = set(re.findall(r"^\| `(\w+)` \| [A-Z]", page, re.MULTILINE))
    assert set(get_args(Status.model_fields["state"].annotation)) == listed


PLAIN = {"v1", "at", "healthz", "readyz", "metrics", "version", "errors", "events", "history", "status"}
"""Path segments that mean what they mean everywhere."""


@pytest.mark.parametrize("type", [type for type, action in POLICY.items() if action in (Action.PARK, Action.RETRY)])  # noqa: A001
def test_operations_explains_every_reason(type: str) -> None:
    assert f"`{type}`" in OPERATIONS


def test_hazards_names_tests_that_exist() -> None:
    text = (ROOT / "docs/explanation/hazards.md").read_text()
    named = set(re.findall(r"(tests/[\w/]+\.py)", text))
    assert named
    for path in named:
        assert (ROOT / path).exists(), path


def test_every_make_target_of_the_readme_exists() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make ([\w-]+)", (ROOT / "README.md").read_text(), re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_every_command_is_documented() -> None:
    pages = "".join(
        (ROOT / page).read_text()
        for page in ("README.md", "docs/reference/rest-api.md", "docs/how-to/fix-a-destination.md")
    )
    for group in app.registered_groups:
        assert group.typer_instance is not None
        for command in group.typer_instance.registered_commands:
            name = command.name or getattr(command.callback, "__name__", "")
            assert re.search(rf"viaduck {group.name} [\w|-]*\b{name}\b", pages), f"{group.name} {name}"


def test_every_path_of_the_interface_is_documented() -> None:
    page = (ROOT / "docs/reference/rest-api.md").read_text()
    for path, _ in calls():
        last = path.rpartition("/")[2]
        assert "{" in last or last in page, path


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_problem_is_explained(kind: str) -> None:
    known = KINDS[kind]
    section = (ROOT / "docs/reference/errors.md").read_text().split(f"### {kind}\n")[1].split("###")[0]
    assert f"{known.status}, " in section
    assert known.means in section


def test_the_fault_matrix_is_what_its_runs_have_left() -> None:
    page = (ROOT / "docs/explanation/safety.md").read_text()
    assert table.put_into(page, table.made(table.kept())) == page, "run python -m tests.torture.table"
