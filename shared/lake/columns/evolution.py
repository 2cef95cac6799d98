"""How a table's columns become what the source's are: the net difference of two trees of columns, as steps.

Only where a range begins and where it ends counts, so a column that came and went in between is no step. Values in,
values out; ``services.applier.apply.columns.evolve`` makes statements of the steps.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from shared.contracts.errors import Error
from shared.contracts.evolution import EvolutionPolicy
from shared.lake.columns.history import Field

Path = tuple[str, ...]

SPARE = "_viaduck_spare"
"""A name that a column has between two steps."""


class StepKind(StrEnum):
    DROP = "drop"
    RENAME = "rename"
    ADD = "add"
    WIDEN = "widen"


GROWTH = frozenset({StepKind.ADD, StepKind.WIDEN})


class NotFollowed(Error):
    """Columns can't become what they are at the source, or may not ``by_policy``. ``str()`` says what is in the way."""

    def __init__(self, why: str, *, by_policy: bool = False) -> None:
        super().__init__(why)
        self.by_policy = by_policy


@dataclass(frozen=True)
class ColumnStep:
    """One change. ``path`` are the names that lead to a column or field when its turn comes; ``name`` is what a renamed
    one is called then, ``type`` what an added or widened one is declared as, ``default`` what older rows show in an
    added one."""

    kind: StepKind
    path: Path
    column: int
    name: str = ""
    type: str = ""
    default: str | None = None
    said: str = ""
    """In words; empty for a step that only makes room for another."""


def steps_between(then: Sequence[Field], now: Sequence[Field]) -> tuple[ColumnStep, ...]:
    """What makes ``now`` of ``then``, in an order in which DuckLake does it right. Raises ``NotFollowed``.

    Types become wider last: rows of older files show NULL, for the rest of a transaction, in a column with a default
    that it has widened. TLA: ``Kept``.
    """
    if [field.identity for field in then] == [field.identity for field in now]:
        return ()
    return (*_level(then, now, (), ()), *_widened(then, now))


def first_not_allowed(
    steps: Sequence[ColumnStep], policy: EvolutionPolicy, identifying: frozenset[int]
) -> ColumnStep | None:
    """The first step that a policy does not follow. Columns that rows are told by keep their meaning under each."""
    if policy is EvolutionPolicy.FOLLOW:
        return None
    followed = GROWTH if policy is EvolutionPolicy.ADDITIVE else frozenset[StepKind]()
    asked = (each for each in steps if each.said and not (each.kind is StepKind.RENAME and each.column in identifying))
    return next((each for each in asked if each.kind not in followed), None)


def _level(then: Sequence[Field], now: Sequence[Field], shown: Path, path: Path) -> Iterator[ColumnStep]:
    """The steps of one level and of those within. ``shown`` is the path by the names that were."""
    before, after = {field.id: field for field in then}, {field.id: field for field in now}
    kept = [field for field in now if field.id in before]
    added, dropped = [f for f in now if f.id not in before], [f for f in then if f.id not in after]
    _require_order(then, now, kept, shown)
    drops = [_drop(field.name, field, shown, path) for field in dropped]
    adds = [_add(field, shown, path) for field in added]
    if kept or not dropped:
        yield from (*drops, *_renames(before, kept, shown, path), *adds)
    else:
        yield from _exchanged(dropped, added, shown, path)
    for field in kept:
        if shown:
            _require_default(before[field.id], field, (*shown, before[field.id].name))
        yield from _within(before[field.id], field, (*shown, before[field.id].name), (*path, field.name))


def _require_default(then: Field, now: Field, shown: Path) -> None:
    """DuckLake forgets the default of a field that is renamed, or made wider with its column (H26). Older rows show
    NULL from then on, of which no image tells; a destination may hold the default in its own."""
    if then.default is not None and now.default is None:
        raise NotFollowed(f"{_dotted(shown)} has lost its default, which older rows showed until then")


