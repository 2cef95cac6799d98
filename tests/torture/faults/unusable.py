"""A pipeline that came over REST can't be used any more, and services start again: the others go on, and it is said."""

from __future__ import annotations

import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from viaduck_client import Client

from tests.torture.fault import Done
from tests.torture.faults.operators import patiently
from tests.torture.observer import CONTROL, READER
from tests.torture.rig import HEALED_WITHIN_S, READY_WITHIN_S, FaultRig
from tests.torture.site import SECOND_SOURCE
from tests.world.duck import connect, name
from tests.world.lake import Lake, opened

SECOND = "orders"


class Orders:
    """A pipeline beside those that the oracles judge: its source, and a destination of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._source = Lake.in_folder(folder / "source")
        self._con = connect()
        self._rows = 0
        with opened(self._con, self._source, read_only=False, create=True) as alias:
            self._con.execute(f"CREATE TABLE {name(alias, 'main', 't')} (id BIGINT, company VARCHAR)")

    def change(self) -> int:
        """One more row. Returns the source's snapshot after it."""
        self._rows += 1
        with opened(self._con, self._source, read_only=False) as alias:
            self._con.execute(f"INSERT INTO {name(alias, 'main', 't')} VALUES ({self._rows}, 'a')")
            (head,) = self._con.execute(f"SELECT id FROM {name(alias)}.current_snapshot()").fetchall()[0]
        return int(head)

    @property
    def catalog(self) -> str:
        return f"sqlite:{self.folder / 'source' / 'catalog.sqlite'}"

    def document(self) -> dict[str, Any]:
        place = self.folder / "a"
        place.mkdir(exist_ok=True)
        lake = {"catalog": f"sqlite:{place / 'catalog.sqlite'}", "data_path": str(place / "data")}
        return {
            "source": {"catalog_env": SECOND_SOURCE, "data_path": str(self.folder / "source" / "data"), "table": "t"},
            "routing": {"field": "company", "key_columns": ["id"]},
            "poll": {"interval_seconds": 0.2},
            "destinations": [{"id": "a", "routing_value": "a", **lake}],
        }

    @contextmanager
    def gone(self) -> Iterator[None]:
        """Its catalog is not where it was."""
        place, away = self.folder / "source", self.folder / "source.away"
        place.rename(away)
        try:
            yield
        finally:
            if place.exists():
                raise AssertionError(f"somebody made a source where it had gone: {sorted(place.rglob('*'))}")
            away.rename(place)

    def close(self) -> None:
        self._con.close()
        shutil.rmtree(self.folder)


def left_alone(rig: FaultRig, count: int) -> Done:
    """In turn its variable is missing and its catalog gone, ``count`` times in all, while services are killed."""
    done: Done = Counter()
    address = f"http://127.0.0.1:{rig.site.port}"
    with closing(Orders(rig.site.folder / "second")) as orders, closing(Client(address, timeout_s=60.0)) as operator:
        patiently(lambda: operator.put_pipeline(SECOND, orders.document()))
        _reaches(rig, operator, orders)
        for number in range(count):
            kind, trouble = TROUBLES[number % len(TROUBLES)]
            trouble(rig, operator, orders)
            _reaches(rig, operator, orders)
            rig.wait_until_exact()
            done[kind] += 1
        operator.remove_pipeline(SECOND)
    rig.wait_until_exact()
    return done


def _without_variable(rig: FaultRig, operator: Client, orders: Orders) -> None:
    """The services that start again find no source in their environment."""
    rig.fleet.tell(SECOND_SOURCE, None)
    _start_again(rig, *_leaving(rig))
    _the_other_goes_on(rig, operator, SECOND_SOURCE)
    orders.change()
    rig.fleet.tell(SECOND_SOURCE, orders.catalog)
    _start_again(rig, *_leaving(rig))


def _without_catalog(rig: FaultRig, operator: Client, orders: Orders) -> None:
    """It comes back, and nobody has to be started for it."""
    with orders.gone():
        _start_again(rig, *_leaving(rig))
        _the_other_goes_on(rig, operator, SECOND)


def _leaving(rig: FaultRig) -> list[str]:
    """Who starts again while it can't be used: one of the appliers runs on as it was."""
    return [CONTROL, READER, rig.fleet.appliers[0].name]


def _start_again(rig: FaultRig, *names: str) -> None:
    """Kill services at once; they are started again, and each lives."""
    before = rig.fleet.starts()
    members = [rig.fleet.members[each] for each in names]
    for member in members:
        member.send(signal.SIGKILL)
    rig.fleet.wait_until(
        f"{', '.join(names)} to be started again",
        lambda: all(member.starts > before[member.name] and member.is_alive() for member in members),
        READY_WITHIN_S,
    )


def _the_other_goes_on(rig: FaultRig, operator: Client, named: str) -> None:
    """The first pipeline gets to its head, nobody dies of the second, and control says of it what is wrong."""
    before = rig.fleet.starts()
    rig.step()
    wanted = {each.id for each in rig.site.destinations}
    rig.healed_s.append(rig.wait_for(wanted, rig.site.source.head()))
    rig.fleet.wait_until(
        f"/readyz to name {SECOND}", lambda: SECOND in "".join(rig.fleet.members[CONTROL].problems()), HEALED_WITHIN_S
    )
    said = patiently(lambda: operator.pipeline(SECOND))
    reasons = [*said["refused"], str(said["frontier"]), str(rig.fleet.members[CONTROL].problems())]
    if not any(named in reason for reason in reasons):
        raise AssertionError(f"{SECOND} can't be used, and nothing says why: {reasons}")
    if said["caught_up"] or said["settled"]:
        raise AssertionError(f"{SECOND} can't be used, and is shown as caught up or settled: {said}")
    died = [each for each, starts in rig.fleet.starts().items() if starts > before[each]]
    if died:
        raise AssertionError(f"{', '.join(died)} died of a pipeline that can't be used")
    rig.observer.ask_status(unusable=SECOND if named == SECOND_SOURCE else None)


def _reaches(rig: FaultRig, operator: Client, orders: Orders) -> None:
    """The second pipeline gets to its head."""
    head = orders.change()

    def is_there() -> bool:
        found = patiently(lambda: operator.destinations(SECOND))
        return [status["id"] for status in found if (status["known_through"] or 0) >= head] == ["a"]

    rig.healed_s.append(rig.fleet.wait_until(f"{SECOND} at snapshot {head}", is_there, HEALED_WITHIN_S))


TROUBLES: tuple[tuple[str, Callable[[FaultRig, Client, Orders], None]], ...] = (
    ("catalog gone", _without_catalog),
    ("variable missing", _without_variable),
)
