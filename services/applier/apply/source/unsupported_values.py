"""Rows that no destination can store as they are: a text in them would be changed, or break the COMMIT (H16).

DuckLake writes the smallest and the largest text of each column of a file into the text of its COMMIT, and replaces its
own words in all of that. Which text is the smallest of a file changes with every merge, so such words are refused
wherever they are: the tenant parks with that reason, instead of failing without end or having files that hide rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing

from services.applier.apply.source.reading import Reading
from shared.config.substituted_words import PLACEHOLDER, first_substituted
from shared.contracts.errors import DestinationError
from shared.lake.catalog.reader import Column
from shared.lake.pruning import holds_text, is_uncarried
from shared.lake.sql import ident

HINT = "change the text at the source, then resume"

MAX_KEY = 200


def has_uncarried(reading: Reading) -> str:
    """Whether a row of the reading has such a word, as an expression."""
    return " OR ".join(is_uncarried(ident(column.name), column.type) for column in _texts(reading)) or "false"


def find_uncarried(reading: Reading) -> dict[int, DestinationError]:
    """Which of a reading's destinations have a row with such a word, and why that can't be."""
    return _refused(reading, _texts(reading), has_uncarried(reading))


def _texts(reading: Reading) -> list[Column]:
    return [column for column in reading.columns if holds_text(column.type)]


def find_nul(reading: Reading, number: int, partitioned: Iterable[str]) -> DestinationError | None:
    """Why a destination can't have its rows that is partitioned by texts of which one holds a NUL."""
    wanted = set(partitioned)
    texts = [column for column in reading.columns if holds_text(column.type) and column.name.lower() in wanted]
    if not texts:
        return None
    bad = " OR ".join(f"contains({ident(column.name)}, chr(0))" for column in texts)
    one = f"SELECT 1 FROM {reading.memory('rows')} WHERE {reading.number_column} = {number} AND ({bad}) LIMIT 1"
    with closing(reading.con.cursor()) as con:
        if not con.execute(one).fetchall():
            return None
    names = ", ".join(column.name for column in texts)
    return DestinationError(
        "value_not_carried",
        f"a row holds a NUL in a column that the destination's table is partitioned by ({names}),"
        f" which DuckLake can't write, at snapshot {reading.through}",
        "change the text at the source, or partition the table by other columns, then resume",
    )


def require_carried_names(columns: Sequence[Column]) -> None:
    """Raises ``value_not_carried`` for a column whose name, type or default would be changed on its way."""
    for column in columns:
        text = first_substituted((column.name, column.type, column.default or ""))
        if text is not None:
            raise DestinationError(
                "value_not_carried",
                f"the column {column.name} is declared with {text[:MAX_KEY]!r}, in which DuckLake replaces words",
                "rename the column, or give it another default, at the source, then resume",
            )


def _refused(reading: Reading, texts: Sequence[Column], bad: str) -> dict[int, DestinationError]:
    names = reading.keys or (texts[0].name,)
    key = " || ', ' || ".join(f"coalesce(CAST({ident(name)} AS VARCHAR), 'NULL')" for name in names)
    number = " ".join(f"WHEN {is_uncarried(ident(column.name), column.type)} THEN ?" for column in texts)
    text = " ".join(
        f"WHEN {is_uncarried(ident(column.name), column.type)} THEN CAST({ident(column.name)} AS VARCHAR)"
        for column in texts
    )
    found = reading.con.execute(
        f"SELECT {reading.number_column}, left({key}, {MAX_KEY}), CASE {number} END,"
        f" regexp_extract(CASE {text} END, '{PLACEHOLDER}', 1) FROM {reading.memory('rows')} WHERE {bad}"
        f" QUALIFY row_number() OVER (PARTITION BY {reading.number_column} ORDER BY {key}) = 1",
        list(range(len(texts))),
    ).fetchall()
    return {
        destination: _not_carried(texts[place].name, ", ".join(names), shown, word, reading.through)
        for destination, shown, place, word in found
    }


def _not_carried(column: str, names: str, key: str, word: str, through: int) -> DestinationError:
    return DestinationError(
        "value_not_carried",
        f"column {column} of the row ({names}) = ({key}) holds the word {word} in braces, which DuckLake replaces by"
        f" something else wherever it writes it, at snapshot {through}",
        HINT,
    )
