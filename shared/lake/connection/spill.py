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

import duckdb

PREFIX, LOCK = "viaduck-spill-", "in-use"
UNLOCKED_FOR_S = 60.0
"""A folder without a lock may be in creation."""

_guard = threading.Lock()
_numbers = itertools.count(1)
_root: tuple[int, Path] | None = None


def folder() -> Path:
    """The name of a folder that no other instance has, on this machine. It is not there yet."""
    return root() / str(next(_numbers))


def has_folder(con: duckdb.DuckDBPyConnection) -> bool:
    """Whether an instance has made its folder."""
    return Path(con.execute("SELECT current_setting('temp_directory')").fetchall()[0][0]).exists()


def root() -> Path:
    """This process's own folder, readable by its user only. A forked process gets its own."""
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
            if found.is_symlink() or found.stat().st_uid != os.getuid() or _is_in_creation(found):
                continue
            _remove_unused(found)
        except OSError:  # another process was quicker
            continue


def _made(base: Path) -> Path:
    """A folder that no sweep removes: its lock is held, and another process did not remove the file before that."""
    while True:
        made = Path(tempfile.mkdtemp(prefix=PREFIX, dir=base)).resolve()
        if _is_locked(made):
            atexit.register(_remove, os.getpid(), made)
            return made


def _is_locked(made: Path) -> bool:
    """Lock a folder. The lock is held, and the file open, for as long as this process lives."""
    try:
        lock = _lock_file(made)
    except FileNotFoundError:
        return False
    fcntl.flock(lock, fcntl.LOCK_EX)
    if _is_there(made, lock):
        return True
    os.close(lock)
    return False


def _is_there(made: Path, lock: int) -> bool:
    try:
        return os.path.samestat((made / LOCK).stat(), os.fstat(lock))
    except FileNotFoundError:
        return False


def _lock_file(folder: Path) -> int:
    return os.open(folder / LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)


def _remove(owner: int, made: Path) -> None:
    if owner == os.getpid():
        shutil.rmtree(made, ignore_errors=True)


def _is_in_creation(found: Path) -> bool:
    return not (found / LOCK).exists() and time.time() - found.stat().st_mtime < UNLOCKED_FOR_S


def _remove_unused(found: Path) -> None:
    """Remove a folder under its lock. A process that is about to lock it waits, and then makes another one."""
    lock = _lock_file(found)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:  # in use
        return
    else:
        shutil.rmtree(found, ignore_errors=True)
    finally:
        os.close(lock)
