"""Keys, roles and accounts: what a file may say of them, what goes together, and what is inherited."""

from __future__ import annotations

import pytest

from shared.config import storage
from shared.config.catalogs import resolve
from shared.config.lake_rules import inherit
from shared.config.loading import public_lake
from shared.config.path_overlap import claim_of
from shared.config.secrets import scrub
from shared.config.store_access import PROPERTIES
from shared.contracts.errors import ViaduckError
from shared.contracts.messages import LakeRef
from tests.fast.shared.config.conftest import MINIMAL, Load, Mistaken

ROLE = "arn:aws:iam::123456789012:role/lakes/tenant-1"
CHAIN = {"s3_provider": "credential_chain"}
ACCOUNT = {"azure_provider": "credential_chain", "azure_account": "acmelakes"}
KEYS = {"s3_access_key_id": "id", "s3_secret_access_key": "secret"}
STRING = "DefaultEndpointsProtocol=https;AccountName=acmelakes;AccountKey=c2VjcmV0;EndpointSuffix=core.windows.net"


def said_of(mistakes_of: Mistaken, data_path: str, properties: dict[str, str]) -> str:
    text = f"source: {{catalog: 'sqlite:a', table: t, data_path: '{data_path}', properties: {properties}}}"
    (line,) = mistakes_of(f"{text}\nrouting: {{field: f}}\n", {"X": "x"})
    return line


@pytest.mark.parametrize(("path", "properties"), [
    ("s3://bucket/x", CHAIN), ("s3://bucket/x", {**CHAIN, "s3_chain": "env;instance", "s3_region": "eu-west-1"}),
    ("s3://bucket/x", {**CHAIN, "s3_assume_role_arn": ROLE}), ("gs://bucket/x", {"gcs_key_id": "k", "gcs_secret": "s"}),
    ("gs://bucket/x", KEYS), ("az://lake/x", ACCOUNT), ("abfss://lake/x", {"azure_connection_string": STRING}),
    ("azure://a-lake", ACCOUNT), ("s3://bucket/x", {**ACCOUNT, **KEYS}), ("az://lake/x", {**ACCOUNT, **KEYS}),
])  # fmt: skip
def test_what_opens_a_store_is_taken_from_a_file(load_text: Load, path: str, properties: dict[str, str]) -> None:
    text = f"source: {{catalog: 'sqlite:a', table: t, data_path: '{path}', properties: {properties}}}"
    lake = load_text(f"{text}\nrouting: {{field: f}}\n").source.lake
    assert (lake.data_path, lake.properties) == (path, properties)
    assert resolve(lake, {}).properties == properties


@pytest.mark.parametrize(("path", "properties", "place", "why"), [
    ("s3://bucket/x", {**CHAIN, **KEYS}, "properties.s3_access_key_id", "beside s3_provider"),
    ("s3://bucket/x", {**CHAIN, "s3_session_token_env": "X"}, "properties.s3_session_token_env", "beside s3_provider"),
    ("s3://bucket/x", {"s3_assume_role_arn": ROLE}, "properties.s3_assume_role_arn", "goes with s3_provider"),
    ("s3://bucket/x", {"s3_chain": "env"}, "properties.s3_chain", "goes with s3_provider"),
    ("s3://bucket/x", {**CHAIN, "s3_assume_role_arn": ROLE, "s3_chain": "env"}, "properties.s3_chain", "beside s3_as"),
    ("gs://bucket/x", {"gcs_key_id": "k"}, "properties.gcs_key_id", "goes with gcs_secret"),
    ("gs://bucket/x", CHAIN, "data_path", "Google's store"),
    ("az://lake/x", {}, "data_path", "needs azure_connection_string_env"),
    ("az://lake/x", KEYS, "data_path", "needs azure_connection_string_env"),
    ("az://lake/x", {"azure_account": "acmelakes"}, "properties.azure_account", "goes with azure_provider"),
    ("az://lake/x", {"azure_provider": "credential_chain"}, "properties.azure_provider", "goes with azure_account"),
    ("az://lake/x", {**ACCOUNT, "azure_connection_string_env": "X"}, "properties.azure_account", "beside azure_conn"),
])  # fmt: skip
def test_what_does_not_go_together_is_a_mistake_in_a_file_and_in_a_message(
    mistakes_of: Mistaken, path: str, properties: dict[str, str], place: str, why: str
) -> None:
    text = f"source: {{catalog: 'sqlite:a', table: t, data_path: '{path}', properties: {properties}}}"
    lines = mistakes_of(f"{text}\nrouting: {{field: f}}\n", {"X": "x"})
    assert lines[0].startswith(f"source.{place}: ")
    assert why in lines[0]
    with pytest.raises(ViaduckError, match=why.split()[0]) as caught:
        resolve(LakeRef(catalog="sqlite:/a", data_path=path, properties=properties), {"X": "x"})
    assert caught.value.type == "invalid_destination"


