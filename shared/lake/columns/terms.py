"""What columns ask of rows to come and say of themselves, carried from a source's table to a destination's, as steps.

That is NOT NULL, defaults and comments. None of it changes a row that is there, so it comes with the next transaction
and is no reason for one, nor for a destination to park. Values in, values out; ``services.applier.apply.columns.terms``
makes statements of the clauses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from shared.config.substituted_words import SUBSTITUTED_WORD, refusal
from shared.lake.columns.history import NO_TERMS, Field, Terms

NOT_CARRIED = "not carried: "


class TermKind(StrEnum):
    LOOSEN = "drop NOT NULL"
    REQUIRE = "set NOT NULL"
    DEFAULT = "default"
    COMMENT = "comment"


@dataclass(frozen=True)
class Comments:
    """Of a table and, by field id, of its columns."""

    table: str | None = None
    columns: Mapping[int, str] = field(default_factory=dict)


NO_COMMENTS = Comments()


@dataclass(frozen=True)
class Described:
    """A table's columns with their terms; ``comments`` is None where they are left alone."""

    fields: tuple[Field, ...]
    comments: Comments | None = None


@dataclass(frozen=True)
class Clause:
    """One change. ``column`` is the name that a column has when its turn comes, None for the table; ``value`` a default
    or a comment, None to take it away."""

    kind: TermKind
    column: str | None
    value: str | None = None

    @property
    def said(self) -> str:
        """In words."""
        match self.kind:
            case TermKind.DEFAULT:
                return f"{'drop' if self.value is None else 'set'} default of {self.column}"
            case TermKind.COMMENT:
                return "comment on the table" if self.column is None else f"comment on {self.column}"
            case _:
                return f"{self.kind} of {self.column}"


@dataclass(frozen=True)
class Carried:
    """``left``: what is not carried, in words, each with the reason."""

    clauses: tuple[Clause, ...] = ()
    left: tuple[str, ...] = ()

    @property
    def before(self) -> tuple[Clause, ...]:
        """What has to come before rows are inserted, which may hold a NULL that was not allowed."""
        return tuple(clause for clause in self.clauses if clause.kind is TermKind.LOOSEN)

    @property
    def after(self) -> tuple[Clause, ...]:
        """What has to come after that: rows that are replaced may hold a NULL until then. NOT NULL comes first, which
        DuckLake refuses to a table that was altered before, unless rows were inserted."""
        rest = [clause for clause in self.clauses if clause.kind is not TermKind.LOOSEN]
        return tuple(sorted(rest, key=lambda clause: clause.kind is not TermKind.REQUIRE))


NOTHING = Carried()


def to_carry(have: Described, whose: Sequence[Field], wanted: Described, was: Comments = NO_COMMENTS) -> Carried:
    """What makes the terms of a table that ``have`` describes those of the source's that are ``wanted``.

    ``whose`` are the source's columns that the table's are, in order; the source's others are added before, each with
    the default that older rows show. ``was`` are the source's comments at the table's position: what the table's owner
    says stays until there is news of the source's.
    """
    own = {theirs.id: mine for mine, theirs in zip(have.fields, whose, strict=False)}
    steps = [*_terms(own, wanted.fields), *_comments(own, have.comments, wanted, was)]
    clauses = tuple(step for step in steps if isinstance(step, Clause))
    return Carried(clauses, tuple(step for step in steps if isinstance(step, str)))


def of_new(wanted: Described) -> tuple[Described, tuple[str, ...]]:
    """What of that a new table can have from the first; and what is left, in words."""
    comments = wanted.comments or NO_COMMENTS
    fields = tuple(replace(each, terms=_fit(each.terms)) for each in wanted.fields)
    named = {number: text for number, text in comments.columns.items() if _unfit(text) is None}
    table = comments.table if comments.table is None or _unfit(comments.table) is None else None
    left = to_carry(created(wanted), wanted.fields, wanted).left
    return Described(fields, Comments(table, named)), left


def without_terms(fields: Sequence[Field]) -> tuple[Field, ...]:
    return tuple(replace(each, terms=NO_TERMS) for each in fields)


def not_carried(said: str, why: str) -> str:
    """What a stamp says of it."""
    return f"{NOT_CARRIED}{said} ({why})"


def created(wanted: Described) -> Described:
    """A new table whose columns were declared with NOT NULL and nothing else."""
    return Described(tuple(replace(each, terms=Terms(each.terms.required)) for each in wanted.fields), NO_COMMENTS)


def _terms(own: Mapping[int, Field], wanted: Sequence[Field]) -> Iterator[Clause | str]:
    for each in wanted:
        mine = own.get(each.id)
        had = Terms(default=each.default) if mine is None else mine.terms
        if had.required != each.terms.required:
            yield Clause(TermKind.REQUIRE if each.terms.required else TermKind.LOOSEN, each.name)
        yield from _default(each, had)


def _default(wanted: Field, had: Terms) -> Iterator[Clause | str]:
    """An expression would be run by every client that inserts, with its own rights."""
    default = wanted.terms.default
    if wanted.terms.computed:
        yield not_carried(f"default of {wanted.name}", "it is no plain value")
    elif default is not None and (why := _unfit(default)) is not None:
        yield not_carried(f"default of {wanted.name}", why)
    elif default != had.default:
        yield Clause(TermKind.DEFAULT, wanted.name, default)


def _comments(
    own: Mapping[int, Field], have: Comments | None, wanted: Described, was: Comments
) -> Iterator[Clause | str]:
    if have is None or wanted.comments is None:
        return
    yield from _comment(None, have.table, wanted.comments.table, was.table)
    for each in wanted.fields:
        mine = own.get(each.id)
        had = None if mine is None else have.columns.get(mine.id)
        yield from _comment(each.name, had, wanted.comments.columns.get(each.id), was.columns.get(each.id))


def _comment(column: str | None, had: str | None, wanted: str | None, was: str | None) -> Iterator[Clause | str]:
    clause = Clause(TermKind.COMMENT, column, wanted)
    if wanted is not None and (why := _unfit(wanted)) is not None:
        yield not_carried(clause.said, why)
    elif had != wanted and (had is None or was != wanted):
        yield clause


def _fit(terms: Terms) -> Terms:
    fits = terms.default is not None and not terms.computed and _unfit(terms.default) is None
    return Terms(terms.required, terms.default if fits else None)


def _unfit(text: str) -> str | None:
    """Why a text can't be written into a statement as it is (H16); None if it can."""
    if "\x00" in text or any("\ud800" <= letter <= "\udfff" for letter in text):
        return "it holds a character that no statement can"
    found = SUBSTITUTED_WORD.search(text)
    return None if found is None else f"it {refusal(found)}"
