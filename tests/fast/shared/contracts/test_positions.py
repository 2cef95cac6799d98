"""Vectors of offsets: their order, their sum, and the one text that each has."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.contracts.errors import UnreadableMessage
from shared.contracts.messages import ItemKind, Progress, WorkItem
from shared.contracts.positions import SpelledPosition, Vector, is_spelling_of

OFFSETS = st.dictionaries(st.integers(0, 4), st.integers(0, 3), max_size=4)
vectors = st.builds(Vector.of, OFFSETS)


def position(vector: Vector) -> SpelledPosition:
    return SpelledPosition(vector.records, vector.text)


@given(OFFSETS, OFFSETS)
def test_a_vector_covers_another_if_it_is_at_or_beyond_it_in_every_partition(
    one: dict[int, int], other: dict[int, int]
) -> None:
    expected = all(one.get(partition, 0) >= other.get(partition, 0) for partition in range(5))
    assert Vector.of(one).covers(Vector.of(other)) is expected
    assert position(Vector.of(one)).covers(position(Vector.of(other))) is expected


@given(vectors, vectors, vectors)
def test_cover_is_a_partial_order_along_which_sums_grow(one: Vector, other: Vector, third: Vector) -> None:
    assert one.covers(one)
    if one.covers(other) and other.covers(one):
        assert one == other
        assert one.text == other.text
    if one.covers(other) and other.covers(third):
        assert one.covers(third)
    if one.covers(other) and one != other:
        assert one.records > other.records


@given(vectors, vectors)
def test_the_join_of_two_vectors_is_the_first_that_covers_both(one: Vector, other: Vector) -> None:
    joined = one.joined(other)
    assert joined == other.joined(one)
    assert joined.covers(one)
    assert joined.covers(other)
    assert joined.records == one.records + sum(end - first for first, end in joined.beyond(one).values())


@given(vectors)
def test_a_vector_has_one_text_which_is_read_back(vector: Vector) -> None:
    assert Vector.parse(vector.text) == vector
    assert json.loads(vector.text) == {str(partition): offset for partition, offset in vector.offsets}
    assert is_spelling_of(vector.text, sum(json.loads(vector.text).values()))


def test_the_text_of_a_vector_is_canonical_json() -> None:
    assert Vector.of({10: 7, 2: 98, 0: 100, 1: 0}).text == '{"0":100,"2":98,"10":7}'
    assert Vector().text == "{}"


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"0":100,}', '{"0": 100}', '{"0":0}', '{"0":-1}', '{"00":1}', '{"1":1,"0":1}', '{"0":1,"0":1}',
     '{"0":1.0}', '{"a":1}', '{"0":"1"}', '{"0":1}\n', '{"0":10000000000000000000}', "null", '{"0":1}' + " " * 200_000],
)  # fmt: skip
def test_what_is_not_the_text_of_a_vector_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="canonical"):
        Vector.parse(text)
    assert not is_spelling_of(text, 1)


def test_two_vectors_of_one_sum_do_not_cover_each_other() -> None:
    one, other = position(Vector.of({0: 1, 1: 2})), position(Vector.of({0: 2, 1: 1}))
    assert one.number == other.number
    assert not one.covers(other)
    assert not other.covers(one)


def test_a_position_with_a_spelling_and_one_without_prove_nothing_of_each_other() -> None:
    spelled = position(Vector.of({0: 5}))
    assert not spelled.covers(SpelledPosition(3))
    assert not SpelledPosition(8).covers(spelled)
    assert SpelledPosition(8).covers(SpelledPosition(3))


def item(**more: object) -> WorkItem:
    fields = {"item": "i", "kind": ItemKind.CHANGES, "pipeline": "p", "destination": "d", "generation": 1}
    return WorkItem.model_validate({**fields, "expected": 3, "after": 3, "through": 5, **more})


def test_an_item_of_a_lake_says_nothing_of_spellings_and_an_older_service_reads_it() -> None:
    assert b"_at" not in item().to_bytes().replace(b"published_at", b"")
    assert item().begin == SpelledPosition(3)
    assert item().end == SpelledPosition(5)


def test_an_item_of_a_topic_carries_both_of_its_ends() -> None:
    sent = item(expected_at='{"0":3}', through_at='{"0":3,"1":2}')
    read = WorkItem.from_bytes(sent.to_bytes())
    assert read.begin == SpelledPosition(3, '{"0":3}')
    assert read.end == SpelledPosition(5, '{"0":3,"1":2}')


@pytest.mark.parametrize("field", ["expected_at", "through_at"])
@pytest.mark.parametrize("spelled", ['{"0":4}', '{"0":3,"1":0}', "x", "{}"])
def test_an_item_whose_spelling_contradicts_its_position_is_unreadable(field: str, spelled: str) -> None:
    sent = item().to_bytes()[:-1] + f',"{field}":{json.dumps(spelled)}}}'.encode()
    with pytest.raises(UnreadableMessage):
        WorkItem.from_bytes(sent)


def test_an_answer_that_spells_no_position_is_unreadable() -> None:
    said = b'{"pipeline":"p","destination":"d","item":"i","kind":"changes","outcome":"applied","generation":1,'
    with pytest.raises(UnreadableMessage):
        Progress.from_bytes(said + b'"position":3,"position_at":"three"}')


def test_an_item_that_skips_names_the_records_that_are_gone() -> None:
    sent = item(expected_at='{"0":3}', after=9, after_at='{"0":7,"1":2}', through=12, through_at='{"0":9,"1":3}')
    skipped = WorkItem.from_bytes(sent.to_bytes()).skipped
    assert skipped is not None
    assert (skipped.item, skipped.offsets, skipped.records) == ("i", {0: (3, 7), 1: (0, 2)}, 6)
    assert item(expected_at='{"0":3}', through_at='{"0":5}').skipped is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"after": 4, "after_at": '{"0":5}'},
        {"after": 4, "after_at": '{"1":4}'},
        {"after": 6, "after_at": '{"0":6}'},
        {"after": 4, "after_at": '{"0":4}', "expected_at": None},
    ],
    ids=["another sum", "behind the position", "beyond the end", "from nowhere"],
)
def test_what_an_item_skips_lies_between_its_ends(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="does not"):
        item(**{"expected_at": '{"0":3}', "through_at": '{"0":5}', **wrong})


def test_an_answer_tells_what_its_commit_skipped() -> None:
    said = b'{"pipeline":"p","destination":"d","item":"i","kind":"changes","outcome":"applied","generation":1,'
    read = Progress.from_bytes(said + b'"skipped":{"item":"j","offsets":{"0":[3,7]}}}')
    assert read.skipped is not None
    assert Progress.from_bytes(read.to_bytes()) == read
    assert (read.skipped.item, read.skipped.records) == ("j", 4)
