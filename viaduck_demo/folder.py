"""The folder that a demo lives in: its lakes, its ``viaduck.yaml``, and a marker that says whose it is."""

from __future__ import annotations

import fcntl
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import duckdb

from services.cli.runtime.lock import StateLock
from shared.contracts.errors import ConfigError
from shared.lake.connection.engine import connect
from shared.lake.connection.query import Question
from shared.lake.connection.statements import OwnSqlite
from viaduck_demo.flights import KEY_COLUMN, ROUTING_FIELD, TABLE

MARKER = ".made-by-viaduck-demo"
PIPELINE = "flights"

GROWTH = """
    SELECT coalesce(sum(json_extract(commit_extra_info, '$.inserted')), 0)
         - coalesce(sum(json_extract(commit_extra_info, '$.deleted')), 0) AS rows_held
    FROM ducklake_snapshot_changes WHERE author = 'viaduck'"""


class DemoFolder:
    """Paths of a demo; files that the demo did not create are never touched."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.config = self.root / "viaduck.yaml"
        self.log = self.root / "viaduck.log"
        self.source = self.root / "source.sqlite"
        self.source_data = self.root / "data"
        self.state = self.root / ".viaduck"
        self._looking: duckdb.DuckDBPyConnection | None = None
        self._catalogs: dict[str, OwnSqlite] = {}

    @contextmanager
    def claimed(self) -> Iterator[float | None]:
        """Empty the folder and keep it for this run; yields when its former content was made, None for a new folder.

        Raises ``ConfigError`` where there is a folder that no demo made, or another demo runs in it now.
        """
        made_at = self._made_at()
        self.root.mkdir(parents=True, exist_ok=True)
        with (self.root / MARKER).open("a") as marker:
            try:
                fcntl.flock(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ConfigError([f"{self.root}: a demo is running here; end it, or choose another --dir"]) from None
            self._require_idle()
            self._empty()
            yield made_at

    def write_config(self, carriers: Mapping[str, str], port: int) -> None:
        (self.root / "destinations").mkdir(exist_ok=True)
        self.config.write_text(_config(carriers, port))

    def destination(self, carrier: str) -> Path:
        return self.root / "destinations" / f"{carrier}.sqlite"

    def rows_of(self, carrier: str) -> int | None:
        """Rows that a carrier's own lake holds, summed up from the stamps of its commits; None before it has any."""
        if self._looking is None:
            self._looking = connect()
        if carrier not in self._catalogs:
            self._catalogs[carrier] = OwnSqlite(self._looking, self.destination(carrier), f"lake {carrier}")
        try:
            return int(self._catalogs[carrier].rows(Question(GROWTH))[0]["rows_held"])
        except (FileNotFoundError, duckdb.Error):  # no such file or table yet: the lake is about to be created
            return None

    def _made_at(self) -> float | None:
        if not self.root.exists():
            return None
        if not self.root.is_dir():
            raise ConfigError([f"{self.root}: is a file; choose another --dir"])
        marker = self.root / MARKER
        if marker.exists():
            return marker.stat().st_mtime
        if any(self.root.iterdir()):
            raise ConfigError([f"{self.root}: was not made by a demo, so it stays as it is; choose another --dir"])
        return None

    def _require_idle(self) -> None:
        """Raises ``ConfigError`` while a ``viaduck up`` runs on the file of an earlier demo."""
        if self.state.exists():
            with StateLock(self.state):
                pass

    def _empty(self) -> None:
        for entry in self.root.iterdir():
            if entry.name == MARKER:
                continue
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()
        (self.root / MARKER).write_text(
            f"made at {time.strftime('%Y-%m-%d %H:%M:%S')}; the next demo replaces this folder\n"
        )


def _config(carriers: Mapping[str, str], port: int) -> str:
    """A file to read and to reuse: paths are relative to it, one destination for each carrier."""
    destinations = "".join(_destination(carrier, name) for carrier, name in carriers.items())
    return f"""\
# One shared table of flights, one lake for each carrier. Written by `viaduck demo`; try `viaduck up -c` on it.
pipeline: "{PIPELINE}"
source:
  name: "source"
  catalog: "sqlite:source.sqlite"
  data_path: "data/"
  table: "{TABLE}"
routing:
  field: "{ROUTING_FIELD}"          # whose row it is
  key_columns: ["{KEY_COLUMN}"]   # what identifies a row
poll: {{interval_seconds: 0.5}}
server: {{host: "127.0.0.1", port: {port}}}
state_dir: ".viaduck"
destinations:
{destinations}"""


def _destination(carrier: str, name: str) -> str:
    return f"""\
  - id: "{carrier}"                 # {name}
    routing_value: "{carrier}"
    name: "carrier_{carrier.lower()}"
    catalog: "sqlite:destinations/{carrier}.sqlite"
    data_path: "destinations/{carrier}/"
"""
