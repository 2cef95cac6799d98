"""What an object store says reaches an operator: the right reason, the store's own words, and what to do."""

from __future__ import annotations

import duckdb
import pytest

from shared.lake.failure import classify

REFUSED = "HTTP Error: Unable to connect to URL s3://lakes/a.parquet: Forbidden (HTTP code 403)\n\n"


@pytest.mark.parametrize(
    ("said", "type_", "hint"),
    [
        (f"{REFUSED}AccessDenied: Access Denied.", "storage_refused", "writable"),
        (f"{REFUSED}InvalidAccessKeyId: The access key ID does not exist.", "storage_refused", "s3_access_key_id"),
        (f"{REFUSED}SignatureDoesNotMatch: The signature does not match.", "storage_refused", "s3_secret_access_key"),
        (
            "HTTP Error: Unable to connect to URL s3://x/a.parquet: Not Found (HTTP code 404)\n\nNoSuchBucket: none",
            "storage_refused",
            "create the bucket",
        ),
        ("HTTP Error: Unable to connect to URL s3://a: (HTTP code 503)\n\nSlowDown: no", "storage_failed", "store"),
        ("IO Error: Could not establish connection error for HTTP HEAD to s3", "destination_unreachable", "server"),
    ],
)  # fmt: skip
def test_a_store_s_answer_is_told_apart_by_what_to_do_about_it(said: str, type_: str, hint: str) -> None:
    error = classify(duckdb.HTTPException(said), "changes of events/a")
    assert error.type == type_
    assert hint in error.hint
    assert said.rpartition("\n")[2].partition(":")[0] in error.message, "the store's own word stands in the message"
