from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from services.cli.runtime import ports
from services.cli.up.process_specs import SERVICES, InForce, Ports, processes, take_copies, take_over
from services.cli.up.supervisor import Spec, Supervisor
from shared.config.deployment import Deployment, load_all
from shared.config.model import Config, FileDestination, Kafka, Poll, Routing, Server, Source
from tests.fast.shared.config.test_deployment import document, write
from tests.fast.waiting import eventually

NOTING = """
import os, pathlib, signal, sys, time
notes = pathlib.Path(sys.argv[1])
def note(word):
    with notes.open("a") as file: file.write(word)
signal.signal(signal.SIGHUP, lambda *_: note("H"))
signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
note("S")
while True: time.sleep(600)
"""


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config(
        path=tmp_path / "viaduck.yaml",
        pipeline="events",
        source=Source(table="events"),
        routing=Routing(field="company"),
        state_dir=tmp_path / "state",
    )


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[Supervisor]:
    supervisor = Supervisor(
        [Spec(name, (sys.executable, "-S", "-c", NOTING, str(tmp_path / name))) for name in SERVICES]
    )
    supervisor.tick()
    eventually(lambda: notes(tmp_path) == {"S"})
    yield supervisor
    supervisor.stop(5)


def alone(config: Config) -> Deployment:
    return Deployment((config.path,), (config,))


def taken_over(supervisor: Supervisor, old: Deployment, new: Deployment) -> Deployment:
    """What is in force after ``new`` was offered."""
    in_force = InForce(old)
    take_over(supervisor, in_force, new)
    return in_force.deployment


def notes(folder: Path) -> set[str]:
    return {note(folder, name) for name in SERVICES}


def note(folder: Path, name: str) -> str:
    return (folder / name).read_text() if (folder / name).exists() else ""


def soon(supervisor: Supervisor, holds: Callable[[], object]) -> None:
    def tick() -> object:
        supervisor.tick()
        return holds()

    eventually(tick)


