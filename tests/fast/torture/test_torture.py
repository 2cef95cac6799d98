"""The torture harness can fail: each of its findings is found where what it looks for is played to it."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, ClassVar

import psycopg
import pytest

from shared.contracts.messages import DeadLetter, Destination, Message, PipelineDocument, WorkItem
from shared.kafka.signing import SIGNATURE_HEADER
from shared.kafka.topics import Topics
from tests.signed import SIGNING
from tests.torture import table
from tests.torture import verdict as verdicts
from tests.torture.aborts import Aborts
from tests.torture.fault import Fault
from tests.torture.faults import broker, catalogs, evolve, messages, network, processes
from tests.torture.fleet import Fleet, Member
from tests.torture.forged import FORGERIES, harmful
from tests.torture.lags import Lags
from tests.torture.points import Passed, Point
from tests.torture.rig import FaultRig
from tests.torture.wire import Sign
from tests.world.statements import DropColumn, Transaction, Truncate

IDS = ("tenant-0", "tenant-1", "tenant-2")


class World:
    """Stands for a rig: a source that moves unless it is ``still``, destinations that follow unless ``stuck``."""

    def __init__(self) -> None:
        self.head, self.now, self.still = 1, 0.0, False
        self.stuck: dict[str, int] = {}
        self.error: dict[str, Any] | None = None
        self.held: set[str] = set()
        self.started = {"reader": 1, "applier-1": 1, "applier-2": 1, "control": 1}
        self.letters: list[tuple[bytes | None, bytes | None]] = []
        self.sent: list[str] = []
        self.signals: list[tuple[str, list[int]]] = []
        self.healed_s: list[float] = []
        self.worst_lag_s: dict[str, float] = {}
        self.rng, self.prefix = Random(1), "viaduck"
        destinations = [SimpleNamespace(id=each) for each in IDS]
        self.site = SimpleNamespace(
            source=SimpleNamespace(head=lambda: self.head),
            destinations=destinations,
            is_held=lambda each, _: each.id in self.held,
        )
        self.fleet = SimpleNamespace(destinations=self.statuses, starts=lambda: dict(self.started), appliers=[])
        self.servers = SimpleNamespace(kafka=SimpleNamespace(kill=lambda: None, start=lambda: None))

    def statuses(self) -> list[dict[str, Any]]:
        return [{"id": each, "known_through": self.stuck.get(each, self.head), "error": self.error} for each in IDS]

    def step(self) -> None:
        self.now += 0.3
        self.head += not self.still

    def step_until(self, done: Any, _: float) -> bool:
        self.step()
        return bool(done())

    def wait_until_exact(self) -> None:
        self.wait_for(set(IDS), self.head)

    def wipe_broker(self) -> None:
        """Nobody notices."""

    def wait_until_ready(self) -> None:
        """Nobody is asked."""

    def wait_for(self, wanted: set[str], head: int) -> float:
        late = [each["id"] for each in self.statuses() if each["id"] in wanted and each["known_through"] < head]
        if late:
            raise TimeoutError(f"{late} did not reach {head}")
        return 0.0

    def put_aside(self, topic: str) -> None:
        letter = DeadLetter(topic=topic, partition=0, offset=len(self.sent), reason="", payload="", by="applier")
        self.letters.append((None, letter.to_bytes()))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """Its clock is everybody's: no test waits for anything."""
    made = World()

    def send(_: FaultRig, topic: str, sent: list[Any], __: Any) -> None:
        made.sent += [topic] * len(sent)
        made.put_aside(topic)

    clock = SimpleNamespace(monotonic=lambda: made.now, sleep=lambda s: setattr(made, "now", made.now + s))
    for module in (messages, processes):
        monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(messages, "send", send)
    monkeypatch.setattr(messages, "everything", lambda *_: made.letters)
    monkeypatch.setattr(broker, "_steps", lambda rig: rig.step())
    for module in (messages, processes):
        monkeypatch.setattr(module, "Lags", lambda rig: Lags(rig, clock=lambda: made.now))
    return made


