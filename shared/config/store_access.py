"""With what the files of a lake are opened: keys that the configuration names, or the identity of this machine itself.

========================================  ==========================================================================
data path                                 opened with
========================================  ==========================================================================
``s3://``, ``s3a://``, ``s3n://``,        S3 keys; or ``s3_provider: credential_chain``: what AWS's libraries find
``r2://``                                 around the process, or the role ``s3_assume_role_arn``
``gs://``, ``gcs://``                     HMAC keys of Google's store; or S3 keys, as it speaks S3's protocol too
``az://``, ``azure://``, ``abfss://``     a connection string; or an account and ``azure_provider: credential_chain``
========================================  ==========================================================================
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from shared.config import storage

CHAIN = "credential_chain"
"""A provider: whatever credentials are found around the process, such as the role of its machine."""

S3_KEYS = ("s3_access_key_id", "s3_secret_access_key", "s3_session_token")
S3_IDENTITY = ("s3_provider", "s3_chain", "s3_assume_role_arn")
S3_ADDRESS = ("s3_endpoint", "s3_region", "s3_use_ssl", "s3_url_style")
GCS_KEYS = ("gcs_key_id", "gcs_secret")
AZURE_KEYS = ("azure_connection_string",)
AZURE_IDENTITY = ("azure_provider", "azure_account")

PROPERTIES = (*S3_KEYS, *S3_ADDRESS, *S3_IDENTITY, *GCS_KEYS, *AZURE_KEYS, *AZURE_IDENTITY)

IDENTITIES = (S3_IDENTITY, AZURE_IDENTITY)
"""Of what belongs to this machine: the property that turns it on, then those that say which identity it is."""

INSTEAD = {
    **dict.fromkeys(S3_KEYS, S3_IDENTITY),
    **dict.fromkeys(GCS_KEYS, ()),
    **dict.fromkeys(AZURE_KEYS, AZURE_IDENTITY),
    **dict.fromkeys(AZURE_IDENTITY, AZURE_KEYS),
    "s3_provider": (*S3_KEYS, "s3_chain", "s3_assume_role_arn"),
    "s3_chain": (*S3_KEYS, "s3_assume_role_arn"),
    "s3_assume_role_arn": (*S3_KEYS, "s3_chain"),
}
"""What a lake does not inherit any more that has such a property of its own."""

LINKS = ("env", "config", "sso", "web_identity", "process", "instance")
"""Of a chain, by the names that DuckDB gives them."""

ROLE = r"arn:aws[a-z-]{0,20}:iam::[0-9]{12}:role/[A-Za-z0-9_+=,.@/-]{1,512}"

HOW = {
    "s3_provider": f"must be {CHAIN}; leave it out where keys are given",
    "s3_chain": f"must be some of {', '.join(LINKS)}, with ; between them",
    "s3_assume_role_arn": "is no role; write it such as arn:aws:iam::123456789012:role/lakes",
    "azure_provider": f"must be {CHAIN}; leave it out where a connection string is given",
    "azure_account": "is no storage account; write its name alone: 3 to 24 small letters and digits",
}

ONE_OF_TWO = "is given beside {}; keep one of them"
NO_AZURE = "needs azure_connection_string_env, or azure_account with azure_provider"
NO_GOOGLE = "is on Google's store, for which AWS's credentials are none; write gcs_key_id_env and gcs_secret_env"


def faulty_property(name: str, value: str) -> str | None:
    """What is wrong with the value of a property; None where nothing is. Holds nothing of the value."""
    fits = {
        "s3_provider": value == CHAIN,
        "azure_provider": value == CHAIN,
        "s3_chain": _is_chain(value),
        "s3_assume_role_arn": re.fullmatch(ROLE, value) is not None,
        "azure_account": re.fullmatch(storage.ACCOUNT, value) is not None,
    }
    return storage.faulty_property(name, value) if fits.get(name, True) else HOW[name]


def _is_chain(value: str) -> bool:
    links = value.split(";")
    return set(links) <= set(LINKS) and len(set(links)) == len(links)


def contradictions(data_path: str | None, given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Key and message of whatever does not go together. ``given``: properties by name, however they are spelled."""
    yield from ((f"properties.{name}", said) for name, said in _of_s3(given))
    yield from ((f"properties.{name}", said) for name, said in _of_others(given))
    store = None if data_path is None else storage.kind_of(data_path)
    if store == storage.AZURE and not {*AZURE_KEYS, *AZURE_IDENTITY} & given.keys():
        yield "data_path", NO_AZURE
    if store == storage.GCS and "s3_provider" in given and not set(GCS_KEYS) & given.keys():
        yield "data_path", NO_GOOGLE


def _of_s3(given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if "s3_provider" not in given:
        for name in (each for each in S3_IDENTITY if each in given):
            yield name, f"goes with s3_provider: {CHAIN}; add that, or leave it out"
        return
    for name in (each for each in S3_KEYS if each in given):
        yield name, ONE_OF_TWO.format("s3_provider")
    if "s3_chain" in given and "s3_assume_role_arn" in given:
        # DuckDB assumes no role by any other chain than its own ``sts``, and would take the chain's keys silently.
        yield "s3_chain", ONE_OF_TWO.format("s3_assume_role_arn")


def _of_others(given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for pair in (GCS_KEYS, AZURE_IDENTITY):
        one, other = pair
        if (one in given) != (other in given):
            has, lacks = pair if one in given else (other, one)
            yield has, f"goes with {lacks}; add that, or leave it out"
    if "azure_connection_string" in given and "azure_account" in given:
        yield "azure_account", ONE_OF_TWO.format("azure_connection_string")


def uses_chain(data_path: str | None, properties: Mapping[str, str]) -> bool:
    """Whether AWS's credentials are looked for around the process; with no path, whether they may be."""
    store = None if data_path is None else storage.kind_of(data_path)
    return properties.get("s3_provider") == CHAIN and (data_path is None or store == storage.S3)


def uses_azure(data_path: str | None, properties: Mapping[str, str]) -> bool:
    """Whether the files are in Azure; with no path, whether they may be."""
    if data_path is None:
        return bool({*AZURE_KEYS, *AZURE_IDENTITY} & properties.keys())
    return storage.kind_of(data_path) == storage.AZURE


def faults(data_path: str | None, properties: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Key and message of whatever is wrong with where a lake's files are, and with what opens them. ``properties``:
    variables resolved."""
    for name, value in properties.items():
        if (said := faulty_property(name, value)) is not None:
            yield f"properties.{name}", said
    if data_path is not None and (said := storage.faulty_data_path(data_path)) is not None:
        yield "data_path", said
    else:
        yield from contradictions(data_path, properties)
