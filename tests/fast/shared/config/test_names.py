"""A safe name is harmless as it is, wherever a template puts it; whatever is not is none."""

from __future__ import annotations

import os.path
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.conninfo import conninfo_to_dict

from shared.config.catalogs import parse_catalog
from shared.config.safe_names import safe_name
from shared.lake.sql import ident, literal
from tests.fast.control.web.test_hostile import HOSTILE, TOO_MUCH

ANYTHING = st.text() | st.text("aA0._-/:@+ '\"{}%\\\x00\n", max_size=70) | st.from_regex(r"[\w.-]{1,80}")


@pytest.mark.parametrize("value", ["quacksworth", "Acme-2", "a", "42", "3.14", "a_b", "x" * 63, "2024-01-31", "a.b-c"])
def test_a_plain_value_is_its_own_name(value: str) -> None:
    assert safe_name(value) == value


@pytest.mark.parametrize("value", [each for each in [*HOSTILE, *TOO_MUCH] if each != "NULL"])
def test_a_hostile_value_makes_no_name(value: str) -> None:
    assert safe_name(value) is None


@pytest.mark.parametrize(
    "value",
    ["", ".", "..", "a..b", "a.", ".a", "-a", "_a", "a/b", "a:b", "a@b", "a+b", "a%2fb", "a\n", "é", "x" * 64, "ａ",
     "postgres", "Template1", "PUBLIC", "main", "information_schema", "pg_catalog", "PG_toast", "acme-wal", "acme-shm",
     "acme-journal", "acme.files", "acme\u202e", "acme\u200b", "\u212a"],
)  # fmt: skip
def test_what_means_something_somewhere_makes_no_name(value: str) -> None:
    assert safe_name(value) is None


@given(ANYTHING)
def test_a_safe_name_survives_paths_uris_connection_words_and_sql_unchanged(value: str) -> None:
    name = safe_name(value)
    if name is None:
        return
    assert name == value
    assert os.path.normpath(f"/lakes/{name}") == f"/lakes/{name}"
    assert quote(name, safe="") == name
    assert urlsplit(f"s3://tenants/{name}/data").path == f"/{name}/data"
    assert conninfo_to_dict(f"dbname={name} host=h") == {"dbname": name, "host": "h"}
    assert conninfo_to_dict(f"postgresql://h/{name}")["dbname"] == name
    assert parse_catalog(f"sqlite:lakes/{name}.sqlite", Path("/")) == f"sqlite:/lakes/{name}.sqlite"
    assert ident(name) == f'"{name}"'
    assert literal(name) == f"'{name}'"
    assert len(name.encode()) <= 63
