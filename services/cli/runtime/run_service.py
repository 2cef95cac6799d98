"""Starts what a command asks for: loads the file, imports the code only then, and turns signals into exit codes."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import structlog

from shared.config.deployment import ACCEPTED, Deployment, load_all
from shared.config.model import Config
from shared.contracts.errors import ConfigError, DependencyError, ViaduckError
from shared.runtime import log as logging
from shared.runtime.full_disk import full_disk
from shared.runtime.garbage import importing, spare_what_exists
from shared.runtime.own_address import own_port
from shared.runtime.process import die_with_parent, is_supervised
from shared.runtime.signals import Signals

log = structlog.get_logger(__name__)

SERVICES = {name: f"services.{name}.service" for name in ("reader", "applier", "control")}
READERS = "services.cli.up.readers"


def call(module: str, *arguments: Any, **named: Any) -> int:
    """The exit code of ``module``'s main. Commands of others are imported late: `--help` has no need of Spark."""
    return _main_of(module)(*arguments, **named)


def _main_of(module: str) -> Callable[..., int]:
    with importing():
        main: Callable[..., int] = importlib.import_module(module).main
    return main


def run_service(name: str, places: Sequence[Path], pipeline: str | None = None) -> int:
    """Run one service until it is told to stop; a reader for one ``pipeline``, or for each of them one."""
    with Signals(at_once=True) as signals:
        return _run_service(name, places, pipeline, signals)


def _run_service(name: str, places: Sequence[Path], pipeline: str | None, signals: Signals) -> int:
    logging.configure(name if pipeline is None else f"{name} of {pipeline}")
    if is_supervised():
        die_with_parent()
    deployment = load_all(places, accepted=os.environ.get(ACCEPTED))
    if deployment.left_out:
        log.error("files_left_out", mistakes=list(deployment.left_out))
    for withheld, mistakes in deployment.withheld.items():
        log.error("pipeline_refused", pipeline=withheld, mistakes=list(mistakes))
    if name == "reader" and (pipeline is not None or deployment.reads_alone):
        code = _run(SERVICES[name], deployment.of(pipeline), signals)
    elif name == "reader":
        code = _run(READERS, deployment, signals)
    else:
        code = _run(SERVICES[name], deployment.each(_with_own_port) if name == "control" else deployment, signals)
    return code or signals.exit_code


def _run(module: str, given: Config | Deployment, signals: Signals) -> int:
    try:
        main = _main_of(module)
        spare_what_exists()
        return main(given, signals)
    except (ConfigError, DependencyError, ViaduckError):
        raise
    except OSError as error:
        if (full := full_disk(error)) is None:
            log.exception("service_crashed")
            return 1
        raise full from None
    except Exception:
        log.exception("service_crashed")  # not by Python itself: what it prints is not scrubbed
        return 1


def _with_own_port(config: Config) -> Config:
    """Control listens on the file's port, except where ``viaduck up`` had to choose one (``server.port: 0``)."""
    port = own_port(config.server.port)
    return config.model_copy(update={"server": config.server.model_copy(update={"port": port})})


def load_for(places: Sequence[Path], service: str = "cli") -> Deployment:
    """The files, for a command that ends by itself."""
    logging.configure(service)
    return load_all(places)
