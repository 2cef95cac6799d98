"""Processes of services that ended themselves: another one begins, and without this nothing would tell of it."""

from __future__ import annotations

from pathlib import Path

ABORTED = "terminate called"
"""What C++ says where nothing catches an exception. (An assertion of librdkafka, which also aborts, says otherwise.)"""


class Aborts:
    """Of the services whose logs are in a folder, one file each."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._read: dict[Path, int] = {}

    def new(self) -> list[str]:
        """A finding for each since this was asked last: whose log has it, and what the exception says."""
        return [each for file in sorted(self._logs.glob("*.log")) for each in self._new(file)]

    def _new(self, file: Path) -> list[str]:
        read = file.read_bytes()
        lines = read[self._read.get(file, 0) :].decode(errors="replace").splitlines()
        self._read[file] = len(read)
        return [
            f"a process of {file.stem} has aborted: {' '.join(map(str.strip, lines[at : at + 2]))}"
            for at, line in enumerate(lines)
            if line.startswith(ABORTED)
        ]