def _within(then: Field, now: Field, shown: Path, path: Path) -> Iterator[ColumnStep]:
    if not then.fields and not now.fields:
        return
    if then.type != now.type or (now.type != "struct" and [f.id for f in then.fields] != [f.id for f in now.fields]):
        raise NotFollowed(f"{_dotted(shown)} was {then.declared} and is {now.declared} now")
    yield from _level(then.fields, now.fields, shown, path)


def _require_order(then: Sequence[Field], now: Sequence[Field], kept: Sequence[Field], shown: Path) -> None:
    """What is added comes last, and nothing else moves: that is all that statements can do."""
    here = {field.id for field in now}
    if [f.id for f in kept] != [f.id for f in then if f.id in here] or list(now[: len(kept)]) != list(kept):
        where = f" of {_dotted(shown)}" if shown else ""
        raise NotFollowed(f"the columns{where} are in another order now")


def _exchanged(dropped: Sequence[Field], added: Sequence[Field], shown: Path, path: Path) -> Iterator[ColumnStep]:
    """No field stays: the new ones come first, since a table with an empty struct can't be read."""
    spares = dict(zip((field.id for field in dropped), _spares(dropped, added), strict=False))
    yield from (ColumnStep(StepKind.RENAME, (*path, field.name), field.id, name=spares[field.id]) for field in dropped)
    yield from (_add(field, shown, path) for field in added)
    yield from (_drop(spares[field.id], field, shown, path) for field in dropped)


def _spares(*fields: Sequence[Field]) -> Iterator[str]:
    taken = {field.name.lower() for each in fields for field in each}
    return (name for i in itertools.count() if (name := f"{SPARE}{i}") not in taken)


def _drop(name: str, field: Field, shown: Path, path: Path) -> ColumnStep:
    return ColumnStep(StepKind.DROP, (*path, name), field.id, said=f"drop {_dotted((*shown, field.name))}")


def _add(field: Field, shown: Path, path: Path) -> ColumnStep:
    said = addition(field, shown)
    return ColumnStep(
        StepKind.ADD, (*path, field.name), field.id, type=field.declared, default=field.default, said=said
    )


def addition(field: Field, shown: Path = ()) -> str:
    """What the step says that adds a column, or a field within one."""
    return f"add {_dotted((*shown, field.name))} {field.declared}"


def _renames(before: dict[int, Field], kept: Sequence[Field], shown: Path, path: Path) -> Iterator[ColumnStep]:
    """In an order in which each name is free; of a circle the first one waits under a spare name."""
    waiting = {field.id: field for field in kept if field.name != before[field.id].name}
    names = {field.id: before[field.id].name for field in kept}
    spare = _spares(list(before.values()), kept)
    while waiting:
        held = {name.lower(): column for column, name in names.items()}
        free = [f for f in waiting.values() if held.get(f.name.lower(), f.id) == f.id]
        field = free[0] if free else next(iter(waiting.values()))
        name, said = field.name, f"rename {_dotted((*shown, before[field.id].name))} to {field.name}"
        if not free:
            name, said = next(spare), ""
        yield ColumnStep(StepKind.RENAME, (*path, names[field.id]), field.id, name=name, said=said)
        names[field.id] = name
        if free:
            del waiting[field.id]


def _widened(then: Sequence[Field], now: Sequence[Field]) -> Iterator[ColumnStep]:
    """A field within a column becomes wider only by the type of the whole column."""
    before = {field.id: field for field in then}
    for field in now:
        if field.id in before and (wider := list(_wider(before[field.id], field, (before[field.id].name,)))):
            said = ", ".join(f"widen {_dotted(path)} to {declared}" for path, declared in wider)
            yield ColumnStep(StepKind.WIDEN, (field.name,), field.id, type=field.declared, said=said)


def _wider(then: Field, now: Field, shown: Path) -> Iterator[tuple[Path, str]]:
    if then.type != now.type:
        yield shown, now.declared
    before = {field.id: field for field in then.fields}
    for field in now.fields:
        if field.id in before:
            yield from _wider(before[field.id], field, (*shown, before[field.id].name))


def _dotted(path: Path) -> str:
    return ".".join(path)
