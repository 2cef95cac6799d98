"""What a tenant may write into his own cursor and his own stamps: he owns the lake that they lie in.

Each forgery is a tenant's of his own, beside an honest one. All of them are forged and brought on at once, since none
may tell on another; each test looks at what became of one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from services.cli.verify.comparison import ComparedSource, ComparisonResult, Verdict, compare_all
from shared.contracts.messages import ADOPTABLE, ItemKind, Outcome, Progress
from shared.lake.cursor import SCHEMA, cursor_name
from tests.lake.conftest import KINDS, places
from tests.lake.rig import ApplyRig, MakeLake
from tests.lake.test_foreign_files import subject

OUTSIZE = 3_000_000
"""Bytes of a text that no broker would take."""

FORGED = (
    "generation = 9223372036854775807", f"generation = {ADOPTABLE + 1}", "generation = 0", "generation = NULL",
    "position = 9223372036854775807", "position = -2", "position = NULL",
    "rows_applied = 9223372036854775807", "rows_applied = -1", "rows_applied = NULL",
    "item = NULL", f"item = repeat('i', {OUTSIZE})", "routing_value = NULL", "routing_value = 'hex:zz'",
    f"routing_value = repeat('r', {OUTSIZE})", "source_lake = NULL", "source_lake = source_lake || '@garbage'",
    f"source_lake = repeat('s', {OUTSIZE})", "source_table_uuid = NULL", f"source_table_uuid = repeat('u', {OUTSIZE})",
)  # fmt: skip

OTHER_COLUMNS = "other columns"

REASONS = ("cursor_damaged", "routing_value_changed", "source_recreated", "source_moved")

STAMPS = (
    "no json", "[]", "null", "{}", '"text"', "[" * 100_000,
    '{"pipeline": "p", "destination": "b", "kind": "drop"}',
    '{"pipeline": "p", "destination": "b", "kind": "drop", "generation": null}',
    '{"pipeline": "p", "destination": "b", "kind": "drop", "generation": "9"}',
    json.dumps({"pipeline": "p", "destination": "b", "kind": "drop", "generation": 10**30, "after": 0, "through": 0,
                "item": "i", "deleted": 0, "inserted": 0}),
    json.dumps({"pipeline": "p", "destination": "b", "kind": "seed", "generation": 1, "through": "x"}),
)  # fmt: skip

HONEST = "a"

EACH = 10
"""Rows of a tenant at the source."""

LATER = (ItemKind.PROBE, ItemKind.ADVANCE, ItemKind.UPKEEP, ItemKind.SEED, ItemKind.DROP)
"""What is asked of a destination after a change, one after the other."""

Rows = list[tuple[Any, ...]]


class Place(NamedTuple):
    kind: str
    make: MakeLake


@pytest.fixture(scope="module", params=KINDS)
def make_lake(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("lakes")
    with places(request.param, folder, lambda: request.getfixturevalue("postgres")) as make:
        yield Place(request.param, make)


def asked_for(request: pytest.FixtureRequest, place: Place, parameter: str) -> list[str]:
    """What this run's tests of a kind of catalog are given as ``parameter``: nothing else has to be played."""
    chosen = [
        item.callspec.params
        for item in request.session.items
        if item.path == request.path and hasattr(item, "callspec")
    ]
    return [each[parameter] for each in chosen if each.get("make_lake") == place.kind and parameter in each]


@contextmanager
def played(
    tmp_path_factory: pytest.TempPathFactory, place: Place, what: str, forgeries: Sequence[str]
) -> Iterator[tuple[ApplyRig, dict[str, str]]]:
    """A seeded destination for each forgery, by its name, and an honest one."""
    rig = ApplyRig(tmp_path_factory.mktemp(what), lambda name, data: place.make(f"{what}_{name}", data))
    names = {f"b{number}": forged for number, forged in enumerate(forgeries)}
    rig.sql("CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, v VARCHAR)")
    rig.con.execute(
        f"INSERT INTO src.main.t SELECT i, (?::VARCHAR[])[1 + i // {EACH}], 'v' || i FROM range(?) r(i)",
        [[HONEST, *names], EACH * (1 + len(names))],
    )
    for name in (HONEST, *names):
        rig.add(name)
    try:
        assert [answer.outcome for answer in rig.seed()] == [Outcome.APPLIED] * (1 + len(names))
        rig.forget()
        yield rig, names
    finally:
        rig.close()
        rig.forget()


def cursor(name: str) -> str:
    return f'dst."{SCHEMA}"."{cursor_name("p", name)}"'


# -- cursors ----------------------------------------------------------------------------------------------------------


class Forged(NamedTuple):
    """What a change, and then each of ``LATER``, said of a destination, and its rows where the change was applied."""

    said: dict[ItemKind, Progress]
    rows: Rows | None
    expected: Rows


Forgeries = dict[str, Forged]


