"""Which destinations a reader plans when several readers share a pipeline."""

from __future__ import annotations

import hashlib

from shared.config.model import Partition


def assigned(partition: Partition, destination_id: str) -> bool:
    """Whether this reader plans the destination: all, those listed, or one share of ``total`` by the id's hash."""
    match partition.mode:
        case "all":
            return True
        case "explicit":
            return destination_id in partition.include
        case "hash":
            return _hash(destination_id) % partition.total == partition.ordinal


def _hash(destination_id: str) -> int:
    """The same in every process and version, unlike Python's ``hash``."""
    return int(hashlib.md5(destination_id.encode(), usedforsecurity=False).hexdigest(), 16)
