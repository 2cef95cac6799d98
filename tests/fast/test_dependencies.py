"""What the product imports it asks for itself: what comes along with another package may not come tomorrow."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OURS = {"services", "shared", "viaduck_demo", "viaduck_client"}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
NAME = re.compile(r"[A-Za-z0-9._-]+")

ALONG = {"google": "protobuf", "markupsafe": "jinja2", "py4j": "pyspark", "pydantic_core": "pydantic"}
"""Packages whose modules have another name, or that one of ours always brings in the version that it needs."""


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def imported(folder: str) -> dict[str, str]:
    """Modules of others, by their first name, and where one is imported."""
    found = dict[str, str]()
    for file in sorted((ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module]
            found |= {name.partition(".")[0]: str(file.relative_to(ROOT)) for name in names}
    return {name: where for name, where in found.items() if name not in OURS | sys.stdlib_module_names}


@pytest.mark.parametrize("folder", ["services", "shared", "viaduck_demo"])
def test_each_package_that_is_imported_is_asked_for(folder: str) -> None:
    asked = {normal(found[0]) for each in PROJECT["dependencies"] if (found := NAME.match(each))}
    bringing = packages_distributions()
    unasked = {
        name: where
        for name, where in imported(folder).items()
        if not asked & {normal(each) for each in (*bringing.get(name, ()), ALONG.get(name, ""))}
    }
    assert unasked == {}


def test_imports_are_found() -> None:
    assert {"duckdb", "pyarrow", "numpy", "psycopg"} <= imported("shared").keys()
