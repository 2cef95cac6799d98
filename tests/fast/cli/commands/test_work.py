"""``viaduck work rejected`` and ``redrive-rejected``, on a control."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from services.control.operations.rejections import Rejections
from services.control.store.redriven import Redriven
from tests.fast.cli.commands.test_destination import Terminal
from tests.fast.control.examples import PIPELINE
from tests.fast.control.files import config
from tests.fast.control.live_server import served
from tests.fast.control.operations.test_rejections import Broker
from tests.fast.control.rig import ControlRig


def test_rejected_records_are_shown_and_sent_again(tmp_path: Path) -> None:
    broker, folder = Broker(), tmp_path / "topic"
    folder.mkdir()
    landed = config(folder, source={"kind": "kafka", "topic": "clicks"}, routing={},
                    kafka={"bootstrap_servers": "kafka:9092"})  # fmt: skip
    for number in range(3):
        broker.put(b"\x1b[2J", number)
    with closing(ControlRig(tmp_path)) as rig, served(rig) as url:
        marks = Redriven(rig.registry.database, PIPELINE)
        rig.handle.rejections = Rejections(lambda: landed, broker, broker.reach, marks, rig.service.audit_log)
        terminal = Terminal(rig, url)
        assert [each["offset"] for each in terminal.json("work", "rejected", "--limit", "2")] == [2, 1]
        assert [each["source_offset"] for each in terminal.json("work", "rejected", "--offset", "0")] == [0]
        assert "not_json" in terminal.run("work", "rejected").stdout
        assert terminal.json("work", "redrive-rejected", "--dry-run")[0]["matched"] == 3
        one = ("work", "redrive-rejected", "--partition", "0", "--offset", "1")
        assert terminal.json(*one)[0]["sent"] == 1
        assert "sent this record again" in str(terminal.fails(*one))
        assert terminal.json(*one, "--again")[0]["sent"] == 1
        assert terminal.json("work", "redrive-rejected")[0]["sent"] == 2
