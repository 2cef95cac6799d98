"""What an object store says reaches an operator: the right reason, the store's own words, and what to do."""

from __future__ import annotations

import duckdb
import pytest

from shared.lake.failure import classify, invalidates_instance, loses_attachment, misses_file, was_refused

REFUSED = "HTTP Error: Unable to connect to URL s3://lakes/a.parquet: Forbidden (HTTP code 403)\n\n"


@pytest.mark.parametrize(
    ("said", "type_", "hint"),
    [
        (f"{REFUSED}AccessDenied: Access Denied.", "storage_refused", "writable"),
        (f"{REFUSED}InvalidAccessKeyId: The access key ID does not exist.", "storage_refused", "s3_access_key_id"),
        (f"{REFUSED}ExpiredToken: The provided token has expired.", "storage_failed", "replace a session token"),
        (f"{REFUSED}SignatureDoesNotMatch: The signature does not match.", "storage_refused", "s3_secret_access_key"),
        (
            "HTTP Error: Unable to connect to URL s3://x/a.parquet: Not Found (HTTP code 404)\n\nNoSuchBucket: none",
            "storage_refused",
            "create the bucket",
        ),
        ("HTTP Error: Unable to connect to URL s3://a: (HTTP code 503)\n\nSlowDown: no", "storage_failed", "store"),
        ("IO Error: Could not establish connection error for HTTP HEAD to s3", "destination_unreachable", "server"),
        ("no answer within 40 s", "destination_unreachable", "server"),
    ],
)  # fmt: skip
def test_a_store_s_answer_is_told_apart_by_what_to_do_about_it(said: str, type_: str, hint: str) -> None:
    error = classify(duckdb.HTTPException(said), "changes of events/a")
    assert error.type == type_
    assert hint in error.hint
    assert said.rpartition("\n")[2].partition(":")[0] in error.message, "the store's own word stands in the message"


A_404 = "s3://lakes/404/NoSuchKey/ducklake-01a20404.parquet"


@pytest.mark.parametrize(
    ("said", "missing", "type_"),
    [
        (f"HTTP Error: HTTP GET error reading '{A_404}' in region 'x' (HTTP 404 Not Found)", True, "storage_refused"),
        (f"HTTP Error: Unable to connect to URL {A_404}: Not Found (HTTP code 404)", True, "storage_failed"),
        ('IO Error: No files found that match the pattern "/lakes/a.parquet"', True, "storage_failed"),
        ('IO Error: Cannot open file "/lakes/a.parquet": No such file or directory', True, "storage_failed"),
        (f"IO Error: Server returned nothing error for HTTP PUT to '{A_404}'", False, "storage_failed"),
        (f"HTTP Error: HTTP GET error reading '{A_404}' in region 'x' (HTTP 500 Error)", False, "storage_failed"),
        (f"HTTP Error: HTTP GET error reading '{A_404}' in region 'x' (HTTP 403 Forbidden)\n\n"
         "InvalidAccessKeyId: The access key ID you provided does not exist in our records.", False, "storage_refused"),
    ],
)  # fmt: skip
def test_an_address_never_says_that_a_file_is_missing(said: str, missing: bool, type_: str) -> None:
    error = duckdb.HTTPException(said)
    assert misses_file(error) is missing
    assert classify(error, "changes of events/a").type == type_


@pytest.mark.parametrize(
    ("said", "lost"),
    [
        ("FATAL Error: Failed: database has been invalidated because of a previous fatal error.", True),
        ("INTERNAL Error: Attempted to access index 1 within vector of size 1", True),
        ('IO Error: Unable to connect to Postgres: FATAL:  password authentication failed for user "a"', False),
        ("IO Error: Failed to execute query: FATAL:  terminating connection due to administrator command", False),
    ],
)
def test_an_instance_is_only_lost_where_duckdb_says_so(said: str, lost: bool) -> None:
    assert invalidates_instance(duckdb.IOException(said)) is lost


COMMIT = "TransactionContext Error: Failed to commit: Failed to commit DuckLake transaction.\n"
LIES = (
    "permission denied for",
    "INTERNAL Error",
    "database is locked",
    "No such file or directory",
    "HTTP 404",
    "the server closed the connection",
    'relation "ducklake_snapshot" does not exist',
    "syntax error at or near",
)


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("around", ["{}", '": {}', "x'); {} ('", '": ERROR:  {}\nLINE 1: x', "a 'b' \"{}\""])
def test_what_a_value_holds_is_no_reason(lie: str, around: str) -> None:
    value = around.format(lie)
    sent = f"{COMMIT}Failed to flush changes into DuckLake: Failed to execute query \"INSERT INTO x VALUES ('{value}')"
    excerpt = f"\nLINE 1: …('{value.splitlines()[0]}'…\n            ^\n"
    errors = {
        duckdb.ConversionException(f"Conversion Error: Could not convert string '{value}' to INT32"): "value_refused",
        duckdb.InvalidInputException(f'Invalid Input Error: Malformed JSON at byte 0: "{value}"'): "internal",
        duckdb.TransactionException(f'{sent}": ERROR:  canceling statement{excerpt}'): "internal",
    }
    for error, type_ in errors.items():
        assert classify(error, "changes").type == type_
        assert not invalidates_instance(error)
        assert not misses_file(error)
        assert not was_refused(error)
        assert not loses_attachment(error)
    told = classify(list(errors)[-1], "changes").message
    assert "canceling statement" in told
    assert "INSERT" not in told, "nor are statements shown, with all the values that they hold"


def test_a_statement_that_sqlite_refuses_to_prepare_is_not_shown_either() -> None:
    asked = 'SELECT count(*) AS "many: " FROM ducklake_snapshot ' * 100
    error = duckdb.Error(f'Error: Failed to prepare query "{asked}": file is not a database')
    told = classify(error, "looking")
    assert told.type == "lake_incompatible"
    assert told.message == "looking: Error: Error: file is not a database"


@pytest.mark.parametrize(
    "said",
    [
        "Failed to flush changes into DuckLake: syntax error at or near \"viaduck\"\n\nLINE 1: … ''viaduck''\n     ^",
        'Failed to flush changes into DuckLake: Failed to execute query "INSERT": ERROR:  syntax error at or near "x"',
    ],
    ids=["sqlite", "postgres"],
)
def test_a_syntax_error_at_commit_is_a_value_that_is_refused_and_no_unknown_outcome(said: str) -> None:
    error = duckdb.TransactionException(COMMIT + said)
    assert was_refused(error)
    assert classify(error, "changes").type == "value_refused"


def test_duckdb_comes_to_the_point_where_it_tells_the_connection_words_first() -> None:
    words = "dbname=lakes host=db.internal"
    said = (
        f'IO Error: Failed to attach DuckLake MetaData "__x" at path "postgres:{words}"Unable to connect to Postgres at'
        f' "{words}": connection refused'
    )
    error = classify(duckdb.IOException(said), "opening")
    assert error.message == "opening: IOException: connection refused"
    assert "db.internal" in classify(duckdb.IOException(said.replace('": conn', '" conn')), "opening").message
