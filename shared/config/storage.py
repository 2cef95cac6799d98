"""Where a lake's files are: which texts are regions, buckets, endpoints, data paths, and which host is asked for them.

A piece that could end the host's part of a URL (``/ @ # ?``) would send the request, with its keys, to another one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from shared.config.substituted_words import SUBSTITUTED_WORD, refusal

SCHEMES = ("s3", "s3a", "s3n", "gs", "gcs", "r2")
"""Of object stores, which are all asked by S3's protocol."""

STORES = tuple(f"{scheme}://" for scheme in SCHEMES)

REGION = r"[a-z0-9-]{1,63}"
BUCKET = r"[a-z0-9](?:[a-z0-9.-]{1,61})[a-z0-9]"
HOST = r"(?:[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,251}[A-Za-z0-9])?\.?|\[[0-9A-Fa-f:.]{2,45}\])"
ENDPOINT = rf"{HOST}(?::(?P<port>[0-9]{{1,5}}))?"

HOW = {
    "s3_region": "is no region; write small letters, digits and dashes, such as eu-central-1",
    "s3_endpoint": "is no host[:port]; write it such as minio:9000, without http:// and without a path",
    "s3_use_ssl": "must be one of: true, false",
    "s3_url_style": "must be one of: path, vhost",
}

DEFAULT_REGION = "us-east-1"


@dataclass(frozen=True)
class Place:
    """A data path on an object store. ``prefix`` has no slash at its ends."""

    bucket: str
    prefix: str


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
    if not re.fullmatch(BUCKET, bucket) or ".." in bucket:
        return "has no bucket of 3 to 63 small letters, digits, dots and dashes behind its scheme; write one"
    if re.search(r"[@#?\x00-\x1f\x7f]", prefix):
        return "holds @, #, ? or a control character, which a URL reads otherwise; write a prefix without them"
    if ".." in prefix.split("/"):
        return "steps back with ..; write the path that is meant"
    return None


def place_of(path: str) -> Place | None:
    """A data path on an object store in its parts; None for a local one."""
    scheme, mark, rest = path.partition("://")
    if not mark or "/" in scheme:
        return None
    bucket, _, prefix = rest.partition("/")
    return Place(bucket, prefix.strip("/"))


def asked_host(path: str | None, properties: Mapping[str, str]) -> str | None:
    """The host that requests for files at ``path`` go to, without a port and in small letters; None for a local path.

    Without a path (the catalog may know one) it is the store's own, as far as one is named.
    """
    place = None if path is None else place_of(path)
    if path is not None and place is None:
        return None
    endpoint = properties.get("s3_endpoint")
    region = properties.get("s3_region")
    if endpoint is None and region is None and place is None:
        return None
    host = host_of(endpoint) if endpoint is not None else f"s3.{region or DEFAULT_REGION}.amazonaws.com"
    by_path = properties.get("s3_url_style", "vhost").lower() == "path"
    return host if place is None or by_path else f"{place.bucket}.{host}"


def host_of(endpoint: str) -> str:
    """``host[:port]`` → the host in small letters, an IPv6 address without its brackets."""
    if endpoint.startswith("["):
        return endpoint[1:].partition("]")[0].lower()
    return endpoint.partition(":")[0].lower()


def faults(data_path: str | None, properties: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Key and message of whatever is wrong with where a lake's files are. ``properties``: variables resolved."""
    for name, value in properties.items():
        if (said := faulty_property(name, value)) is not None:
            yield f"properties.{name}", said
    if data_path is not None and (said := faulty_data_path(data_path)) is not None:
        yield "data_path", said


def _is_endpoint(value: str) -> bool:
    found = re.fullmatch(ENDPOINT, value)
    return found is not None and ".." not in value and (found["port"] is None or 0 < int(found["port"]) < 65536)
