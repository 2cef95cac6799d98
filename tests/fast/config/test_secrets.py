"""Nothing that is logged, raised or sent shows a password, key or token."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.config.secrets import scrub, shown_variable


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://u:hunter2@h/db failed",
        "postgresql://u:hun@hunter2@h/db failed",
        "postgresql://u:hun/hunter2@h/db failed",
        "amqp://:hunter2@h",
        "dbname=x password=hunter2 host=h",
        "dbname=x password = hunter2 host=h",
        "dbname=x PASSWORD=hunter2 host=h",
        r"dbname=x password=hun\ hunter2 host=h",
        "dbname=x password='hun hunter2' host=h",
        r"dbname=x password='hun\' hunter2' host=h",
        "dbname=x password='hun\nhunter2' host=h",
        "dbname=x password='hun hunter2",
        "ATTACH 'ducklake:postgres:dbname=x password=''hun hunter2'' host=h' AS y",
        "dbname=x sslpassword=hunter2",
        "postgresql:///db?password=hunter2&host=h",
        "CREATE SECRET s (TYPE s3, KEY_ID 'x', SECRET 'hun''hunter2', SESSION_TOKEN 'hunter2')",
        "SET s3_secret_access_key='hunter2'",
        "s3_session_token: hunter2",
        "{'s3_secret_access_key': 'hunter2'}",
        '{"sasl.password": "hunter2"}',
        "sasl.password=hunter2",
        "aws_secret_access_key=hunter2",
        "https://bucket/x?X-Amz-Signature=hunter2&X-Amz-Date=1",
        "Authorization: Bearer hunter2",
    ],
)
def test_what_stands_where_a_secret_stands_is_hidden(text: str) -> None:
    assert "hunter2" not in scrub(text)


@pytest.mark.parametrize(
    "text",
    [
        'password authentication failed for user "x"',
        "connecting to http://localhost:8000/v1/pipelines",
        "the environment variable S3_SECRET_ACCESS_KEY is not set",
        "postgres:dbname=x host=h port=5432",
        "table secret has no column password",
        "range (12, 15] of destination a@b",
        "s3://bucket/path?versionId=1",
    ],
)
def test_what_is_no_secret_stays_readable(text: str) -> None:
    assert scrub(text) == text


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=4, max_size=20))
def test_any_quoted_password_is_hidden(password: str) -> None:
    escaped = password.replace("\\", "\\\\").replace("'", "\\'")
    before, after = "dbname=x password='", "' host=h"
    assert scrub(f"{before}{escaped}{after}") == "dbname=x password=*** host=h"


@given(st.text(max_size=60))
def test_hiding_twice_hides_nothing_more(text: str) -> None:
    assert scrub(scrub(text)) == scrub(text)


@pytest.mark.parametrize("value", ["AKIAIOSFODNN7EXAMPLE", "postgres://u:hunter2@h", "wJalr/K7", "", "hunter2 "])
def test_a_value_in_place_of_a_variable_name_is_not_shown(value: str) -> None:
    assert value not in shown_variable(value) or not value


@pytest.mark.parametrize("name", ["SOURCE_POSTGRES_URI", "pg", "LAKE", "_x1"])
def test_a_variable_name_is_shown(name: str) -> None:
    assert shown_variable(name) == name
