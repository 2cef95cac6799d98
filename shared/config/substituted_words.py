"""Words in braces that DuckLake replaces in the text of every statement that it sends to a catalog (H16).

A name or a path that holds one would be stored as another, and what ``{DATA_PATH}`` stands for is quoted on its way: in
the middle of a text it ends that text, and the rest of the path is SQL.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

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


def first_substituted(texts: Iterable[str]) -> str | None:
    """The first of some names, paths or defaults that DuckLake would change on its way into a catalog."""
    return next((text for text in texts if re.search(PLACEHOLDER, text)), None)


def faulty_text(text: str) -> str | None:
    """What is wrong with a name or a path; None where nothing is."""
    found = re.search(PLACEHOLDER, text)
    return None if found is None else f"holds the word {found[1]} in braces, which DuckLake replaces; leave it out"


def faulty_names(names: Mapping[str, str | None]) -> Iterator[tuple[str, str]]:
    """Key and message of each that is wrong; of what is not given nothing is."""
    for key, name in names.items():
        if name is not None and (said := faulty_text(name)) is not None:
            yield key, said
