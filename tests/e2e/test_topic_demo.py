"""``viaduck demo --kind kafka`` on a real broker, with the first events of the year."""

from __future__ import annotations

from pathlib import Path

import pytest

from shared.config.catalogs import ResolvedLake
from shared.contracts.errors import DependencyError
from shared.lake.connection.attach import attach
from shared.lake.connection.engine import connect
from tests.servers.kafka import Kafka
from tests.servers.ports import free_port
from viaduck_demo.folder import DemoFolder
from viaduck_demo.topic_command import main

RECORDS = 5_000


@pytest.mark.timeout(300)
def test_the_demo_lands_its_events_and_ends_with_a_proof(
    kafka: Kafka, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = DemoFolder(tmp_path / "demo")
    assert main(folder.root, kafka.bootstrap, RECORDS) == 0
    said = capfd.readouterr().out
    assert f"The table holds exactly the {RECORDS:,} events" in said
    con = connect()
    attach(
        con,
        "dst",
        ResolvedLake(f"sqlite:{folder.root}/flights.sqlite", None, str(folder.root / "flights")),
        read_only=True,
    )
    found = con.execute("SELECT count(*), count(DISTINCT event), min(flight_date)::VARCHAR FROM dst.main.flights")
    assert found.fetchall() == [(RECORDS, 4, "2013-01-01")]
    con.close()


def test_without_a_broker_it_is_said_how_to_start_one(tmp_path: Path) -> None:
    with pytest.raises(DependencyError) as caught:
        main(tmp_path / "demo", f"127.0.0.1:{free_port()}")
    assert "docker run" in caught.value.hint
    assert not (tmp_path / "demo").exists()
