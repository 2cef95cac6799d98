"""The interface keeps its own schema, whatever is sent to it: schemathesis against the running application."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from services.control.operations.work_items import Work
from services.control.store.audit_log import AuditLog
from services.control.view.status_store import StatusStore
from shared.contracts.digest import value_digest
from tests.fast.control.examples import PIPELINE
from tests.fast.control.fakes import FakeSource
from tests.fast.control.files import make_source
from tests.fast.control.live_server import served
from tests.fast.control.operations.test_work_items import TOPICS, FakeBroker, item, letter
from tests.fast.control.rig import ControlRig, offered

CONFIG = """
headers = { Authorization = "Bearer admin" }

# Its body is text, line by line: what is sent instead of text is text on the wire as well.
[[operations]]
include-operation-id = "import_destinations"
generation.mode = "positive"

# A pipeline that no file declares; the other one is the file's.
[[operations]]
include-operation-id = "put_pipeline"
parameters = { "path.pipeline" = "orders" }

[[operations]]
include-operation-id = "delete_pipeline"
parameters = { "path.pipeline" = "orders" }

[parameters]
"path.pipeline" = "events"
"path.destination" = "a"
"path.proposal" = "PROPOSAL"

# What only a look at other values, at other destinations or at a cursor's own list can refuse.
[checks.positive_data_acceptance]
expected-statuses = ["2xx", 401, 403, 404, 409, 412, 415, 422, 503]
"""
STRANGER = "<script>'; DROP"
HOOKS = "tests.fast.control.schema_hooks"
ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[ControlRig]:
    broker = FakeBroker()
    broker.put(item("one"))
    broker.put(letter())

    def work(status_store: StatusStore, trail: AuditLog) -> Work:
        return Work(PIPELINE, TOPICS, broker, broker, status_store.view, trail)

    make_source(tmp_path)
    source = FakeSource(lake=f"sqlite:{tmp_path}/source.sqlite")
    sections = {
        "template": {"catalog": "sqlite:lakes/{routing_value}.sqlite", "data_path": "data/{routing_value}"},
        "appear": {"policy": "propose"},
        "server": {"port": 0, "allowed_variables": ["ORDERS_CATALOG", "QUACKSWORTH_CATALOG"]},
    }
    environ = {"ORDERS_CATALOG": "dbname=orders", "QUACKSWORTH_CATALOG": "dbname=quacksworth"}  # the examples' own
    with closing(
        ControlRig(
            tmp_path, file=("filed",), sections=sections, work=work, token="admin", source=source, environ=environ
        )
    ) as rig:
        rig.offers([offered(STRANGER), offered("nul\x00\u202e"), offered("x" * 300)])
        yield rig


@pytest.mark.timeout(300)
def test_no_request_makes_it_break_its_own_schema(rig: ControlRig, tmp_path: Path) -> None:
    (tmp_path / "schemathesis.toml").write_text(CONFIG.replace("PROPOSAL", value_digest(STRANGER)))
    with served(rig) as url:
        done = subprocess.run(
            [sys.executable, "-m", "schemathesis.cli", "run", f"{url}/openapi.json", "--checks", "all",
             "--max-examples", "8", "--seed", "7", "--no-color"],
            env={**os.environ, "SCHEMATHESIS_HOOKS": HOOKS, "PYTHONPATH": str(ROOT)},
            cwd=tmp_path, capture_output=True, text=True, timeout=280, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stdout[-12_000:] + done.stderr[-2_000:]
    assert {"added", "removed"} <= {each.deed for each in AuditLog(rig.registry.database, "orders").entries(100)}
