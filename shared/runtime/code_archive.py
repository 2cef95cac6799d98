"""Our own code as one file, for machines that have our dependencies and not us: Spark's executors in a cluster."""

from __future__ import annotations

import atexit
import shutil
import tempfile
import zipfile
from pathlib import Path

PACKAGES = ("services", "shared")
ROOT = Path(__file__).resolve().parents[2]
NAME = "viaduck.zip"


def parcel() -> Path:
    """An importable archive of this very code, kept until this process ends: executors fetch it whenever they start."""
    folder = Path(tempfile.mkdtemp(prefix="viaduck-parcel-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return write(folder / NAME)


def write(file: Path, root: Path = ROOT) -> Path:
    """Pack the packages below ``root``."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in PACKAGES:
            for source in sorted((root / package).rglob("*")):
                if source.is_file() and source.suffix != ".pyc":
                    archive.write(source, source.relative_to(root))
    return file
