"""`viaduck verify` as a nightly job runs it: every destination that there is, and an exit code that can be trusted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.fast.cli.fake_control import FakeControl, serving, status
from tests.lake.rig import ApplyRig, schema_of
from tests.prepared import started

pytestmark = pytest.mark.parametrize("make_lake", ["sqlite"], indirect=True)


class Put(FakeControl):
    """Control of the pipeline ``p``, to which all destinations came over REST."""

    def __init__(self, entries: dict[str, dict[str, Any]]) -> None:
        super().__init__([status(name) for name in entries])
        self.entries = entries

    def answer(self, path: str, query: dict[str, list[str]]) -> tuple[int, dict[str, Any]]:
        match path.strip("/").split("/"):
            case ["v1", "pipelines"]:
                return 200, {"items": [{"name": "p"}], "next": None}
            case ["v1", "pipelines", "p", "destinations", id, "entry"]:
                return 200, self.entries[id]
        return super().answer(path.replace("pipelines/p/", "pipelines/events/"), query)


def file_for(rig: ApplyRig, port: int) -> str:
    """A file without any destination."""
    document = {
        "pipeline": "p",
        "source": {"catalog": rig.source.catalog, "table": "t"} | schema_of(rig.source),
        "routing": {"field": "tenant", "key_columns": ["id"]},
        "server": {"port": port},
    }
    file = rig.folder / "viaduck.yaml"
    file.write_text(yaml.safe_dump(document))
    return str(file)


def entry(rig: ApplyRig, name: str) -> dict[str, Any]:
    return {"routing_value": name, "catalog": rig.lake(name).catalog, "table": "t"} | schema_of(rig.lake(name))


def test_destinations_that_came_over_rest_are_proven_and_those_that_can_not_be_are_counted(rig: ApplyRig) -> None:
    rig.seed()
    rig.write("b", "DELETE FROM dst.main.t WHERE id < 7")
    away = {"routing_value": "c", "catalog_env": "NOBODY_SET_THIS", "table": "t"}
    with serving(Put({"a": entry(rig, "a"), "b": entry(rig, "b"), "away": away})) as control:
        done = started("verify", "-c", file_for(rig, int(control.url.rpartition(":")[2])), "--all-snapshots", "--json")
    found = {line["destination"]: line for line in map(json.loads, done.stdout.splitlines())}
    assert done.returncode == 1, done.stderr
    assert {name: line["result"] for name, line in found.items()} == {"a": "equal", "b": "different", "away": "failed"}
    whole = {"proven": 1, "unproven": 0, "different": 0, "differences": [], "note": None}
    assert [found[name]["snapshots"] for name in ("a", "b", "away")] == [whole, whole, None]
    assert found["b"]["missing"] == 3


def test_a_file_alone_is_no_proof(rig: ApplyRig, tmp_path: Path) -> None:
    done = started("verify", "-c", file_for(rig, 1))
    assert done.returncode == 3
    assert "only the files' destinations were looked at" in done.stderr
    assert str(tmp_path) in done.stderr
