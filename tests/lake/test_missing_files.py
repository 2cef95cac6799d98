"""Which trouble of a store means that a destination's files are gone (H7), and is worth seeding it anew."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from services.applier import worker
from shared.config.catalogs import ResolvedLake
from shared.messages import Outcome, Progress
from tests.lake.bed import Bed
from tests.servers.proxy import Proxy
from tests.servers.s3 import S3, Key


@pytest.fixture
def make_lake(tmp_path: Path) -> Iterator[object]:
    yield lambda name, data: ResolvedLake(f"sqlite:{tmp_path}/{name}.sqlite", None, str(data))
    worker.forget()


@pytest.fixture
def bed(bed: Bed) -> Bed:
    """With more rows of ``a`` than DuckLake would keep in the catalog."""
    bed.sql("INSERT INTO src.main.t SELECT 100 + i, 'a', 'v' FROM range(100) r(i)")
    return bed


@pytest.fixture
def bucket(s3: S3) -> str:
    """Every address in it has a number in it that also says that something is not found."""
    name = f"with-404-{secrets.token_hex(4)}"
    s3.create_bucket(name)
    return name


def on_store(bed: Bed, s3: S3, bucket: str, port: int | None = None) -> ResolvedLake:
    """``a``'s lake, its data on the store, seeded."""
    properties = s3.properties(s3.admin, port=port)
    lake = ResolvedLake(f"sqlite:{bed.folder}/a-on-s3.sqlite", None, f"s3://{bucket}/a/", properties)
    bed.add("a", lake=lake)
    assert bed.seed("a")[0].outcome is Outcome.APPLIED
    return lake


def told(progress: Progress) -> tuple[Outcome, str]:
    return progress.outcome, "" if progress.error is None else progress.error.type


def touch_all(bed: Bed) -> int:
    """Change every row, so that every file of a destination must be read; returns the position before."""
    before = bed.head
    bed.sql("UPDATE src.main.t SET v = v || '!'")
    return before


def test_a_store_that_breaks_off_is_asked_again_whatever_its_addresses_look_like(bed: Bed, s3: S3, bucket: str) -> None:
    with Proxy(s3.port) as way:
        on_store(bed, s3, bucket, way.port)
        before = touch_all(bed)
        way.refuse()
        [failed] = bed.changes(before, "a")
        way.heal()
        assert told(failed) == (Outcome.FAILED, "destination_unreachable")
        assert bed.changes(before, "a")[0].outcome is Outcome.APPLIED
        assert bed.rows("a") == bed.expected("a")


def test_keys_that_are_not_taken_any_more_park_and_say_so(bed: Bed, s3: S3, bucket: str) -> None:
    """The store says of them, too, that they do not exist."""
    lake = on_store(bed, s3, bucket)
    before = touch_all(bed)
    bed.add("a", lake=replace(lake, properties=s3.properties(Key.new())))
    [parked] = bed.changes(before, "a")
    assert told(parked) == (Outcome.PARKED, "storage_refused")
    assert parked.error is not None
    assert "InvalidAccessKeyId" in parked.error.message
    bed.add("a", lake=lake)
    assert bed.changes(before, "a")[0].outcome is Outcome.APPLIED
    assert bed.rows("a") == bed.expected("a")


def test_a_bucket_that_is_gone_is_not_a_file_that_is_gone(bed: Bed, s3: S3, bucket: str) -> None:
    on_store(bed, s3, bucket)
    before = touch_all(bed)
    s3.delete_bucket(bucket)
    [parked] = bed.changes(before, "a")
    assert told(parked) == (Outcome.PARKED, "storage_refused")
    assert parked.error is not None
    assert "NoSuchBucket" in parked.error.message


def test_a_file_that_is_gone_from_its_bucket_is_damage(bed: Bed, s3: S3, bucket: str) -> None:
    on_store(bed, s3, bucket)
    before = touch_all(bed)
    s3.delete_folder(bucket, "a")
    assert told(bed.changes(before, "a")[0]) == (Outcome.PARKED, "destination_damaged")
