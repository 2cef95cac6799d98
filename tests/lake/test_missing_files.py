"""Which trouble of a store means that a destination's files are gone (H7), and is worth seeding it anew."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from services.applier.worker import worker_state
from shared.config.catalogs import ResolvedLake
from shared.contracts.messages import Outcome, Progress
from tests.lake.rig import ApplyRig
from tests.servers.proxy import Proxy
from tests.servers.s3 import S3, Key


@pytest.fixture
def make_lake(tmp_path: Path) -> Iterator[object]:
    yield lambda name, data: ResolvedLake(f"sqlite:{tmp_path}/{name}.sqlite", None, str(data))
    worker_state.forget()


@pytest.fixture
def rig(rig: ApplyRig) -> ApplyRig:
    """With more rows of ``a`` than DuckLake would keep in the catalog."""
    rig.sql("INSERT INTO src.main.t SELECT 100 + i, 'a', 'v' FROM range(100) r(i)")
    return rig


@pytest.fixture
def bucket(s3: S3) -> str:
    """Every address in it has a number in it that also says that something is not found."""
    name = f"with-404-{secrets.token_hex(4)}"
    s3.create_bucket(name)
    return name


def on_store(rig: ApplyRig, s3: S3, bucket: str, port: int | None = None) -> ResolvedLake:
    """``a``'s lake, its data on the store, seeded."""
    properties = s3.properties(s3.admin, port=port)
    lake = ResolvedLake(f"sqlite:{rig.folder}/a-on-s3.sqlite", None, f"s3://{bucket}/a/", properties)
    rig.add("a", lake=lake)
    assert rig.seed("a")[0].outcome is Outcome.APPLIED
    return lake


def told(progress: Progress) -> tuple[Outcome, str]:
    return progress.outcome, "" if progress.error is None else progress.error.type


def touch_all(rig: ApplyRig) -> int:
    """Change every row, so that every file of a destination must be read; returns the position before."""
    before = rig.head
    rig.sql("UPDATE src.main.t SET v = v || '!'")
    return before


def test_a_store_that_breaks_off_is_asked_again_whatever_its_addresses_look_like(
    rig: ApplyRig, s3: S3, bucket: str
) -> None:
    with Proxy(s3.port) as way:
        on_store(rig, s3, bucket, way.port)
        before = touch_all(rig)
        way.refuse()
        [failed] = rig.changes(before, "a")
        way.heal()
        assert told(failed) == (Outcome.FAILED, "destination_unreachable")
        assert rig.changes(before, "a")[0].outcome is Outcome.APPLIED
        assert rig.rows("a") == rig.expected("a")


def test_keys_that_are_not_taken_any_more_park_and_say_so(rig: ApplyRig, s3: S3, bucket: str) -> None:
    """The store says of them, too, that they do not exist."""
    lake = on_store(rig, s3, bucket)
    before = touch_all(rig)
    rig.add("a", lake=replace(lake, properties=s3.properties(Key.new())))
    [parked] = rig.changes(before, "a")
    assert told(parked) == (Outcome.PARKED, "storage_refused")
    assert parked.error is not None
    assert "InvalidAccessKeyId" in parked.error.message
    rig.add("a", lake=lake)
    assert rig.changes(before, "a")[0].outcome is Outcome.APPLIED
    assert rig.rows("a") == rig.expected("a")


def test_a_bucket_that_is_gone_is_not_a_file_that_is_gone(rig: ApplyRig, s3: S3, bucket: str) -> None:
    on_store(rig, s3, bucket)
    before = touch_all(rig)
    s3.delete_bucket(bucket)
    [parked] = rig.changes(before, "a")
    assert told(parked) == (Outcome.PARKED, "storage_refused")
    assert parked.error is not None
    assert "NoSuchBucket" in parked.error.message


def test_a_file_that_is_gone_from_its_bucket_is_damage(rig: ApplyRig, s3: S3, bucket: str) -> None:
    on_store(rig, s3, bucket)
    before = touch_all(rig)
    s3.delete_folder(bucket, "a")
    assert told(rig.changes(before, "a")[0]) == (Outcome.PARKED, "destination_damaged")
