"""The demo's folder: made, replaced, and never somebody else's."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.cli.runtime.lock import StateLock
from shared.config.loading import load
from shared.contracts.errors import ConfigError
from viaduck_demo.folder import MARKER, DemoFolder

CARRIERS = {"AA": "American Airlines Inc.", "9E": "Endeavor Air Inc."}


@pytest.fixture
def folder(tmp_path: Path) -> DemoFolder:
    return DemoFolder(tmp_path / "viaduck-demo")


def test_a_first_demo_makes_its_folder(folder: DemoFolder) -> None:
    with folder.claimed() as made_at:
        assert made_at is None
        assert (folder.root / MARKER).exists()


def test_a_second_demo_replaces_the_first(folder: DemoFolder) -> None:
    with folder.claimed():
        folder.write_config(CARRIERS, 8000)
        folder.state.mkdir()
    with folder.claimed() as made_at:
        assert made_at is not None
        assert [entry.name for entry in folder.root.iterdir()] == [MARKER]


def test_a_folder_that_no_demo_made_stays_as_it_is(folder: DemoFolder) -> None:
    folder.root.mkdir()
    mine = folder.root / "precious.txt"
    mine.write_text("mine")
    with pytest.raises(ConfigError, match="not made by a demo"), folder.claimed():
        pass
    assert mine.read_text() == "mine"


def test_an_empty_folder_may_be_used(folder: DemoFolder) -> None:
    folder.root.mkdir()
    with folder.claimed() as made_at:
        assert made_at is None


def test_a_file_in_the_way_is_refused(folder: DemoFolder) -> None:
    folder.root.write_text("a file")
    with pytest.raises(ConfigError, match="is a file"), folder.claimed():
        pass


def test_two_demos_do_not_share_a_folder(folder: DemoFolder) -> None:
    with folder.claimed(), pytest.raises(ConfigError, match="a demo is running here"), folder.claimed():
        pass


def test_a_demo_does_not_pull_the_rug_from_under_viaduck(folder: DemoFolder) -> None:
    with folder.claimed():
        folder.write_config(CARRIERS, 8000)
        folder.state.mkdir()
    refused = pytest.raises(ConfigError, match=r"runs on .* already")
    with StateLock(folder.state), refused, folder.claimed():
        pass
    assert folder.config.exists()


def test_its_file_is_a_file_that_viaduck_takes(folder: DemoFolder) -> None:
    with folder.claimed():
        folder.write_config(CARRIERS, 8123)
        config = load(folder.config)
    assert [destination.id for destination in config.destinations] == ["AA", "9E"]
    assert config.server.port == 8123
    assert config.state_dir == folder.state
    assert config.routing.key_columns == ("flight_id",)


def test_a_lake_that_is_still_to_come_has_no_row_count(folder: DemoFolder) -> None:
    with folder.claimed():
        folder.write_config(CARRIERS, 8000)
        assert folder.rows_of("AA") is None
