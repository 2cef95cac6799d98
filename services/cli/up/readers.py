"""The readers of several pipelines: a process for each, so that pipelines are isolated from each other."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

import structlog

from services.cli.runtime.ports import free_port, is_free
from services.cli.runtime.run_service import SERVICES
from services.cli.up.fork_server import ForkServer
from services.cli.up.process_specs import InForce, named
from services.cli.up.supervisor import Launch, Spec, Supervisor, start_program
from shared.config.deployment import ACCEPTED, LOOK_AGAIN_S, Deployment, same_but_destinations
from shared.config.model import Config
from shared.contracts.errors import ConfigError, UnreadableMessage
from shared.kafka.follower import Follower
from shared.kafka.pipeline_cache import PipelineCache
from shared.kafka.record import Record
from shared.kafka.renewal import RenewalWatch
from shared.kafka.settings import KafkaSettings
from shared.kafka.topics import Topics
from shared.runtime.checks import SOURCE, source_check
from shared.runtime.http import ServiceServer
from shared.runtime.metrics import merge
from shared.runtime.metrics_access import MetricsAccess
from shared.runtime.own_address import OWN_PORT, listen, own_port, ports_of_peers
from shared.runtime.peers import Peers
from shared.runtime.process import is_supervised
from shared.runtime.signals import Signals

log = structlog.get_logger(__name__)

TICK_S = 0.1
ANSWER_WITHIN_S = 1.0
"""Less than the timeout of a health check."""

END_WITHIN_S = 20.0
STOP_WITHIN_S = 2.0
CLIENT = "viaduck-readers"


def _nothing() -> None:
    return None


def main(deployment: Deployment, signals: Signals) -> int:
    """Keep the readers running until told to stop. Returns the exit code.

    Raises ``DependencyError`` where its own port is taken.
    """
    with ForkServer([SERVICES["reader"]]) as fork_server:
        readers = Readers(deployment, launch=fork_server.launch)
        server = _listening(deployment.common, readers)
        server.start()
        signals.on_end(_nothing)
        try:
            with hearing(deployment) as refresh:
                readers.run(signals, refresh)
        finally:
            server.stop()
            readers.stop()
    return signals.exit_code


@contextmanager
def hearing(deployment: Deployment) -> Iterator[Callable[[], None]]:
    """Follows the pipelines over REST; yields what writes their copies. Under ``viaduck up`` control writes them."""
    if is_supervised():
        yield _nothing
        return
    settings = KafkaSettings.from_config(deployment.common)
    follower = Follower(settings, CLIENT, [Topics(settings.prefix).pipelines], urgent=False)
    copying = PipelineCache(deployment.copies, lambda: follower.level)
    renewal = RenewalWatch(settings, f"{CLIENT}-renewal", lambda: _renew(copying, follower))
    follower.start(lambda record: _note(copying, record))
    renewal.start()
    try:
        yield copying.refresh
    finally:
        renewal.stop()
        follower.stop(STOP_WITHIN_S)


def _renew(copying: PipelineCache, follower: Follower) -> None:
    copying.renewed()
    follower.renew()


def _note(copying: PipelineCache, record: Record) -> None:
    """What can't be read is dead-lettered by the applier, which follows the same topic."""
    try:
        copying.note(record)
    except UnreadableMessage as error:
        log.warning("message_unreadable", topic=record.topic, key=record.key, reason=str(error))