@pytest.fixture(scope="module")
def forgeries(request: pytest.FixtureRequest, make_lake: Place, tmp_path_factory: pytest.TempPathFactory) -> Forgeries:
    """What became of each forged cursor, by what was forged, and of the honest one beside them."""
    statements = [*asked_for(request, make_lake, "forged"), OTHER_COLUMNS]
    with played(tmp_path_factory, make_lake, "cursors", statements) as (rig, names):
        for name, forged in names.items():
            altered = f"ALTER TABLE {cursor(name)} DROP COLUMN item"
            rig.write(name, altered if forged == OTHER_COLUMNS else f"UPDATE {cursor(name)} SET {forged}")
        before = rig.head
        rig.sql(f"UPDATE src.main.t SET v = v || '+' WHERE id % {EACH} < 3")
        said = {answer.destination: {ItemKind.CHANGES: answer} for answer in rig.changes(before)}
        rows = {name: rig.rows(name) for name, each in said.items()
                if each[ItemKind.CHANGES].outcome is not Outcome.PARKED}  # fmt: skip
        for kind in LATER:
            for answer in rig.run(kind, *names, expected=before, after=before):
                said[answer.destination][kind] = answer
        forged_by = {**names, HONEST: HONEST}
        return {forged_by[name]: Forged(said[name], rows.get(name), rig.expected(name)) for name in forged_by}


def require_readable(said: Progress) -> None:
    """That those who listen can take it in: what they can't is a dead letter, and its destination stands for ever."""
    message = said.to_bytes()
    assert len(message) < 100_000
    assert Progress.from_bytes(message) == said


def require_exact(honest: Forged) -> None:
    assert honest.said[ItemKind.CHANGES].outcome is Outcome.APPLIED
    assert honest.rows == honest.expected


@pytest.mark.parametrize("forged", FORGED, ids=range(len(FORGED)))
def test_a_forged_cursor_parks_its_tenant_and_is_told_of(forgeries: Forgeries, forged: str) -> None:
    require_exact(forgeries[HONEST])
    hostile = forgeries[forged]
    assert list(hostile.said) == [ItemKind.CHANGES, *LATER]
    for kind, answer in hostile.said.items():
        require_readable(answer)
        assert answer.outcome is not Outcome.FAILED, (kind, answer.error)
        if answer.outcome is Outcome.PARKED:
            assert answer.error is not None
            assert answer.error.type in REASONS, kind
        elif kind is ItemKind.CHANGES:
            assert hostile.rows == hostile.expected, "what is overwritten in passing does no harm"


def test_a_cursor_of_other_columns_parks_its_tenant(forgeries: Forgeries) -> None:
    require_exact(forgeries[HONEST])
    for kind in (ItemKind.CHANGES, ItemKind.PROBE):
        answer = forgeries[OTHER_COLUMNS].said[kind]
        assert (answer.outcome, answer.error and answer.error.type) == (Outcome.PARKED, "cursor_damaged"), kind


# -- stamps -----------------------------------------------------------------------------------------------------------


class Stamped(NamedTuple):
    """What was said of a destination with a forged stamp, and what it held after it was seeded once more."""

    probed: Progress
    verdict: Verdict
    honest: Verdict
    seeded: Progress
    rows: Rows
    expected: Rows


@pytest.fixture(scope="module")
def stamps(
    request: pytest.FixtureRequest, make_lake: Place, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Stamped]:
    with played(tmp_path_factory, make_lake, "stamps", asked_for(request, make_lake, "stamp")) as (rig, names):
        before, own = rig.head, {name: stamp.replace('"b"', f'"{name}"') for name, stamp in names.items()}
        for name, said in own.items():
            rig.write(name, stamped(f"UPDATE {cursor(name)} SET item = 'forged'", "seed", said))
        probed = rig.run(ItemKind.PROBE, *names, expected=before, after=before)
        subjects = [subject(rig, name) for name in (HONEST, *names)]
        honest, *verdicts = compare_all(ComparedSource(rig.source, "main", "t", rig.routing), subjects)
        for name, said in own.items():
            rig.write(name, stamped(f"DROP TABLE {cursor(name)}; DROP TABLE dst.main.t", "drop", said))
        rig.forget()
        told = zip(names.items(), probed, verdicts, rig.seed(*names), strict=True)
        return {
            stamp: Stamped(one, verdict, honest, seeded, rig.rows(name), rig.expected(name))
            for (name, stamp), one, verdict, seeded in told
        }


def stamped(statements: str, kind: str, said: str) -> str:
    """Statements as one commit that says it is ours."""
    told = said.replace("'", "''")
    message = f"CALL dst.set_commit_message('viaduck', '{kind}', extra_info => '{told}')"
    return f"BEGIN; {statements}; {message}; COMMIT"


@pytest.mark.parametrize("make_lake", ["sqlite"], indirect=True)
@pytest.mark.parametrize("stamp", STAMPS, ids=range(len(STAMPS)))
def test_a_forged_stamp_is_none(stamps: dict[str, Stamped], stamp: str) -> None:
    """Of the snapshot that took the cursor away, of the one that it says it is of, and of a seed."""
    found = stamps[stamp]
    assert found.probed.outcome is Outcome.ALREADY_APPLIED, found.probed.error
    assert [each.finding for each in (found.verdict, found.honest)] == [ComparisonResult.EQUAL] * 2
    assert found.seeded.outcome is Outcome.APPLIED, found.seeded.error
    assert found.rows == found.expected