def test_no_service_is_given_the_port_that_control_is_about_to_listen_on(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control takes seconds to begin."""
    few = range(15_000, 15_003)
    monkeypatch.setattr(ports, "BELOW_EPHEMERAL", few)
    monkeypatch.setattr(ports, "_bind", lambda *_: None)
    for _ in range(20):
        chosen = Ports.choose(config.model_copy(update={"server": Server(port=few[0])}))
        assert {chosen.reader, chosen.applier} == {few[1], few[2]}


def test_other_destinations_are_told_and_nothing_is_restarted(
    supervisor: Supervisor, config: Config, tmp_path: Path
) -> None:
    added = FileDestination(id="d", routing_value="v", catalog="sqlite:d.sqlite", table="events")
    new = config.model_copy(update={"destinations": (added,)})
    assert taken_over(supervisor, alone(config), alone(new)) == alone(new)
    soon(supervisor, lambda: notes(tmp_path) == {"SH"})


def test_any_other_change_starts_the_services_anew(supervisor: Supervisor, config: Config, tmp_path: Path) -> None:
    new = config.model_copy(update={"poll": Poll(interval_seconds=1)})
    assert taken_over(supervisor, alone(config), alone(new)) == alone(new)
    soon(supervisor, lambda: notes(tmp_path) == {"SS"})


def several(folder: Path, *configs: Config) -> Deployment:
    return Deployment((folder,), configs)


def test_a_pipeline_that_comes_or_goes_restarts_nothing(supervisor: Supervisor, config: Config, tmp_path: Path) -> None:
    other, third = (config.model_copy(update={"pipeline": name}) for name in ("other", "third"))
    taken_over(supervisor, several(tmp_path, config, other), several(tmp_path, config, third))
    soon(supervisor, lambda: notes(tmp_path) == {"SH"})


def test_a_pipeline_that_changes_leaves_it_to_the_reader_s_process_which_readers_start_anew(
    supervisor: Supervisor, config: Config, tmp_path: Path
) -> None:
    other = config.model_copy(update={"pipeline": "other"})
    changed = other.model_copy(update={"poll": Poll(interval_seconds=1)})
    taken_over(supervisor, several(tmp_path, config, other), several(tmp_path, config, changed))
    soon(supervisor, lambda: [note(tmp_path, name) for name in SERVICES] == ["SH", "SS", "SS"])


def over_rest(config: Config, interval_seconds: float = 1.0) -> Config:
    """A pipeline beside ``config`` that was put."""
    path = config.state_dir / "pipelines" / "put.yaml"
    changes = {"pipeline": "put", "path": path, "poll": Poll(interval_seconds=interval_seconds)}
    return config.model_copy(update=changes)


def test_what_came_over_rest_and_changed_there_is_no_matter_of_the_files(
    supervisor: Supervisor, config: Config, tmp_path: Path
) -> None:
    old, new = (several(tmp_path, config, over_rest(config, each)) for each in (1.0, 2.0))
    taken_over(supervisor, old, new)
    soon(supervisor, lambda: notes(tmp_path) == {"SH"})


def test_the_reader_of_one_file_alone_makes_room_when_a_pipeline_is_put(supervisor: Supervisor, tmp_path: Path) -> None:
    deployment = load_all([write(tmp_path, "a.yaml")], {})
    in_force = InForce(deployment)
    for version in (1, 2):
        deployment.copies.write("put", document("put"), version)
        take_copies(supervisor, in_force)
        assert in_force.deployment.names == ("a", "put")
        soon(supervisor, lambda: [note(tmp_path, name) for name in SERVICES] == ["SS", "S", "S"])


def test_what_a_running_command_can_not_change_is_not_taken_over(
    supervisor: Supervisor, config: Config, tmp_path: Path
) -> None:
    new = config.model_copy(update={"server": Server(port=8010), "poll": Poll(interval_seconds=1)})
    assert taken_over(supervisor, alone(config), alone(new)) == alone(config)
    supervisor.tick()
    assert notes(tmp_path) == {"S"}


def test_a_broker_is_run_only_where_none_is_configured(config: Config) -> None:
    ports = Ports(1, 2, 3)
    own = config.model_copy(update={"kafka": Kafka(bootstrap_servers="k:9092")})
    assert [spec.name for spec in processes(InForce(alone(config)), ports)] == [
        "broker",
        "reader",
        "applier",
        "control",
    ]
    assert [spec.name for spec in processes(InForce(alone(own)), ports)] == ["reader", "applier", "control"]


def test_services_are_told_the_broker_their_port_and_their_peers(config: Config) -> None:
    config.state_dir.mkdir()
    (config.state_dir / "broker.address").write_text("127.0.0.1:9")
    broker, reader, applier, control = processes(InForce(alone(config)), Ports(1, 2, 3))
    assert broker.ready()
    assert reader.needs == ("broker",)
    assert reader.environ() == {
        "VIADUCK_PEERS": "reader=http://127.0.0.1:1,applier=http://127.0.0.1:2",
        "VIADUCK_HTTP_PORT": "1",
        "VIADUCK_ACCEPTED": alone(config).digest,
        "VIADUCK_BOOTSTRAP": "127.0.0.1:9",
        "VIADUCK_SIGNING_KEY_FILE": str(config.state_dir / "signing.key"),
    }
    assert [spec.environ()["VIADUCK_HTTP_PORT"] for spec in (applier, control)] == ["2", "3"]


def test_the_address_of_an_earlier_broker_is_forgotten_before_a_new_one_starts(config: Config) -> None:
    config.state_dir.mkdir()
    (config.state_dir / "broker.address").write_text("127.0.0.1:9")
    broker = processes(InForce(alone(config)), Ports(1, 2, 3))[0]
    broker.before_start()
    assert not broker.ready()