class Readers:
    """One reader for each file. ``run`` on the main thread; the rest from any."""

    def __init__(
        self,
        deployment: Deployment,
        spec: Callable[[InForce, Config, Callable[[], int]], Spec] | None = None,
        launch: Launch = start_program,
    ) -> None:
        """``spec``: the process of a pipeline's reader, from what tells its port at each start."""
        self._in_force = InForce(deployment)
        self._spec = spec or reader_spec
        self._look_at_s = 0.0
        self._ports: dict[str, int] = {}
        self._supervisor = Supervisor([], launch=launch)
        self._peers = Peers({}, within_s=ANSWER_WITHIN_S)
        self._set_out(deployment.names)

    @property
    def supervisor(self) -> Supervisor:
        return self._supervisor

    def run(self, signals: Signals, refresh: Callable[[], None] = _nothing) -> None:
        """Until a signal ends it; SIGHUP reads the files again. ``refresh`` brings the copies up to date."""
        while signals.ended_by is None:
            self._supervisor.tick()
            if signals.take_reload() or self._is_time_to_look():
                self.reload()
            refresh()
            self.look()
            signals.wait(TICK_S)

    def stop(self) -> None:
        self._supervisor.stop(END_WITHIN_S)
        self._peers.close()

    def reload(self) -> None:
        """Take over the files as they are now: new ones get a reader, changed ones another, gone ones lose theirs."""
        try:
            new = self._in_force.deployment.again()
        except ConfigError as error:
            if error.mistakes != self._in_force.deployment.left_out:
                log.error("files_refused", mistakes=list(error.mistakes))
            return
        self._take_over(new)

    def look(self) -> None:
        """Take over pipelines that came over REST, changed or went."""
        deployment = self._in_force.deployment
        if deployment.copies_changed():
            self._take_over(deployment.with_copies())

    def _take_over(self, new: Deployment) -> None:
        old, self._in_force.deployment = self._in_force.deployment, new
        for name in old.names:
            if new.find(name) is None:
                log.info("pipeline_removed", pipeline=name)
                self._supervisor.drop(name)
                del self._ports[name]
        for config in new.configs:
            before = old.find(config.pipeline)
            if before is not None and not same_but_destinations(before, config):  # these it gets over the broker
                self._supervisor.restart(config.pipeline)
            elif before is not None:
                self._supervisor[config.pipeline].hurry()
        self._set_out([name for name in new.names if old.find(name) is None])

    def checks(self) -> Mapping[str, str | None]:
        """Each source under its pipeline's name, and each reader that is in trouble."""
        checks: dict[str, str | None] = {}
        answers = self._peers.each()
        for pipeline, found in answers.items():
            if SOURCE in found:
                checks[source_check(pipeline, alone=len(answers) == 1)] = found.pop(SOURCE)
            wrong = [f"{what}: {why}" if what else why for what, why in found.items() if why]
            checks[f"reader of {pipeline}"] = "; ".join(wrong) or None
        return checks

    def exposition(self) -> str:
        """The metrics of all of them."""
        return merge(list(self._peers.metrics().values()))

    def _set_out(self, names: Sequence[str]) -> None:
        for name in names:
            self._ports[name] = self._another_port()
            config = self._in_force.deployment.of(name)
            self._supervisor.add(self._spec(self._in_force, config, partial(self._port_to_start_on, name)))
        self._find_peers()

    def _port_to_start_on(self, name: str) -> int:
        """Its own as long as no other process listens there."""
        if not is_free("127.0.0.1", self._ports[name]):
            self._ports[name] = self._another_port()
            self._find_peers()
        return self._ports[name]

    def _another_port(self) -> int:
        """None of a service that may only be about to listen."""
        common = self._in_force.deployment.common
        services = [common.server.port, own_port(common.reader.port), *ports_of_peers()]
        return free_port(taken=[*services, *self._ports.values()])

    def _find_peers(self) -> None:
        self._peers.point_to({name: f"http://127.0.0.1:{port}" for name, port in self._ports.items()})

    def _is_time_to_look(self) -> bool:
        """Whether to read files again that were left out: a corrected file may be exactly what it was before."""
        if not self._in_force.deployment.left_out or time.monotonic() < self._look_at_s:
            return False
        self._look_at_s = time.monotonic() + LOOK_AGAIN_S
        return True


def reader_spec(in_force: InForce, config: Config, port: Callable[[], int]) -> Spec:
    """A process that reads for one pipeline of the deployment, on ``port`` at each start."""
    command = (
        sys.executable, "-m", "services.cli.main", "reader", *named(in_force.deployment), "--pipeline", config.pipeline,
    )  # fmt: skip
    return Spec(config.pipeline, command, lambda: {OWN_PORT: str(port()), ACCEPTED: in_force.deployment.digest})


def _listening(config: Config, readers: Readers) -> ServiceServer:
    listening = listen(config.server.host, own_port(config.reader.port), "reader.port")
    return ServiceServer(listening, readers.exposition, readers.checks, MetricsAccess.of(config))
