"""The packages of each service in layers, and their picture for docs/explanation/architecture.md.

``python -m tests.layers`` draws the pictures anew.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/explanation/architecture.md"

BESIDE = "process"
"""The modules beside the packages of a folder."""

LAYERS = {
    "services/reader": ("planner", "source", "messaging"),
    "services/applier": ("records", "model", "apply", "worker"),
    "services/control": ("model", "store", "migrations", "view", "operations", "web", "api", "page"),
    "services/cli": ("runtime", "output", "up", "verify", "expire", "commands"),
    "services/applier/apply": ("source", "cursor", "destination", "columns", "maintenance", "direct"),
    "shared": ("contracts", "config", "lake", "runtime", "kafka"),
    "shared/lake": (BESIDE, "connection", "columns", "catalog", "changes", "checks", "attached", "upkeep", "direct"),
}
"""From the lowest to the highest: a package imports only packages before it. The modules beside the packages are the
process, which puts them together, unless their place is told."""


def sources(*folders: str) -> list[Path]:
    return sorted(file for folder in folders for file in (ROOT / folder).rglob("*.py"))


@cache
def nodes(file: Path) -> tuple[ast.AST, ...]:
    """A module's syntax tree, parsed once for all that look at it."""
    return tuple(ast.walk(ast.parse(file.read_text())))


def imports(file: Path) -> Iterator[str]:
    """The modules that a file imports; of ``from package import module`` the module."""
    for node in nodes(file):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            within = ROOT / node.module.replace(".", "/")
            names = [alias.name for alias in node.names if (within / f"{alias.name}.py").exists()]
            yield from (f"{node.module}.{name}" for name in names)
            if len(names) < len(node.names):
                yield node.module


def package_of(folder: str, file: Path) -> str:
    """The package within ``folder`` that a file is in; ``BESIDE`` for the modules beside the packages."""
    parts = file.relative_to(ROOT / folder).parts
    return parts[0] if len(parts) > 1 else BESIDE


def order(folder: str) -> tuple[str, ...]:
    """The packages of a folder and the modules beside them, from the lowest to the highest."""
    layers = LAYERS[folder]
    return layers if BESIDE in layers else (*layers, BESIDE)


def arrows(folder: str) -> set[tuple[str, str]]:
    """Which package of ``folder`` imports which other one."""
    prefix = folder.replace("/", ".") + "."
    found = set()
    for file in sources(folder):
        for name in imports(file):
            if name.startswith(prefix):
                target = package_of(folder, ROOT / (name.replace(".", "/") + ".py"))
                found.add((package_of(folder, file), target))
    return {(user, used) for user, used in found if user != used}


def picture(folder: str) -> str:
    """A Mermaid diagram. An arrow that follows from two others is left out."""
    direct = arrows(folder)
    shown = sorted((a, c) for a, c in direct if not any((a, b) in direct and (b, c) in direct for b in order(folder)))
    names = [name for name in reversed(order(folder)) if any(name in arrow for arrow in direct)]
    lines = [f"    {name}[{_label(folder, name)}]" for name in names]
    return "\n".join(["```mermaid", "flowchart TD", *lines, *(f"    {a} --> {b}" for a, b in shown), "```"])


def _label(folder: str, name: str) -> str:
    return f'"{folder}/{name}/"' if name != BESIDE else f'"{folder}/*.py"'


def drawn(page: str) -> str:
    """The page with its pictures made anew, each between its two comments."""
    for folder in LAYERS:
        begin, end = f"<!-- layers: {folder} -->\n", "\n<!-- end -->"
        before, _, rest = page.partition(begin)
        _, _, after = rest.partition(end)
        page = before + begin + picture(folder) + end + after
    return page


if __name__ == "__main__":
    PAGE.write_text(drawn(PAGE.read_text()))
