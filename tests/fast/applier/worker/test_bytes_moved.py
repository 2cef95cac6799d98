"""What a process has read, written, sent and received, and nothing of what it only computed.

Each in a process of its own: pytest's workers report to their parent whenever they like, and that counts.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="bytes are read from /proc, which only Linux has")

COUNTED = """
from services.applier.worker.bytes_moved import BytesMoved
moved = BytesMoved()

def counted():
    found = moved()
    assert found is not None
    return found

counted()
before = counted()
"""

ASK_AND_COMPUTE = """
assert sum(range(100_000)) > 0
assert counted() == before
assert counted() == before
"""

FILES = """
import pathlib
file = pathlib.Path("f")
file.write_bytes(b"x" * 5000)
written = counted()
assert 5000 <= written - before < 6000, written - before
assert file.read_bytes()
assert 5000 <= counted() - written < 6000
"""

CONNECTIONS = """
import socket
with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
    with server.accept()[0] as other:
        before = counted()
        client.sendall(b"x" * 3000)
        assert len(other.recv(3000, socket.MSG_WAITALL)) == 3000
        sent = counted()
        assert 3000 <= sent - before <= 6000, ("this process has both ends", sent - before)
assert counted() == sent, "a closed connection's bytes are not forgotten"
"""


@pytest.mark.parametrize("steps", [ASK_AND_COMPUTE, FILES, CONNECTIONS], ids=["nothing", "files", "connections"])
def test_what_moves_bytes(steps: str, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", COUNTED + steps], cwd=tmp_path, check=True)
