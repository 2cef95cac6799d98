"""Where a lake's files are: which texts are regions, buckets, endpoints, data paths, and which host is asked for them.

A piece that could end the host's part of a URL (``/ @ # ?``) would send the request, with its keys, to another one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from shared.config.substituted_words import SUBSTITUTED_WORD, refusal

S3, GCS, AZURE = "s3", "gcs", "azure"
"""Kinds of object stores. The first two are asked by S3's protocol."""

KINDS = {
    **dict.fromkeys(("s3", "s3a", "s3n", "r2"), S3),
    **dict.fromkeys(("gs", "gcs"), GCS),
    **dict.fromkeys(("az", "azure", "abfss"), AZURE),
}
SCHEMES = tuple(KINDS)

STORES = tuple(f"{scheme}://" for scheme in SCHEMES)

REGION = r"[a-z0-9-]{1,63}"
BUCKET = r"[a-z0-9](?:[a-z0-9.-]{1,61})[a-z0-9]"
CONTAINER = r"(?=.{3,63}\Z)[a-z0-9]+(?:-[a-z0-9]+)*"
"""In Azure. With a dot in it, DuckDB would take it for the host."""

ACCOUNT = r"[a-z0-9]{3,24}"
HOST = r"(?:[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,251}[A-Za-z0-9])?\.?|\[[0-9A-Fa-f:.]{2,45}\])"
ENDPOINT = rf"{HOST}(?::(?P<port>[0-9]{{1,5}}))?"

HOW = {
    "s3_region": "is no region; write small letters, digits and dashes, such as eu-central-1",
    "s3_endpoint": "is no host[:port]; write it such as minio:9000, without http:// and without a path",
    "s3_use_ssl": "must be one of: true, false",
    "s3_url_style": "must be one of: path, vhost",
}

DEFAULT_REGION = "us-east-1"
GOOGLE = "storage.googleapis.com"


@dataclass(frozen=True)
class BucketPath:
    """A data path on an object store. ``prefix`` has no slash at its ends."""

    bucket: str
    prefix: str


def kind_of(path: str) -> str | None:
    """Which kind of store a data path is on; None for a local one, and for a scheme that no store is known by."""
    scheme, mark, _ = path.partition("://")
    return KINDS.get(scheme) if mark else None


def faulty_property(name: str, value: str) -> str | None:
    """What is wrong with the value of a property; None where nothing is. Holds nothing of the value."""
    fits = {
        "s3_region": re.fullmatch(REGION, value) is not None,
        "s3_endpoint": _is_endpoint(value),
        "s3_use_ssl": value.lower() in ("true", "false"),
        "s3_url_style": value.lower() in ("path", "vhost"),
    }
    return None if fits.get(name, True) else HOW[name]


def faulty_data_path(path: str) -> str | None:
    """What is wrong with a data path; None where nothing is. Holds nothing of it but DuckLake's own words."""
    if found := SUBSTITUTED_WORD.search(path):
        return refusal(found)
    scheme, mark, rest = path.partition("://")
    if not mark or "/" in scheme:
        return None
    if scheme not in SCHEMES:
        return f"has a scheme that no store is known by; write a local path, or one with {', '.join(STORES)}"
    bucket, _, prefix = rest.partition("/")
    if KINDS[scheme] == AZURE and not re.fullmatch(CONTAINER, bucket):
        return (
            "has no container of 3 to 63 small letters, digits and single dashes behind its scheme; write one, and the"
            " account as azure_account"
        )
    if not re.fullmatch(BUCKET, bucket) or ".." in bucket:
        return "has no bucket of 3 to 63 small letters, digits, dots and dashes behind its scheme; write one"
    if re.search(r"[@#?\x00-\x1f\x7f]", prefix):
        return "holds @, #, ? or a control character, which a URL reads otherwise; write a prefix without them"
    if ".." in prefix.split("/"):
        return "steps back with ..; write the path that is meant"
    return None


def place_of(path: str) -> BucketPath | None:
    """A data path on an object store in its parts; None for a local one."""
    scheme, mark, rest = path.partition("://")
    if not mark or "/" in scheme:
        return None
    bucket, _, prefix = rest.partition("/")
    return BucketPath(bucket, prefix.strip("/"))


def asked_host(path: str | None, properties: Mapping[str, str]) -> str | None:
    """The host that requests for files at ``path`` go to, without a port and in small letters; None for a local path.

    Without a path (the catalog may know one) it is the store's own, as far as one is named.
    """
    place = None if path is None else place_of(path)
    if path is not None and place is None:
        return None
    kind = None if path is None else kind_of(path)
    if kind == AZURE:
        return _azure_host(path or "", properties)
    endpoint = properties.get("s3_endpoint")
    region = properties.get("s3_region")
    if endpoint is None and region is None and place is None:
        return None
    default = GOOGLE if kind == GCS else f"s3.{region or DEFAULT_REGION}.amazonaws.com"
    host = default if endpoint is None else host_of(endpoint)
    by_path = properties.get("s3_url_style", "path" if kind == GCS else "vhost").lower() == "path"
    return host if place is None or by_path else f"{place.bucket}.{host}"


def _azure_host(path: str, properties: Mapping[str, str]) -> str | None:
    """None where only a connection string knows, which is a variable's value and the operator's own word."""
    service = "dfs" if path.startswith("abfss:") else "blob"
    account = properties.get("azure_account")
    return None if account is None else f"{account}.{service}.core.windows.net"


def host_of(endpoint: str) -> str:
    """``host[:port]`` → the host in small letters, an IPv6 address without its brackets."""
    if endpoint.startswith("["):
        return endpoint[1:].partition("]")[0].lower()
    return endpoint.partition(":")[0].lower()


def _is_endpoint(value: str) -> bool:
    found = re.fullmatch(ENDPOINT, value)
    return found is not None and ".." not in value and (found["port"] is None or 0 < int(found["port"]) < 65536)
