"""Commands on several files, as a user meets them: real processes, exit codes, and what is on which stream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from shared.config.deployment import load_all
from tests.fast.cli.fake_control import FakeControl, serving, status
from tests.fast.control.files import make_source
from tests.prepared import viaduck


class Two(FakeControl):
    """A control of the pipelines ``events`` and ``orders``, whose destinations are those of ``events`` again."""

    def answer(self, path: str, query: dict[str, list[str]]) -> tuple[int, dict[str, Any]]:
        if path == "/v1/pipelines":
            return 200, {"items": [{"name": "events"}, {"name": "orders"}], "next": None}
        code, body = super().answer(path.replace("/orders", "/events"), query)
        return code, json.loads(json.dumps(body).replace('"events"', '"orders"')) if "/orders" in path else body


@pytest.fixture
def control() -> Iterator[FakeControl]:
    with serving(Two([status("a"), status("b")])) as control:
        yield control


def folder_for(tmp_path: Path, url: str = "http://127.0.0.1:1", **of_orders: Any) -> Path:
    """Files of both pipelines; the server is named in one of them."""
    folder = tmp_path / "files"
    folder.mkdir()
    for name in ("events", "orders"):
        document: dict[str, Any] = {
            "pipeline": name,
            "source": {"catalog": f"sqlite:../{name}/source.sqlite", "table": "events"},
            "routing": {"field": "company"},
            "destinations": [{"id": "a", "routing_value": "a", "catalog": f"sqlite:{name}.sqlite"}],
            **(of_orders if name == "orders" else {"server": {"port": int(url.rpartition(":")[2])}}),
        }
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(document))
    return folder


def test_status_shows_the_destinations_of_all_pipelines_each_under_its_name(
    control: FakeControl, tmp_path: Path
) -> None:
    folder = folder_for(tmp_path, control.url)
    shown = viaduck("status", "-c", str(folder), COLUMNS="200")
    assert shown.returncode == 0, shown.stderr
    assert [line.split()[:3] for line in shown.stdout.splitlines()[1:]] == [
        ["events", "a", "running"], ["events", "b", "running"], ["orders", "a", "running"], ["orders", "b", "running"],
    ]  # fmt: skip
    files = [word for name in ("orders", "events") for word in ("-c", str(folder / f"{name}.yaml"))]
    lines = viaduck("status", *files, "--json").stdout.splitlines()
    assert [json.loads(line)["pipeline"] for line in lines] == ["orders", "orders", "events", "events"]


def test_a_command_about_one_destination_needs_its_pipeline_s_name(control: FakeControl, tmp_path: Path) -> None:
    folder = str(folder_for(tmp_path, control.url))
    vague = viaduck("destination", "show", "a", "-c", folder)
    assert vague.returncode == 2
    assert "choose one of events, orders" in " ".join(vague.stderr.split())
    named = viaduck("destination", "show", "a", "-c", folder, "--pipeline", "orders", "--json")
    assert (named.returncode, json.loads(named.stdout)["pipeline"]) == (0, "orders")


@pytest.mark.parametrize("command", ["up", "reader", "applier", "control", "check", "status", "verify"])
def test_mistakes_of_several_files_end_every_command_with_2_and_one_line_each(command: str, tmp_path: Path) -> None:
    folder = folder_for(tmp_path, nonsense=1, server={"port": 2})
    done = viaduck(command, "-c", str(folder))
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"{folder}/orders.yaml: nonsense: is not a key")


def test_a_reader_of_a_pipeline_that_there_is_none_of_is_told_those_that_there_are(tmp_path: Path) -> None:
    done = viaduck("reader", "-c", str(folder_for(tmp_path)), "--pipeline", "nobody")
    assert (done.returncode, done.stderr.splitlines()) == (2, ["--pipeline: choose one of events, orders"])


def test_check_looks_at_every_pipeline_and_at_what_they_share_once(tmp_path: Path) -> None:
    folder = folder_for(tmp_path)
    (tmp_path / "events").mkdir()
    make_source(tmp_path / "events")
    done = viaduck("check", "-c", str(folder))
    assert done.returncode == 3, done.stderr
    found = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert any(line.startswith("ok events: source main.events at snapshot") for line in found)
    assert any(line.startswith("no orders: source main.events") for line in found)
    assert any(line.startswith("ok orders: destination a has no lake yet") for line in found)
    assert sum("broker" in line for line in found) == 1


def test_what_only_a_source_shows_is_told_with_its_file(tmp_path: Path) -> None:
    folder = folder_for(tmp_path, routing={"field": "compny"})
    for name in ("events", "orders"):
        (tmp_path / name).mkdir()
        make_source(tmp_path / name)
    done = viaduck("check", "-c", str(folder))
    assert done.returncode == 2
    said = "routing.field: the source table has no column compny; did you mean company?"
    assert done.stderr.splitlines() == [f"{folder}/orders.yaml: {said}"]


def test_check_tells_what_keeps_a_pipeline_that_was_put_from_running_here(tmp_path: Path) -> None:
    folder = folder_for(tmp_path)
    for name in ("events", "orders"):
        (tmp_path / name).mkdir()
        make_source(tmp_path / name)
    copies = load_all([folder], {}).copies
    copies.write("put", {"source": {"catalog_env": "NOT_SET", "table": "t"}, "routing": {"field": "f"}}, 1)
    refused = viaduck("check", "-c", str(folder))
    assert refused.returncode == 2
    assert refused.stderr.startswith(
        f"{copies.file('put')}: source.catalog_env: the environment variable NOT_SET is not set"
    )
