"""Which destinations a reader plans."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shared.config.model import Partition
from shared.config.partition import assigned


def test_one_reader_alone_plans_all() -> None:
    assert assigned(Partition(), "anything")


def test_an_explicit_share_is_what_it_lists() -> None:
    share = Partition(mode="explicit", include=("a", "not-there-yet"))
    assert [assigned(share, each) for each in ("a", "b", "not-there-yet")] == [True, False, True]


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=30), st.integers(1, 9))
def test_each_destination_has_one_reader_of_a_hash_partition(destination: str, total: int) -> None:
    readers = [Partition(mode="hash", total=total, ordinal=ordinal) for ordinal in range(total)]
    assert sum(assigned(reader, destination) for reader in readers) == 1


def test_the_hash_is_md5_of_the_id_in_every_process_and_version() -> None:
    ids = ("quacksworth-lake", "mallardine-lake", "a", "b")
    shares = [[each for each in ids if assigned(Partition(mode="hash", total=4, ordinal=n), each)] for n in range(4)]
    assert shares == [["quacksworth-lake"], ["mallardine-lake", "a"], [], ["b"]]
