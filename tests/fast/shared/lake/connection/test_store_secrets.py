"""What DuckDB opens a lake's files with, and that no extension is loaded that no lake needs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import closing

import duckdb
import pytest

from shared.config.catalogs import ResolvedLake
from shared.contracts.errors import DestinationError, ViaduckError
from shared.lake.connection import engine
from shared.lake.connection.attach import scanners
from shared.lake.connection.engine import AWS, AZURE, SQLITE, connect
from shared.lake.connection.store_secrets import (
    IDENTITY_SETTINGS,
    KEY_SETTINGS,
    OF_A_ROLE,
    S3_SETTINGS,
    WORDS,
    keys_of,
    use_keys,
)
from shared.lake.direct.lakes import DirectInstance
from shared.lake.failure import classify
from tests.servers.sts import Sts

ROLE = "arn:aws:iam::123456789012:role/lakes"
CHAIN = {"s3_provider": "credential_chain"}
ACCOUNT = {"azure_provider": "credential_chain", "azure_account": "acmelakes"}
STRING = "DefaultEndpointsProtocol=https;AccountName=o'neil;AccountKey=c2VjcmV0;EndpointSuffix=core.windows.net"
HMAC = {"gcs_key_id": "google-id", "gcs_secret": "it's"}
PATHS = {"s3": "s3://bucket/x", "gcs": "gs://bucket/x", "azure": "az://lake/x"}


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_SESSION_TOKEN", "AWS_REGION", "AWS_PROFILE", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "found-around")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret-around")


@pytest.fixture(scope="module")
def con() -> Iterator[duckdb.DuckDBPyConnection]:
    """An instance that has every extension for stores."""
    with closing(connect(catalogs=(AWS, AZURE))) as made:
        yield made


def lake(kind: str, properties: Mapping[str, str], *, untrusted: bool = False) -> ResolvedLake:
    return ResolvedLake("sqlite:/x.sqlite", None, PATHS[kind], properties, untrusted=untrusted)


def secret(con: duckdb.DuckDBPyConnection, made: ResolvedLake) -> tuple[str, str, list[str], str]:
    """Type, provider, scope and text of the secret that a lake gets; its keys are hidden by DuckDB."""
    use_keys(con, "lake", made, made.data_path or "")
    found = con.execute("SELECT type, provider, scope, secret_string FROM duckdb_secrets()").fetchall()
    (row,) = found
    return row


@pytest.mark.parametrize(("kind", "properties", "provider", "says"), [
    ("s3", CHAIN, "credential_chain", "key_id=found-around"),
    ("s3", {**CHAIN, "s3_chain": "env;config", "s3_region": "eu-west-1"}, "credential_chain", "region=eu-west-1"),
    ("s3", {"s3_access_key_id": "own", "s3_secret_access_key": "x"}, "config", "key_id=own"),
    ("gcs", HMAC, "config", "key_id=google-id"),
    ("gcs", {"s3_access_key_id": "own", "s3_secret_access_key": "x"}, "config", "key_id=own"),
    ("azure", {"azure_connection_string": STRING}, "config", "connection_string=redacted"),
    ("azure", ACCOUNT, "credential_chain", "account_name=acmelakes"),
    ("azure", {**ACCOUNT, **HMAC, **CHAIN}, "credential_chain", "account_name=acmelakes"),
])  # fmt: skip
def test_a_lakes_secret_is_for_its_data_path_alone(
    con: duckdb.DuckDBPyConnection, kind: str, properties: dict[str, str], provider: str, says: str
) -> None:
    of_type, by, scope, text = secret(con, lake(kind, properties))
    assert of_type == ("s3" if "s3_access_key_id" in properties else kind)
    assert (by, scope) == (provider, [f"{PATHS[kind]}/"])
    assert says in text
    assert "c2VjcmV0" not in text
    assert "secret-around" not in text


def test_a_lake_of_google_gets_none_of_awss_keys_that_are_around(con: duckdb.DuckDBPyConnection) -> None:
    assert "found-around" not in secret(con, lake("gcs", HMAC))[3]


def test_a_role_is_assumed_and_is_not_the_machine_itself(
    con: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No AWS is asked: the endpoint that answers is this test's own."""
    with Sts("role-id", "role-secret", "role-token") as sts:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", sts.url)
        text = secret(con, lake("s3", {**CHAIN, "s3_assume_role_arn": ROLE, "s3_region": "us-east-1"}))[3]
    assert "key_id=role-id" in text
    assert [asked["RoleArn"] for asked in sts.asked] == [ROLE]
    assert "Credential=found-around/" in sts.signed_by[0]


