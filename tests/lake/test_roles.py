"""Lakes that are opened without keys of their own: by what is found around the process, or by a role.

There is no AWS here. The chain is that of the environment, the role's credentials come from an endpoint of ours, and
the store is a real one that checks signatures.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

import duckdb
import pytest

from services.applier.model.task import Limits
from shared.config.catalogs import ResolvedLake
from shared.contracts.messages import CommitPath, Outcome, Progress
from shared.lake.attached import pool
from shared.lake.connection.attach import attach, scanners
from shared.lake.connection.engine import connect
from tests.lake.conftest import MakeRig
from tests.lake.rig import ApplyRig
from tests.servers.blobs import Blobs
from tests.servers.s3 import S3, Key
from tests.servers.sts import Sts

ROLE = "arn:aws:iam::123456789012:role/lakes"
CHAIN = {"s3_provider": "credential_chain", "s3_chain": "env"}
ON_SQLITE = pytest.mark.parametrize("make_lake", ["sqlite"], indirect=True)


@pytest.fixture(autouse=True)
def nothing_around(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def give(monkeypatch: pytest.MonkeyPatch, key: Key) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", key.id)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", key.secret)


def on_store(rig: ApplyRig, s3: S3, bucket: str, scheme: str = "s3", **properties: str) -> None:
    """Declare the destination ``a`` with its files in a new bucket of the store."""
    s3.create_bucket(bucket)
    store = {name: value for name, value in s3.properties(s3.admin).items() if "key" not in name}
    catalog = f"sqlite:{rig.folder}/a.sqlite"
    rig.add("a", lake=ResolvedLake(catalog, None, f"{scheme}://{bucket}/a/", {**store, **properties}))


@contextmanager
def read_with_keys(rig: ApplyRig, s3: S3) -> Iterator[duckdb.DuckDBPyConnection]:
    lake = rig.lake("a")
    with closing(connect(catalogs=scanners(lake))) as con:
        attach(con, "dst", replace(lake, properties=s3.properties(s3.admin)), read_only=True)
        yield con


def rows(rig: ApplyRig, s3: S3) -> list[tuple[Any, ...]]:
    with read_with_keys(rig, s3) as con:
        return sorted(con.execute("SELECT * FROM dst.main.t").fetchall(), key=repr)


def changed(rig: ApplyRig) -> Progress:
    before = rig.head
    rig.sql("UPDATE src.main.t SET v = v || '!' WHERE id < 3")
    (progress,) = rig.changes(before, "a")
    return progress


@pytest.fixture
def rig(make_rig: MakeRig, commit: str) -> ApplyRig:
    made = make_rig(limits=Limits(commit=commit))  # type: ignore[arg-type]
    made.sql(
        "CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, v VARCHAR)",
        "INSERT INTO src.main.t SELECT i, 'a', 'v' || i FROM range(2000) r(i)",
    )
    return made


@ON_SQLITE
@pytest.mark.parametrize("commit", ["direct", "extension"])
def test_a_lake_without_keys_is_seeded_and_applied_to_by_what_its_chain_finds(
    rig: ApplyRig, s3: S3, commit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    give(monkeypatch, s3.admin)
    on_store(rig, s3, f"chain-{commit}", **CHAIN)
    assert [each.outcome for each in rig.seed()] == [Outcome.APPLIED]
    progress = changed(rig)
    assert (progress.outcome, progress.commit == CommitPath.DIRECT) == (Outcome.APPLIED, commit == "direct")
    assert rows(rig, s3) == rig.expected("a")


@ON_SQLITE
@pytest.mark.parametrize("commit", ["auto"])
def test_a_roles_keys_open_the_lake_and_the_machines_own_do_not(
    rig: ApplyRig, s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    give(monkeypatch, Key.new())  # unknown to the store
    on_store(rig, s3, "role", s3_provider="credential_chain", s3_assume_role_arn=ROLE)
    with Sts(s3.admin.id, s3.admin.secret, "") as sts:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", sts.url)
        assert [each.outcome for each in rig.seed()] == [Outcome.APPLIED]
        assert changed(rig).outcome == Outcome.APPLIED
    assert rows(rig, s3) == rig.expected("a")
    assert {asked["RoleArn"] for asked in sts.asked} == {ROLE}


@ON_SQLITE
@pytest.mark.parametrize("commit", ["extension"])
def test_an_attached_lake_has_new_credentials_before_the_old_ones_expire(
    rig: ApplyRig, s3: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "RENEW_AFTER_S", 0.0)
    give(monkeypatch, s3.admin)
    on_store(rig, s3, "renewed", s3_provider="credential_chain", s3_assume_role_arn=ROLE)
    with Sts(s3.admin.id, s3.admin.secret, "") as sts:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", sts.url)
        rig.seed()
        before = len(sts.asked)
        assert changed(rig).outcome == Outcome.APPLIED
        assert len(sts.asked) > before
    assert rows(rig, s3) == rig.expected("a")


@ON_SQLITE
@pytest.mark.parametrize("commit", ["auto"])
def test_without_credentials_a_seed_is_tried_again_and_says_why(rig: ApplyRig, s3: S3) -> None:
    on_store(rig, s3, "nothing", **CHAIN)
    (progress,) = rig.seed()
    assert progress.error is not None
    assert (progress.outcome, progress.error.type) == (Outcome.FAILED, "storage_failed")
    assert "give its machine a role" in progress.error.hint


@ON_SQLITE
@pytest.mark.parametrize("commit", ["direct"])
def test_a_lake_of_google_is_seeded_and_applied_to_with_its_hmac_keys(rig: ApplyRig, s3: S3) -> None:
    """The store speaks the same protocol as Google's."""
    on_store(rig, s3, "google", "gs", gcs_key_id=s3.admin.id, gcs_secret=s3.admin.secret)
    assert [each.outcome for each in rig.seed()] == [Outcome.APPLIED]
    progress = changed(rig)
    assert (progress.outcome, progress.commit) == (Outcome.APPLIED, CommitPath.DIRECT)
    assert rows(rig, s3) == rig.expected("a")


@ON_SQLITE
@pytest.mark.parametrize("commit", ["direct"])
def test_a_lake_in_azure_is_seeded_applied_to_and_cleaned(rig: ApplyRig) -> None:
    with Blobs() as blobs:
        properties = {"azure_connection_string": blobs.connection_string}
        lake = ResolvedLake(f"sqlite:{rig.folder}/a.sqlite", None, "az://lake/a/", properties)
        rig.add("a", lake=lake)
        assert [each.outcome for each in rig.seed()] == [Outcome.APPLIED]
        progress = changed(rig)
        assert (progress.outcome, progress.commit) == (Outcome.APPLIED, CommitPath.DIRECT)
        blobs.content["lake/a/main/t/orphan.parquet"] = blobs.content["lake/another.parquet"] = b"PAR1"
        with closing(connect(catalogs=scanners(lake))) as con:
            attach(con, "dst", lake, read_only=False)
            assert sorted(con.execute("SELECT * FROM dst.main.t").fetchall(), key=repr) == rig.expected("a")
            con.execute("CALL ducklake_delete_orphaned_files('dst', cleanup_all => true)").fetchall()
            assert sorted(con.execute("SELECT * FROM dst.main.t").fetchall(), key=repr) == rig.expected("a")
    assert blobs.signed_by == {"devstore"}
    assert "lake/a/main/t/orphan.parquet" not in blobs.content
    assert "lake/another.parquet" in blobs.content
