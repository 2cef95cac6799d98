"""Mistakes that are planted in the specification, each with the property that TLC must find broken."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

UNSEEDED = {"SeededAt": "<- Unseeded"}
RESEED = {"Faults": '{"lose", "operate"}', "Scripts": "<- ComesAndLeaves"}
TWO_KEYS = {"Keys": '{"k", "l"}', "Scripts": "<- TwoKeys"}
LOST_COMMITS = {"Faults": '{"lose", "crash", "cut"}'}
COMPACTION = {"Faults": '{"compact", "expire"}', "MaxName": "4"}
LOST_ANSWERS = {"Faults": '{"cut"}'}


@dataclass(frozen=True)
class Mistake:
    """``breaks`` is an invariant or property of the model's specification; ``given`` are constants of its file."""

    name: str
    what: str
    breaks: str
    given: Mapping[str, str] = field(default_factory=dict)
    model: str = "mutants"


MISTAKES = (
    Mistake("cursor_apart", "the cursor is stored after the data, not with them", "Exact"),
    Mistake("through_of_the_item", "rows of the head are stored at the item's end", "Exact"),
    Mistake(
        "trust_kafkas_offset",
        "an item is applied because Kafka delivers it, wherever the cursor is",
        "PositionsOnlyGrow",
    ),
    Mistake("no_generation_check", "the compare-and-set does not name the generation", "PositionsOnlyGrow", RESEED),
    Mistake(
        "reseed_without_fence", "a seed replaces whatever is there, even a later life", "OldLivesAreFenced", RESEED
    ),
    Mistake(
        "drop_is_forgotten",
        "a seed begins wherever no cursor is, though a later life was dropped there",
        "PositionsOnlyGrow",
        {"Faults": '{"lose", "drop"}', "MaxGeneration": "3", "Pins": "{FALSE}"},
    ),
    Mistake("inclusive_after", "a range begins at the first change instead of before it", "Exact", TWO_KEYS),
    Mistake(
        "no_history_check",
        "a range is read though the source no longer keeps its beginning",
        "NotServedExpired",
        {"Faults": '{"expire"}'},
    ),
    Mistake(
        "count_over_a_hole", "the reader counts over snapshots that expired", "NobodyAhead", {"Faults": '{"expire"}'}
    ),
    Mistake(
        "no_deadline",
        "the deadline is ignored, the destination's snapshots expire meanwhile (H6)",
        "Exact",
        {"Faults": '{"forget"}'},
    ),
    Mistake(
        "bare_expiry",
        "upkeep expires a destination's snapshots and does not write to its cursor (H6)",
        "Exact",
        {"Faults": '{"upkeep"}'},
    ),
    Mistake(
        "no_idle_timeout",
        "the catalog keeps a transaction that stands still before COMMIT (H6)",
        "Exact",
        {"Faults": '{"forget"}'},
    ),
    Mistake(
        "cursor_born_without_its_table",
        "two first cursors do not conflict (H10)",
        "Exact",
        {"Faults": '{"lose"}'} | UNSEEDED,
    ),
    Mistake(
        "token_is_enough",
        "a lost acknowledgement is taken for success without a look at the files (H7)",
        "AppliedIsWhole",
        {"Faults": '{"cut"}'},
    ),
    Mistake(
        "answer_unlooked", "`already_applied` is answered without a look at the files (H7)", "ToldIsWhole", LOST_COMMITS
    ),
    Mistake("gap_unlooked", "the same of `gap`", "ToldIsWhole", LOST_COMMITS),
    Mistake("probe_unlooked", "the same of a probe", "ToldIsWhole", LOST_COMMITS),
    Mistake(
        "never_planned_again",
        "the reader waits forever for an answer that was lost",
        "Temporal properties",
        model="live",
    ),
    Mistake(
        "condition_left_out",
        "a batch does not require that nothing was committed since the look",
        "RivalsStay",
        {"Faults": '{"elsewhere", "expire"}'},
        model="direct",
    ),
    Mistake(
        "condition_before_claim",
        "a batch checks its condition before it takes the snapshot's number",
        "Exact",
        COMPACTION,
        model="direct",
    ),
    Mistake(
        "seed_beside_a_life",
        "a seed makes its tables though the destination has a cursor",
        "Exact",
        {"Faults": "{}", "MaxGeneration": "2"},
        model="direct",
    ),
    Mistake(
        "cursor_not_compared",
        "the look does not compare the cursor with the item",
        "PositionsOnlyGrow",
        {"Faults": "{}"},
        model="direct",
    ),
    Mistake(
        "number_reused",
        "the newest snapshot expires, and its number is given again",
        "Exact",
        COMPACTION,
        model="direct",
    ),
    Mistake(
        "removed_while_unknown",
        "files are removed as soon as the acknowledgement is lost",
        "CommittedFilesExist",
        LOST_ANSWERS,
        model="direct",
    ),
    Mistake(
        "absent_is_enough",
        "files are removed because the commit is not there yet",
        "CommittedFilesExist",
        LOST_ANSWERS,
        model="direct",
    ),
    Mistake(
        "token_decides",
        "files are removed because no retained snapshot carries the token",
        "CommittedFilesExist",
        {"Faults": '{"cut", "elsewhere", "expire"}'},
        model="direct",
    ),
    Mistake(
        "looks_in_turn",
        "the files are looked for first, and the newest snapshot afterwards",
        "CommittedFilesExist",
        LOST_ANSWERS,
        model="direct",
    ),
    Mistake(
        "missing_is_damage",
        "a file of an old look that is gone is taken for damage",
        "DamageIsReal",
        COMPACTION,
        model="direct",
    ),
    Mistake(
        "sums_decide",
        "an item counts as applied where the sum of offsets is that of its end",
        "AnswersAreTrue",
        model="topics",
    ),
    Mistake("sums_fence", "the compare-and-set compares sums of offsets", "ExactlyOnce", model="topics"),
    Mistake("skip_unstamped", "records are skipped, and no stamp says which", "ExactlyOnce", model="topics-lives"),
    Mistake(
        "skip_unasked",
        "records are skipped though the broker may still have them",
        "SkippedAreGone",
        model="topics-lives",
    ),
    Mistake(
        "sums_gone",
        "whether skipped records are gone is told by sums of offsets",
        "SkippedAreGone",
        model="topics-lives",
    ),
    Mistake(
        "sums_rewind", "a rewind may begin wherever no sum of offsets is greater", "ExactlyOnce", model="topics-lives"
    ),
    Mistake(
        "rewind_in_place",
        "a rewind goes on in the generation that was there",
        "PositionsOnlyGrow",
        model="topics-lives",
    ),
    Mistake(
        "fence_without_life",
        "the fence compares vectors, and no generations",
        "OldLivesAreFenced",
        model="topics-lives",
    ),
    Mistake("map_by_name", "a column of the destination is the source's of its name", "Exact", model="columns"),
    Mistake(
        "position_without_columns",
        "a position without a row moves, and the columns stay behind",
        "Exact",
        model="columns",
    ),
)
