"""The shape of the code that other promises rest on, read off its imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EDGES = {
    "pyspark",
    "py4j",
    "confluent_kafka",
    "duckdb",
    "pyarrow",
    "sqlalchemy",
    "psycopg",
    "fastapi",
    "time",
    "socket",
}
PURE = (
    "shared/messages.py",
    "shared/ranges.py",
    "shared/errors.py",
    "shared/digest.py",
    "services/applier/decide.py",
    "services/applier/resolve.py",
    "services/applier/group.py",
    "services/applier/admit.py",
    "services/applier/answer.py",
    "services/applier/offsets.py",
    "services/applier/task.py",
    "services/reader/plan.py",
    "services/reader/choose.py",
    "services/reader/ledger.py",
    "services/reader/steps.py",
    "shared/backoff.py",
    "services/control/lifecycle.py",
    "services/control/status.py",
    "services/control/clash.py",
    "services/control/deeds.py",
    "services/control/problems.py",
    "services/control/recall.py",
    "shared/config/names.py",
    "services/control/policy.py",
    "services/reader/unknown.py",
)


def sources(*folders: str) -> list[Path]:
    return sorted(file for folder in folders for file in (ROOT / folder).rglob("*.py"))


def imports(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


def reached(module: str, seen: set[str]) -> set[str]:
    """Every module of ours that importing ``module`` imports, itself included."""
    file = ROOT / (module.replace(".", "/") + ".py")
    if module in seen or not file.exists():
        return seen
    seen.add(module)
    for name in imports(file):
        if name.split(".")[0] in ("shared", "services"):
            reached(name, seen)
    return seen


def test_a_service_imports_no_other_service() -> None:
    for file in sources("services"):
        service = file.relative_to(ROOT).parts[1]
        for name in imports(file):
            if name.startswith("services."):
                assert name.split(".")[1] == service, f"{file} imports {name}"


def test_what_is_shared_imports_no_service() -> None:
    for file in sources("shared"):
        assert not [name for name in imports(file) if name.startswith("services")], file


@pytest.mark.parametrize("path", PURE)
def test_the_pure_core_reaches_no_edge(path: str) -> None:
    assert (ROOT / path).exists()
    direct = {name.split(".")[0] for name in imports(ROOT / path)}
    assert not direct & EDGES


def test_no_lake_is_opened_by_another_sqlite_library() -> None:
    """H11: two SQLite libraries in one process break each other's locks."""
    for file in sources("services", "shared", "bench", "tests/world"):
        assert "sqlite3" not in {name.split(".")[0] for name in imports(file)}, file


def test_every_duckdb_instance_of_ours_comes_from_one_place() -> None:
    """H1 and the pinned extensions are dealt with there."""
    for file in sources("services", "shared"):
        if file != ROOT / "shared/lake/engine.py":
            assert "duckdb.connect(" not in file.read_text(), file


def test_only_one_function_turns_a_range_into_inclusive_bounds() -> None:
    for file in sources("services", "shared"):
        if file != ROOT / "shared/ranges.py":
            assert "after + 1" not in file.read_text(), file


RESOLVERS = {"shared/config/declared.py", "shared/config/deployment.py", "services/control/declared.py",
             "services/control/arrivals.py"}  # fmt: skip
"""Who asks for a lake's kind or identity alone, and who says what a lake may name."""


def test_no_lake_is_opened_before_it_was_asked_whose_it_is() -> None:
    for file in sources("services", "shared"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == "shared.config.catalogs":
                taken = {alias.name for alias in node.names}
                assert "resolve" not in taken or str(file.relative_to(ROOT)) in RESOLVERS, file
