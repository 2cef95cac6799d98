"""What it takes to give a destination's table the source's NOT NULL, defaults and comments."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from shared.lake.columns.history import ColumnVersion, Field, Terms, reshapings, terms_changed, terms_of
from shared.lake.columns.terms import NO_COMMENTS, Clause, Comments, Described, TermKind, created, of_new, to_carry

PLAIN = Terms()
NEEDED, SEVEN = Terms(required=True), Terms(default="7")


def column(number: int, name: str, terms: Terms = PLAIN, default: str | None = None) -> Field:
    return Field(number, name, "int32", (), default, terms)


def described(*fields: Field, table: str | None = None, columns: Mapping[int, str] | None = None) -> Described:
    return Described(fields, Comments(table, columns or {}))


def said(have: Described, whose: tuple[Field, ...], wanted: Described, was: Comments = NO_COMMENTS) -> list[str]:
    carried = to_carry(have, whose, wanted, was)
    return [*(each.said for each in (*carried.before, *carried.after)), *carried.left]


def test_equal_terms_take_nothing() -> None:
    theirs = column(9, "v", SEVEN)
    same = described(theirs, table="all events", columns={9: "of a row"})
    assert said(described(column(1, "v", SEVEN), table="all events", columns={1: "of a row"}), (theirs,), same) == []


def test_nulls_are_allowed_before_the_rows_and_forbidden_after_them() -> None:
    was = column(7, "a"), column(8, "b")
    wanted = described(column(7, "a", NEEDED), column(8, "b"))
    carried = to_carry(described(column(1, "a"), column(2, "b", NEEDED)), was, wanted)
    assert carried.before == (Clause(TermKind.LOOSEN, "b"),)
    assert carried.after == (Clause(TermKind.REQUIRE, "a"),)


def test_columns_are_told_by_their_ids_and_named_as_they_are_then() -> None:
    was = column(7, "a", SEVEN), column(8, "b")
    wanted = described(column(8, "a", SEVEN), column(7, "c"), columns={8: "new"})
    own = described(column(1, "a", SEVEN), column(2, "b"), columns={1: "old"})
    assert said(own, was, wanted, Comments(None, {7: "old"})) == [
        "set default of a",
        "drop default of c",
        "comment on a",
        "comment on c",
    ]


def test_an_added_column_has_the_default_that_older_rows_show() -> None:
    wanted = described(column(1, "a"), column(2, "b", SEVEN, "7"), column(3, "c", PLAIN, "5"))
    assert said(described(column(1, "a")), (column(1, "a"),), wanted) == ["drop default of c"]


def test_a_column_that_is_still_missing_at_the_end_is_taken_for_added() -> None:
    both = column(7, "a"), column(8, "b", NEEDED)
    assert said(described(column(1, "a")), both, described(*both)) == ["set NOT NULL of b"]


def test_comments_that_are_not_wanted_are_left_alone() -> None:
    theirs = column(9, "v", NEEDED)
    own = described(column(1, "v"), table="mine", columns={1: "mine"})
    assert said(own, (theirs,), Described((theirs,))) == ["set NOT NULL of v"]
    assert said(own, (theirs,), described(theirs), Comments("mine", {9: "mine"})) == [
        "set NOT NULL of v", "comment on the table", "comment on v",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("own", "was", "now", "carried"),
    [
        (None, None, "source's", True),
        (None, "source's", "source's", True),
        ("owner's", None, None, False),
        ("owner's", "source's", "source's", False),
        ("owner's", "source's", "news", True),
        ("owner's", "source's", None, True),
        ("source's", "source's", None, True),
    ],
)
def test_an_owners_comment_stays_until_there_is_news_of_the_sources(
    own: str | None, was: str | None, now: str | None, *, carried: bool
) -> None:
    theirs = column(9, "v")
    have = described(column(1, "v"), table=own, columns={} if own is None else {1: own})
    wanted = described(theirs, table=now, columns={} if now is None else {9: now})
    before = Comments(was, {} if was is None else {9: was})
    expected = ["comment on the table", "comment on v"] if carried else []
    assert said(have, (theirs,), wanted, before) == expected


@pytest.mark.parametrize(
    ("text", "why"),
    [("a\x00b", "no statement can"), ("\ud800", "no statement can"), ("by {AUTHOR}", "AUTHOR in braces")],
)
def test_texts_that_a_statement_would_change_are_left_and_told(text: str, why: str) -> None:
    theirs = column(9, "v", Terms(default=text))
    wanted = described(theirs, table=text, columns={9: text})
    own = described(column(1, "v"))
    carried = to_carry(own, (theirs,), wanted)
    assert carried.clauses == ()
    assert [why in each and each.startswith("not carried: ") for each in carried.left] == [True] * 3
    made, left = of_new(wanted)
    assert (made.fields[0].terms, made.comments, left) == (PLAIN, Comments(), carried.left)


def test_an_expression_is_left_alone_and_told() -> None:
    theirs = column(9, "v", Terms(default="now()", computed=True))
    carried = to_carry(described(column(1, "v", SEVEN)), (theirs,), described(theirs))
    assert (carried.clauses, carried.left) == ((), ("not carried: default of v (it is no plain value)",))
    assert of_new(described(theirs))[0].fields[0].terms == PLAIN


def test_a_new_table_lacks_only_what_is_not_declared_with_its_columns() -> None:
    wanted = described(column(9, "v", Terms(required=True, default="7")), table="t")
    assert said(created(wanted), wanted.fields, wanted) == ["set default of v", "comment on the table"]


def test_a_catalog_spells_no_default_as_the_text_null() -> None:
    assert terms_of(1, "NULL", "literal") == terms_of(True, None, "") == PLAIN
    assert terms_of(0, "7", "literal") == Terms(required=True, default="7")
    assert terms_of(True, "now()", "expression").computed


@pytest.mark.parametrize(("allowed", "required"), [(True, False), (1, False), ("1", False), (False, True), ("0", True)])
def test_catalogs_spell_truths_in_their_own_ways(allowed: object, required: bool) -> None:
    assert terms_of(allowed, "NULL", "literal").required is required


def test_other_terms_are_no_other_columns() -> None:
    versions = [
        ColumnVersion(1, None, "a", "int32", None, 3, 5),
        ColumnVersion(1, None, "a", "int32", None, 5, None, NEEDED),
        ColumnVersion(2, None, "b", "int32", None, 7, None, SEVEN),
    ]
    assert reshapings(versions, 9) == (3, 7)
    assert terms_changed(versions, 4, 9)
    assert not terms_changed(versions, 5, 9), "a column that came is told by itself"
    assert not terms_changed(versions, 3, 4)
