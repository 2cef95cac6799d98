"""The wheel: what docs/how-to/install.md says that it installs, with all that the command needs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("services", "shared", "viaduck_demo", "client", "pyproject.toml", "README.md", "LICENSE")
ASSETS = {".html", ".css", ".js", ".svg", ".properties"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built of a copy, since setuptools leaves folders beside the source."""
    copy, made = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    for name in PARTS:
        place = ROOT / name
        if place.is_dir():
            shutil.copytree(place, copy / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copy(place, copy / name)
    return built(copy, made)


def built(source: Path, made: Path) -> Path:
    build = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--no-deps", "--no-build-isolation",
             "--no-index", "--wheel-dir", str(made), str(source)]  # fmt: skip
    done = subprocess.run(build, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    (file,) = made.glob("*.whl")
    return file


def test_the_client_is_a_package_of_its_own_that_needs_httpx_alone(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "client", tmp_path / "client", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    packed = zipfile.ZipFile(built(tmp_path / "client", tmp_path))
    modules = {name for name in packed.namelist() if ".dist-info/" not in name}
    assert {name.partition("/")[0] for name in modules} == {"viaduck_client"}
    assert "viaduck_client/py.typed" in modules
    (about,) = (name for name in packed.namelist() if name.endswith(".dist-info/METADATA"))
    assert re.findall(r"^Requires-Dist: (.+)$", packed.read(about).decode(), re.MULTILINE) == ["httpx"]


def test_it_installs_the_modules_that_the_page_warns_of(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    modules = {name.partition("/")[0] for name in names if ".dist-info/" not in name}
    page = (ROOT / "docs/how-to/install.md").read_text()
    (warned,) = re.findall(r"top-level Python modules named (.+?)\.", page)
    assert modules == set(re.findall(r"`(\w+)`", warned))


def test_it_has_every_asset_of_the_page_and_of_spark(wheel: Path) -> None:
    packed = set(zipfile.ZipFile(wheel).namelist())
    needed = {
        str(file.relative_to(ROOT))
        for folder in ("services", "shared")
        for file in (ROOT / folder).rglob("*")
        if file.suffix in ASSETS
    }
    assert needed
    assert needed <= packed


def test_its_command_runs_away_from_the_repository(wheel: Path, tmp_path: Path) -> None:
    place = tmp_path / "installed"
    zipfile.ZipFile(wheel).extractall(place)
    (points,) = place.glob("*.dist-info/entry_points.txt")
    assert "viaduck = services.cli.main:main" in points.read_text()
    program = f"import sys; sys.path.insert(0, {str(place)!r}); sys.argv = ['viaduck', '--version']; "
    program += "from services.cli import main; print(main.__file__); sys.stdout.flush(); main.main()"
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-P", "-c", program],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    file, version = done.stdout.splitlines()
    assert file == str(place / "services/cli/main.py")
    assert version.startswith("viaduck 0.1.0")
