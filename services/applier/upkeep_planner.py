"""What upkeep may do for a destination, by what the applier knows of the lakes and policies beside it.

A lake's orphans are whatever its catalog does not name: the files of another lake at, above or below its data path are
among them. So orphans are deleted only where no other known lake is there: destinations of every pipeline, sources, and
what templates would make.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace

from services.applier.model.task import UpkeepTask
from shared.config.catalogs import ResolvedLake
from shared.config.declared import Lakes
from shared.config.model import PLACEHOLDER, Config
from shared.config.path_overlap import Path, PathClaim, claim_of, table_names
from shared.config.upkeep_rules import Policy, policy_of
from shared.contracts.errors import ViaduckError
from shared.contracts.messages import Destination, LakeRef, WorkItem
from shared.contracts.upkeep import LAKE_WIDE, UpkeepStep

HINT = "give each lake a data path of its own"


@dataclass(frozen=True)
class KnownLake:
    """A lake beside the destination's. ``identity``: None where this process can't tell which lake it is.

    ``claim``: None where only its catalog knows where its files are.
    """

    owner: str
    identity: str | None
    claim: PathClaim | None
    destination: Destination | None = None
    policy: Policy | None = None


def step_refusals(own: KnownLake, others: Collection[KnownLake]) -> dict[UpkeepStep, str]:
    """Steps that would harm a lake beside ``own`` or contradict its policy, and why. Values in, values out."""
    refused: dict[UpkeepStep, str] = {}
    for other in others:
        same = other.identity is not None and other.identity == own.identity
        for step, why in _of_same(own, other) if same else _of_another(own, other):
            refused.setdefault(step, why)
    return refused


def _of_same(own: KnownLake, other: KnownLake) -> Iterator[tuple[UpkeepStep, str]]:
    if other.destination is None:
        yield UpkeepStep.EXPIRE, f"the lake of {own.owner} is {other.owner}; viaduck source expire expires it"
    elif own.policy is not None and other.policy is not None and own.policy.of_the_lake != other.policy.of_the_lake:
        why = f"{own.owner} and {other.owner} are in one lake, and their upkeep differs; write the same for both"
        yield from ((step, why) for step in LAKE_WIDE)


def _of_another(own: KnownLake, other: KnownLake) -> Iterator[tuple[UpkeepStep, str]]:
    if own.claim is None:
        yield UpkeepStep.ORPHANS, f"the data path of {own.owner} is not declared; write its data_path"
    elif other.claim is None:
        yield UpkeepStep.ORPHANS, f"the data path of {other.owner} is not known here; write its data_path"
    elif overlaps(own.claim.path, other.claim.path):
        yield UpkeepStep.ORPHANS, f"the data paths of {own.owner} and {other.owner} are one or within another; {HINT}"


def overlaps(one: Path, other: Path) -> bool:
    """Whether two data paths are the same, or one lies within the other, part by part. A part of ``other`` that holds
    a template's placeholder may become any name; paths that only such a part tells apart are beside each other."""
    pairs = zip(one, other, strict=False)
    matches = all(left == right or PLACEHOLDER in right for left, right in pairs)
    beside = len(one) == len(other) and any(PLACEHOLDER in part for part in other)
    return matches and not beside


class UpkeepPlanner:
    """One pipeline's. ``configs``: every pipeline that is served here; ``known``: every destination that there is."""

    def __init__(
        self,
        config: Callable[[], Config],
        configs: Callable[[], Collection[Config]],
        known: Callable[[], Collection[Destination]],
    ) -> None:
        self._config = config
        self._configs = configs
        self._known = known
        self._resolved: dict[tuple[str, str], str | None] = {}

    def forget(self) -> None:
        """A file changed, and with it what lakes are."""
        self._resolved = {}

    def plan(self, item: WorkItem, destination: Destination, lake: ResolvedLake) -> UpkeepTask:
        if (harmed := self._harmed(destination.pipeline)) is not None:
            why = f"upkeep has damaged {harmed}, and no other of the pipeline begins until you reseed or resume it"
            return replace(self._wanted(item, destination, lake), refused=tuple((step, why) for step in UpkeepStep))
        return self._wanted(item, destination, lake)

    def _harmed(self, pipeline: str) -> str | None:
        """A destination that an upkeep has damaged. Control begins none then, but a reader
        asks for compactions without it."""
        return min((each.key for each in self._known() if each.is_damaged and each.pipeline == pipeline), default=None)

    def _wanted(self, item: WorkItem, destination: Destination, lake: ResolvedLake) -> UpkeepTask:
        if item.upkeep is None:
            return UpkeepTask()
        policy = policy_of(self._config().upkeep, destination.upkeep)
        asked = policy.steps if item.upkeep.steps is None else item.upkeep.steps
        task = UpkeepTask(asked, item.upkeep.dry_run, policy)
        return self._beside(task, destination, lake) if set(asked) & set(LAKE_WIDE) else task

    def _beside(self, task: UpkeepTask, destination: Destination, lake: ResolvedLake) -> UpkeepTask:
        own = KnownLake(
            destination.key, lake.identity, _claim(destination.key, lake, destination.lake), destination, task.policy
        )
        others = [*self._destinations(destination), *self._sources(), *self._templates()]
        same = (each.destination for each in others if each.identity == own.identity)
        ours = frozenset(_table(each) for each in (destination, *same) if each is not None)
        return replace(task, ours=ours, refused=tuple(step_refusals(own, others).items()))

    def _destinations(self, but: Destination) -> Iterator[KnownLake]:
        configs = {config.pipeline: config for config in self._configs()}
        for each in self._known():
            if each.key == but.key:
                continue
            config = configs.get(each.pipeline)
            identity = None if config is None else self._identity(config, each)
            policy = None if config is None else policy_of(config.upkeep, each.upkeep)
            yield KnownLake(each.key, identity, claim_of(each.key, each.key, each.lake), each, policy)

    def _identity(self, config: Config, destination: Destination) -> str | None:
        key = destination.key, destination.revision
        if key not in self._resolved:
            try:
                self._resolved[key] = Lakes(config).published(destination).identity
            except ViaduckError:
                self._resolved[key] = None
        return self._resolved[key]

    def _sources(self) -> Iterator[KnownLake]:
        for config in self._configs():
            if config.topic is not None:
                continue
            owner = f"the source of {config.pipeline}"
            try:
                lake = Lakes(config).source()
            except ViaduckError:
                yield KnownLake(owner, None, claim_of(owner, owner, config.source.lake))
            else:
                yield KnownLake(owner, lake.identity, _claim(owner, lake, config.source.lake))

    def _templates(self) -> Iterator[KnownLake]:
        for config in self._configs():
            if config.template.is_given:
                owner = f"the template of {config.pipeline}"
                yield KnownLake(owner, None, claim_of(owner, owner, config.template.lake))


def _claim(owner: str, lake: ResolvedLake, ref: LakeRef) -> PathClaim | None:
    return claim_of(owner, lake.identity, ref.model_copy(update={"catalog": lake.catalog}))


def _table(of: Destination) -> tuple[str, str]:
    return table_names(of.schema_name, of.table)
