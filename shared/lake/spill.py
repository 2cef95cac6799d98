"""Where DuckDB puts what does not fit into memory: a folder for each instance, in a private one of this process.

DuckDB does not guard its temporary files: two instances that share a folder read each other's. It makes an instance's
folder when it first needs it and takes it away with the instance; what a process that was killed leaves behind, the
next one sweeps.
"""

from __future__ import annotations

import atexit
import fcntl
import itertools
import os
import shutil
import tempfile
import threading
import time
from pathlib import Path

PREFIX, LOCK = "viaduck-spill-", "in-use"
UNLOCKED_FOR_S = 60.0
"""A folder without a lock may be one that is just being made."""

_guard = threading.Lock()
_numbers = itertools.count(1)
_root: tuple[int, Path] | None = None


def folder() -> Path:
    """The name of a folder that no other instance has, on this machine. It is not there yet."""
    return root() / str(next(_numbers))


def root() -> Path:
    """This process's own folder, which nobody but its user can look into. A fork gets one of its own."""
    global _root
    with _guard:
        if _root is None or _root[0] != os.getpid():
            base = Path(tempfile.gettempdir())
            sweep(base)
            _root = os.getpid(), _made(base)
        return _root[1]


def sweep(base: Path) -> None:
    """Remove the folders of processes that are gone: a lock ends with its process, however that ended."""
    for found in base.glob(f"{PREFIX}*"):
        try:
            if found.is_symlink() or found.stat().st_uid != os.getuid() or _is_used(found):
                continue
        except OSError:  # another process was quicker
            continue
        shutil.rmtree(found, ignore_errors=True)


def _made(base: Path) -> Path:
    made = Path(tempfile.mkdtemp(prefix=PREFIX, dir=base)).resolve()
    lock = os.open(made / LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)  # held, and the file open, for as long as this process lives
    atexit.register(_remove, os.getpid(), made)
    return made


def _remove(owner: int, made: Path) -> None:
    if owner == os.getpid():
        shutil.rmtree(made, ignore_errors=True)


def _is_used(found: Path) -> bool:
    try:
        lock = os.open(found / LOCK, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return time.time() - found.stat().st_mtime < UNLOCKED_FOR_S
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False
