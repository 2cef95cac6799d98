"""A look whether a bucket can be written: signed as AWS documents it, and without its secrets in any message."""

from __future__ import annotations

from datetime import UTC, datetime

import httpx
import pytest

from services.control.operations.s3_probe import Bucket, Keys, S3Refused, signed
from tests.servers.s3 import S3

PROPERTIES = {
    "s3_access_key_id": "AKIAIOSFODNN7EXAMPLE",
    "s3_secret_access_key": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "s3_region": "us-east-1",
}


def test_a_request_is_signed_as_in_the_documentation_of_aws() -> None:
    """The worked example "GET Object" of Signature Version 4 for S3."""
    keys = Keys(PROPERTIES["s3_access_key_id"], PROPERTIES["s3_secret_access_key"], "us-east-1")
    at = datetime(2013, 5, 24, tzinfo=UTC)
    headers = signed("GET", "examplebucket.s3.amazonaws.com", "/test.txt", b"", keys, at, {"range": "bytes=0-9"})
    assert headers["authorization"].endswith(
        "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"
    )


def bucket(path: str, answers: dict[str, int], asked: list[httpx.Request], **properties: str) -> Bucket:
    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(answers[request.method])

    return Bucket(path, {**PROPERTIES, **properties}, httpx.MockTransport(answer))


@pytest.mark.parametrize(
    ("properties", "begins"),
    [
        ({}, "https://tenants.s3.us-east-1.amazonaws.com/deeper/.viaduck-probe-"),
        ({"s3_url_style": "path", "s3_endpoint": "minio:9000", "s3_use_ssl": "false"},
         "http://minio:9000/tenants/deeper/.viaduck-probe-"),
    ],
)  # fmt: skip
def test_what_is_written_is_removed_again(properties: dict[str, str], begins: str) -> None:
    asked: list[httpx.Request] = []
    bucket("s3://tenants/deeper/", {"PUT": 200, "DELETE": 204}, asked, **properties).probe()
    assert [request.method for request in asked] == ["PUT", "DELETE"]
    assert asked[0].url == asked[1].url
    assert str(asked[0].url).startswith(begins)


def test_a_bucket_at_its_root_needs_no_prefix() -> None:
    asked: list[httpx.Request] = []
    bucket("s3://tenants", {"PUT": 200, "DELETE": 204}, asked).probe()
    assert asked[0].url.path.startswith("/.viaduck-probe-")


@pytest.mark.parametrize("refuses", ["PUT", "DELETE"])
def test_what_the_store_refuses_is_told_without_a_secret(refuses: str) -> None:
    answers = {"PUT": 200, "DELETE": 204, refuses: 403}
    with pytest.raises(S3Refused, match=f"answers {refuses} with 403") as caught:
        bucket("s3://tenants", answers, []).probe()
    assert PROPERTIES["s3_secret_access_key"] not in str(caught.value)


def test_a_store_that_does_not_answer_is_told() -> None:
    def away(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("refused", request=request)

    with pytest.raises(S3Refused, match="does not answer"):
        Bucket("s3://tenants", PROPERTIES, httpx.MockTransport(away)).probe()


def test_a_real_store_takes_the_right_keys_and_refuses_wrong_ones(s3: S3) -> None:
    s3.create_bucket("probed")
    properties = s3.properties(s3.admin)
    Bucket("s3://probed", properties).probe()
    assert s3.objects("probed") == 0
    with pytest.raises(S3Refused, match="403"):
        Bucket("s3://probed/", {**properties, "s3_secret_access_key": "wrong"}).probe()
