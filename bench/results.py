"""Figures as files: one for each case that was measured, with the machine and the versions that it was measured on."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

from bench.outcome import Outcome
from shared.contracts.errors import DependencyError
from shared.runtime.java import java_home, look

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("duckdb", "duckdb-extension-ducklake", "pyspark", "confluent-kafka", "pyarrow")


@dataclass(frozen=True)
class Kept:
    """An outcome as it lies in a file."""

    file: Path
    at: datetime
    machine: Mapping[str, Any]
    outcome: Outcome


def machine() -> dict[str, Any]:
    """What figures depend on. The load is that of the minute before."""
    return {
        "cpus": os.cpu_count(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "load_1m": round(os.getloadavg()[0], 2),
        "system": platform.platform(),
        "python": platform.python_version(),
        "java": _java(),
        **{name: _version(name) for name in PACKAGES},
    }


def keep(outcome: Outcome, machine: Mapping[str, Any], folder: Path = RESULTS) -> Path:
    """Write an outcome beside the others, so that figures can be compared over time."""
    now = datetime.now(UTC)
    folder.mkdir(exist_ok=True)
    file = folder / f"{outcome.case}-{outcome.catalog}-{now:%Y%m%dT%H%M%S}.json"
    written = {"at": now.isoformat(), "machine": machine, "outcome": outcome.to_json()}
    file.write_text(json.dumps(written, indent=1) + "\n")
    return file


def kept(folder: Path = RESULTS) -> Iterator[Kept]:
    """The outcomes of a folder, oldest first; what the other benchmarks wrote is theirs."""
    found = []
    for file in folder.glob("*.json"):
        written = json.loads(file.read_text())
        if "outcome" in written:
            at = datetime.fromisoformat(written["at"])
            found.append(Kept(file, at, written["machine"], Outcome.from_json(written["outcome"])))
    yield from sorted(found, key=lambda each: each.at)


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _java() -> int | None:
    try:
        found = look(java_home())
    except DependencyError:
        return None
    return found.version if found is not None else None
