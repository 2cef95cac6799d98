"""What a reading came to: rows and keys of each destination, counted, and those whose keys are none."""

from __future__ import annotations

from services.applier.apply.source.reading import ChangeCounts, Reading, key_not_unique
from services.applier.apply.source.unsupported_values import find_uncarried, has_uncarried
from shared.lake.pruning import TEXT, is_harmless
from shared.lake.sql import ident


def count_keys(reading: Reading) -> None:
    """Keys of each destination, and whether they mean themselves in a query."""
    harmless = "".join(
        f", bool_and({is_harmless(f'k{i}')})" if reading.type_of(key) == TEXT else ", true"
        for i, key in enumerate(reading.keys)
    )
    rows = reading.con.execute(f"SELECT d, count(*){harmless} FROM {reading.memory('touched')} GROUP BY d").fetchall()
    for number, touched, *plain in rows:
        reading.counts[number].touched, reading.counts[number].harmless_keys = touched, tuple(plain)


def count_touched(reading: Reading) -> None:
    """The same, and rows of the feed, and of them those that moved."""
    count_keys(reading)
    if reading.only_inserts:
        return
    feed, keys = reading.memory("feed"), ", ".join(f"k{i}" for i in range(len(reading.keys)))
    moved = f"SELECT {keys} FROM {feed} GROUP BY {keys} HAVING min(r) <> max(r)"
    counted = f"SELECT (SELECT count(*) FROM {feed}), (SELECT count(*) FROM ({moved}))"
    reading.rows_read, reading.routing_mutations = reading.con.execute(counted).fetchall()[0]


def count_rows(reading: Reading, *, unique: bool = True) -> None:
    """Rows of each destination. Refuses those with double keys, and rows that can't be carried."""
    counted = reading.con.execute(
        f"SELECT {reading.number_column}, count(*), count(*) FILTER ({reading.was_there_column}),"
        f" count(*) FILTER ({has_uncarried(reading)}) FROM {reading.memory('rows')} GROUP BY 1"
    ).fetchall()
    for number, upserts, matched, _ in counted:
        reading.counts[number].upserts, reading.counts[number].matched = upserts, matched
    if reading.only_inserts or not reading.keys:
        reading.rows_read += sum(upserts for _, upserts, _, _ in counted)
    if reading.keys and unique:
        find_duplicates(reading)
    if any(uncarried for _, _, _, uncarried in counted):
        reading.refused = find_uncarried(reading) | reading.refused


def find_duplicates(reading: Reading) -> None:
    """Refuse destinations of which several rows have one key."""
    group = ", ".join([reading.number_column, *(ident(name) for name in reading.keys)])
    places = [f"k{i}" for i in range(len(reading.keys))]
    text = " || ', ' || ".join(f"coalesce(CAST({place} AS VARCHAR), 'NULL')" for place in places)
    doubled = f"SELECT {group}, count(*) FROM {reading.memory('rows')} GROUP BY {group} HAVING count(*) > 1"
    found = reading.con.execute(
        f"SELECT d, {text}, times FROM ({doubled}) AS doubled(d, {', '.join(places)}, times)"
    ).fetchall()
    for number, key, times in found:
        reading.refused[number] = key_not_unique(reading.keys, key, times, reading.through)


def matched_rows(counts: ChangeCounts, deleted: int) -> int:
    """Upserts that replaced a row: exact where the net change holds only upserts, else by what the range took away."""
    return deleted if counts.touched == counts.upserts else min(counts.matched, deleted)


def came_and_went(counts: ChangeCounts, deleted: int) -> int:
    """Touched keys that were there neither before nor after: changes that cancelled each other."""
    gone = max(0, deleted - matched_rows(counts, deleted))
    return max(0, counts.touched - counts.upserts - gone)
