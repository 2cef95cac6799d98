"""One ``viaduck up`` for each state folder."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from shared.errors import ConfigError

NAME = "up.lock"


class StateLock:
    """Held from ``with`` to its end, however the process ends; the file tells others who holds it, and where it is."""

    def __init__(self, state_dir: Path) -> None:
        self._file = state_dir / NAME

    def __enter__(self) -> Self:
        """Raises ``ConfigError`` where somebody else holds it or the folder can't be written."""
        try:
            _make_private(self._file.parent)
            self._open = self._file.open("a+")
        except OSError as error:
            raise ConfigError(
                [f"state_dir: can't write {self._file.parent} ({error.strerror}); choose another"]
            ) from None
        try:
            fcntl.flock(self._open, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._open.close()
            raise ConfigError([self._taken()]) from None
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.tell({})
        self._open.close()

    def tell(self, about: dict[str, Any]) -> None:
        self._open.seek(0)
        self._open.truncate()
        self._open.write(json.dumps(about))
        self._open.flush()

    def _taken(self) -> str:
        pid = told(self._file.parent).get("pid", "that is just starting")
        return f"state_dir: `viaduck up` runs on {self._file.parent} already (process {pid}); end it, or choose another"


def _make_private(folder: Path) -> None:
    """Where others share the machine, what is kept there is not theirs to read."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_uid == os.geteuid():
        folder.chmod(0o700)


def told(state_dir: Path) -> dict[str, Any]:
    """What the holder says about itself: ``pid`` and ``url``; empty where nobody does."""
    try:
        found = json.loads((state_dir / NAME).read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
