"""Whether a folder can be written: found out by writing, since its mode tells neither of mounts nor of room."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryFile

ROOM = 256 * 1024
"""Bytes: as many as an empty registry takes, several times."""


def require_writable(folder: Path) -> None:
    """Raises ``OSError`` where ``folder`` can't be written, or made where it is missing. Nothing is left behind."""
    there = folder
    while not there.exists() and there != there.parent:
        there = there.parent
    with TemporaryFile(dir=there) as probe:
        probe.write(b"\0" * ROOM)
        probe.flush()
