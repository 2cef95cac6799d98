from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from shared.contracts.errors import DependencyError
from shared.runtime.java import VECTOR, java_home, look, shimmed

FAKE = """#!/bin/sh
for argument; do
  case "$argument" in
    {refused}) echo "Error: Module jdk.incubator.vector not found" >&2; exit 1;;
  esac
done
[ "$1" = show ] && {{ shift; printf '%s\\n' "$@"; exit 0; }}
echo 'openjdk version "{version}" 2025-01-01' >&2
"""


def fake_java(home: Path, version: str, refused: str = "nothing") -> Path:
    """A program that answers like a Java of this version; it refuses one argument, and shows the others if asked."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(FAKE.format(version=version, refused=refused))
    java.chmod(0o755)
    return home


def environ(java_home: Path | None = None, path: Path | None = None) -> dict[str, str]:
    return {"PATH": str(path) if path else "", **({"JAVA_HOME": str(java_home)} if java_home else {})}


def test_java_home_comes_before_the_path(tmp_path: Path) -> None:
    one, two = fake_java(tmp_path / "one", "17.0.1"), fake_java(tmp_path / "two", "21.0.1")
    assert java_home(environ(one, two / "bin")) == one
    assert java_home(environ(None, two / "bin")) == two


def test_a_version_that_spark_does_not_support_is_passed_over(tmp_path: Path) -> None:
    old, new = fake_java(tmp_path / "old", "11.0.2"), fake_java(tmp_path / "new", "25")
    fits = fake_java(tmp_path / "fits", "21.0.8")
    assert java_home(environ(old, fits / "bin")) == fits
    assert java_home(environ(new, fits / "bin")) == fits


def test_a_home_without_a_java_is_passed_over(tmp_path: Path) -> None:
    fits = fake_java(tmp_path / "fits", "17")
    assert java_home(environ(tmp_path / "nowhere", fits / "bin")) == fits
    assert look(tmp_path / "nowhere") is None


def test_a_java_without_the_vector_module_is_wrapped(tmp_path: Path) -> None:
    bare = fake_java(tmp_path / "it's bare", "21.0.8", refused=VECTOR)
    home = java_home(environ(bare), tmp_path / "shim")
    assert home == tmp_path / "shim"
    assert subprocess.run([home / "bin" / "java", VECTOR, "-version"], capture_output=True, check=True).stderr


def test_the_wrapper_drops_that_argument_and_nothing_else(tmp_path: Path) -> None:
    shim = shimmed(fake_java(tmp_path / "jdk", "21", refused=VECTOR), tmp_path / "shim") / "bin" / "java"
    arguments = ["show", "-Da=b c", VECTOR, "", "--add-modules=other", "*", "it's", VECTOR]
    shown = subprocess.run([shim, *arguments], capture_output=True, text=True, check=True, cwd="/").stdout
    assert shown.split("\n")[:-1] == ["-Da=b c", "", "--add-modules=other", "*", "it's"]
    assert os.access(shim, os.X_OK)


def test_no_java_at_all_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.path", [str(tmp_path)])  # where no wheel can be found either
    with pytest.raises(DependencyError, match="no Java 17 or 21") as missing:
        java_home(environ())
    assert "make setup" in missing.value.hint
