"""Finds the control service of a file, and asks it as any script could."""

from __future__ import annotations

import os

from viaduck_client import Client as Control

from services.cli.runtime.lock import told
from shared.config.model import Config

__all__ = ["Control", "base_url", "control_of", "token_of", "url_of"]

TOKEN = "VIADUCK_TOKEN"  # noqa: S105 - the name of a variable
ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "": "127.0.0.1"}  # noqa: S104 - read, not bound


def base_url(config: Config) -> str:
    """Where the control service of this file is; with port 0 only ``viaduck up`` on its state folder can tell."""
    if config.server.port == 0:
        return str(told(config.state_dir).get("url", "http://127.0.0.1:0"))
    return url_of(config.server.host, config.server.port)


def url_of(host: str, port: int) -> str:
    reachable = ANYWHERE.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{reachable}:{port}"


def token_of(config: Config | None) -> str | None:
    """The bearer token, from the variable that the file names, or from ``VIADUCK_TOKEN`` where it names none."""
    named = config.server.token_env if config is not None else None
    return os.environ.get(named or TOKEN)


def control_of(config: Config, timeout_s: float = 30.0, *, keep_alive: bool = True) -> Control:
    return Control(base_url(config), token_of(config), timeout_s, keep_alive=keep_alive)
