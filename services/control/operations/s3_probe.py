"""Just enough of S3 to see whether a data path can be written: a signed PUT and DELETE of one small object.

DuckDB can write an object and can't delete one; a client library for two requests would be the largest thing here.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import quote

import httpx

from shared.contracts.errors import Error

TIMEOUT_S = 5.0
ALGORITHM = "AWS4-HMAC-SHA256"


class S3Refused(Error):
    """The store did not take the probe. ``str()`` says why and holds no secret."""


@dataclass(frozen=True)
class Keys:
    """What a request is signed with."""

    id: str
    secret: str
    region: str
    session_token: str | None = None


class Bucket:
    """The bucket and prefix of a data path, under the S3 properties of a lake."""

    def __init__(self, path: str, properties: Mapping[str, str], transport: httpx.BaseTransport | None = None) -> None:
        bucket, _, prefix = path.removeprefix("s3://").partition("/")
        self._keys = Keys(
            properties["s3_access_key_id"],
            properties["s3_secret_access_key"],
            properties.get("s3_region", "us-east-1"),
            properties.get("s3_session_token"),
        )
        scheme = "http" if properties.get("s3_use_ssl", "true").lower() == "false" else "https"
        endpoint = properties.get("s3_endpoint") or f"s3.{self._keys.region}.amazonaws.com"
        by_path = properties.get("s3_url_style", "vhost") == "path"
        self._host = endpoint if by_path else f"{bucket}.{endpoint}"
        name = f"{prefix.rstrip('/')}/.viaduck-probe-{secrets.token_hex(8)}".lstrip("/")
        self._path = "/" + quote(f"{bucket}/{name}" if by_path else name)
        self._http = httpx.Client(base_url=f"{scheme}://{self._host}", timeout=TIMEOUT_S, transport=transport)

    def probe(self) -> None:
        """Write a small object and remove it. Raises ``S3Refused``."""
        with self._http:
            self._ask("PUT", b"viaduck looks whether this can be written\n")
            self._ask("DELETE", b"")

    def _ask(self, method: str, body: bytes) -> None:
        headers = signed(method, self._host, self._path, body, self._keys, datetime.now(UTC))
        try:
            answer = self._http.request(method, self._path, content=body, headers=headers)
        except httpx.HTTPError as error:
            raise S3Refused(f"{self._host} does not answer: {type(error).__name__}") from None
        if not answer.is_success:
            raise S3Refused(f"{self._host} answers {method} with {answer.status_code} {answer.reason_phrase}")


def signed(
    method: str, host: str, path: str, body: bytes, keys: Keys, now: datetime, extra: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The headers of a request, signed by AWS Signature Version 4. ``path`` is quoted already."""
    stamp, content = now.strftime("%Y%m%dT%H%M%SZ"), hashlib.sha256(body).hexdigest()
    headers = {"host": host, "x-amz-content-sha256": content, "x-amz-date": stamp, **(extra or {})}
    if keys.session_token:
        headers["x-amz-security-token"] = keys.session_token
    names = ";".join(sorted(headers))
    lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    request = f"{method}\n{path}\n\n{lines}\n{names}\n{content}"
    scope = f"{stamp[:8]}/{keys.region}/s3/aws4_request"
    text = f"{ALGORITHM}\n{stamp}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    signature = hmac.new(_signing_key(keys, stamp[:8]), text.encode(), hashlib.sha256).hexdigest()
    headers["authorization"] = f"{ALGORITHM} Credential={keys.id}/{scope},SignedHeaders={names},Signature={signature}"
    return headers


def _signing_key(keys: Keys, day: str) -> bytes:
    key = f"AWS4{keys.secret}".encode()
    for part in (day, keys.region, "s3", "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return key
