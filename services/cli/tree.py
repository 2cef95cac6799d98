"""The processes of ``viaduck up``, what each is told through its environment, and what a new file changes."""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import structlog

from services.cli.ports import free_port
from services.cli.supervise import Spec, Supervisor
from shared.config.model import Config
from shared.http import OWN_PORT, PEERS
from shared.kafka.settings import BOOTSTRAP

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
        return cls(free_port(), free_port(), config.server.port or free_port(config.server.host))

    @property
    def peers(self) -> str:
        return f"{READER}=http://127.0.0.1:{self.reader},{APPLIER}=http://127.0.0.1:{self.applier}"


class EmbeddedBroker:
    """The broker's process; each start of it has another address, which it leaves in a file."""

    def __init__(self, state_dir: Path) -> None:
        self._file = state_dir / "broker.address"

    def spec(self) -> Spec:
        return Spec(
            BROKER,
            (sys.executable, "-m", "shared.kafka.embedded", str(self._file)),
            before_start=lambda: self._file.unlink(missing_ok=True),
            ready=self._file.exists,
        )

    def address(self) -> str:
        return self._file.read_text()


def processes(config: Config, ports: Ports) -> list[Spec]:
    """What to run for a file: the three services, after a broker if none is configured."""
    broker = EmbeddedBroker(config.state_dir) if config.kafka.bootstrap_servers is None else None
    own_ports = {READER: ports.reader, APPLIER: ports.applier, CONTROL: ports.control}
    services = [_service(name, config.path, ports.peers, port, broker) for name, port in own_ports.items()]
    return [broker.spec(), *services] if broker is not None else services


def _service(name: str, file: Path, peers: str, port: int, broker: EmbeddedBroker | None) -> Spec:
    def environ() -> Mapping[str, str]:
        told = {PEERS: peers, OWN_PORT: str(port)}
        return told if broker is None else {**told, BOOTSTRAP: broker.address()}

    command = (sys.executable, "-m", "services.cli.main", name, "-c", str(file))
    return Spec(name, command, environ, needs=() if broker is None else (BROKER,))


FIXED = ("state_dir", "server", "kafka")
"""Sections that decide what ``viaduck up`` itself has and where; a running one can't take others."""


def take_over(supervisor: Supervisor, old: Config, new: Config) -> Config:
    """Bring a file that changed to the services. Returns the configuration that is in force now."""
    fixed = [name for name in FIXED if getattr(old, name) != getattr(new, name)]
    if fixed:
        log.error("not taken over; stop `viaduck up` and start it again for this", changed=fixed)
        return old
    if new.model_copy(update={"destinations": old.destinations}) == old:
        for name in SERVICES:
            supervisor[name].send(signal.SIGHUP)
        log.info("destinations read again", count=len(new.destinations))
    else:
        supervisor.restart(*SERVICES)
        log.info("file read again; the services start anew with it")
    return new
