"""Pipelines that came over REST, as files: each service keeps copies of what control's registry holds of them.

A copy is a configuration file like any other, so whatever reads files reads it. It is there when a service starts
again, before registry and broker answer.
"""

from __future__ import annotations

import os
import re
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from shared.config.model import COPIES
from shared.contracts.messages import NAME

UNFINISHED_FOR_S = 60.0
"""A file that has been unfinished for this long has lost its writer."""

ENDING = ".yaml"

HEAD = "# Viaduck's copy of a pipeline from REST, version {version}. To change it, put the pipeline again."
VERSION = re.compile(rb"^#[^\n]*, version (\d{1,18})\.")
LONGEST_HEAD = 200

Dumper: type[Any] = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
NEVER_FOLDED = 1_000_000_000

Fingerprint: TypeAlias = tuple[tuple[str, int, int, int], ...]
"""Name, inode, time and size of each file: another one whenever a copy came, changed or went."""


@dataclass(frozen=True)
class Copy:
    """``document``: the keys of a file that are the pipeline's own, but its name."""

    document: dict[str, Any]
    version: int


class PipelineFiles:
    """Those of one service. Each is written whole or not at all, so several processes may share a folder.

    Raises ``ValueError`` for a name that no pipeline can have, and ``OSError``.
    """

    def __init__(self, state_dir: Path) -> None:
        self.folder = state_dir / COPIES

    def file(self, pipeline: str) -> Path:
        """Where the copy of a pipeline is, or would be. No name leads out of the folder."""
        if not re.fullmatch(NAME, pipeline):
            raise ValueError(f"no pipeline can be called {pipeline!r}")
        return self.folder / f"{pipeline}{ENDING}"

    def names(self) -> list[str]:
        """The pipelines that there are copies of, in order."""
        found = (name.removesuffix(ENDING) for name, *_ in self.fingerprint())
        return sorted(name for name in found if re.fullmatch(NAME, name))

    def fingerprint(self) -> Fingerprint:
        try:
            entries = list(os.scandir(self.folder))
        except (FileNotFoundError, NotADirectoryError):
            return ()
        found = []
        for entry in entries:
            if entry.name.endswith(ENDING) and not entry.name.startswith("."):
                with suppress(FileNotFoundError):  # it has just gone
                    known = entry.stat()
                    found.append((entry.name, known.st_ino, known.st_mtime_ns, known.st_size))
        return tuple(sorted(found))

    def version(self, pipeline: str) -> int:
        """The registry's version that a copy holds; 0 where there is none, or it does not say."""
        try:
            with self.file(pipeline).open("rb") as file:
                said = VERSION.match(file.read(LONGEST_HEAD))
        except FileNotFoundError:
            return 0
        return 0 if said is None else int(said[1])

    def read(self, pipeline: str) -> Copy | None:
        """A copy as it was written; None if there is none, or another program wrote there."""
        version = self.version(pipeline)
        if version == 0:
            return None
        try:
            found = yaml.safe_load(self.file(pipeline).read_bytes())
        except yaml.YAMLError:
            return None
        if not isinstance(found, dict) or found.pop("pipeline", None) != pipeline:
            return None
        return Copy(found, version)

    def write(self, pipeline: str, document: Mapping[str, Any], version: int) -> None:
        """Do nothing where it is so already."""
        file, content = self.file(pipeline), _written(pipeline, document, version)
        with suppress(FileNotFoundError):
            if file.read_bytes() == content:
                return
        self.folder.mkdir(parents=True, exist_ok=True)
        self._sweep()
        unfinished = self.folder / f".{uuid.uuid4().hex}.new"
        try:
            with unfinished.open("xb") as out:
                out.write(content)
                out.flush()
                os.fsync(out.fileno())
            unfinished.replace(file)
        except OSError:
            unfinished.unlink(missing_ok=True)  # it is tried again, and again
            raise

    def _sweep(self) -> None:
        """Remove unfinished files of writers that were killed. Other writers may be active at this moment."""
        for each in self.folder.glob(".*.new"):
            with suppress(FileNotFoundError):
                if time.time() - each.stat().st_mtime > UNFINISHED_FOR_S:
                    each.unlink()

    def remove(self, pipeline: str) -> None:
        self.file(pipeline).unlink(missing_ok=True)


def _written(pipeline: str, document: Mapping[str, Any], version: int) -> bytes:
    values = {"pipeline": pipeline, **document}
    text: str = yaml.dump(values, Dumper=Dumper, sort_keys=False, default_flow_style=False, width=NEVER_FOLDED)
    return f"{HEAD.format(version=version)}\n{text}".encode()
