"""What the section ``upkeep`` must fulfil beyond the shape of its values, and which policy holds for a destination."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from shared.config.config_errors import Mistakes, join
from shared.config.model import Applier, Config, FileDestination, Upkeep
from shared.contracts.upkeep import Compaction, UpkeepOverride, UpkeepStep, hours_of, seconds_of

DEADLINES = 10
"""Nothing is expired or deleted that a transaction of a multiple of its deadline's age could still use (H6)."""

DAY_S = 86_400.0
OF_THE_LAKE = ("clean_after", "expire_after", "orphans_after", "keep_snapshots", "whole_lake")
"""Keys on which all destinations of one lake must agree."""

DURATIONS = ("clean_after", "expire_after", "orphans_after", "every")


POLICY_KEYS = frozenset({*OF_THE_LAKE, "most_files", "most_snapshots"})


@dataclass(frozen=True)
class Policy:
    """How one destination's lake is kept small. Seconds; None where a step is off."""

    clean_after_s: float | None = None
    expire_after_s: float | None = None
    keep_snapshots: int = 20
    orphans_after_s: float | None = None
    whole_lake: bool = False
    most_files: int = 5_000
    most_snapshots: int = 5_000

    @property
    def steps(self) -> tuple[UpkeepStep, ...]:
        """The steps that it does not switch off, in their order."""
        ages = {
            UpkeepStep.EXPIRE: self.expire_after_s,
            UpkeepStep.CLEAN: self.clean_after_s,
            UpkeepStep.ORPHANS: self.orphans_after_s,
        }
        return (UpkeepStep.COMPACT, *(step for step, age in ages.items() if age is not None))

    @property
    def of_the_lake(self) -> tuple[object, ...]:
        """The values of ``OF_THE_LAKE``, in that order; ages in seconds."""
        ages = self.clean_after_s, self.expire_after_s, self.orphans_after_s
        return *ages, self.keep_snapshots, self.whole_lake


def policy_of(upkeep: Upkeep, own: UpkeepOverride | None) -> Policy:
    """That of a destination: its own keys, else its pipeline's. Raises ``ValueError`` for a duration that is none."""
    given = {} if own is None else own.model_dump(exclude_none=True)
    whole = upkeep.model_copy(update=given)
    return Policy(
        clean_after_s=seconds_of(whole.clean_after),
        expire_after_s=seconds_of(whole.expire_after),
        keep_snapshots=whole.keep_snapshots,
        orphans_after_s=seconds_of(whole.orphans_after),
        whole_lake=whole.whole_lake,
        most_files=whole.most_files,
        most_snapshots=whole.most_snapshots,
    )


def policy_in(section: Mapping[str, Any], own: Mapping[str, Any]) -> Policy | None:
    """The same by the sections of a file, as far as their values fitted; None where a duration is none."""
    given = {key: value for key, value in {**section, **own}.items() if key in POLICY_KEYS}
    try:
        return policy_of(Upkeep().model_copy(update=given), None)
    except (ValueError, TypeError):
        return None


def override_of(destination: FileDestination) -> UpkeepOverride | None:
    """What a destination of a file has for itself, as its message carries it."""
    own = destination.upkeep
    return None if own is None else UpkeepOverride(**own.model_dump(exclude_none=True))


def compaction_of(config: Config) -> Compaction:
    """When the tables of a pipeline's destinations are compacted, unless they have keys of their own."""
    upkeep, otherwise = config.upkeep, config.reader.upkeep_after_applies
    latest = otherwise if upkeep.compact_after_applies is None else upkeep.compact_after_applies
    return Compaction(upkeep.compact_files, upkeep.compact_dead_share, latest)


def least_age_s(deadline_s: float, seed_deadline_s: float) -> float:
    """Seconds below which no snapshot is expired and no file is deleted."""
    return DEADLINES * max(deadline_s, seed_deadline_s)


def faults(section: Mapping[str, Any], least_s: float) -> Iterator[tuple[str, str]]:
    """Key and message of each mistake of a section, as far as its values fitted. ``least_s``: ``least_age_s``."""
    for key in DURATIONS:
        if isinstance(text := section.get(key), str):
            yield from ((key, said) for said in _duration_faults(key, text, least_s))
    if isinstance(text := section.get("hours"), str) and (said := _refusal(hours_of, text)) is not None:
        yield "hours", said


def too_young(config: Config) -> Iterator[tuple[str, str]]:
    """Path and message of each mistake of a complete configuration, by the deadlines of its deployment."""
    least_s = least_age_of(config)
    yield from ((join("upkeep", key), said) for key, said in faults(config.upkeep.model_dump(), least_s))
    for number, each in enumerate(config.destinations):
        own, place = override_of(each), join(join("destinations", number), "upkeep")
        if own is not None:
            yield from ((join(place, key), said) for key, said in faults(own.model_dump(), least_s))


def least_age_of(config: Config) -> float:
    """``least_age_s`` of a deployment."""
    return least_age_s(config.applier.deadline_seconds, config.applier.seed_deadline_seconds)


def _duration_faults(key: str, text: str, least_s: float) -> Iterator[str]:
    if (said := _refusal(seconds_of, text)) is not None:
        yield said
        return
    seconds, least = seconds_of(text), max(DAY_S, least_s) if key == "orphans_after" else least_s
    if seconds is None:
        return
    if key == "every":
        if seconds < 60:
            yield "must be 1m or more; write for example 1d"
    elif seconds < least:
        why = "a day" if least > least_s else "ten times the longest deadline (applier.seed_deadline_seconds)"
        yield f"must be {least:g}s or more, {why}; write for example 7d, or off"


def _refusal(read: Callable[[str], object], text: str) -> str | None:
    try:
        read(text)
    except ValueError as error:
        return str(error)
    return None


def check_upkeep(
    sections: Mapping[str, Any], destinations: list[dict[str, Any]], mistakes: Mistakes, least_s: float | None = None
) -> None:
    """Note every mistake in the pipeline's section, and in those of its destinations. ``least_s``: as for ``faults``;
    None: by the file's own deadlines."""
    least_s = _least_of(sections) if least_s is None else least_s
    upkeep = _section(sections, "upkeep")
    for key, said in faults(upkeep, least_s):
        mistakes.note(join("upkeep", key), said)
    one, other = upkeep.get("compact_after_applies"), _section(sections, "reader").get("upkeep_after_applies")
    if isinstance(one, int) and isinstance(other, int) and one != other:
        mistakes.note(
            "upkeep.compact_after_applies", "is another name of reader.upkeep_after_applies; keep one of them"
        )
    for number, each in enumerate(destinations):
        for key, said in faults(_section(each, "upkeep"), least_s):
            mistakes.note(join(join(join("destinations", number), "upkeep"), key), said)


def _least_of(sections: Mapping[str, Any]) -> float:
    applier, usual = _section(sections, "applier"), Applier()
    given = [applier.get(key) for key in ("deadline_seconds", "seed_deadline_seconds")]
    deadline, seeds = (each if isinstance(each, float) else None for each in given)
    return least_age_s(deadline or usual.deadline_seconds, seeds or usual.seed_deadline_seconds)


def _section(of: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = of.get(name)
    return found if isinstance(found, dict) else {}
