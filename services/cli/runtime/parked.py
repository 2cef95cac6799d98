"""Which destinations control says are parked, where a control answers at all."""

from __future__ import annotations

from typing import Any

from viaduck_client import ClientError

from services.cli.runtime.client import control_of
from shared.config.model import Config
from shared.contracts.messages import Problem

TIMEOUT_S = 2.0


def parked(config: Config) -> dict[str, Problem]:
    """Destination → why it is parked. Empty where no control of this pipeline answers."""
    control = control_of(config, TIMEOUT_S)
    try:
        found = control.destinations(config.pipeline)
    except (ClientError, KeyError):  # no control, another program, or control of another pipeline
        return {}
    finally:
        control.close()
    return {status["id"]: _problem(status) for status in found if status["state"] == "parked"}


def _problem(status: dict[str, Any]) -> Problem:
    error = status["error"] or {}
    return Problem(
        type=error.get("type", "parked"),
        message=error.get("message", "control gives no reason"),
        hint=error.get("hint", ""),
        retryable=False,
    )