@pytest.mark.parametrize(("name", "value"), [
    ("s3_provider", "config"), ("s3_provider", "Credential_chain"), ("s3_chain", "env;sts"), ("s3_chain", "env;env"),
    ("s3_chain", "env'); SELECT 1"), ("s3_assume_role_arn", "arn:aws:iam::1:role/x"),
    ("s3_assume_role_arn", f"{ROLE}'"), ("s3_assume_role_arn", "arn:aws:sts::123456789012:assumed-role/x"),
    ("azure_account", "evil.example/x"), ("azure_account", "Acme"), ("azure_provider", "managed_identity"),
])  # fmt: skip
def test_a_value_that_means_something_else_is_refused(mistakes_of: Mistaken, name: str, value: str) -> None:
    (line,) = mistakes_of(f'{MINIMAL}defaults: {{properties: {{{name}: "{value}"}}}}\n')
    assert line.startswith(f"defaults.properties.{name}: ")
    assert value not in line


@pytest.mark.parametrize("path", [
    "az://acme.blob.core.windows.net/lake/x", "abfss://lake@acme.dfs.core.windows.net/x", "az://a/x", "az://Lake/x",
    "azure://a--b/x", "az://lake-/x", "abfss://evil.example/lake", "az://lake/../x", "az://lake/x?sig=1",
    f"az://{'x' * 64}/",
])  # fmt: skip
def test_a_path_in_azure_names_a_container_and_no_host(mistakes_of: Mistaken, path: str) -> None:
    """With a dot where the container is, DuckDB sends the account's token to that host."""
    assert said_of(mistakes_of, path, ACCOUNT).startswith("source.data_path: ")


@pytest.mark.parametrize(("own", "defaults", "inherited"), [
    ({}, CHAIN, CHAIN),
    ({"s3_assume_role_arn": ROLE}, CHAIN, CHAIN),
    ({"s3_assume_role_arn": ROLE}, {**CHAIN, "s3_chain": "env"}, CHAIN),
    ({"s3_access_key_id_env": "K"}, {**CHAIN, "s3_assume_role_arn": ROLE, "s3_region": "eu"}, {"s3_region": "eu"}),
    (CHAIN, {**KEYS, "s3_endpoint": "e"}, {"s3_endpoint": "e"}),
    (CHAIN, {**CHAIN, "s3_assume_role_arn": ROLE}, {}),
    ({"azure_connection_string_env": "C"}, {**ACCOUNT, **KEYS}, KEYS),
    ({"azure_account": "other"}, {"azure_provider": "credential_chain", "azure_connection_string": "x"},
     {"azure_provider": "credential_chain"}),
])  # fmt: skip
def test_a_lake_with_keys_or_an_identity_of_its_own_inherits_no_other(
    own: dict[str, str], defaults: dict[str, str], inherited: dict[str, str]
) -> None:
    assert inherit(own, defaults) == {**inherited, **own}


def test_a_role_of_its_own_goes_with_the_provider_of_defaults(load_text: Load) -> None:
    destination = {"id": "a", "routing_value": "a", "catalog": "sqlite:b", "data_path": "s3://bucket/a/",
                   "properties": {"s3_assume_role_arn": ROLE}}  # fmt: skip
    config = load_text(f"{MINIMAL}defaults: {{properties: {CHAIN}}}\ndestinations: [{destination}]\n")
    assert config.destinations[0].lake.properties == {**CHAIN, "s3_assume_role_arn": ROLE}
    assert public_lake(config.destinations[0]) == config.destinations[0].lake, "nothing of a role is a secret"


