"""How a server is started: as a container where an engine answers, as a local process where none does.

``VIADUCK_TEST_SERVERS=local`` or ``=containers`` decides it by hand. Whoever needs a server asks for it by its class
and never learns which way was taken: both put it on 127.0.0.1, on the same ports, with the same files.
"""

from __future__ import annotations

import os
import socket
from enum import StrEnum
from functools import cache
from urllib.parse import urlsplit

VARIABLE = "VIADUCK_TEST_SERVERS"
ANSWER_WITHIN_S = 5
API_VERSION = "1.41"


class Way(StrEnum):
    LOCAL = "local"
    CONTAINERS = "containers"


@cache
def way() -> Way:
    """The one choice of the whole run."""
    told = os.environ.get(VARIABLE)
    if told is not None:
        return Way(told)
    return Way.CONTAINERS if _engine_answers() else Way.LOCAL


def _engine_answers() -> bool:
    from docker import DockerClient
    from docker.constants import DEFAULT_UNIX_SOCKET
    from docker.errors import DockerException
    from docker.utils import kwargs_from_env

    told = kwargs_from_env()
    if not _listens(told.get("base_url", DEFAULT_UNIX_SOCKET)):
        return False
    client = DockerClient(version=API_VERSION, timeout=ANSWER_WITHIN_S, **told)
    try:
        return bool(client.ping())
    except (DockerException, OSError):
        return False
    finally:
        client.close()


def _listens(url: str) -> bool:
    """Docker's own client leaks its socket where nobody listens."""
    parts = urlsplit(url.replace("http+unix://", "unix://"))
    unix = parts.scheme == "unix"
    with socket.socket(socket.AF_UNIX if unix else socket.AF_INET) as probe:
        probe.settimeout(ANSWER_WITHIN_S)
        address = parts.path if unix else (parts.hostname or "127.0.0.1", parts.port or 2375)
        return probe.connect_ex(address) == 0
