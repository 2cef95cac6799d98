from __future__ import annotations

from typing import Any

import pytest

from services.applier.records.record_format import (
    DeclaredColumn,
    KeyFormat,
    Metadata,
    RecordFormat,
    ValueFormat,
    fields_of,
)
from services.applier.records.staging import pointer

A = DeclaredColumn("a", "$.a", "BIGINT")
EVENTS: dict[str, Any] = {
    "value": ValueFormat.DEBEZIUM, "key": KeyFormat.AVRO, "columns": (A,), "key_columns": ("a",),
}  # fmt: skip


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("$.id", ("id",)),
        ("$.a.b c.d", ("a", "b c", "d")),
        ('$."a.b"."[0]"', ("a.b", "[0]")),
        ("$.ключ", ("ключ",)),
    ],
)
def test_a_path_names_fields(path: str, fields: tuple[str, ...]) -> None:
    assert fields_of(path) == fields


@pytest.mark.parametrize("path", ["", "$", "id", "$.", "$.a.", "$..a", "$.a[0]", "$.*", "$.a b.", '$."', '$."a', "$a"])
def test_any_other_text_is_no_path(path: str) -> None:
    with pytest.raises(ValueError, match="path"):
        fields_of(path)


def test_a_pointer_finds_any_name() -> None:
    assert pointer(("a/b", "~1", "0")) == "/a~1b/~01/0"


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({"columns": (A, DeclaredColumn("A", "$.b", "BIGINT"))}, "two columns are called A"),
        ({"columns": (A, DeclaredColumn("b", '$."a"', "BIGINT"))}, "the same field"),
        ({"columns": (DeclaredColumn("a", "$.a", "HUGEINT"),)}, "HUGEINT"),
        ({"columns": (DeclaredColumn("a", "$.a", "BIGINT); DROP"),)}, "no field is converted"),
        ({"columns": (DeclaredColumn("_rescued", "$.a", "JSON"),)}, "can be called"),
        ({"columns": (A,), "value": ValueFormat.TEXT}, "text"),
        ({"key_columns": ("a",)}, "not declared"),
        ({"columns": (A,), "key_columns": ("a", "b")}, "not declared"),
        ({"columns": (A,), "metadata": (Metadata.KEY,), "key_columns": ("_kafka_key", "a")}, "not declared"),
        ({"metadata": ()}, "from the beginning"),
        ({"encoding": ValueFormat.AVRO}, "values that are json are not encoded in avro"),
        ({**EVENTS, "encoding": ValueFormat.TEXT}, "not encoded in text"),
        ({**EVENTS, "key": KeyFormat.TEXT}, "keys with fields"),
    ],
)
def test_a_format_that_contradicts_itself_is_refused(keys: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        RecordFormat(**keys)
