"""What ``viaduck check`` says of a sample of a topic's records, and which records that are."""

from __future__ import annotations

import pytest

from services.applier.worker.topic_sample import MOST, TopicSample, span
from services.cli.commands.check_topic import routed_of, said_of
from services.cli.output.findings import MOST_COLUMNS, CheckFinding, show
from shared.contracts.positions import Vector


def test_a_sample_is_told_in_one_sentence() -> None:
    assert said_of(TopicSample(0, 0, 0, (), {}, "", {})) == "no record yet; these columns come first"
    assert said_of(TopicSample(3, 3, 0, (), {}, "", {})) == "of the newest 3 records 3 would be rows"
    rejected = dict.fromkeys("abcdef", 1) | {"not_json": 2}
    said = said_of(TopicSample(12, 3, 1, (), rejected, "offset 1 of partition 0: why", {"": 1, "amount": 2}))
    assert said == (
        "of the newest 12 records 3 would be rows, 1 would delete their key,"
        " 8 would be rejected (not_json: 2, a: 1, b: 1, c: 1, d: 1, …),"
        " 3 values would go to _rescued (amount: 2, fields without a column: 1);"
        " first rejected: offset 1 of partition 0: why"
    )


@pytest.mark.parametrize("partitions", [1, 3, 100, 1_000])
def test_a_sample_is_of_the_end_of_each_partition_and_bounded(partitions: int) -> None:
    oldest = Vector.of(dict.fromkeys(range(partitions), 7))
    newest = Vector.of({each: 7 if each == 0 and partitions > 1 else 1_000 for each in range(partitions)})
    begin, end = span(oldest, newest)
    assert 0 < end.records - begin.records <= MOST
    assert all(newest.by_partition[each] == offset for each, offset in end.offsets)


def test_nothing_is_read_of_an_empty_topic() -> None:
    assert span(Vector.of({0: 5}), Vector.of({0: 5})) == (Vector(), Vector())


def test_a_wide_table_is_cut_and_names_can_not_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    columns = (("\x1b[2J", "BIGINT"), *((f"c{number}", "BIGINT") for number in range(MOST_COLUMNS + 1)))
    show([CheckFinding("sample", True, "", columns=columns)])
    said = capsys.readouterr().out
    assert "\x1b[2J" not in said
    assert "… and 2 more columns" in said


def test_of_a_topic_that_is_routed_it_is_counted_what_goes_where_and_no_value_is_shown() -> None:
    found = TopicSample(9, 9, 0, (), {}, "", {}, {"acme": 4, "hooli": 2, "secret": 1}, unrouted=2)
    said = routed_of(found, frozenset({"acme", "globex"}))
    assert said == "; 4 go to the file's destinations, 3 are of 2 values that none of them has, 2 have none"
