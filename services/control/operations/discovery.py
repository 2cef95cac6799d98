"""Tenants that appear by themselves: meets what readers offer, by the policy, and does what operators answer.

It has a thread of its own, so that a lake which takes its time keeps nothing else waiting.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import structlog

from services.control.model.lifecycle import Declared, Refused, Registered
from services.control.model.policy import (
    AUTHOR,
    UNSAFE,
    PolicyDecision,
    RegistrySummary,
    Sighting,
    decide,
    standing,
    twins,
)
from services.control.model.problems import InvalidEntry
from services.control.operations.database_provisioning import create_database
from services.control.operations.destination_service import DestinationService, Done
from services.control.operations.entry_template import entry_of, id_of
from services.control.operations.reconciler import Reconciler
from services.control.store.proposals import Proposal, Proposals
from services.control.view.status_store import StatusStore
from shared.config.catalogs import resolve
from shared.config.declared import Lakes
from shared.config.model import PLACEHOLDER, Config, Template
from shared.config.template_rules import has_own_lake
from shared.contracts.digest import value_digest
from shared.contracts.errors import DependencyError, DestinationError, Error, ViaduckError
from shared.contracts.messages import LakeRef
from shared.contracts.reports import Offered
from shared.runtime.background import Background, Threaded

log = structlog.get_logger(__name__)

PAUSE_S = 1.0
"""Between two looks: readers that have much to tell must not make the registry busy."""

LOOK_AGAIN_S = 60.0
"""Room under the limit per hour, or a file taken over, may allow more although no new value was offered."""

TRY_AGAIN_S = 300.0
"""After a failure, which may have cost a time-out."""

MOST_FAILURES = 5
"""In one look; the others have to wait for the next one."""

LATER = PolicyDecision("failed", "not tried yet, after several failures; it is tried automatically")

Clock = Callable[[], datetime]
Require = Callable[[Mapping[str, Registered]], None]


class Discovery(Threaded):
    """One pipeline's. May be used from several threads."""

    def __init__(
        self,
        reconciler: Reconciler,
        status_store: StatusStore,
        service: DestinationService,
        proposals: Proposals,
        environ: Mapping[str, str],
        now: Clock = lambda: datetime.now(UTC),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reconciler = reconciler
        self._status_store = status_store
        self._service = service
        self.proposals = proposals
        self._environ = environ
        self._now = now
        self._clock = clock
        self._failed: dict[str, tuple[float, PolicyDecision]] = {}
        self._is_waiting = False
        self._loop = Background(f"arrivals {status_store.pipeline}", self._run, wakes=status_store.offered)

    def _run(self, loop: Background) -> None:
        while not loop.stopped.is_set():
            loop.turned()
            self._status_store.offered.wait(LOOK_AGAIN_S)
            self._status_store.offered.clear()
            self._look_or_wait()
            loop.stopped.wait(PAUSE_S)

    def _look_or_wait(self) -> None:
        try:
            self.look()
        except DependencyError as error:
            if not self._is_waiting:
                log.warning("discovery_delayed", error=str(error), hint=error.hint)
            self._is_waiting = True
            self._status_store.offered.set()
        else:
            self._is_waiting = False

    # -- what readers offer -------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Meet everything that waits, by the policy as it is now. Raises ``DependencyError``."""
        config = self._reconciler.config
        is_off = config.appear.policy == "off" or not config.template.is_given
        if (
            is_off or not self._status_store.file_in_force
        ):  # without it, declared values look as if they had no destination
            return
        known, routed = self.proposals.all(), self._routed()
        seen = _merged([*(each.sighting for each in known.values()), *map(_sighting, self._status_store.offers())])
        shut = routed | {each.id for each in known.values() if each.state == "dismissed"}
        decided = self._decided(config, [each for each in seen if each.id not in shut])
        made = {each.id for each, decision in decided if decision.creates}
        kept = [both for both in decided if both[0].id not in made]
        self.proposals.keep(kept, (made | routed) & known.keys(), self._now())
        self._failed = {each.id: self._failed[each.id] for each, _ in kept if each.id in self._failed}

    def _decided(self, config: Config, waiting: Sequence[Sighting]) -> list[tuple[Sighting, PolicyDecision]]:
        """What became of each, the oldest first."""
        there, alike, failures = self._standing(), twins(waiting), 0
        decided: list[tuple[Sighting, PolicyDecision]] = []
        for each in sorted(waiting, key=lambda each: (each.first_seen, -each.rows, each.id)):
            self._loop.turned()
            decision = decide(each, id_of(config.template, each.name), config.appear, there, alike)
            if decision.creates:
                waits = self._waits(each, failures)
                decision = waits or self._tried(each, alike)
                failures += waits is None and not decision.creates
                there = self._standing() if waits is None else there
            decided.append((each, decision))
        return decided

    def _waits(self, sighting: Sighting, failures: int) -> PolicyDecision | None:
        """Why it is not tried now; None where it is. ``failures``: in this look."""
        failed_s, failure = self._failed.get(sighting.id, (float("-inf"), LATER))
        if self._clock() < failed_s + TRY_AGAIN_S:
            return failure
        return LATER if failures >= MOST_FAILURES or self._loop.stopped.is_set() else None

    def _tried(self, sighting: Sighting, twins: frozenset[str]) -> PolicyDecision:
        """What came of it."""
        try:
            made = self._create(sighting, AUTHOR, lambda held: self._require(held, sighting, twins), self._now())
        except PolicyChanged as otherwise:
            return otherwise.decision
        except (Refused, ViaduckError, InvalidEntry) as error:
            hint = "" if isinstance(error, InvalidEntry) else f"; {error.hint}"
            failure = PolicyDecision("failed", f"{error}{hint}")
            self._failed[sighting.id] = self._clock(), failure
            log.warning("destination_not_created", proposal=sighting.id, why=failure.message)
            return failure
        log.info(
            "destination_created_by_policy",
            destination=made.held.id,
            rows=sighting.rows,
            first_seen=sighting.first_seen,
        )
        return PolicyDecision("allowed", "")

    # -- what operators answer ----------------------------------------------------------------------------------------

    def accept(self, proposal_id: str, author: str | None) -> Done:
        """Make it a destination. Raises ``Refused``, ``InvalidEntry``, ``ViaduckError`` and ``DependencyError``."""
        done = self._create(self._there(proposal_id).sighting, author, lambda _: None, None)
        self.proposals.forget(proposal_id)
        return done

    def dismiss(self, proposal_id: str, author: str | None) -> Proposal:
        """Remember that it was dismissed. Raises ``Refused`` and ``DependencyError``."""
        found = self.proposals.dismiss(self._there(proposal_id).id, author, self._now())
        return self._there(proposal_id) if found is None else found

    def waiting(self) -> list[Proposal]:
        """All proposals of values that have no destination. Raises ``DependencyError``."""
        routed = self._routed()
        return [each for each in self.proposals.all().values() if each.id not in routed]

    def suggestion(self, proposal: Proposal) -> str | None:
        """The id of the destination that accepting it would make; None where none can be made."""
        template = self._reconciler.config.template
        return id_of(template, proposal.sighting.name) if template.is_given else None

    def _there(self, proposal_id: str) -> Proposal:
        found = self.proposals.find(proposal_id)
        if found is None:
            raise Refused("not_found", f"there is no proposal {proposal_id}", "GET …/proposals lists them")
        return found

    # -- making one ---------------------------------------------------------------------------------------------------

    def _create(self, sighting: Sighting, author: str | None, require: Require, appeared_at: datetime | None) -> Done:
        """``appeared_at`` None: an operator wants it."""
        config, name = self._reconciler.config, sighting.name
        template, wanted = config.template, id_of(config.template, name)
        if not template.is_given:
            raise Refused("invalid", "the file has no template", "write the section template, or PUT a destination")
        if name is None or wanted is None:
            raise Refused("unsafe_value", UNSAFE, "PUT a destination with an id of your own and this routing value")

        def prepare(declared: Declared) -> None:
            self._prepare(config, declared, only_ours=appeared_at is not None)

        entry = entry_of(template, name, sighting.value, config.path.parent)
        return self._service.admit(wanted, entry, author, prepare, require, appeared_at)

    def _require(self, held: Mapping[str, Registered], sighting: Sighting, twins: frozenset[str]) -> None:
        """The limits hold at the moment of the change, whichever control makes it."""
        config = self._reconciler.config
        there = standing(held.values(), self._now())
        decision = decide(sighting, id_of(config.template, sighting.name), config.appear, there, twins)
        if not decision.creates:
            raise PolicyChanged(decision)

    def _prepare(self, config: Config, declared: Declared, *, only_ours: bool) -> None:
        """Create its database. Automatic creation refuses a lake that exists: it may belong to another tenant."""
        if config.template.create_database:
            lake = Lakes(config, self._environ).catalog(declared.id, declared.routing_value, declared.lake)
            mark = f"made by Viaduck for {config.pipeline}/{declared.id}"
            create_database(lake, mark, only_ours=only_ours and PLACEHOLDER in (config.template.catalog or ""))
        if only_ours and self._has_own_lake(config) and self._service.is_foreign(declared):
            said = "a lake exists already at its place"
            raise DestinationError("invalid_destination", said, "accept the proposal if it may be used")

    def _has_own_lake(self, config: Config) -> bool:
        section = config.template.model_dump(by_alias=True, exclude_none=True)
        is_postgres = resolve(_public(config.template), self._environ, config.path.parent).sqlite_file is None
        return has_own_lake(section, is_postgres=is_postgres)

    def _standing(self) -> RegistrySummary:
        return standing(self._reconciler.held.values(), self._now())

    def _routed(self) -> set[str]:
        """Digests of the routing values that have a destination."""
        living = (each.declared for each in self._reconciler.held.values() if not each.removed)
        return {value_digest(each.routing_value) for each in living}


class PolicyChanged(Error):
    """By the time it was to be written, the policy said something else."""

    def __init__(self, decision: PolicyDecision) -> None:
        super().__init__(decision.message)
        self.decision = decision


def _sighting(offered: Offered) -> Sighting:
    name = value_digest(offered.value) if offered.whole else offered.digest
    return Sighting(name, offered.value, offered.whole, offered.rows, offered.first_seen)


def _merged(sightings: Iterable[Sighting]) -> list[Sighting]:
    """Each value once: the last word on its rows, the first on when it was seen."""
    found: dict[str, Sighting] = {}
    for each in sightings:
        before = found.get(each.id, each)
        found[each.id] = replace(each, first_seen=min(each.first_seen, before.first_seen))
    return list(found.values())


def _public(template: Template) -> LakeRef:
    """The template's lake without what only a look at its data would need."""
    return template.lake.model_copy(update={"properties": {}})
