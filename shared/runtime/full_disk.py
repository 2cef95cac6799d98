"""What a full disk means to a command: a dependency that can't be used (exit code 3), and no traceback."""

from __future__ import annotations

import errno

from shared.contracts.errors import DependencyError

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


def full_disk(error: OSError, what: str = "disk") -> DependencyError | None:
    """``what``: which file or folder, where the error itself doesn't name one. None for an error of another kind."""
    if error.errno not in FULL:
        return None
    place = what if error.filename is None else str(error.filename)
    return DependencyError(place, error.strerror or "is full", "make room there, or name another place")
