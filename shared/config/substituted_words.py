"""Words in braces that DuckLake replaces in the text of every statement that it sends to a catalog (H16).

A name or a path that holds one would be stored as another, and what ``{DATA_PATH}`` stands for is quoted on its way: in
the middle of a text it ends that text, and the rest of the path is SQL.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

SUBSTITUTED = (
    "SNAPSHOT_ID",
    "SCHEMA_VERSION",
    "NEXT_CATALOG_ID",
    "NEXT_FILE_ID",
    "AUTHOR",
    "COMMIT_MESSAGE",
    "COMMIT_EXTRA_INFO",
    "METADATA_CATALOG_NAME_LITERAL",
    "METADATA_CATALOG_NAME_IDENTIFIER",
    "METADATA_SCHEMA_NAME_LITERAL",
    "METADATA_CATALOG",
    "METADATA_SCHEMA_ESCAPED",
    "METADATA_PATH",
    "DATA_PATH",
)

PLACEHOLDER = r"\{(" + "|".join(SUBSTITUTED) + r")[|}]"
"""Such a word in a value. Statistics that are cut end in the next letter: of ``{AUTHOR|`` that is ``{AUTHOR}``."""


SUBSTITUTED_WORD = re.compile(PLACEHOLDER)


def first_substituted(texts: Iterable[str]) -> str | None:
    """The first of some names, paths or defaults that DuckLake would change on its way into a catalog."""
    return next((text for text in texts if SUBSTITUTED_WORD.search(text)), None)


def refusal(found: re.Match[str]) -> str:
    """What is wrong with a name or a path in which ``SUBSTITUTED_WORD`` was found."""
    return f"holds the word {found[1]} in braces, which DuckLake replaces; leave it out"
