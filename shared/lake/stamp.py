"""What Viaduck's commits say of themselves, as it is read: the lake's owner may have written anything there."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from shared.contracts.messages import CommitPath, Count, Generation, Position
from shared.contracts.positions import LONGEST_SPELLING

LONGEST = 4_000 + 4 * LONGEST_SPELLING
"""Characters of a stamp; ours have some 400 beside a spelled position and two offsets for each partition of which
records were skipped, and names of pipelines and destinations 200 each at most."""

LONGEST_LIST = 2_400
"""Characters of all that a stamp says of columns, as JSON."""

PartitionText = Annotated[str, Field(pattern=r"^(0|[1-9]\d{0,8})$")]
StampText = Annotated[str, Field(max_length=300)]


class StampRead(BaseModel):
    """A stamp that could be Viaduck's (docs/reference/stamps.md)."""

    model_config = ConfigDict(frozen=True, strict=True)

    pipeline: StampText
    destination: StampText
    kind: StampText
    generation: Generation
    after: Position
    through: Position
    item: StampText
    deleted: Count
    inserted: Count
    commit: StampText | None = None
    """Who committed it, in its own word; stamps of before say nothing."""
    columns: tuple[Annotated[str, Field(max_length=LONGEST_LIST)], ...] = ()
    """What became of the table's columns, in words."""
    through_at: Annotated[str, Field(max_length=LONGEST_SPELLING)] | None = None
    """The source's own spelling of ``through``; None where it has none."""
    rejected: Count = 0
    """Records of a topic of which no row could be made."""
    skipped: dict[PartitionText, tuple[Count, Count]] = {}
    """Offsets of a topic whose records were gone before they were read: the first, and the one behind the last."""

    rewound: bool = False
    """A seed that took out the rows of a topic's records from ``through`` on, and left those before it."""

    @property
    def path(self) -> CommitPath | None:
        """Who committed it; None where it does not say so, or in a word that Viaduck never writes."""
        return next((each for each in CommitPath if each.value == self.commit), None)

    def speaks_of(self, pipeline: str, destination: str) -> bool:
        return (self.pipeline, self.destination) == (pipeline, destination)


def short_list(said: Sequence[str]) -> list[str]:
    """As many as fit into a stamp, each cut if need be; the last one tells how many more there were."""
    kept, room = list[str](), LONGEST_LIST
    for number, each in enumerate(said):
        room -= len(json.dumps(each)) + 2
        if room < 0:
            return [*kept, f"{len(said) - number} more"]
        kept.append(each)
    return kept


def read_stamp(text: str | None) -> StampRead | None:
    """None for what is no stamp of ours, whatever it looks like."""
    if text is None or len(text) > LONGEST:
        return None
    try:
        return StampRead.model_validate_json(text)
    except ValidationError:
        return None
