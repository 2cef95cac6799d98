"""Topics get more partitions, so that keys lie elsewhere from then on, while tenants come, go and begin anew."""

from __future__ import annotations

import signal
from collections import Counter
from contextlib import closing

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions
from viaduck_client import Client

from shared.kafka.topics import Topics
from tests.torture.fault import Done
from tests.torture.faults.operators import add, await_drop, declared_again, handed_over, patiently, remove
from tests.torture.rig import FaultRig
from tests.torture.site import PIPELINE
from tests.world.destination import Destination
from tests.world.shown import Held

GROWN_WITHIN_S = 20.0
MOST_AT_ONCE = 3
DEEDS = 3
"""Of operators, for each time that partitions are added."""


class Tenancy:
    """Who is there, and in which life; what may not happen to whoever is not."""

    def __init__(self, rig: FaultRig, operator: Client, movable: list[Destination]) -> None:
        self._rig, self._operator, self._movable = rig, operator, movable
        self._kept = {each.id for each in rig.site.destinations} - {each.id for each in movable}
        self._there: set[str] = set()
        self._lives: dict[str, int] = {}
        self._dropping: dict[str, str] = {}
        self._left: dict[str, Held | None] = {}
        """What the lakes of those who went said when everybody else was at the head."""

    def do_something(self) -> str:
        """What was done, to a random tenant."""
        tenant = self._rig.rng.choice(self._movable)
        if tenant.id not in self._there:
            self.bring(tenant)
            return "added"
        if self._rig.rng.random() < 0.5:
            patiently(lambda: self._operator.reseed(PIPELINE, tenant.id))
            return "reseeded"
        self._there.discard(tenant.id)
        return patiently(lambda: remove(self._rig, self._operator, tenant, self._dropping))

    def bring(self, tenant: Destination) -> None:
        self._must_not_have_moved(tenant)
        await_drop(self._operator, tenant, self._dropping)
        patiently(lambda: add(self._rig, self._operator, tenant))
        self._there.add(tenant.id)

    def bring_all(self) -> None:
        for each in self._movable:
            if each.id not in self._there:
                self.bring(each)

    def settle(self) -> None:
        """Everybody who is there gets to the head; nobody else has come back, and no life is older than before."""
        rig, wanted = self._rig, self._kept | self._there
        rig.healed_s.append(rig.wait_for(wanted, rig.site.source.head()))
        for each in self._movable:
            if each.id not in self._there:
                await_drop(self._operator, each, self._dropping)
        statuses = {each["id"]: int(each["generation"]) for each in rig.fleet.destinations()}
        if set(statuses) != wanted:
            raise AssertionError(f"{sorted(set(statuses) ^ wanted)} should not be there, or should be")
        older = {id: life for id, life in statuses.items() if life < self._lives.get(id, 0)}  # noqa: A001
        if older:
            raise AssertionError(f"lives of before are back: {older}, and there was {self._lives}")
        self._lives |= statuses
        for each in self._movable:
            self._must_not_have_moved(each)
            if each.id not in self._there:
                self._left[each.id] = rig.observer.held(each)

    def _must_not_have_moved(self, tenant: Destination) -> None:
        before = self._left.pop(tenant.id, None)
        if before is not None and before != (now := self._rig.observer.held(tenant)):
            raise AssertionError(f"{tenant.id} was removed, and its lake went from {before} to {now}")


def added(rig: FaultRig, count: int) -> Done:
    """Partitions are added to the topics of work and of destinations ``count`` times; every other time the reader, or
    an applier, has to read them all from the beginning afterwards."""
    done: Done = Counter()
    admin = AdminClient({**rig.servers.kafka.client()})
    movable = handed_over(rig)
    topics = Topics(rig.prefix)
    with closing(Client(f"http://127.0.0.1:{rig.site.port}", timeout_s=60.0)) as operator:
        tenancy = Tenancy(rig, operator, movable)
        tenancy.bring_all()
        for number in range(count):
            for deed in range(DEEDS):
                done[tenancy.do_something()] += 1
                if deed == number % DEEDS:
                    done["partitions added"] += _grow(rig, admin, [topics.work, topics.destinations])
                rig.step()
            if number % 2 == 0:
                name = rig.rng.choice(list(rig.fleet.members))
                rig.fleet.members[name].send(signal.SIGKILL)
                done[f"{name.partition('-')[0]} killed"] += 1
                rig.step()
            tenancy.settle()
        tenancy.bring_all()
    rig.wait_until_exact()
    declared_again(rig)
    return done


def _grow(rig: FaultRig, admin: AdminClient, names: list[str]) -> int:
    """More partitions for each of these topics. Returns how many more."""
    there = admin.list_topics(timeout=GROWN_WITHIN_S).topics
    more = {name: rig.rng.randint(1, MOST_AT_ONCE) for name in names}
    wanted = [NewPartitions(name, len(there[name].partitions) + more[name]) for name in names]
    for future in admin.create_partitions(wanted, operation_timeout=GROWN_WITHIN_S).values():
        future.result(GROWN_WITHIN_S)
    return sum(more.values())
