"""What an image needs of the lock file: the packages that Viaduck imports when it runs, with versions and hashes.

python deploy/runtime_requirements.py requirements.lock [EXTRA PACKAGE]... > runtime.lock

The lock file says of each package who wants it (``# via``); those whom only the development tools want are left out.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

OURS = "viaduck (pyproject.toml)"
BLOCK = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)(\[[^\]]*\])?==", re.MULTILINE)


@dataclass(frozen=True)
class Package:
    text: str
    wanted_by: tuple[str, ...]

    @property
    def ours(self) -> bool:
        """Whether Viaduck itself asks for it, and not only one of its development groups."""
        return OURS in self.wanted_by


def parse(lock: str) -> dict[str, Package]:
    """Each package by its name; a package with other versions for other Pythons has several blocks."""
    starts = [match.start() for match in BLOCK.finditer(lock)]
    blocks = [lock[start:end] for start, end in zip(starts, [*starts[1:], len(lock)], strict=True)]
    packages: dict[str, Package] = {}
    for block in blocks:
        known = packages.get(_name(block), Package("", ()))
        packages[_name(block)] = Package(known.text + block, (*known.wanted_by, *_wanted_by(block)))
    return packages


def runtime(packages: Mapping[str, Package], extra: Sequence[str] = ()) -> list[str]:
    """The names of what is needed, in the order of the lock file. Raises ``KeyError`` for an unknown extra one."""
    unknown = set(extra) - packages.keys()
    if unknown:
        raise KeyError(f"the lock file has no {', '.join(sorted(unknown))}")
    needed = {name for name, package in packages.items() if package.ours} | set(extra)
    while more := {name for name, package in packages.items() if needed & set(package.wanted_by)} - needed:
        needed |= more
    return [name for name in packages if name in needed]


def _name(block: str) -> str:
    match = BLOCK.match(block)
    if match is None:
        raise ValueError(f"not a package of a lock file: {block[:80]!r}")
    return match["name"].lower()


def _wanted_by(block: str) -> tuple[str, ...]:
    said = block.partition("# via")[2].splitlines()
    return tuple(line.strip().lstrip("#").strip() for line in said if line.strip().lstrip("#").strip())


def main(file: Path, extra: Sequence[str]) -> None:
    packages = parse(file.read_text())
    sys.stdout.write("".join(packages[name].text for name in runtime(packages, extra)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
