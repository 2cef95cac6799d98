"""What becomes of the files of a direct commit that failed for good, where they lie in a store that speaks S3."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from services.applier.model.task import Limits
from shared.config.catalogs import ResolvedLake
from shared.contracts.messages import CommitPath, Outcome
from shared.lake.connection.attach import attach, scanners
from shared.lake.connection.engine import connect
from tests.lake.batches import fill_the_disk
from tests.lake.conftest import MakeRig
from tests.lake.rig import ApplyRig
from tests.servers.s3 import S3

BUCKETS = {"s3": "dead-files", "gs": "dead-files-of-google", "chain": "dead-files-of-a-chain"}
ON_SQLITE = pytest.mark.parametrize("make_lake", ["sqlite"], indirect=True)


@pytest.fixture
def rig(make_rig: MakeRig) -> ApplyRig:
    made = make_rig(limits=Limits(commit="direct"))
    made.sql(
        "CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, v VARCHAR)",
        "INSERT INTO src.main.t SELECT i, 'a', 'v' || i FROM range(2000) r(i)",
    )
    return made


def properties_of(kind: str, s3: S3, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    given = s3.properties(s3.admin)
    if kind == "s3":
        return given
    of_the_store = {name: value for name, value in given.items() if "key" not in name}
    if kind == "gs":
        return {**of_the_store, "gcs_key_id": s3.admin.id, "gcs_secret": s3.admin.secret}
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3.admin.id)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3.admin.secret)
    return {**of_the_store, "s3_provider": "credential_chain", "s3_chain": "env"}


def orphans(lake: ResolvedLake, s3: S3) -> list[tuple[Any, ...]]:
    """What its owner finds, who has keys."""
    lake = replace(lake, data_path=None, properties=s3.properties(s3.admin))
    with closing(connect(catalogs=scanners(lake))) as con:
        attach(con, "dst", lake, read_only=False)
        look = "CALL ducklake_delete_orphaned_files('dst', cleanup_all => true, dry_run => true)"
        return con.execute(look).fetchall()


@ON_SQLITE
@pytest.mark.parametrize(("kind", "left"), [("s3", 0), ("gs", 0), ("chain", 2)])
def test_a_commit_that_failed_takes_its_files_out_of_the_store_where_the_lake_has_keys(
    rig: ApplyRig, s3: S3, kind: str, left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without keys of its own they stay, a data file and a delete file, for the lake's owner to find."""
    s3.create_bucket(BUCKETS[kind])
    place = f"{'gs' if kind == 'gs' else 's3'}://{BUCKETS[kind]}/a lake/"
    lake = ResolvedLake(f"sqlite:{rig.folder}/a.sqlite", None, place, properties_of(kind, s3, monkeypatch))
    rig.add("a", lake=lake)
    assert [each.outcome for each in rig.seed()] == [Outcome.APPLIED]
    assert orphans(lake, s3) == []
    before = rig.head
    rig.sql("UPDATE src.main.t SET v = v || '!' WHERE id < 3")
    with monkeypatch.context() as patched:
        fill_the_disk(patched)
        (failed,) = rig.changes(before, "a")
    assert (failed.outcome, failed.error and failed.error.type) == (Outcome.FAILED, "storage_failed")
    assert len(orphans(lake, s3)) == left
    (again,) = rig.changes(before, "a")
    assert (again.outcome, again.commit) == (Outcome.APPLIED, CommitPath.DIRECT)
    assert len(orphans(lake, s3)) == left, "and none of these is the lake's"
