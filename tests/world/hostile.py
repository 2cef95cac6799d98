"""Texts that a stranger may write into any column, and those among them that DuckLake can't carry (H16).

What is here of DuckLake's words is written down apart from the services, which have a list of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from tests.world.rows import Cell, Row

TEXTS: tuple[Cell, ...] = (
    "x\x00y",
    "\x00",
    "o'brien''; --\"",
    "'; DROP TABLE t; --",
    "$$ $1 $a$",
    "/* */ -- ;",
    "{x} {} {{y}}",
    "%s%n\\' \\x00",
    '{"a": [1, "b"]}',
    "ab{'" * 2_500,
    "ü" * 300 + "😀",
    "\uffff\ufffd\u202e",
    "a\r\n\tb\x01\x7f",
    "a",
    "A",
    "\u0430",
    "é",
    "e\u0301",
    " a",
    "a ",
    "NULL",
    "null",
    "",
    None,
)
"""Carried to the letter. Among them are twins: by case, by form (é in two ways), by look (a Cyrillic а), by blanks."""

TENANTS = (
    "acme",
    "Acme",
    "\u0430cme",
    "NULL",
    "x\x00y",
    "x\x00z",
    "o'brien''; --\"",
    "$$ /* ; -- %s {x}",
    "é",
    "e\u0301",
    " ",
    "a\r\nb\x01",
    "ab{'" * 2_500,
    "../\\' \\x00",
)
STRAYS: tuple[Cell, ...] = ("ACME", "null", "", "acme ", "\x00", "x", "ü" * 300, None)

WORDS = ("{SNAPSHOT_ID}", "{METADATA_CATALOG}", "{AUTHOR}", "by {AUTHOR}", "{NEXT_FILE_ID}", "{AUTHOR|", "a{AUTHOR}b")
"""Texts that whoever writes to a source without a stamp can commit to files, and that no destination can hold."""

WORD_TENANT = "{AUTHOR}"
"""A routing value that is such a word: its destination parks for as long as it has a row."""

_REPLACED = (
    "SNAPSHOT_ID SCHEMA_VERSION NEXT_CATALOG_ID NEXT_FILE_ID AUTHOR COMMIT_MESSAGE COMMIT_EXTRA_INFO"
    " METADATA_CATALOG_NAME_LITERAL METADATA_CATALOG_NAME_IDENTIFIER METADATA_SCHEMA_NAME_LITERAL METADATA_CATALOG"
    " METADATA_SCHEMA_ESCAPED METADATA_PATH DATA_PATH"
)
_WORD = re.compile(r"\{(?:" + "|".join(_REPLACED.split()) + r")[|}]")


def holds_uncarried(rows: Iterable[Row]) -> bool:
    """Whether any of some rows holds a text that can't be carried."""
    return any(cell is not None and _WORD.search(cell) is not None for row in rows for cell in row)


def fits_a_folder(texts: Iterable[Cell]) -> bool:
    """Whether a table in files can be partitioned by a column of these texts: DuckLake names folders after them."""
    return all(text is None or ("\x00" not in text and len(text) <= 50) for text in texts)
