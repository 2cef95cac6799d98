"""Starts what a command asks for: loads the file, imports the code only then, and turns signals into exit codes."""

from __future__ import annotations

import importlib
import os
import signal
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import structlog

from shared import log as logging
from shared.config.deployment import ACCEPTED, Deployment, load_all
from shared.config.model import Config
from shared.errors import ConfigError, DependencyError, ViaduckError
from shared.http import own_port
from shared.process import die_with_parent, ignore_hangups, is_supervised

log = structlog.get_logger(__name__)

SERVICES = {name: f"services.{name}.service" for name in ("reader", "applier", "control")}
READERS = "services.cli.readers"
ENDING = (signal.SIGINT, signal.SIGTERM)


def call(module: str, *arguments: Any, **named: Any) -> int:
    """The exit code of ``module``'s main. Commands of others are imported late: `--help` has no need of Spark."""
    main: Callable[..., int] = importlib.import_module(module).main
    return main(*arguments, **named)


def run_service(name: str, places: Sequence[Path], pipeline: str | None = None) -> int:
    """Run one service until it is told to stop; a reader for one ``pipeline``, or for each of them one."""
    ignore_hangups()
    logging.configure(name if pipeline is None else f"{name} of {pipeline}")
    if is_supervised():
        die_with_parent()
    heard = SignalsHeard()
    deployment = load_all(places, accepted=os.environ.get(ACCEPTED))
    if deployment.left_out:
        log.error("files are left out until they are mended", mistakes=list(deployment.left_out))
    for withheld, mistakes in deployment.withheld.items():
        log.error("a pipeline that came over REST can't be used here", pipeline=withheld, mistakes=list(mistakes))
    if name == "reader" and (pipeline is not None or deployment.reads_alone):
        code = _run(SERVICES[name], deployment.of(pipeline))
    elif name == "reader":
        code = _run(READERS, deployment)
    else:
        code = _run(SERVICES[name], deployment.each(_with_own_port) if name == "control" else deployment)
    return code or heard.exit_code()


def _run(module: str, given: Config | Deployment) -> int:
    try:
        return call(module, given)
    except (ConfigError, DependencyError, ViaduckError):
        raise
    except Exception:
        log.exception("unexpected; the service ends")  # not by Python itself: what it prints is not scrubbed
        return 1


def _with_own_port(config: Config) -> Config:
    """Control listens on the file's port, except where ``viaduck up`` had to choose one (``server.port: 0``)."""
    port = own_port(config.server.port)
    return config.model_copy(update={"server": config.server.model_copy(update={"port": port})})


class SignalsHeard:
    """Which signals arrived, whatever handlers a service has: Python writes their numbers to a socket of ours."""

    def __init__(self) -> None:
        self._ours, self._pythons = socket.socketpair()
        self._ours.setblocking(False)
        self._pythons.setblocking(False)
        signal.set_wakeup_fd(self._pythons.fileno(), warn_on_full_buffer=False)

    def exit_code(self) -> int:
        """128 + the first signal that asked for the end; 0 if none did."""
        signal.set_wakeup_fd(-1)
        try:
            numbers = self._ours.recv(4096)
        except BlockingIOError:
            return 0
        return next((128 + number for number in numbers if number in ENDING), 0)


def load_for(places: Sequence[Path], service: str = "cli") -> Deployment:
    """The files, for a command that ends by itself."""
    logging.configure(service)
    return load_all(places)
