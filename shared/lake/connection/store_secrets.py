"""What DuckDB opens the files of a lake with: a secret of its own for each lake, for the files below its data path."""

from __future__ import annotations

from collections.abc import Mapping

import duckdb

from shared.config import storage, store_access
from shared.config.catalogs import ResolvedLake
from shared.contracts.errors import DestinationError
from shared.lake.connection.engine import AWS, AZURE, ambient_settings
from shared.lake.sql import ident, literal

S3_SETTINGS = {
    "s3_access_key_id": "KEY_ID",
    "s3_secret_access_key": "SECRET",
    "s3_session_token": "SESSION_TOKEN",
    "s3_endpoint": "ENDPOINT",
    "s3_region": "REGION",
    "s3_use_ssl": "USE_SSL",
    "s3_url_style": "URL_STYLE",
}
"""Properties of the configuration file → parameters of DuckDB's S3 secret."""

ADDRESS = {name: S3_SETTINGS[name] for name in store_access.S3_ADDRESS}

IDENTITY_SETTINGS = {
    "s3_provider": "PROVIDER",
    "s3_chain": "CHAIN",
    "s3_assume_role_arn": "ASSUME_ROLE_ARN",
    "azure_provider": "PROVIDER",
    "azure_account": "ACCOUNT_NAME",
}
KEY_SETTINGS = {"gcs_key_id": "KEY_ID", "gcs_secret": "SECRET", "azure_connection_string": "CONNECTION_STRING"}

WORDS = (
    "PROVIDER", "CHAIN", "ASSUME_ROLE_ARN", "REFRESH", "KEY_ID", "SECRET", "SESSION_TOKEN", "CONNECTION_STRING",
    "ACCOUNT_NAME", "ENDPOINT", "REGION", "USE_SSL", "URL_STYLE",
)  # fmt: skip
"""Every parameter of a secret that is ever written."""

NO_KEYS = {"KEY_ID": "", "SECRET": "", "SESSION_TOKEN": ""}

OF_A_ROLE = {"CHAIN": "sts", "REFRESH": "auto"}
"""Only this chain of DuckDB's assumes a role: any other takes the credentials that it finds, and no word is said."""

RENEW_AFTER_S = 240.0
"""Credentials of a role are fetched again for the next use after this time. DuckDB has a role assumed for 15 minutes,
and renews it only where a store refuses a file as it is opened to be read: with a token that has expired it writes no
file any more."""


def store_extensions(lake: ResolvedLake) -> frozenset[str]:
    """What reaches the lake's files, beyond what every instance has. Others have no use for it, and do not get it."""
    aws = store_access.uses_chain(lake.data_path, lake.properties)
    azure = store_access.uses_azure(lake.data_path, lake.properties)
    return frozenset(name for name, used in ((AWS, aws), (AZURE, azure)) if used)


def expire(lake: ResolvedLake, data_path: str) -> bool:
    """Whether the secret holds credentials for a time only."""
    return "://" in data_path and store_access.uses_chain(data_path, lake.properties)


def use_keys(con: duckdb.DuckDBPyConnection, name: str, lake: ResolvedLake, data_path: str) -> None:
    """Keys for the files below the lake's data path, and for no other: an instance may hold several lakes.

    A lake without keys gets empty ones: what a secret leaves out is filled in from elsewhere. Raises ``not_allowed``
    where only the lake's catalog says that the identity of this machine is to open files there.
    """
    if not (lake.untrusted or data_path.startswith(storage.STORES)):
        return
    if (said := storage.faulty_data_path(data_path)) is not None:
        hint = "correct the data path in the lake's own catalog, or make another lake"
        raise DestinationError("invalid_destination", f"the data path that the catalog holds {said}", hint)
    for path, said in store_access.contradictions(data_path, lake.properties):
        raise DestinationError("invalid_destination", f"{path} {said}", "correct the properties of the lake")
    kind, settings = secret_of(lake, data_path)
    if lake.data_path is None and "PROVIDER" in settings:
        raise undeclared(data_path, lake)
    parts = [f"{word} {literal(settings[word])}" for word in WORDS if word in settings]
    parts.append(f"SCOPE {literal(below(data_path))}")
    con.execute(f"CREATE OR REPLACE SECRET {ident(_secret_name(name))} (TYPE {literal(kind)}, {', '.join(parts)})")


def undeclared(data_path: str, lake: ResolvedLake) -> DestinationError:
    shown = data_path if len(data_path) <= 200 else data_path[:199] + "…"
    message = f"only the catalog of {lake} says that its files are at {shown!r}, which its owner may change"
    return DestinationError("not_allowed", message, "write that data_path into the destination")


def forget_keys(con: duckdb.DuckDBPyConnection, name: str) -> None:
    con.execute(f"DROP SECRET IF EXISTS {ident(_secret_name(name))}")


def secret_of(lake: ResolvedLake, data_path: str) -> tuple[str, dict[str, str]]:
    """The type of a lake's secret and its parameters. Hold the lake's keys."""
    properties = lake.properties
    if store_access.uses_azure(data_path, properties):
        names = (*store_access.AZURE_KEYS, *store_access.AZURE_IDENTITY)
        return "azure", _named({**KEY_SETTINGS, **IDENTITY_SETTINGS}, properties, names)
    if storage.kind_of(data_path) == storage.GCS and "gcs_key_id" in properties:
        return "gcs", _named(ADDRESS, properties) | _named(KEY_SETTINGS, properties, store_access.GCS_KEYS)
    if store_access.uses_chain(data_path, properties):
        return "s3", _address(lake) | _identity(properties)
    return "s3", _keys(lake)


def keys_of(lake: ResolvedLake, data_path: str) -> dict[str, str] | None:
    """The keys of a lake on a store that speaks S3's protocol, with their address; None where it has no such keys."""
    kind, settings = secret_of(lake, data_path)
    if kind == "azure" or "PROVIDER" in settings:
        return None
    of_google = storage.kind_of(data_path) == storage.GCS
    return NO_KEYS | ({"ENDPOINT": storage.GOOGLE} if of_google else {}) | settings


def below(data_path: str) -> str:
    """With the slash at the end: to DuckDB ``s3://b/tenant-1`` is the beginning of ``s3://b/tenant-10/file``."""
    return data_path.rstrip("/") + "/"


def _keys(lake: ResolvedLake) -> dict[str, str]:
    """Each of the three keys among them."""
    given = _named(S3_SETTINGS, lake.properties)
    ambient = {} if lake.untrusted else _named(S3_SETTINGS, ambient_settings())
    if NO_KEYS.keys() & given.keys():
        ambient = {name: value for name, value in ambient.items() if name not in NO_KEYS}
    return NO_KEYS | ambient | given


def _address(lake: ResolvedLake) -> dict[str, str]:
    ambient = {} if lake.untrusted else _named(ADDRESS, ambient_settings())
    return ambient | _named(ADDRESS, lake.properties)


def _identity(properties: Mapping[str, str]) -> dict[str, str]:
    found = _named(IDENTITY_SETTINGS, properties, store_access.S3_IDENTITY)
    return found | (OF_A_ROLE if "ASSUME_ROLE_ARN" in found else {"REFRESH": "auto"})


def _named(words: Mapping[str, str], given: Mapping[str, str], names: tuple[str, ...] | None = None) -> dict[str, str]:
    """The parameters of those properties that are given. ``names``: those that count; without it all."""
    return {words[name]: value for name, value in given.items() if name in words and (names is None or name in names)}


def _secret_name(alias: str) -> str:
    return f"viaduck_{alias}"
