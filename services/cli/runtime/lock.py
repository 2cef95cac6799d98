"""One ``viaduck up`` for each state folder."""

from __future__ import annotations

import fcntl
import json
import os
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from shared.contracts.errors import ConfigError, DependencyError
from shared.runtime.full_disk import full_disk

NAME = "up.lock"

BROKER_ADDRESS = "broker.address"
"""The file in which the embedded broker of a ``viaduck up`` leaves where it listens."""


class StateLock:
    """Held from ``with`` to its end, however the process ends; the file tells others who holds it, and where it is."""

    def __init__(self, state_dir: Path) -> None:
        self._file = state_dir / NAME

    def __enter__(self) -> Self:
        """Raises ``ConfigError`` if another process holds it or the folder is not writable, ``DependencyError`` if
        its disk is full."""
        try:
            _make_private(self._file.parent)
            self._open = self._file.open("ab")
        except OSError as error:
            raise refused(error, self._file.parent) from None
        try:
            fcntl.flock(self._open, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._open.close()
            raise ConfigError([self._taken()]) from None
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        with suppress(OSError):  # the next process asks the lock, not the text
            self._file.write_text(json.dumps({}))
        self._open.close()

    def tell(self, about: dict[str, Any]) -> None:
        """Raises ``DependencyError`` where the disk is full."""
        try:
            self._file.write_text(json.dumps(about))
        except OSError as error:
            raise refused(error, self._file.parent) from None

    def _taken(self) -> str:
        pid = told(self._file.parent).get("pid", "that is starting")
        return (
            f"state_dir: `viaduck up` runs on {self._file.parent} already (process {pid}); stop it, or choose another"
        )


def refused(error: OSError, folder: Path) -> ConfigError | DependencyError:
    """What it means that nothing can be kept in the ``state_dir``."""
    why = error.strerror or str(error)
    full = full_disk(OSError(error.errno, why), f"state_dir {folder}")
    return full or ConfigError([f"state_dir: can't write {folder} ({why}); choose another"])


def _make_private(folder: Path) -> None:
    """Where others share the machine, what is kept there is not theirs to read."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_uid == os.geteuid():
        folder.chmod(0o700)


def told(state_dir: Path) -> dict[str, Any]:
    """What the holder wrote: ``pid`` and ``url``; empty without a holder."""
    try:
        found = json.loads((state_dir / NAME).read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def broker_address(state_dir: Path) -> str | None:
    """Where the embedded broker of the holder listens; None without a holder, or where it has no such broker."""
    if not told(state_dir):
        return None
    try:
        return (state_dir / BROKER_ADDRESS).read_text()
    except OSError:
        return None