class TestPoison:
    def test_comes_on_every_topic_but_that_of_letters(self, world: World) -> None:
        done = messages.poisoned(world, 60)  # type: ignore[arg-type]
        topics = Topics(world.prefix)
        assert set(world.sent) == set(topics.all) - {topics.dead_letter}
        assert done["heads reached meanwhile"] >= 60 / messages.STEP_EVERY - 1

    def test_is_nothing_where_the_source_stands_still(self, world: World) -> None:
        world.still = True
        with pytest.raises(AssertionError, match=r"nobody got on.*from 1 to 1"):
            messages.poisoned(world, 10)  # type: ignore[arg-type]

    def test_must_not_block_a_single_destination(self, world: World) -> None:
        world.stuck = {"tenant-1": 1}
        with pytest.raises(AssertionError, match="nobody got on"):
            messages.poisoned(world, 10)  # type: ignore[arg-type]

    def test_must_be_put_aside_one_by_one(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        """Letters of one topic don't stand for what another lost."""
        work = Topics(world.prefix).work
        monkeypatch.setattr(world, "put_aside", lambda _: World.put_aside(world, work))
        with pytest.raises(AssertionError, match=r"are no dead letters: \{'viaduck\."):
            messages.poisoned(world, 20)  # type: ignore[arg-type]


class TestLags:
    def test_the_longest_wait_of_each(self, world: World) -> None:
        lags = Lags(world, clock=lambda: world.now)  # type: ignore[arg-type]
        world.stuck = {"tenant-2": 1}
        for _ in range(10):
            world.step()
            lags.look()
        assert lags.arrived == 0
        world.stuck = {}
        world.step()
        lags.look()
        assert lags.worst_s == {"tenant-0": 0.0, "tenant-1": 0.0, "tenant-2": pytest.approx(2.7)}
        assert world.worst_lag_s is lags.worst_s
        assert lags.arrived == 11

    def test_a_destination_that_nobody_speaks_of_is_late(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        lags = Lags(world, bound_s=1.0, clock=lambda: world.now)  # type: ignore[arg-type]
        monkeypatch.setattr(world.fleet, "destinations", lambda: world.statuses()[:2])
        world.step()
        lags.look()
        world.now += 2.0
        with pytest.raises(AssertionError, match="tenant-2 starves"):
            lags.look()


class Applier:
    """Stands for a member of the fleet."""

    def __init__(self, world: World, number: int) -> None:
        self.name, self.pid, self.held, self._world = f"applier-{number}", 100 + number, False, world
        self.ready_at = world.now

    def is_ready(self) -> bool:
        return self._world.now >= self.ready_at

    def send(self, number: int) -> None:
        behind = [each["known_through"] for each in self._world.statuses() if each["known_through"] < self._world.head]
        self._world.signals.append((self.name, behind))


class TestZombie:
    @pytest.fixture
    def frozen(self, world: World, monkeypatch: pytest.MonkeyPatch) -> Applier:
        frozen = Applier(world, 1)
        world.fleet.appliers = [frozen, Applier(world, 2)]
        monkeypatch.setattr(processes, "pass_point", lambda *_: Passed(101, "tenant-1"))
        return frozen

    def test_wakes_up_after_others_have_gone_on(self, world: World, frozen: Applier) -> None:
        assert processes.frozen_at(world, Point.AFTER_FENCE) == set()  # type: ignore[arg-type]
        assert world.signals == [("applier-1", [])]

    def test_is_not_woken_where_nobody_takes_over(self, world: World, frozen: Applier) -> None:
        world.stuck = {"tenant-0": 1}
        with pytest.raises(TimeoutError, match="tenant-0"):
            processes.frozen_at(world, Point.AFTER_FENCE)  # type: ignore[arg-type]
        assert world.signals == []

    def test_only_the_tenant_whose_catalog_it_holds_may_wait(self, world: World, frozen: Applier) -> None:
        world.stuck = {"tenant-0": 1}
        world.held = {"tenant-0"}
        with pytest.raises(TimeoutError):  # at the end everybody is at the head
            processes.frozen_at(world, Point.DURING_COMMIT)  # type: ignore[arg-type]
        assert world.signals == [("applier-1", [1])]

    def test_who_has_not_begun_to_commit_must_not_hold_its_catalog(self, world: World, frozen: Applier) -> None:
        world.held = {"tenant-1"}
        with pytest.raises(AssertionError, match="tenant-1 stands at before-commit"):
            processes.frozen_at(world, Point.BEFORE_COMMIT)  # type: ignore[arg-type]

    def test_that_died_meanwhile_is_none(self, world: World, frozen: Applier, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(processes, "pass_point", lambda *_: Passed(101, "tenant-1"))
        monkeypatch.setattr(type(frozen), "pid", property(lambda _: next(pids), lambda *_: None), raising=False)
        pids = itertools.chain([101], itertools.repeat(None))
        with pytest.raises(AssertionError, match="no zombie"):
            processes.frozen_at(world, Point.AFTER_FENCE)  # type: ignore[arg-type]


class TestEvolve:
    @pytest.fixture
    def said(self, world: World, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        """What the owner does, and what meets it, in turn."""
        said: list[str] = []

        def alter(*, nested: bool) -> Transaction:
            said.append("alters" if nested else "alters flat")
            return Transaction((DropColumn("v"), Truncate()))

        def met(name: str) -> Any:
            def play(rig: FaultRig, *given: Any, act: Any = None) -> None:
                said.append(" ".join([name, *(each for each in given if isinstance(each, Point))]))
                for _ in range(2):
                    (act or given[-1])()

            return play

        monkeypatch.setattr(world, "alter", alter, raising=False)
        monkeypatch.setattr(world, "flatten", lambda: said.append("flattens"), raising=False)
        monkeypatch.setattr(world, "step", lambda: said.append("writes"))
        for name in ("pass_point", "commit_unheard", "frozen_at"):
            monkeypatch.setattr(evolve, name, met(name))
        monkeypatch.setattr(evolve, "unheard", lambda _: Counter())
        return said

    def test_every_trouble_meets_other_columns_first(self, world: World, said: list[str]) -> None:
        done = evolve.altered_under_faults(world, 27)  # type: ignore[arg-type]
        killed = [each for each in said if each.startswith("pass_point")]
        assert killed == [f"pass_point {point}" for point in Point]
        kinds = Counter(each.partition(" ")[0] for each in said)
        assert (kinds["commit_unheard"], kinds["frozen_at"]) == (9, 9)
        after = [said[n + 1] for n, each in enumerate(said) if each.startswith(("pass", "commit", "frozen"))]
        assert set(after) == {"alters", "alters flat"}
        assert (done["transactions that alter with rows"], done["DropColumn"]) == (27, 27)
        assert said[-1] == "flattens"

    def test_a_batch_is_met_where_no_column_has_fields(self, world: World, said: list[str]) -> None:
        evolve.altered_under_faults(world, 13)  # type: ignore[arg-type]
        at = said.index(f"pass_point {Point.WITHIN_BATCH}")
        assert said[at - 1 : at + 3] == ["flattens", said[at], "alters flat", "writes"]


STARTS_WITHIN_S = 15.0
"""On a machine so busy that several are still starting when one is to go."""


class TestScale:
    @pytest.fixture
    def appliers(self, world: World) -> list[Applier]:
        made = world.fleet.appliers = [Applier(world, 1), Applier(world, 2)]
        numbers = itertools.count(3)

        def start() -> None:
            made.append(Applier(world, next(numbers)))
            made[-1].ready_at += STARTS_WITHIN_S

        def dismiss(member: Applier) -> None:
            member.held = True
            assert any(each.is_ready() for each in made if not each.held), "nobody is left who is ready"

        world.fleet.add_applier, world.fleet.dismiss = start, dismiss
        world.fleet.forget_ended = lambda: None
        return made

    def test_goes_on_for_as_long_as_it_is_told(self, world: World, appliers: list[Applier]) -> None:
        done = processes.coming_and_going(world, 120)  # type: ignore[arg-type]
        assert 120 <= world.now < 180
        assert done["times 1 appliers"] >= 3
        assert done["times 4 appliers"] >= 3
        assert done["joined"] > done["times 4 appliers"]

    def test_finds_who_starves_while_the_others_go_on(self, world: World, appliers: list[Applier]) -> None:
        world.stuck = {"tenant-2": 1}
        with pytest.raises(AssertionError, match="tenant-2 starves: at snapshot 1 for 6"):
            processes.coming_and_going(world, 120)  # type: ignore[arg-type]
        assert world.worst_lag_s["tenant-2"] > 60


@pytest.mark.parametrize("fault", [broker.wiped, broker.killed_and_restarted])
def test_a_service_that_was_started_again_has_not_healed_by_itself(
    fault: Any, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert fault(world, 2).total() == 2
    dies = itertools.count(1)
    monkeypatch.setattr(world, "wait_until_exact", lambda: world.started.update(control=next(dies)))
    with pytest.raises(AssertionError, match="control ended"):
        fault(world, 2)


def test_an_error_without_a_hint_is_a_finding(world: World) -> None:
    world.error = {"type": "catalog", "message": "it is locked", "hint": "look who holds the lock"}
    assert catalogs._hints(world) == len(IDS)  # type: ignore[arg-type]
    world.error = {**world.error, "hint": ""}
    with pytest.raises(AssertionError, match="don't say why"):
        catalogs._hints(world)  # type: ignore[arg-type]


def test_a_disk_that_can_not_be_filled_is_told(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogs, "_why_no_small_disk", lambda: "only root may mount a small disk")
    for name in ("_restarted", "_killed", "_cut", "_silent", "_locked", "_unwritable"):
        monkeypatch.setattr(catalogs, name, _named(name))
    done = catalogs.postgres_in_trouble(world, 7)  # type: ignore[arg-type]
    assert done["full not played: only root may mount a small disk"] == 1
    assert done.total() == 7


def _named(name: str) -> Any:
    def played(_: FaultRig) -> int:
        return 0

    played.__name__ = name
    return played


def test_every_trouble_of_the_network_meets_every_server(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy = SimpleNamespace(heal=lambda: None)
    world.servers.kafka.proxy = world.proxy = world.source_proxy = world.registry_proxy = proxy  # type: ignore[attr-defined]
    names = [name for name, _ in network.TROUBLES]
    monkeypatch.setattr(network, "TROUBLES", [(name, lambda *_: None) for name in names])
    brief = network.disturbed(world, len(names))  # type: ignore[arg-type]
    assert {kind.partition(" ")[2] for kind in brief} == set(names)
    assert {kind.partition(" ")[0] for kind in brief} == {"kafka", "postgres", "source", "registry"}
    assert len(network.disturbed(world, 4 * len(names))) == 4 * len(names)  # type: ignore[arg-type]


class TestFleet:
    def test_what_is_not_ready_says_why_and_what_nobody_starts_again_is_not_waited_for(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A run ended because not all services were ready, and did not tell which."""
        monkeypatch.setattr("tests.torture.fleet.free_port", lambda: 8001)
        fleet = Fleet([tmp_path / "viaduck.yaml"], tmp_path, 8000, {})
        said = {"reader": ["source: not seen yet"], "applier-2": list[str]()}
        monkeypatch.setattr(Member, "is_ready", lambda member: member.name in ("applier-1", "control"))
        monkeypatch.setattr(Member, "problems", lambda member: said[member.name])
        assert fleet.complaints() == "reader: ['source: not seen yet']; applier-2: does not answer"
        fleet.members["reader"].held = fleet.members["applier-2"].held = True
        assert fleet.complaints() == "all are now"


class TestVerdict:
    """Whatever happens, there is one, and it says how to do it again."""

    @pytest.fixture(autouse=True)
    def no_servers(self, monkeypatch: pytest.MonkeyPatch) -> None:
        @contextmanager
        def none(_: Fault) -> Iterator[None]:
            yield None

        monkeypatch.setattr(verdicts, "_servers", none)

    def played(self, play: Any, folder: Path) -> verdicts.Verdict:
        return verdicts.tortured(Fault("kill", "", play, 1, 1), 3, 7, folder, append_only=True)

    def test_of_a_rig_that_does_not_start(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def rig(*_: object, **__: object) -> None:
            raise psycopg.OperationalError("no route")

        monkeypatch.setattr(verdicts, "FaultRig", rig)
        found = self.played(lambda *_: Counter(), tmp_path)
        assert found.findings == ["the site: OperationalError: no route"]
        assert found.record()["wrong"] == 1
        assert found.again() == "python -m tests.torture --fault kill --count 3 --seed 7 --append-only"
        assert "no route" in (tmp_path / "errors.log").read_text()

    def test_of_a_play_and_an_oracle_that_end_with_an_error(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Poor:
            healed_s, worst_lag_s = [1.0], {"tenant-0": 2.25}
            site = SimpleNamespace(source=SimpleNamespace(head=lambda: 9), compared=Counter({"tenant-0": 4}))
            clicks = SimpleNamespace(compared=3)

            def __init__(self, *_: object, **__: object) -> None: ...
            def __enter__(self) -> Any:
                return self

            def __exit__(self, *_: object) -> None: ...
            def findings(self, **_: object) -> list[str]:
                raise psycopg.OperationalError("gone")

        def play(*_: object) -> None:
            raise ValueError("a mistake of ours")

        monkeypatch.setattr(verdicts, "FaultRig", Poor)
        monkeypatch.setattr(verdicts, "_unexplained", lambda *_: [])
        found = self.played(play, tmp_path)
        assert found.findings == ["the play: ValueError: a mistake of ours", "the oracle: OperationalError: gone"]
        assert found.record()["source_snapshots"] == 9
        assert found.record()["worst_lag_s"] == {"tenant-0": 2.2}
        assert not found.passed


class TestTable:
    OLD: ClassVar[table.Record] = {
        "at": None, "commit": None, "fault": "kill", "count": 5, "seed": 1, "append_only": False,
        "done": {"before-commit": 5, "lives, the most": 7}, "source_snapshots": 10, "destination_snapshots": 20,
        "healed_s_max": 15.2, "seconds": None, "wrong": 0,
    }  # fmt: skip
    NEW: ClassVar[table.Record] = {
        "at": "2026-11-20T10:00:00+00:00", "commit": "abc1234", "fault": "kill", "count": 6, "seed": 2,
        "append_only": False, "done": {"before-commit": 6, "lives, the most": 3}, "source_snapshots": 11,
        "compared_snapshots": 30, "healed_s_max": 4.0, "worst_lag_s": {"tenant-0": 3.4, "tenant-1": 12.0},
        "seconds": 600, "wrong": 1,
    }  # fmt: skip

    def row(self, *records: table.Record) -> list[str]:
        (line,) = [line for line in table.made(records).splitlines() if line.startswith("| `")]
        return [cell.strip() for cell in line.strip("|").split("|")]

    def test_sums_what_is_kept_of_a_fault(self) -> None:
        later = {**self.NEW, "at": "2026-11-22T10:00:00+00:00", "seed": 3, "healed_s_max": 9.0}
        assert self.row(self.NEW, later)[1:] == [
            "12 before-commit, 3 lives, the most", "22", "60", "**2**", "9 s", "12 s", "20", "2026-11-20 to 2026-11-22",
            "abc1234",
        ]  # fmt: skip

    def test_tells_what_is_not_known(self) -> None:
        assert self.row(self.OLD, self.NEW)[1:] == [
            "11 before-commit, 7 lives, the most", "21", "~50", "**1**", "15 s", "12 s", "–", "2026-11-20", "abc1234"
        ]  # fmt: skip
        assert self.row(self.OLD)[5:] == ["15 s", "–", "–", "–", "–"]

    def test_tells_every_command_and_keeps_kinds_of_pipelines_apart(self) -> None:
        told = table.made([self.OLD, {**self.NEW, "append_only": True}])
        assert told.count("\n| `kill`") == 2
        assert "python -m tests.torture --fault kill --count 5 --seed 1\n" in told
        assert "python -m tests.torture --fault kill --count 6 --seed 2 --append-only\n" in told

    def test_the_rest_of_the_page_stays(self) -> None:
        page = f"before\n{table.BEGIN}old{table.END}\nafter\n"
        assert table.put_into(page, "new\n") == f"before\n{table.BEGIN}new\n{table.END}\nafter\n"


MODELS: dict[str, type[Message]] = {"destinations": Destination, "work": WorkItem, "pipelines": PipelineDocument}


class TestForgeries:
    @pytest.mark.parametrize("forgery", FORGERIES.values(), ids=FORGERIES)
    def test_would_do_harm_if_they_were_believed_and_are_not(self, forgery: Sign) -> None:
        topics = Topics("t")
        for topic, (key, value) in harmful(topics, "tenant-0").items():
            headers = dict(forgery(topic, key.encode(), value))
            said = headers.get(SIGNATURE_HEADER)
            assert SIGNING.distrust(topic, key.encode(), value, said.decode() if isinstance(said, bytes) else None)
        for topic, model in MODELS.items():
            assert model.from_bytes(harmful(Topics("t"), "tenant-0")[f"t.{topic}"][1])


def test_a_process_that_aborts_is_a_finding_once_though_another_has_begun(tmp_path: Path) -> None:
    log, aborts = tmp_path / "reader.log", Aborts(tmp_path)
    log.write_text("listening\nrd_kafka_enq_once_del_source_return: Assertion `eonce' failed.\n")
    assert aborts.new() == []
    with log.open("a") as more:
        more.write("terminate called after throwing an instance of 'X'\n  what():  no more\nlistening\n")
    told = "a process of reader has aborted: terminate called after throwing an instance of 'X' what():  no more"
    assert aborts.new() == [told]
    assert aborts.new() == []
