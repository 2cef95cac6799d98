"""What a process has read, written, sent and received, and nothing of what it only computed."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from services.applier.worker.bytes_moved import BytesMoved

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="bytes are read from /proc, which only Linux has")


def counted(moved: BytesMoved) -> int:
    found = moved()
    assert found is not None
    return found


ASK_AND_COMPUTE = """
from services.applier.worker.bytes_moved import BytesMoved
moved = BytesMoved()
moved()
before = moved()
assert before is not None
assert sum(range(100_000)) > 0
assert moved() == before
assert moved() == before
"""


def test_to_ask_and_to_compute_moves_nothing() -> None:
    """In a process of its own: pytest's workers report to their parent whenever they like, and that counts."""
    subprocess.run([sys.executable, "-c", ASK_AND_COMPUTE], check=True)


def test_files_count(tmp_path: Path) -> None:
    moved = BytesMoved()
    before = counted(moved)
    (tmp_path / "f").write_bytes(b"x" * 5000)
    written = counted(moved)
    assert 5000 <= written - before < 6000
    assert (tmp_path / "f").read_bytes()
    assert 5000 <= counted(moved) - written < 6000


def test_connections_count_while_they_are_open_and_are_not_forgotten() -> None:
    moved = BytesMoved()
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = socket.create_connection(server.getsockname())
        other, _ = server.accept()
        before = counted(moved)
        client.sendall(b"x" * 3000)
        assert len(other.recv(3000, socket.MSG_WAITALL)) == 3000
        sent = counted(moved)
        assert 3000 <= sent - before <= 6000, "this process has both ends"
        for each in (client, other):
            each.close()
        assert counted(moved) == sent
