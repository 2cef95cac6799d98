"""The applier as a process, as far as it goes without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.applier.service import main
from shared.config.deployment import load_all
from shared.contracts.errors import DependencyError
from shared.runtime.own_address import listen
from shared.runtime.signals import Signals
from tests.fast.control.files import write


def test_a_taken_port_ends_an_applier_with_a_hint_and_before_spark_starts(tmp_path: Path) -> None:
    with listen("127.0.0.1", 0, "another service's port") as taken, Signals() as signals:
        kafka = {"bootstrap_servers": "127.0.0.1:1", "signing": "off"}
        file = write(tmp_path, applier={"port": taken.getsockname()[1]}, kafka=kafka)
        with pytest.raises(DependencyError, match="Address already in use") as told:
            main(load_all([file], {}), signals)
    assert told.value.hint == "choose another applier.port, or stop the process that listens there"
