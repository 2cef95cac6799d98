"""The processes of ``viaduck up``, what each is told through its environment, and what a new file changes."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import structlog

from services.cli.runtime.lock import BROKER_ADDRESS
from services.cli.runtime.ports import free_port
from services.cli.up.supervisor import Spec, Supervisor
from shared.config.deployment import ACCEPTED, COMMON, Deployment, same_but_destinations
from shared.config.model import Config
from shared.kafka.settings import BOOTSTRAP
from shared.kafka.signing import KEY_FILE, is_configured, own_key
from shared.runtime.own_address import OWN_PORT, PEERS

log = structlog.get_logger(__name__)

BROKER, READER, APPLIER, CONTROL = "broker", "reader", "applier", "control"
SERVICES = (READER, APPLIER, CONTROL)


@dataclass(frozen=True)
class Ports:
    """Chosen once, so that a service that starts again is found where it was."""

    reader: int
    applier: int
    control: int

    @classmethod
    def choose(cls, config: Config) -> Ports:
        control = config.server.port or free_port(config.server.host)
        reader = free_port(taken=[control])
        return cls(reader, free_port(taken=[control, reader]), control)

    @property
    def peers(self) -> str:
        return f"{READER}=http://127.0.0.1:{self.reader},{APPLIER}=http://127.0.0.1:{self.applier}"


class BrokerProcess:
    """The broker's process; each start of it has another address, which it leaves in a file."""

    def __init__(self, state_dir: Path) -> None:
        self._file = state_dir / BROKER_ADDRESS

    def spec(self) -> Spec:
        return Spec(
            BROKER,
            (sys.executable, "-m", "shared.kafka.embedded", str(self._file)),
            before_start=lambda: self._file.unlink(missing_ok=True),
            ready=self._file.exists,
        )

    def address(self) -> str:
        return self._file.read_text()


@dataclass
class InForce:
    """The deployment that the processes run on now."""

    deployment: Deployment


def processes(in_force: InForce, ports: Ports) -> list[Spec]:
    """What to run: the three services, after a broker if none is configured."""
    config = in_force.deployment.common
    broker = BrokerProcess(config.state_dir) if config.kafka.bootstrap_servers is None else None
    own_ports = {READER: ports.reader, APPLIER: ports.applier, CONTROL: ports.control}
    told = {PEERS: ports.peers, **_signing(config)}
    services = [_service(name, in_force, told, port, broker) for name, port in own_ports.items()]
    return [broker.spec(), *services] if broker is not None else services


def named(deployment: Deployment) -> list[str]:
    """The deployment's files on a command line. As folders where they are: another file may come into one."""
    return [word for place in deployment.places for word in ("-c", os.path.abspath(place))]  # noqa: PTH100 - links stay


def _signing(config: Config) -> Mapping[str, str]:
    """Where the services find the key that we made, if the file names none."""
    return {} if is_configured(config.kafka) else {KEY_FILE: str(own_key(config.state_dir))}


def _service(name: str, in_force: InForce, common: Mapping[str, str], port: int, broker: BrokerProcess | None) -> Spec:
    def environ() -> Mapping[str, str]:
        told = {**common, OWN_PORT: str(port), ACCEPTED: in_force.deployment.digest}
        return told if broker is None else {**told, BOOTSTRAP: broker.address()}

    command = (sys.executable, "-m", "services.cli.main", name, *named(in_force.deployment))
    return Spec(name, command, environ, needs=() if broker is None else (BROKER,))


FIXED = ("state_dir", "server", "kafka")
"""Sections that decide what ``viaduck up`` itself has and where; a running one can't take others."""


def take_over(supervisor: Supervisor, in_force: InForce, new: Deployment) -> None:
    """Bring files that changed to the services, unless they say what a running command can't change.

    Destinations, new pipelines and those whose file went are a matter of reading again; so is everything for the reader
    of several pipelines, which starts and ends the readers itself. What came over REST the services see for themselves.
    """
    old = in_force.deployment
    fixed = [name for name in FIXED if getattr(old.common, name) != getattr(new.common, name)]
    if fixed:
        log.error("files_need_restart", changed=fixed)
        return
    in_force.deployment = new
    changed = [config.pipeline for config in new.declared if not _is_same(old.find(config.pipeline), config)]
    anew = changed or _common(old) != _common(new)
    reader_anew = old.reads_alone and (anew or not new.reads_alone)
    restarted = [name for name in SERVICES if (reader_anew if name == READER else anew)]
    supervisor.restart(*restarted)
    for name in SERVICES:
        if name not in restarted:
            supervisor[name].send(signal.SIGHUP)
    log.info("files_reloaded", start_anew=restarted, pipelines=len(new.configs),
             destinations=sum(len(config.destinations) for config in new.configs))  # fmt: skip


def take_copies(supervisor: Supervisor, in_force: InForce) -> None:
    """Note what came or went over REST. The services see it for themselves, but for a reader that is the only one."""
    old = in_force.deployment
    new = in_force.deployment = old.with_copies()
    if old.reads_alone and not new.reads_alone:
        supervisor.restart(READER)


def _is_same(old: Config | None, new: Config) -> bool:
    """Whether a pipeline is new, or the same but for its destinations."""
    return old is None or same_but_destinations(old, new)


def _common(deployment: Deployment) -> list[object]:
    return [getattr(deployment.common, name) for name in COMMON]
