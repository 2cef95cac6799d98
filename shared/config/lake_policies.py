"""Destinations of one lake must be kept by one policy: its snapshots and files are those of all of them.

Destinations of a file, those of two files, and what comes over REST are compared by this. Values in, values out.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from shared.config.catalogs import located
from shared.config.config_errors import join
from shared.config.model import Config
from shared.config.upkeep_rules import OF_THE_LAKE, Policy, override_of, policy_of

Terms: TypeAlias = tuple[object, ...]
"""What a policy says of a whole lake."""


@dataclass
class LakePolicies:
    """By lake, what is said of it and by which owners. Finding one among thousands costs nothing: the owners of a lake
    say one thing, or a few."""

    _said: dict[Hashable, dict[Terms, dict[str, None]]] = field(default_factory=dict)

    def add(self, lake: Hashable, owner: str, policy: Policy) -> None:
        self._said.setdefault(lake, {}).setdefault(policy.of_the_lake, {})[owner] = None

    def contradiction(self, lake: Hashable, owner: str, policy: Policy) -> tuple[str, str] | None:
        """The key of ``upkeep`` and what is wrong with it; None where all others say the same of the lake."""
        mine = policy.of_the_lake
        for terms, owners in self._said.get(lake, {}).items():
            other = next((each for each in owners if each != owner), None)
            if other is not None and terms != mine:
                return _said(mine, terms, other)
        return None


def difference(mine: Policy, other: Policy, owner: str) -> tuple[str, str] | None:
    """The same of two policies. ``owner``: of the other one."""
    return None if mine.of_the_lake == other.of_the_lake else _said(mine.of_the_lake, other.of_the_lake, owner)


def _said(mine: Terms, other: Terms, owner: str) -> tuple[str, str]:
    key = next(key for key, here, there in zip(OF_THE_LAKE, mine, other, strict=True) if here != there)
    return key, f"differs from that of {owner}, which is in the same lake; write the same for both"


def contradictions(files: Iterable[tuple[Path, Config]], environ: Mapping[str, str]) -> Iterator[str]:
    """Destinations of two files in one lake that are not kept by one policy; those of one file have been compared.

    Not looked for in what came over REST before: the steps are refused there, and rows go on.
    """
    known = LakePolicies()
    for file, config in files:
        own = list[tuple[str, str, Policy]]()
        for number, destination in enumerate(config.destinations):
            where = join("destinations", number)
            lake = located(destination.lake, environ, config.path.parent).identity
            policy = policy_of(config.upkeep, override_of(destination))
            own.append((lake, f"{where} ({destination.id}) in {file}", policy))
            if (found := known.contradiction(*own[-1])) is not None:
                yield f"{file}: {where}.upkeep.{found[0]}: {found[1]}"
        for entry in own:
            known.add(*entry)
