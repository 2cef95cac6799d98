"""Several pipelines of one deployment, each of which lands a topic in one table."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import yaml

from services.cli.runtime.running import RunningViaduck
from shared.config.catalogs import ResolvedLake
from shared.lake.connection.attach import attach
from shared.lake.connection.engine import connect
from tests.e2e.prepared_viaduck import PreparedViaduck
from tests.fast.waiting import eventually
from tests.servers.kafka import Kafka
from tests.servers.ports import free_port

WITHIN_S = 180.0


class TopicPipelines:
    """``sections`` are those of the files, by pipeline; the table ``t`` is each pipeline's only destination, which has
    its name."""

    def __init__(self, folder: Path, kafka: Kafka, sections: Mapping[str, Mapping[str, Any]]) -> None:
        self.names, self.log, self.files, port = tuple(sections), folder / "up.log", folder / "files", free_port()
        self.prefix, self._url = f"v{port}", f"http://127.0.0.1:{port}"
        self.lakes = {
            each: ResolvedLake(f"sqlite:{folder}/{each}.sqlite", None, f"{folder}/{each}") for each in sections
        }
        self.files.mkdir()
        for name, own in sections.items():
            lake = self.lakes[name]
            (self.files / f"{name}.yaml").write_text(yaml.safe_dump({
                "pipeline": name,
                "routing": {},
                **own,
                "source": {"kind": "kafka", **own["source"]},
                "flush": {"seconds": 0.2},
                "poll": {"interval_seconds": 0.2},
                "destinations": [{"id": name, "catalog": lake.catalog, "data_path": lake.data_path, "table": "t"}],
                "kafka": {"bootstrap_servers": kafka.bootstrap, "topic_prefix": self.prefix},
                "server": {"port": port},
                "state_dir": str(folder / "state"),
            }))  # fmt: skip

    def run(self) -> RunningViaduck:
        return PreparedViaduck(self.files, self._url, self.names[0], self.log)

    def are_at(self, records: int) -> bool:
        """Whether none lacks a record of a topic that has so many offsets."""
        return all(self._is_at(name, records) for name in self.names)

    def _is_at(self, name: str, records: int) -> bool:
        try:
            answer = httpx.get(f"{self._url}/v1/pipelines/{name}/destinations/{name}", timeout=30.0)
        except httpx.HTTPError:  # it starts
            return False
        if not answer.is_success:
            return False
        found = answer.json()
        return bool(found["known_through"] == records and found["topic"] and found["topic"]["lag_records"] == 0)

    def ask_each(self, action: str) -> None:
        """Let an operator do something to the destination of each pipeline, and wait until control shows it."""
        state = {"pause": "paused", "resume": "running"}[action]
        for name in self.names:
            place = f"{self._url}/v1/pipelines/{name}/destinations/{name}"
            answer = httpx.post(f"{place}:{action}", timeout=30.0)
            assert answer.is_success, answer.text
            eventually(lambda at=place: httpx.get(at, timeout=30.0).json()["state"] == state)  # type: ignore[misc]

    def rejected(self, name: str) -> list[dict[str, Any]]:
        """What control shows of its rejected records, in the order of a topic of one partition."""
        answer = httpx.get(f"{self._url}/v1/pipelines/{name}/rejected", timeout=30.0)
        assert answer.is_success, answer.text
        found: list[dict[str, Any]] = answer.json()["items"]
        return sorted(found, key=lambda each: each["source_offset"])

    def rows(self, name: str, query: str = "SELECT * FROM dst.main.t") -> list[tuple[Any, ...]]:
        with closing(connect()) as con:
            attach(con, "dst", self.lakes[name], read_only=True)
            return sorted(con.execute(query).fetchall(), key=repr)

    def types(self, name: str) -> dict[str, str]:
        return dict(self.rows(name, "SELECT column_name, column_type FROM (DESCRIBE dst.main.t)"))

    def viaduck(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """One command on the files, run to its end."""
        whole = [sys.executable, "-m", "services.cli.main", *arguments, "-c", str(self.files)]
        return subprocess.run(whole, capture_output=True, text=True, timeout=WITHIN_S, check=False)

    def proofs(self) -> dict[str, Any]:
        """What ``verify`` says of each destination."""
        done = self.viaduck("verify", "--json")
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        assert lines, done.stderr
        return {each["destination"]: each for each in lines if "destination" in each}
