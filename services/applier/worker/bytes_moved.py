"""How many bytes this process has moved: read from and written to files, sent and received over TCP.

What waits for a slow store moves bytes and uses next to no CPU; what spins uses CPU and moves none. Only both together
tell whether an apply comes any nearer to its end. Linux tells; elsewhere nothing is known.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import struct
from pathlib import Path

FILES, DESCRIPTORS = Path("/proc/self/io"), Path("/proc/self/fd")
SOCKET = re.compile(r"socket:\[(\d+)\]")

TCP_COUNTS = struct.Struct("=QQ")
TCP_COUNTS_AT = 120
"""Where Linux's ``struct tcp_info`` holds the bytes that the other side has acknowledged, and those received."""

LONGEST = 4096


class BytesMoved:
    """A counter that never falls. Used by one thread."""

    def __init__(self) -> None:
        self._sockets: dict[int, int] = {}
        self._gone = self._own = 0

    def __call__(self) -> int | None:
        """Bytes since some starting point, without those of this call; None if unknown."""
        try:
            files = self._file_bytes()
            self._look_at_sockets()
        except OSError:
            return None
        return files + self._gone + sum(self._sockets.values())

    def _file_bytes(self) -> int:
        text = FILES.read_bytes()
        found = dict(line.split(b": ") for line in text.splitlines())
        moved = int(found[b"rchar"]) + int(found[b"wchar"]) - self._own
        self._own += len(text)  # which the next look finds among what was read
        return moved

    def _look_at_sockets(self) -> None:
        """What each open socket has moved; a closed one's count stays in the sum."""
        now = dict(filter(None, map(_counted, DESCRIPTORS.iterdir())))
        self._gone += sum(moved for inode, moved in self._sockets.items() if inode not in now)
        self._sockets = {inode: max(moved, self._sockets.get(inode, 0)) for inode, moved in now.items()}


def _counted(descriptor: Path) -> tuple[int, int] | None:
    """The inode of a TCP socket, and its bytes; None for other descriptors, and for those closed meanwhile."""
    with contextlib.suppress(OSError):
        found = SOCKET.fullmatch(str(descriptor.readlink()))
        if found is not None:
            with socket.socket(fileno=os.dup(int(descriptor.name))) as ours:
                info = ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_COUNTS_AT + TCP_COUNTS.size)
            return int(found[1]), sum(TCP_COUNTS.unpack_from(info, TCP_COUNTS_AT))
    return None