def test_where_a_role_can_not_be_assumed_the_error_is_retried_and_says_what_to_do(
    con: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Sts("x", "x", "x", refuses=True) as sts:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", sts.url)
        with pytest.raises(duckdb.Error, match="Secret Validation Failure") as caught:
            secret(con, lake("s3", {**CHAIN, "s3_assume_role_arn": ROLE, "s3_region": "us-east-1"}))
    told = classify(caught.value, "opening the lake")
    assert (told.type, "give its machine a role" in told.hint) == ("storage_failed", True)


@pytest.mark.parametrize(("kind", "properties", "stores"), [
    ("s3", {"s3_access_key_id": "own", "s3_secret_access_key": "x"}, set()), ("s3", {}, set()), ("s3", CHAIN, {AWS}),
    ("s3", ACCOUNT, set()), ("gcs", {**HMAC, **CHAIN}, set()), ("azure", {**ACCOUNT, **CHAIN}, {AZURE}),
])  # fmt: skip
def test_an_extension_is_loaded_only_for_a_lake_that_needs_it(
    kind: str, properties: dict[str, str], stores: set[str]
) -> None:
    wanted = scanners(lake(kind, properties))
    assert wanted == {SQLITE, *stores}
    with closing(connect(catalogs=wanted)) as con:
        loaded = con.execute("SELECT extension_name FROM duckdb_extensions() WHERE loaded").fetchall()
    assert {name for (name,) in loaded} & {AWS, AZURE} == stores


def test_a_lake_whose_path_its_catalog_knows_alone_has_what_it_may_need() -> None:
    unknown = ResolvedLake("sqlite:/x.sqlite", None, None, {**CHAIN, **ACCOUNT})
    assert scanners(unknown) == {SQLITE, AWS, AZURE}
    local = ResolvedLake("sqlite:/x.sqlite", None, "/data/x", {**CHAIN, **ACCOUNT})
    assert scanners(local) == {SQLITE}


@pytest.mark.parametrize("said", ["az://lake/x", "gs://bucket/x"])
def test_a_data_path_that_only_the_catalog_knows_is_opened_with_nothing_that_is_not_for_it(
    con: duckdb.DuckDBPyConnection, said: str
) -> None:
    with pytest.raises(DestinationError, match="data_path") as caught:
        use_keys(con, "lake", ResolvedLake("sqlite:/x.sqlite", None, None, CHAIN), said)
    assert caught.value.type == "invalid_destination"


@pytest.mark.parametrize(("said", "identity"), [("s3://bucket/x", CHAIN), ("az://lake/x", ACCOUNT)])
def test_the_identity_of_the_machine_opens_nothing_that_only_a_catalog_names(
    con: duckdb.DuckDBPyConnection, said: str, identity: dict[str, str]
) -> None:
    """Its owner could name the files of another tenant: one identity may open them all."""
    with pytest.raises(DestinationError, match="only the catalog of sqlite:/x") as caught:
        use_keys(con, "unknown", ResolvedLake("sqlite:/x.sqlite", None, None, identity), said)
    assert caught.value.type == "not_allowed"
    assert con.execute("SELECT name FROM duckdb_secrets() WHERE name = 'viaduck_unknown'").fetchall() == []


def test_an_extension_that_is_missing_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    found = engine._bundled
    monkeypatch.setattr(engine, "_bundled", lambda name: None if name == AZURE else found(name))
    monkeypatch.setattr(engine, "_install", _refused)
    with pytest.raises(ViaduckError, match="extension azure") as caught:
        connect(catalogs=(AZURE,))
    assert caught.value.type == "invalid_destination"
    assert re.search(r"install duckdb-extension-azure==\d+\.\d+\.\d+ where this service runs", caught.value.hint)


def _refused(*_: object) -> None:
    raise duckdb.IOException("no route to host")


def test_every_parameter_of_a_property_is_written() -> None:
    assert {*S3_SETTINGS.values(), *IDENTITY_SETTINGS.values(), *KEY_SETTINGS.values(), *OF_A_ROLE} == set(WORDS)


def test_files_are_removed_only_with_keys_that_are_given() -> None:
    """A role is DuckDB's alone; another library would be another identity."""
    assert keys_of(lake("s3", CHAIN), PATHS["s3"]) is None
    assert keys_of(lake("azure", ACCOUNT), PATHS["azure"]) is None
    google = keys_of(lake("gcs", HMAC), PATHS["gcs"])
    assert google is not None
    assert (google["KEY_ID"], google["ENDPOINT"]) == ("google-id", "storage.googleapis.com")


def test_a_roles_credentials_are_renewed_before_they_expire(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("shared.lake.direct.lakes.monotonic", lambda: clock[0])
    made, path = lake("s3", {**CHAIN, "s3_chain": "env"}), "s3://bucket/x/"
    with closing(DirectInstance(None, 4, frozenset({AWS}))) as instance:
        ids = []
        for number, seconds in enumerate((0.0, 200.0, 300.0, 400.0)):
            clock[0] = seconds
            monkeypatch.setenv("AWS_ACCESS_KEY_ID", f"key-{number}")
            with instance.keys(made, path):
                (text,) = instance.con.execute("SELECT secret_string FROM duckdb_secrets()").fetchall()[0]
            ids.append(re.search(r"key_id=([\w-]+)", text))
    assert [found[1] for found in ids if found] == ["key-0", "key-0", "key-2", "key-2"]
