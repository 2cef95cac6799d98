"""Records of many megabytes, on topics that a broker lets have them: they land whole, or are rejected whole."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from services.applier.records.record_format import RecordFormat
from services.cli.commands import check
from shared.config.deployment import load_all
from tests.e2e.topics import Landing, Topic, read_all
from tests.fast.control.files import write

Land = Callable[..., Landing]

BROKER, LARGEST = 40_000_000, 11_000_000
"""Bytes that the broker takes of a record, and that the file does."""


def text(number: int, size: int) -> str:
    """Which no compression makes small."""
    return random.Random(number).randbytes(size // 2).hex()


def test_a_record_of_ten_megabytes_lands_whole_and_one_above_the_most_is_rejected_byte_for_byte(
    topic: Topic, landing: Land
) -> None:
    landed = landing(form=RecordFormat(max_record_bytes=LARGEST))
    topic.take_records_of(BROKER)
    topic.take_records_of(BROKER, landed.rejected)
    whole, key = text(1, 10_000_000), b"k\xff"
    most = json.dumps({"id": 3, "v": text(2, LARGEST - 100)}).encode().ljust(LARGEST - len(key))
    topic.send({"id": 1}, {"id": 2, "v": whole})
    topic.send(most, most + b" ", key=key)
    topic.send({"id": 5})
    topic.send({"id": 6, "v": whole}, partition=1)
    said = landed.land(p0=5, p1=1)
    assert (said.outcome, said.error, said.inserted) == ("applied", None, 5)
    rows = landed.rows_of("SELECT _kafka_partition, _kafka_offset, id, length(v), md5(v) FROM dst.main.clicks")
    assert [row[:4] for row in rows] == [
        (0, 0, 1, None), (0, 1, 2, 10_000_000), (0, 2, 3, LARGEST - 100), (0, 4, 5, None), (1, 0, 6, 10_000_000),
    ]  # fmt: skip
    assert rows[1][4] == rows[4][4] != rows[2][4]
    ((one,),) = landed.rows_of("SELECT v FROM dst.main.clicks WHERE id = 2")
    assert one == whole
    ((rejected_key, value, headers),) = read_all(topic.kafka, landed.rejected)
    assert (rejected_key, value) == (key, most + b" ")
    assert (headers["viaduck-reason"], headers["viaduck-partition"], headers["viaduck-offset"]) == (
        "too_large",
        "0",
        "3",
    )


def test_a_rejected_record_that_its_topic_can_not_hold_parks_with_its_place(topic: Topic, landing: Land) -> None:
    landed, large = landing(), random.Random(1).randbytes(2_000_000)  # compressed it would be small
    topic.take_records_of(4_000_000)
    topic.send({"id": 1}, large)
    said = landed.land(p0=2)
    assert (said.outcome, said.error and said.error.type) == ("parked", "value_refused")
    assert said.error is not None
    assert "offset 1 of partition 0" in said.error.message
    assert f"max.message.bytes of {landed.rejected}" in (said.error.hint or "")
    assert landed.rows_of() == []
    topic.take_records_of(4_000_000, landed.rejected)
    assert landed.land(p0=2).outcome == "applied"
    ((_, value, _),) = read_all(topic.kafka, landed.rejected)
    assert value == large


@pytest.mark.parametrize(
    ("memory", "code", "told"),
    [
        ("1GB", check.DONE, "of the newest 2 records 2 would be rows"),
        ("100MB", check.UNREACHABLE, "raise applier.memory_limit"),
    ],
    ids=["enough", "too little"],
)
def test_check_reads_its_sample_in_the_memory_that_an_applier_has(
    topic: Topic, tmp_path: Path, capsys: pytest.CaptureFixture[str], memory: str, code: int, told: str
) -> None:
    topic.take_records_of(BROKER)
    topic.send({"id": 1}, {"id": 2, "v": text(1, 30_000_000)})
    file = write(
        tmp_path, source={"kind": "kafka", "topic": topic.name}, routing={}, state_dir=str(tmp_path / "state"),
        kafka={"bootstrap_servers": topic.kafka.bootstrap}, applier={"memory_limit": memory},
    )  # fmt: skip
    assert check.main(load_all([file])) == code
    said = " ".join(capsys.readouterr().out.split())
    assert told in said
