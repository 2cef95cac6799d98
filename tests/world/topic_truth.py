"""What is true of a topic: its records by their places, and what becomes of each of them.

It knows Kafka's records and the rules that docs/how-to/land-a-topic.md tells of JSON; of the services it knows nothing.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

Place = tuple[int, int]
"""Partition and offset."""

Offsets = Mapping[int, int]
"""The next offset by partition; a partition that is not there is at 0."""

Skipped = tuple[int, int, int]
"""A partition, and the first offset and the one behind the last of which nobody read the records."""

Fields = Mapping[str, Any]
"""A record's fields that have a value."""


@dataclass(frozen=True)
class TopicRecord:
    """A record that was committed."""

    partition: int
    offset: int
    value: bytes | None
    key: bytes | None = None

    @property
    def place(self) -> Place:
        return self.partition, self.offset

    def fields(self) -> Fields | None:
        """None where no row can be made of it. A record without a value has no fields."""
        return self._fields

    @cached_property
    def _fields(self) -> Fields | None:
        """Read once: an oracle asks at each snapshot for those of every record so far."""
        if self.value is None:
            return {}
        try:
            found = json.loads(self.value, parse_constant=_refuse)
        except ValueError:
            return None
        if not isinstance(found, dict):
            return None
        return {name: value for name, value in found.items() if value is not None}


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no number of JSON")


@dataclass
class TopicTruth:
    """The records of one topic id, as far as they are known; retention may have taken some of them since.

    ``keyed``: rows are told apart by the record's own key, and a record without a value deletes the row of its key.
    All records of a key are in one partition, as Kafka's partitioner places them.
    """

    topic: str
    """Its id: another one of the same name has another."""
    keyed: bool = False
    records: dict[Place, TopicRecord] = field(default_factory=dict)
    newest: dict[int, int] = field(default_factory=dict)
    """Behind the last record of each partition that was stable when somebody looked."""
    oldest: Offsets | None = None
    """Where the topic begins, where that is known: a life that is to have all of it begins there, or before."""
    last: Offsets | None = None
    """Of a destination's own records, behind the last of each partition; None where it takes them all, or where a
    record of another destination may delete one of its rows."""
    whose: tuple[str, str | int] | None = None
    """With keys: the field, and its value in the records whose rows are the destination's. All records are known, for
    any of them may delete the row of its key."""

    def add(self, records: Iterable[TopicRecord], newest: Offsets) -> None:
        self.records |= {each.place: each for each in records}
        self.newest |= newest

    def of(self, field: str, value: str | int) -> TopicTruth:
        """The truth of the destination that takes the records whose ``field`` has that value, in JSON. With keys it has
        a row of a key if and only if the newest record of it has that value."""
        if self.keyed:
            return replace(self, whose=(field, value))
        fields = {place: each.fields() for place, each in self.records.items()}
        mine = {
            place: self.records[place]
            for place, found in fields.items()
            if found is not None and type(found.get(field)) is type(value) and found[field] == value
        }
        last: dict[int, int] = {}
        for partition, offset in sorted(mine):
            last[partition] = offset + 1
        return replace(self, records=mine, last=last)

    def rows(self, start: Offsets, end: Offsets, skipped: Collection[Skipped] = ()) -> dict[Place, Fields]:
        """What the records from ``start`` up to before ``end`` leave, by the place of the record that left it, but for
        those that were ``skipped``."""
        found: dict[Place, Fields] = {}
        holder: dict[bytes, Place] = {}
        for record in self._between(start, end):
            if self.rejects(record) or is_skipped(record.place, skipped):
                continue
            if self.keyed and record.key is not None and (former := holder.pop(record.key, None)) is not None:
                del found[former]
            if self.keyed and record.value is None:
                continue
            found[record.place] = record.fields() or {}
            if self.keyed and record.key is not None:
                holder[record.key] = record.place
        return {place: fields for place, fields in found.items() if self._takes(fields)}

    def _takes(self, fields: Fields) -> bool:
        return self.whose is None or fields.get(self.whose[0]) == self.whose[1]

    def rejected(self, start: Offsets, end: Offsets, skipped: Collection[Skipped] = ()) -> list[TopicRecord]:
        """Those that the destination's own stamps count: none with keys and routing, for each record may concern any
        destination."""
        if self.whose is not None:
            return []
        found = (each for each in self._between(start, end) if self.rejects(each))
        return [each for each in found if not is_skipped(each.place, skipped)]

    def rejects(self, record: TopicRecord) -> bool:
        fields = record.fields()
        if fields is None or (self.keyed and record.key is None):
            return True
        if self.whose is None or self.whose[0] not in fields:
            return False
        return type(fields[self.whose[0]]) is not type(self.whose[1])

    def _between(self, start: Offsets, end: Offsets) -> Iterator[TopicRecord]:
        """Each partition's in order, one partition after the other."""
        for partition, last in sorted(end.items()):
            mine = (each for place, each in self.records.items() if place[0] == partition)
            wanted = (each for each in mine if start.get(partition, 0) <= each.offset < last)
            yield from sorted(wanted, key=lambda each: each.offset)


def is_skipped(place: Place, skipped: Collection[Skipped]) -> bool:
    return any(place[0] == partition and first <= place[1] < behind for partition, first, behind in skipped)


def covers(one: Offsets, other: Offsets) -> bool:
    """Whether one vector is at or beyond the other in every partition."""
    return all(one.get(partition, 0) >= offset for partition, offset in other.items())