@pytest.mark.parametrize(("name", "properties"), [
    ("gcs_secret", {"gcs_key_id": "hidden", "gcs_secret": "hidden"}),
    ("azure_connection_string", {"azure_connection_string": f"hidden;{STRING}"}),
])  # fmt: skip
def test_keys_of_other_stores_travel_as_little_as_those_of_s3(
    load_text: Load, name: str, properties: dict[str, str]
) -> None:
    path = "gs://bucket/a/" if "gcs" in name else "az://lake/a/"
    destination = {"id": "a", "routing_value": "a", "catalog": "sqlite:b", "data_path": path, "properties": properties}
    public = public_lake(load_text(f"{MINIMAL}destinations: [{destination}]\n").destinations[0])
    assert (public.from_file, public.properties) == (True, {})
    assert "hidden" not in repr(resolve(LakeRef(catalog="sqlite:/a", data_path=path, properties=properties), {}))
    assert "c2VjcmV0" not in scrub(f"{name}={STRING}")
    assert "c2VjcmV0" not in scrub(f"a store said: {STRING}")
    assert "c2VjcmV0" not in scrub(f"CREATE SECRET s (TYPE azure, CONNECTION_STRING '{STRING}')")


@pytest.mark.parametrize(("path", "properties", "host"), [
    ("gs://bucket/x", {}, "storage.googleapis.com"), ("gs://bucket/x", {"s3_endpoint": "minio:9000"}, "minio"),
    ("gs://bucket/x", {"s3_url_style": "vhost"}, "bucket.storage.googleapis.com"),
    ("az://lake/x", ACCOUNT, "acmelakes.blob.core.windows.net"),
    ("abfss://lake/x", ACCOUNT, "acmelakes.dfs.core.windows.net"),
    ("az://lake/x", {"azure_connection_string_env": "C", "s3_endpoint": "minio"}, None),
])  # fmt: skip
def test_the_host_of_another_store_is_known(path: str, properties: dict[str, str], host: str | None) -> None:
    assert storage.asked_host(path, properties) == host


@pytest.mark.parametrize(("one", "other", "same"), [
    (("gs://bucket/x", {}), ("gcs://bucket/x/", {}), True), (("gs://bucket/x", {}), ("s3://bucket/x", {}), False),
    (("gs://bucket/x", {}), ("s3://bucket/x", {"s3_endpoint": "storage.googleapis.com"}), True),
    (("az://lake/x", ACCOUNT), ("abfss://lake/x", ACCOUNT), True),
    (("az://lake/x", ACCOUNT), ("azure://lake/x", {"azure_connection_string": STRING}), True),
    (("az://lake/x", ACCOUNT), ("az://lake/x", {**ACCOUNT, "azure_account": "otherlakes"}), False),
    (("az://lake/x", {"azure_account_env": "A"}), ("az://lake/x", {"azure_account_env": "B"}), False),
    (("az://lake/x", ACCOUNT), ("s3://lake/x", {}), False),
])  # fmt: skip
def test_lakes_overlap_where_their_stores_are_the_same(
    one: tuple[str, dict[str, str]], other: tuple[str, dict[str, str]], same: bool
) -> None:
    first, second = (claim_of("o", path, LakeRef(catalog="sqlite:/a", data_path=path, properties=properties))
                     for path, properties in (one, other))  # fmt: skip
    assert first is not None
    assert second is not None
    assert (first.path == second.path) == same


def test_every_property_of_a_store_can_be_named_by_a_variable(load_text: Load) -> None:
    assert len(set(PROPERTIES)) == len(PROPERTIES)
    text = "source: {catalog: 'sqlite:a', table: t, data_path: 'az://lake/x', properties: {azure_account_env: A,"
    lake = load_text(
        f"{text} azure_provider: credential_chain}}}}\nrouting: {{field: f}}\n", {"A": "acme1"}
    ).source.lake
    assert resolve(lake, {"A": "acme1"}).properties["azure_account"] == "acme1"
