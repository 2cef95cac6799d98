from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from services.cli.runtime.lock import BROKER_ADDRESS, StateLock, broker_address, told
from shared.contracts.errors import ConfigError, DependencyError


def test_a_second_holder_is_refused_and_told_who_holds_it(tmp_path: Path) -> None:
    with StateLock(tmp_path / "state") as lock:
        lock.tell({"pid": 4711, "url": "http://127.0.0.1:1"})
        with pytest.raises(ConfigError, match=r"state_dir: .*process 4711"), StateLock(tmp_path / "state"):
            pytest.fail("two holders")
        assert told(tmp_path / "state") == {"pid": 4711, "url": "http://127.0.0.1:1"}
    assert told(tmp_path / "state") == {}


def test_where_the_embedded_broker_listens_is_known_while_its_holder_runs(tmp_path: Path) -> None:
    with StateLock(tmp_path) as lock:
        lock.tell({"pid": 4711, "url": "http://127.0.0.1:1"})
        assert broker_address(tmp_path) is None
        (tmp_path / BROKER_ADDRESS).write_text("127.0.0.1:9")
        assert broker_address(tmp_path) == "127.0.0.1:9"
    assert broker_address(tmp_path) is None


def test_a_killed_holder_leaves_nothing_locked(tmp_path: Path) -> None:
    script = (
        "from pathlib import Path; from services.cli.runtime.lock import StateLock\n"
        f"with StateLock(Path({str(tmp_path)!r})): print('held', flush=True); input()"
    )
    holder = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdin is not None
    assert holder.stdout.readline() == b"held\n"
    with pytest.raises(ConfigError), StateLock(tmp_path):
        pytest.fail("two holders")
    holder.kill()
    holder.wait()
    holder.stdin.close()
    holder.stdout.close()
    with StateLock(tmp_path):
        pass


def test_a_folder_that_can_not_be_written_is_a_mistake_in_the_file(tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file")
    with pytest.raises(ConfigError, match="state_dir: can't write"), StateLock(tmp_path / "state"):
        pytest.fail("locked a file")


def test_a_full_disk_is_told_as_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "up.lock").symlink_to("/dev/full")
    with pytest.raises(DependencyError, match=r"state_dir .*No space left") as full, StateLock(tmp_path) as lock:
        lock.tell({"pid": 1})
    assert "make room" in full.value.hint
