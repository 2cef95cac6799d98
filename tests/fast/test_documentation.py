"""What the documentation says about names is held against the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from services.cli.main import app
from services.control.api.app import build
from services.control.api.guard import Guard
from services.control.api.state import Sources
from services.control.problems import KINDS
from shared.errors import POLICY, Action
from tests.torture import table

ROOT = Path(__file__).resolve().parents[2]
OPERATIONS = (ROOT / "docs/OPERATIONS.md").read_text()


@pytest.mark.parametrize("type", [type for type, action in POLICY.items() if action in (Action.PARK, Action.RETRY)])  # noqa: A001
def test_operations_explains_every_reason(type: str) -> None:
    assert f"`{type}`" in OPERATIONS


def test_hazards_names_tests_that_exist() -> None:
    text = (ROOT / "docs/HAZARDS.md").read_text()
    named = set(re.findall(r"(tests/[\w/]+\.py)", text))
    assert named
    for path in named:
        assert (ROOT / path).exists(), path


def test_every_make_target_of_the_readme_exists() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"^make ([\w-]+)", (ROOT / "README.md").read_text(), re.MULTILINE):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


def test_every_command_is_documented() -> None:
    pages = "".join((ROOT / page).read_text() for page in ("README.md", "docs/API.md", "docs/OPERATIONS.md"))
    for group in app.registered_groups:
        assert group.typer_instance is not None
        for command in group.typer_instance.registered_commands:
            name = command.name or getattr(command.callback, "__name__", "")
            assert re.search(rf"viaduck {group.name} [\w|-]*\b{name}\b", pages), f"{group.name} {name}"


def test_every_path_of_the_interface_is_documented() -> None:
    page = (ROOT / "docs/API.md").read_text()
    for path in build(Sources(dict, dict, str), Guard(loopback=True)).openapi()["paths"]:
        last = path.rpartition("/")[2]
        assert "{" in last or last in page, path


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_problem_is_explained(kind: str) -> None:
    known = KINDS[kind]
    section = (ROOT / "docs/ERRORS.md").read_text().split(f"### {kind}\n")[1].split("###")[0]
    assert f"{known.status}, " in section
    assert known.means in section


def test_the_fault_matrix_is_what_its_runs_have_left() -> None:
    page = (ROOT / "docs/SAFETY.md").read_text()
    assert table.put_into(page, table.made(table.kept())) == page, "run python -m tests.torture.table"
