"""The oracle of topics finds every fault that is planted here, and none where there is none."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest

from tests.world.destination import Destination
from tests.world.duck import name, quote
from tests.world.lake import Lake, attach, detach
from tests.world.stamps import BadStamp, offsets
from tests.world.topic_oracle import TopicOracle
from tests.world.topic_truth import TopicRecord, TopicTruth

ALIAS, TABLE = "forged", name("forged", "main", "t")
CURSOR = name(ALIAS, "_viaduck", "cursor_d")

RECORDS = (
    TopicRecord(0, 0, b'{"id": 1, "v": "a"}'),
    TopicRecord(0, 1, b"no JSON"),
    TopicRecord(0, 2, b'{"id": 2, "v": 1.5, "big": 99999999999999999999}'),
    TopicRecord(1, 0, b'{"id": 3, "n": {"x": [true, null]}}'),
    TopicRecord(1, 2, b'{"id": 4, "v": null}'),
)
"""Offset 1 of partition 1 is a hole, as a transaction leaves one."""

ROWS: Mapping[tuple[int, int], Sequence[Any]] = {
    (0, 0): (1, "a", None, None),
    (0, 2): (2, None, None, '{"v": 1.5, "big": 99999999999999999999}'),
    (1, 0): (3, None, '{"x": [true, null]}', None),
    (1, 2): (4, None, None, None),
}

Vector = Mapping[int, int]


class Forge:
    """A destination written by hand, right unless told otherwise."""

    def __init__(self, con: duckdb.DuckDBPyConnection, folder: Path) -> None:
        self.con, self.tokens = con, 0
        self.at: Vector = {}
        self.oracle = TopicOracle(Destination(Lake.in_folder(folder), "t", "p", "d", ""))
        self.truth = TopicTruth("topic-1")
        self.truth.add(RECORDS, {0: 3, 1: 3})
        attach(con, ALIAS, self.oracle.destination.lake, create=True)

    def seed(self, start: Vector | None = None, **faults: Any) -> None:
        columns = "_kafka_partition INTEGER, _kafka_offset BIGINT, id BIGINT, v VARCHAR, n JSON, _rescued JSON"
        kept = "pipeline VARCHAR, destination VARCHAR, generation BIGINT, position BIGINT, source_lake VARCHAR,"
        made = [
            f"CREATE SCHEMA {name(ALIAS, '_viaduck')}",
            f"CREATE TABLE {TABLE} ({columns})",
            f"CREATE TABLE {CURSOR} ({kept} source_table_uuid VARCHAR, source_position VARCHAR)",
            f"INSERT INTO {CURSOR} VALUES ('p', 'd', 0, 0, 'cluster@', '', '{{}}')",
        ]
        self.commit("seed", start or {}, before=made, **faults)

    def land(self, end: Vector, **faults: Any) -> None:
        self.commit("changes", end, **faults)

    def commit(
        self,
        kind: str,
        end: Vector,
        *,
        before: Sequence[str] = (),
        tamper: Sequence[str] = (),
        stamp: Mapping[str, Any] | None = None,
        stored: Vector | None = None,
        topic: str = "topic-1",
        generation: int = 1,
    ) -> None:
        """``tamper`` runs after the rows are right; ``stamp`` and ``stored`` replace what is true."""
        landed = self._between(self.at, end) if kind == "changes" else []
        rows = [(place, ROWS[place]) for place in landed if place in ROWS]
        self.tokens += 1
        says = {
            "viaduck": 1, "pipeline": "p", "destination": "d", "kind": kind, "generation": generation,
            "after": sum(self.at.values()) if kind == "changes" else -1, "through": sum(end.values()),
            "item": f"i{self.tokens}", "token": f"t{self.tokens}", "deleted": 0, "inserted": len(rows),
            "through_at": spelled(end), "rejected": len(landed) - len(rows),
        } | dict(stamp or {})  # fmt: skip
        moved = stored or end
        self.transact(
            *before,
            f"UPDATE {CURSOR} SET generation = {generation}, position = {sum(moved.values())},"
            f" source_position = '{spelled(moved)}', source_table_uuid = '{topic}'",
            *(f"INSERT INTO {TABLE} VALUES ({', '.join(map(literal, [*place, *row]))})" for place, row in rows),
            *tamper,
            f"CALL {name(ALIAS)}.set_commit_message('viaduck', '{kind}', extra_info => {quote(json.dumps(says))})",
        )
        self.at = end

    def transact(self, *statements: str) -> None:
        self.con.execute("BEGIN")
        for statement in statements:
            self.con.execute(statement).fetchall()
        self.con.execute("COMMIT")

    def _between(self, start: Vector, end: Vector) -> list[tuple[int, int]]:
        places = [each.place for each in RECORDS]
        return [(p, o) for p, o in places if start.get(p, 0) <= o < end.get(p, 0)]

    def rules(self, *, arrived: bool = False) -> set[str]:
        return {found.rule for found in self.findings(arrived=arrived)}

    def findings(self, *, arrived: bool = False) -> Sequence[Any]:
        detach(self.con, ALIAS)
        truths = {self.truth.topic: self.truth}
        try:
            return self.oracle.look(self.con, truths, arrived=self.truth if arrived else None)
        finally:
            attach(self.con, ALIAS, self.oracle.destination.lake)


def spelled(vector: Vector) -> str:
    return json.dumps({str(each): vector[each] for each in sorted(vector)}, separators=(",", ":"))


def literal(value: Any) -> str:
    return "NULL" if value is None else quote(value) if isinstance(value, str) else str(value)


@pytest.fixture
def forge(world: duckdb.DuckDBPyConnection, tmp_path: Path) -> Iterator[Forge]:
    made = Forge(world, tmp_path)
    yield made
    detach(world, ALIAS)


def test_what_is_right_at_every_snapshot_is_no_finding(forge: Forge) -> None:
    forge.seed()
    forge.land({0: 2})
    assert forge.findings() == []
    forge.land({0: 2, 1: 1})
    forge.land({0: 3, 1: 3})
    assert forge.findings(arrived=True) == []
    assert forge.oracle.compared == 4


def test_a_life_may_begin_anywhere(forge: Forge) -> None:
    forge.seed({0: 1, 1: 2})
    forge.at = {0: 1, 1: 2}
    forge.land({0: 3, 1: 3})
    assert forge.findings(arrived=True) == []


@pytest.mark.parametrize(("oldest", "rules"), [({0: 1, 1: 2}, set()), ({0: 1, 1: 1}, {"range"}), ({}, {"range"})])
def test_a_life_that_is_to_have_all_of_a_topic_begins_where_that_begins(
    forge: Forge, oldest: Vector, rules: set[str]
) -> None:
    forge.truth.oldest = oldest
    forge.seed({0: 1, 1: 2})
    assert forge.rules() == rules


EXTRA = f"INSERT INTO {TABLE} SELECT * FROM {TABLE} WHERE _kafka_offset = 0"
LATER = f"INSERT INTO {TABLE} VALUES (1, 0, 3, NULL, '{{\"x\": [true, null]}}', NULL)"


@pytest.mark.parametrize(
    ("tamper", "said"),
    [
        (f"DELETE FROM {TABLE} WHERE _kafka_offset = 2", "missing"),
        (EXTRA, "more than once"),
        (LATER, "too many"),
        (f"UPDATE {TABLE} SET id = 7 WHERE _kafka_offset = 2", "not their records"),
        (f"UPDATE {TABLE} SET _rescued = NULL WHERE _kafka_offset = 2", "not their records"),
        (f"""UPDATE {TABLE} SET _rescued = '{{"v": true, "big": 1}}' WHERE _kafka_offset = 2""", "not their records"),
        (f"UPDATE {TABLE} SET v = 'b' WHERE _kafka_offset = 0", "not their records"),
    ],
)  # fmt: skip
def test_rows_that_are_not_the_records_are_found(forge: Forge, tamper: str, said: str) -> None:
    forge.seed()
    forge.land({0: 3}, tamper=[tamper])
    assert said in "".join(found.detail for found in forge.findings() if found.rule == "exact")


@pytest.mark.parametrize(
    ("faults", "rule"),
    [
        ({"stamp": {"rejected": 0}}, "rejected"),
        ({"stamp": {"inserted": 3}}, "growth"),
        ({"stamp": {"after": 1}}, "range"),
        ({"stamp": {"generation": 2}}, "generation"),
        ({"stamp": {"through_at": '{"0":2}'}}, "stamp"),
        ({"stamp": {"through_at": None}}, "stamp"),
        ({"stored": {0: 1, 1: 2}}, "cursor"),
        ({"stored": {0: 2}}, "cursor"),
        ({"topic": "topic-2"}, "identity"),
        ({"tamper": [f"INSERT INTO {CURSOR} SELECT * FROM {CURSOR}"]}, "cursor"),
    ],
)
def test_what_a_snapshot_says_falsely_is_found(forge: Forge, faults: dict[str, Any], rule: str) -> None:
    forge.seed()
    forge.land({0: 3}, **faults)
    assert rule in forge.rules()


def test_a_file_that_is_gone_is_found(forge: Forge, tmp_path: Path) -> None:
    forge.seed()
    forge.land({0: 2}, before=[f"CALL {name(ALIAS)}.set_option('data_inlining_row_limit', 0, table_name => 't')"])
    for file in tmp_path.rglob("*.parquet"):
        file.unlink()
    assert forge.rules() == {"damaged"}


def test_a_vector_of_a_greater_sum_that_goes_back_is_found(forge: Forge) -> None:
    forge.seed()
    forge.land({0: 2})
    forge.transact(f"DELETE FROM {TABLE}")
    forge.at = {0: 2}
    forge.land({1: 3})
    assert "range" in forge.rules()


SKIP = {"after": 2, "skipped": {"0": [0, 2]}}


@pytest.mark.parametrize(
    ("stamp", "rules"),
    [
        (SKIP, set()),
        ({"after": 2}, {"range", "exact", "rejected"}),
        (SKIP | {"skipped": {"0": [0, 1]}}, {"range", "rejected"}),
        (SKIP | {"skipped": {"0": [2, 2]}}, {"stamp", "growth", "cursor", "exact"}),
    ],
)
def test_what_is_said_to_be_skipped_is_no_row_and_counts_as_read(
    forge: Forge, stamp: Mapping[str, Any], rules: set[str]
) -> None:
    forge.seed()
    forge.at = {0: 2}
    forge.land({0: 3}, stamp=stamp)
    assert forge.rules() == rules


BACK = {"after": 6, "deleted": 3, "rewound": True}
TAKEN_BACK = [f"DELETE FROM {TABLE} WHERE (_kafka_partition, _kafka_offset) NOT IN ((0, 0))"]


@pytest.mark.parametrize(
    ("stamp", "taken", "rules"),
    [
        (BACK, TAKEN_BACK, set()),
        (BACK | {"rewound": False}, TAKEN_BACK, {"exact"}),
        (BACK, [], {"exact", "growth"}),
        (BACK, [f"DELETE FROM {TABLE}"], {"exact", "growth"}),
    ],
)
def test_a_rewind_keeps_the_rows_of_the_records_before_it(
    forge: Forge, stamp: Mapping[str, Any], taken: Sequence[str], rules: set[str]
) -> None:
    forge.seed()
    forge.land({0: 3, 1: 3})
    forge.commit("seed", {0: 1}, before=taken, stamp=stamp, generation=2)
    assert forge.rules() == rules


def test_after_a_rewind_records_are_read_again(forge: Forge) -> None:
    forge.seed()
    forge.land({0: 3, 1: 3})
    forge.commit("seed", {0: 1}, before=TAKEN_BACK, stamp=BACK, generation=2)
    forge.land({0: 3, 1: 3}, generation=2)
    assert forge.findings(arrived=True) == []


def test_a_rewind_to_where_nothing_was_read_is_found(forge: Forge) -> None:
    forge.seed()
    forge.land({0: 1})
    forge.commit("seed", {0: 1, 1: 1}, stamp={"after": 1, "rewound": True}, generation=2)
    assert "range" in forge.rules()


def test_more_than_the_topic_has_is_found(forge: Forge) -> None:
    forge.seed()
    forge.land({0: 5})
    assert forge.rules() == {"range"}


def test_a_commit_that_is_not_ours_is_found(forge: Forge) -> None:
    forge.seed()
    forge.transact(f"DELETE FROM {TABLE} WHERE id < 0", f"COMMENT ON TABLE {TABLE} IS 'mine'")
    assert "unstamped" in forge.rules()


def test_one_life_of_two_topics_is_found(forge: Forge) -> None:
    other = TopicTruth("topic-2")
    other.add(RECORDS, {0: 3, 1: 3})
    forge.seed()
    forge.land({0: 2})
    forge.land({0: 3}, topic="topic-2")
    detach(forge.con, ALIAS)
    found = forge.oracle.look(forge.con, {"topic-1": forge.truth, "topic-2": other})
    attach(forge.con, ALIAS, forge.oracle.destination.lake)
    assert {each.rule for each in found} == {"identity"}


@pytest.mark.parametrize("end", [{0: 3}, {0: 3, 1: 2}])
def test_who_is_not_at_the_end_of_the_topic_is_behind(forge: Forge, end: Vector) -> None:
    forge.seed()
    forge.land(end)
    assert forge.rules(arrived=True) == {"behind"}


def test_with_keys_and_routing_who_is_not_concerned_by_what_came_has_arrived(forge: Forge) -> None:
    forge.truth.keyed = True
    forge.truth.records = {
        (0, 0): TopicRecord(0, 0, b'{"t": "a"}', b"k"), (0, 1): TopicRecord(0, 1, b'{"t": "b"}', b"l"),
        (0, 2): TopicRecord(0, 2, b'{"t": "b"}', b"k"),
    }  # fmt: skip
    forge.seed()
    forge.truth = forge.truth.of("t", "c")
    assert forge.findings(arrived=True) == []
    forge.truth = forge.truth.of("t", "b")
    assert forge.rules(arrived=True) == {"behind"}


def test_with_keys_the_newest_record_of_each_counts_and_nothing_deletes_it() -> None:
    truth = TopicTruth("t", keyed=True)
    values = [(b"a", b'{"n": 1}'), (b"b", b'{"n": 2}'), (b"a", b'{"n": 3}'), (b"b", None), (None, b'{"n": 4}')]
    truth.add([TopicRecord(0, place, value, key) for place, (key, value) in enumerate(values)], {0: 5})
    assert truth.rows({}, {0: 2}) == {(0, 0): {"n": 1}, (0, 1): {"n": 2}}
    assert truth.rows({}, {0: 5}) == {(0, 2): {"n": 3}}
    assert [each.offset for each in truth.rejected({}, {0: 5})] == [4]


def test_of_a_topic_that_is_routed_each_destination_has_a_truth_of_its_own() -> None:
    truth = TopicTruth("t")
    values = [b'{"t": "a", "n": 1}', b'{"t": "b"}', b"no JSON", b'{"t": 1}', b'{"t": "a"}', b'{"t": null}', None]
    truth.add([TopicRecord(0, place, value) for place, value in enumerate(values)], {0: 7, 1: 2})
    mine = truth.of("t", "a")
    assert mine.rows({}, {0: 7}) == {(0, 0): {"t": "a", "n": 1}, (0, 4): {"t": "a"}}
    assert (mine.rejected({}, {0: 7}), mine.last, mine.newest) == ([], {0: 5}, {0: 7, 1: 2})
    assert list(truth.of("t", 1).records) == [(0, 3)]
    assert truth.of("t", "c").last == {}


def test_with_keys_and_routing_a_row_is_where_the_newest_record_of_its_key_goes() -> None:
    truth = TopicTruth("t", keyed=True)
    values = [
        (b"k", b'{"t": "a"}'), (b"l", b'{"t": "a"}'), (b"k", b'{"t": "b"}'), (b"k", b'{"t": 7}'), (b"k", b"no JSON"),
        (b"m", b'{"t": "a"}'), (None, b'{"t": "b"}'), (b"l", b'{"n": 1}'), (b"m", None), (b"k", b'{"t": "a"}'),
    ]  # fmt: skip
    truth.add([TopicRecord(0, place, value, key) for place, (key, value) in enumerate(values)], {0: 10})
    rows = {each: [list(truth.of("t", each).rows({}, {0: end})) for end in (2, 6, 8, 9, 10)] for each in "ab"}
    assert rows == {
        "a": [[(0, 0), (0, 1)], [(0, 1), (0, 5)], [(0, 5)], [], [(0, 9)]],
        "b": [[], [(0, 2)], [(0, 2)], [(0, 2)], []],
    }
    assert truth.of("t", "a").rejected({}, {0: 10}) == []


@pytest.mark.parametrize("text", ['{"1":1,"0":2}', '{"0": 3}', '{"0":0,"1":3}', '{"0":2}', "three", None, '{"0":3.0}'])
def test_offsets_have_one_spelling(text: Any) -> None:
    assert offsets('{"0":2,"1":1}', 3) == {0: 2, 1: 1}
    with pytest.raises(BadStamp):
        offsets(text, 3)
