"""`viaduck check`: what it finds wrong before anything runs, and that no mistake ends in a traceback."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from services.cli.commands import check
from services.cli.runtime.writable import require_writable
from shared.config.catalogs import ResolvedLake
from shared.config.deployment import load_all
from shared.contracts.errors import ConfigError
from shared.lake.connection.attach import attach
from shared.lake.connection.engine import connect

FILE = """
source: {catalog: "sqlite:source.sqlite", data_path: "data", table: "events"}
routing: {field: "company", key_columns: ["id"]}
"""


def written(folder: Path, more: str = "") -> Path:
    file = folder / "viaduck.yaml"
    file.write_text(FILE + more)
    return file


def checked(file: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "services.cli.main", "check", "-c", str(file)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("state_dir", ["/proc/viaduck", "/dev/null/viaduck", "file/viaduck"])
def test_a_state_folder_that_can_not_be_written_is_a_mistake(state_dir: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    deployment = load_all([written(tmp_path, f"state_dir: '{state_dir}'")])
    with pytest.raises(ConfigError) as refused:
        check.main(deployment)
    (line,) = refused.value.mistakes
    assert line.startswith("state_dir: can't write ")
    assert line.endswith("; choose another")


def test_a_look_at_the_state_folder_leaves_nothing_behind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    deployment = load_all([written(tmp_path, "state_dir: deep/er/state")])
    before = sorted(tmp_path.rglob("*"))
    assert check.main(deployment) == check.UNREACHABLE  # there is no source
    assert "deep/er/state can be written" in capsys.readouterr().out
    assert sorted(tmp_path.rglob("*")) == before


def test_a_probe_is_not_content_with_rights(tmp_path: Path) -> None:
    require_writable(tmp_path / "new" / "folder")
    with pytest.raises(OSError, match="/proc"):
        require_writable(Path("/proc/self/new"))


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u@h:port/db",
        "postgresql://u:s3cret@[::1/d",
        "postgresql://u:s3cret@h:port/db",
    ],
)
def test_a_registry_url_that_is_none_is_a_mistake_and_shows_no_password(url: str, tmp_path: Path) -> None:
    deployment = load_all([written(tmp_path, f"registry: {{url: '{url}'}}")])
    with pytest.raises(ConfigError) as refused:
        check.main(deployment)
    (line,) = refused.value.mistakes
    assert line.startswith("registry.url: not a database that can be used; write sqlite:///PATH or postgresql://")
    assert "s3cret" not in line


@pytest.mark.parametrize("driver", ["nodriver", "asyncpg", "psycopg2"])
def test_a_registry_is_asked_by_our_driver_whatever_the_url_names(
    driver: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    deployment = load_all([written(tmp_path, f"registry: {{url: 'postgresql+{driver}://u@127.0.0.1:1/d'}}")])
    assert check.main(deployment) == check.UNREACHABLE
    assert "Connection refused" in capsys.readouterr().out


def test_a_registry_whose_folder_can_not_be_made_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    deployment = load_all([written(tmp_path, "registry: {url: 'sqlite:////proc/viaduck/registry.sqlite'}")])
    assert check.main(deployment) == check.UNREACHABLE
    assert "can't write /proc/viaduck" in capsys.readouterr().out


@pytest.mark.parametrize("place", ["x" * 300, "loop", "/proc/1/fdinfo/0/x"])
def test_a_place_that_can_not_be_read_is_a_mistake(place: str, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(ConfigError, match=r"can't be read|no such file"):
        load_all([tmp_path / place])


def test_a_folder_that_may_not_be_listed_is_a_mistake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who runs the tests may be allowed everything, so the system's answer is played."""

    def refused(_: Path) -> object:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", refused)
    with pytest.raises(ConfigError, match="can't be read: Permission denied; correct the path or its permissions"):
        load_all([tmp_path])


def test_output_that_finds_no_room_ends_with_3_and_one_line() -> None:
    command = [sys.executable, "-m", "services.cli.main", "--version"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 3
    assert done.stderr.splitlines() == [
        "standard output: No space left on device",
        "make room there, or name another place",
    ]


def lake(folder: Path, name: str, data_path: str, tells: str | None = None) -> str:
    """A lake, and its entry in the file. ``tells``: the data path that its owner then writes into its catalog."""
    file = folder / f"{name}.sqlite"
    with closing(connect()) as con:
        attach(con, "lake", ResolvedLake(f"sqlite:{file}", data_path=data_path), read_only=False, create=True)
    if tells is not None:
        with closing(sqlite3.connect(file)) as catalog, catalog:
            catalog.execute("UPDATE ducklake_metadata SET value = ? WHERE key = 'data_path'", [tells])
    return f"  - {{id: {name}, routing_value: {name}, catalog: 'sqlite:{file}'}}\n"


def test_a_catalog_that_moves_its_lake_into_anothers_folder_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What no file declares its owner may change: to a folder that the keys of both open."""
    mine, theirs = f"{tmp_path}/mine/", f"{tmp_path}/theirs/"
    file = written(tmp_path, "destinations:\n" + lake(tmp_path, "a", mine) + lake(tmp_path, "b", theirs))
    check.main(load_all([file]))
    calm = " ".join(capsys.readouterr().out.split())
    assert f"only its catalog says that its files are at {theirs}: write that as its data_path" in calm
    assert "destination b the data path" not in calm

    for moved in (mine, f"{mine}deeper/", f"{tmp_path}/"):
        (tmp_path / "b.sqlite").unlink()
        declared = f"  - {{id: a, routing_value: a, catalog: 'sqlite:{tmp_path}/a.sqlite', data_path: '{mine}'}}\n"
        file = written(tmp_path, "destinations:\n" + declared + lake(tmp_path, "b", theirs, moved))
        assert check.main(load_all([file])) == check.UNREACHABLE
        told = " ".join(capsys.readouterr().out.split())
        assert "no destination b" in told, moved
        assert "of a, which is another lake" in told, moved
        assert "ok destination a" in told, "the file says where that is"
