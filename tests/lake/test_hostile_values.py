"""What a row holds is never text of a statement: not as a key, not as a routing value, not as a value (H16)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import duckdb
import pytest

from services.applier.apply.source.feed import Feed
from services.applier.apply.source.reading import Reading
from services.applier.model.task import SourceTable, Target, Task
from services.applier.worker.task_run import run_task
from services.cli.verify.comparison import ComparedSource, ComparisonResult, Subject, Verdict, compare_all
from shared.config.model import Routing
from shared.contracts.errors import DestinationError
from shared.contracts.messages import ItemKind, Outcome, Progress, SeedMode
from shared.lake.attached.layouts import Layouts
from shared.lake.catalog.looks import TableLook
from shared.lake.cursor import kept, told
from shared.lake.pruning import PLAIN, UNBELIEVED, FileLayout, layout_of
from tests.lake.conftest import MakeRig
from tests.lake.rig import EITHER_PATH, ApplyRig

TEXTS = {
    "nul": "x\x00y",
    "only-nul": "\x00",
    "quotes": "o'brien''; --\"",
    "braces": "{x} {} {{y}} {name}",
    "dollars": "$$ $1 $a$",
    "comments": "-- /* */ ; {",
    "percents": "%s%n%d%",
    "backslashes": "\\' \\x00 \\",
    "json": '{"a": [1, "b"]}',
    "ten-kilobytes": "ab{'" * 2_500,
    "long-and-beyond-ASCII": "ü" * 300 + "😀",
    "beyond-ASCII": "Zoë ‮ 😀 ﷽",
    "lines": "a\r\n\tb\x01\x7f",
}

ON_EACH = pytest.mark.parametrize(
    ("make_lake", "names"),
    [
        pytest.param("sqlite", tuple(TEXTS), id="sqlite"),
        pytest.param("postgres", ("nul", "quotes", "comments"), id="postgres"),
    ],
    indirect=["make_lake"],
)
"""Many texts in one source, each with a tenant and a lake of its own: what becomes of one is decided apart from all
others, and each is written to a file of its own, whose statistics are those of that text."""

REPLACED_QUIETLY = ("{SNAPSHOT_ID}", "{METADATA_CATALOG}", "{AUTHOR}", "by {AUTHOR}", "{NEXT_FILE_ID}", "{AUTHOR|")
"""Words that DuckLake replaces in every statement, and that whoever writes to the source without a stamp can commit."""

UNSEEN = ("{METADATA_SCHEMA_NAME_LITERAL}", "{METADATA_PATH}", "{DATA_PATH}", "{COMMIT_EXTRA_INFO}")
"""Such words as can't be committed as the least or greatest value of a file, and so have neighbours."""

TEXT_KEYS = Routing(field="tenant", key_columns=("k", "k2"))

ON_SQLITE = pytest.mark.parametrize("make_lake", ["sqlite"], indirect=True)
"""For what is decided before a catalog is asked, or was seen to be the same on both."""


def two_keys(make_rig: MakeRig, *, in_files: bool = True, more: Iterable[str] = ()) -> ApplyRig:
    """A table with two text keys; tenant a is a stranger, b is honest, and both have rows; ``more`` have none yet."""
    rig = make_rig(routing=TEXT_KEYS)
    rig.sql("CREATE TABLE src.main.t (k VARCHAR, k2 VARCHAR, tenant VARCHAR, v VARCHAR)")
    if in_files:
        rig.sql("CALL src.set_option('data_inlining_row_limit', 0)")
    rig.sql(
        "INSERT INTO src.main.t SELECT 'k' || i, 'l' || i, CASE WHEN i % 2 = 0 THEN 'a' ELSE 'b' END, 'v'"
        " FROM range(1000) r(i)"
    )
    for name in ("b", "a", *more):
        rig.add(name)
    return rig


def insert(rig: ApplyRig, *rows: tuple[Any, ...]) -> int:
    """Insert rows in one statement whose text holds none of their values; returns the head before it."""
    before = rig.head
    places = ", ".join(["(" + ", ".join(["?"] * len(rows[0])) + ")"] * len(rows))
    rig.con.execute(f"INSERT INTO src.main.t VALUES {places}", [value for row in rows for value in row])
    return before


def change(rig: ApplyRig, before: int, statement: str, *values: Any) -> list[Progress]:
    """Change the source by a full scan, since DuckLake itself would not find such rows, and bring it to everybody."""
    rig.con.execute(statement, list(values))
    return rig.changes(before)


def differing(rig: ApplyRig) -> list[str]:
    """Destinations that differ from the source by our own full scan."""
    return [name for name in rig.destinations if rig.rows(name) != slice_of(rig, name)]


def wrong(rig: ApplyRig) -> list[str]:
    """The same, and what ``verify`` says."""
    return differing(rig) + [f"verify: {each}" for each in verify(rig) if each.finding is not ComparisonResult.EQUAL]


def slice_of(rig: ApplyRig, name: str) -> list[tuple[Any, ...]]:
    value = rig.destinations[name].routing_value
    routing = rig.routing.field
    where = f"[CAST({routing} AS VARCHAR)] = [?]"
    return sorted(rig.con.execute(f"SELECT * FROM src.main.t WHERE {where}", [value]).fetchall(), key=repr)


def verify(rig: ApplyRig) -> list[Verdict]:
    origin = ComparedSource(rig.source, "main", "t", rig.routing)
    subjects = [
        Subject("p", name, each.routing_value, rig.lake(name), each.schema_name, each.table, SeedMode.SCAN)
        for name, each in rig.destinations.items()
    ]
    return compare_all(origin, subjects)


def outcomes(answers: list[Progress]) -> list[Outcome]:
    return [answer.outcome for answer in answers]


def answered(answers: list[Progress]) -> dict[str, Outcome]:
    """What became of each, by its destination, so that a failure names it."""
    return {answer.destination: answer.outcome for answer in answers}


def everybody(rig: ApplyRig, outcome: Outcome) -> dict[str, Outcome]:
    return dict.fromkeys(rig.destinations, outcome)


def errors(answers: list[Progress]) -> list[str | None]:
    return [None if answer.error is None else answer.error.type for answer in answers]


# -- keys -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("closing", [" IS NOT NULL)))); ROLLBACK; ", ")))); ROLLBACK; ", " IS NOT NULL)); ROLLBACK; "])
def test_the_keys_of_a_row_run_no_sql_beside_other_tenants_lakes(
    make_rig: MakeRig, tmp_path: Path, closing: str
) -> None:
    rig = two_keys(make_rig)
    rig.seed()
    before, stolen = rig.head, tmp_path / "stolen"
    theft = f"COPY (SELECT 1) TO $${stolen}$$; DELETE FROM lake_2.main.t; --"
    insert(rig, (closing + theft, "\x00", "a", "v"))
    answers = rig.changes(before)
    assert not stolen.exists()
    assert outcomes(answers) == [Outcome.EMPTY, Outcome.APPLIED]
    assert wrong(rig) == []


@ON_EACH
def test_any_text_is_carried_as_a_key_in_seed_change_and_delete(make_rig: MakeRig, names: tuple[str, ...]) -> None:
    rig = two_keys(make_rig, more=names)
    for name in names:
        text = TEXTS[name]
        insert(rig, (text, "1", name, "v"), ("1", text, name, "v"), (text, text, "b", text))
    assert answered(rig.seed()) == everybody(rig, Outcome.APPLIED)
    assert differing(rig) == []
    before = rig.head
    for name in names:
        rig.con.execute("UPDATE src.main.t SET v = 'w' WHERE [k] = [?]", [TEXTS[name]])
    expected = everybody(rig, Outcome.APPLIED) | {"a": Outcome.EMPTY}
    assert answered(rig.changes(before)) == expected
    assert differing(rig) == []
    before = rig.head
    for name in names:
        insert(rig, (TEXTS[name], "2", name, "v"), ("2", TEXTS[name], "b", "v"))
    assert answered(rig.changes(before)) == expected, "an append, which reads no state"
    before = rig.head
    rig.sql("UPDATE src.main.t SET v = 'x' WHERE k = 'k1'")
    for name in names:
        rig.con.execute("DELETE FROM src.main.t WHERE [k2] = [?]", [TEXTS[name]])
    rig.changes(before)
    assert wrong(rig) == []
    assert {name: len(slice_of(rig, name)) for name in names} == dict.fromkeys(names, 2)


@ON_EACH
def test_any_text_is_carried_as_a_routing_value(make_rig: MakeRig, names: tuple[str, ...]) -> None:
    rig = two_keys(make_rig, in_files=False)
    for name in names:
        rig.add(name, TEXTS[name])
        insert(rig, *((str(i), "1", TEXTS[name], "v") for i in range(30)), ("k1", name, "b", "v"))
    assert answered(rig.seed()) == everybody(rig, Outcome.APPLIED)
    assert {name: len(rig.rows(name)) for name in names} == dict.fromkeys(names, 30)
    before = rig.head
    for name in names:
        rig.con.execute("UPDATE src.main.t SET v = 'w' WHERE [tenant] = [?]", [TEXTS[name]])
    expected = everybody(rig, Outcome.APPLIED) | dict.fromkeys(("a", "b"), Outcome.EMPTY)
    assert answered(rig.changes(before)) == expected
    before = rig.head
    rig.sql("CREATE TABLE src.main.other (i INTEGER)")
    advanced = rig.run(ItemKind.ADVANCE, *names, expected=before, after=before)
    assert answered(advanced) == dict.fromkeys(names, Outcome.APPLIED)
    probed = rig.run(ItemKind.PROBE, *names, expected=rig.head)
    assert answered(probed) == dict.fromkeys(names, Outcome.ALREADY_APPLIED), errors(probed)
    assert wrong(rig) == []


@ON_SQLITE
def test_any_text_is_carried_as_a_value_in_small_seeds_and_in_files(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.sql(
        "CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, v VARCHAR, s STRUCT(x VARCHAR, l VARCHAR[]), j JSON)",
        "CALL src.set_option('data_inlining_row_limit', 0)",
    )
    for name, text in TEXTS.items():
        rig.add(name)
        rig.con.execute(
            "INSERT INTO src.main.t SELECT 1, $1, x, {x: x, l: [x, 'o''k']}, to_json(x) FROM (SELECT $2 AS x)",
            [name, text],
        )
    assert answered(rig.seed()) == everybody(rig, Outcome.APPLIED)
    assert differing(rig) == []
    before = rig.head
    for name in TEXTS:
        rig.con.execute("INSERT INTO src.main.t SELECT 2, tenant, v, s, j FROM src.main.t WHERE [tenant] = [?]", [name])
    assert answered(rig.changes(before)) == everybody(rig, Outcome.APPLIED)
    assert wrong(rig) == []


@EITHER_PATH
def test_statistics_that_a_strangers_row_made_lie_hide_no_honest_row(make_rig: MakeRig) -> None:
    """DuckLake writes {AUTHOR} as NULL, so a file with it ends before the honest keys beside it."""
    rig = two_keys(make_rig)
    rig.seed()
    before = insert(rig, ("a", "a", "b", "v"), ("{AUTHOR}", "{AUTHOR}", "{AUTHOR}", "v"), ("q", "~", "b", "v"))
    assert outcomes(rig.changes(before))[0] is Outcome.APPLIED
    before = rig.head
    assert outcomes(change(rig, before, "UPDATE src.main.t SET v = 'w' WHERE [k] = ['q']"))[0] is Outcome.APPLIED
    assert wrong(rig) == []
    rig.add("again", "b")
    rig.seed("again")
    assert rig.rows("again") == rig.rows("b")


# -- what can't be carried --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make_lake", "words"),
    [
        pytest.param(
            "sqlite", (*(("k", word) for word in (*REPLACED_QUIETLY, *UNSEEN)), ("v", "{AUTHOR|")), id="sqlite"
        ),
        pytest.param("postgres", (("k", "{METADATA_PATH}"), ("v", "by {AUTHOR}")), id="postgres"),
    ],
    indirect=["make_lake"],
)
def test_a_word_that_ducklake_would_replace_parks_its_own_tenant_by_name(
    make_rig: MakeRig, words: tuple[tuple[str, str], ...]
) -> None:
    """Each word in a file of its own, with honest neighbours, and of a tenant of its own."""
    strangers = {f"{column}-{number}": (column, word) for number, (column, word) in enumerate(words)}
    rig = two_keys(make_rig, more=strangers)
    for name in strangers:
        insert(rig, ("k", "k", name, "v"))
    assert answered(rig.seed()) == everybody(rig, Outcome.APPLIED)
    rows = {name: rig.rows(name) for name in strangers}
    assert all(rows.values())
    before = rig.head
    for number, (name, (column, word)) in enumerate(strangers.items()):
        least, greatest = (f" {number}", " ", "b", " "), (f"~{number}", "~", "b", "~")
        insert(rig, least, (word if column == "k" else "m", "m", name, word if column == "v" else "m"), greatest)
    answers = rig.changes(before)
    parked = everybody(rig, Outcome.PARKED) | {"a": Outcome.EMPTY, "b": Outcome.APPLIED}
    assert answered(answers) == parked
    for answer in answers:
        if answer.destination in strangers:
            column, word = strangers[answer.destination]
            assert answer.error is not None
            assert answer.error.type == "value_not_carried", (word, answer.error)
            assert f"column {column}" in answer.error.message, word
            assert "k, k2" in answer.error.message, word
            assert rig.rows(answer.destination) == rows[answer.destination], f"nothing of {word} is half there"
    end = rig.head
    for column, word in words:
        rig.con.execute(f"UPDATE src.main.t SET {column} = 'mended' WHERE [{column}] = [?]", [word])
    mended = rig.run(ItemKind.CHANGES, *strangers, expected=before, after=before)
    assert answered(mended) == dict.fromkeys(strangers, Outcome.APPLIED)
    rig.changes(end, "b")
    assert wrong(rig) == []


@ON_SQLITE
def test_a_small_seed_with_such_a_word_is_parked_and_not_rewritten(make_rig: MakeRig) -> None:
    rig = two_keys(make_rig, in_files=True)
    rig.add("c")
    insert(rig, ("1", "1", "c", " "), ("2", "1", "c", "Snapshot {SNAPSHOT_ID}"), ("3", "1", "c", "~"))
    answers = rig.seed()
    assert errors(answers) == [None, None, "value_not_carried"]


@ON_SQLITE
@pytest.mark.parametrize("declared", ["JSON", "STRUCT(x VARCHAR)", "VARCHAR[]", "MAP(VARCHAR, VARCHAR)"])
def test_such_words_are_found_inside_nested_values(make_rig: MakeRig, declared: str) -> None:
    rig = make_rig()
    rig.sql(f"CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, n {declared})")
    rig.sql("CALL src.set_option('data_inlining_row_limit', 0)")
    value = {"JSON": '"{AUTHOR}"', "STRUCT(x VARCHAR)": {"x": "{AUTHOR}"}, "VARCHAR[]": ["{AUTHOR}"]}.get(
        declared, {"k": "{AUTHOR}"}
    )
    insert(rig, (1, "a", value), (2, "b", None))
    rig.add("a")
    rig.add("b")
    answers = rig.seed()
    assert errors(answers) == ["value_not_carried", None]


@ON_SQLITE
def test_a_blob_holds_whatever_it_likes(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.sql("CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, b BLOB)")
    rig.sql("CALL src.set_option('data_inlining_row_limit', 0)")
    insert(rig, (1, "a", b"{AUTHOR}\x00'"))
    rig.add("a")
    assert outcomes(rig.seed()) == [Outcome.APPLIED]
    assert wrong(rig) == []


@ON_SQLITE
def test_a_default_with_such_a_word_is_refused_by_name(make_rig: MakeRig) -> None:
    rig = two_keys(make_rig)
    rig.seed()
    before = rig.head
    rig.sql("ALTER TABLE src.main.t ADD COLUMN w VARCHAR DEFAULT 'x{AUTHOR|'", "UPDATE src.main.t SET v = 'w'")
    answers = rig.changes(before)
    assert errors(answers) == ["value_not_carried"] * 2


NAMES = [("main", "{NEXT_FILE_ID}"), ("{SNAPSHOT_ID}", "t"), ("s", "{DATA_PATH}")]


@ON_SQLITE
@pytest.mark.parametrize(("schema", "table"), NAMES)
def test_a_table_whose_name_ducklake_would_replace_is_never_made(make_rig: MakeRig, schema: str, table: str) -> None:
    rig = two_keys(make_rig)
    rig.add("a", schema_name=schema, table=table)
    answers = rig.seed()
    assert errors(answers) == [None, "invalid_destination"]
    assert rig.look("a", "SELECT table_name FROM duckdb_tables() WHERE database_name = 'dst'") == []


def test_a_nul_in_a_text_that_a_destination_is_partitioned_by_parks_it(make_rig: MakeRig) -> None:
    rig = two_keys(make_rig)
    rig.seed()
    rig.write("a", "ALTER TABLE dst.main.t SET PARTITIONED BY (v, k)")
    before = insert(rig, ("n", "n", "a", "x\x00"), ("n", "n", "b", "x\x00"))
    answers = rig.changes(before)
    assert errors(answers) == [None, "value_not_carried"]


@ON_SQLITE
def test_a_destination_that_is_partitioned_by_text_is_advanced_though_it_has_no_rows_then(make_rig: MakeRig) -> None:
    rig = two_keys(make_rig)
    rig.seed()
    rig.write("a", "ALTER TABLE dst.main.t SET PARTITIONED BY (v, k)")
    before = rig.head
    rig.sql("CREATE TABLE src.main.other (i INTEGER)")
    answers = rig.run(ItemKind.ADVANCE, "a", expected=before, after=before)
    assert (outcomes(answers), errors(answers)) == ([Outcome.APPLIED], [None])


# -- types of keys ----------------------------------------------------------------------------------------------------

KEYS = {
    "BIGINT": ("-7", "9223372036854775806"),
    "UTINYINT": ("0", "255"),
    "DECIMAL(38,10)": ("-1.5", "9999999999999999999999999999.0000000001"),
    "BOOLEAN": ("true", "false"),
    "DATE": ("2000-01-01", "infinity"),
    "UUID": ("00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"),
    "TIMESTAMP": ("2000-01-01 00:00:00.000001", "-infinity"),
    "TIMESTAMP_NS": ("2000-01-01 00:00:00.000000001", "2000-01-01 00:00:00.000000002"),
    "TIMESTAMP WITH TIME ZONE": ("2000-01-01 00:00:00+02", "2000-01-01 00:00:00+00"),
    "TIME": ("00:00:00", "24:00:00"),
    "TIME WITH TIME ZONE": ("10:00:00+02", "23:59:59-11:30"),
    "INTERVAL": ("1 month", "9 days"),
    "DOUBLE": ("-0.0", "nan"),
    "FLOAT": ("1.5", "-inf"),
    "BLOB": ("\\x00\\x27", "plain"),
    "JSON": ('{"a": "o\'b"}', "[1, 2]"),
    "STRUCT(x VARCHAR, y INTEGER)": ("{'x': a, 'y': 1}", "{'x': o, 'y': NULL}"),
    "VARCHAR[]": ("[a, b]", "[]"),
}


@ON_SQLITE
@pytest.mark.parametrize("in_files", [True, False])
@pytest.mark.parametrize("declared", KEYS)
def test_rows_are_found_by_keys_of_every_type(make_rig: MakeRig, declared: str, in_files: bool) -> None:
    rig = make_rig(routing=Routing(field="tenant", key_columns=("k",)))
    rig.sql(f"CREATE TABLE src.main.t (k {declared}, tenant VARCHAR, v VARCHAR)")
    if in_files:
        rig.sql("CALL src.set_option('data_inlining_row_limit', 0)")
    rig.add("a")
    for key in KEYS[declared]:
        rig.con.execute(f"INSERT INTO src.main.t SELECT CAST(? AS {declared}), 'a', 'v'", [key])
    rig.seed()
    position = rig.head
    for number, key in enumerate(KEYS[declared]):
        same = "[{}] = [{}]".format(
            *(
                f"{each} AT TIME ZONE 'UTC'" if "TIME W" in declared else each
                for each in ("k", f"CAST(? AS {declared})")
            )
        )
        rig.con.execute(f"UPDATE src.main.t SET v = 'w{number}' WHERE {same}", [key])
        answers = rig.changes(position)
        assert outcomes(answers) == [Outcome.APPLIED], answers
        position = rig.head
        if not in_files:
            rig.sql("CALL ducklake_flush_inlined_data('src')")
    assert [row[2] for row in sorted(rig.rows("a"), key=lambda row: str(row[2]))] == ["w0", "w1"]
    rig.sql("DELETE FROM src.main.t")
    rig.changes(position)
    assert rig.rows("a") == []


# -- files that scans leave out (H17) --------------------------------------------------------------------------------


@pytest.mark.parametrize("before", ["bucket(7, tenant)", None])
@pytest.mark.parametrize("layout", ["bucket(3, tenant)", "bucket(3, k)", "tenant, bucket(3, k2)"])
def test_a_source_with_buckets_beside_other_files_is_read_whole(
    make_rig: MakeRig, layout: str, before: str | None
) -> None:
    rig = two_keys(make_rig)
    if before is not None:
        rig.sql(f"ALTER TABLE src.main.t SET PARTITIONED BY ({before})")
        insert(rig, ("n1", "n", "a", "v"), ("n2", "n", "b", "v"))
    rig.sql(f"ALTER TABLE src.main.t SET PARTITIONED BY ({layout})")
    rig.seed()
    assert [len(rig.rows(name)) for name in ("a", "b")] == [len(slice_of(rig, name)) for name in ("a", "b")]
    position = rig.head
    change(rig, position, "UPDATE src.main.t SET v = 'w' WHERE [k] = ['k1'] OR [k] = ['k2'] OR [k] = ['n1']")
    assert wrong(rig) == []


@ON_SQLITE
@pytest.mark.parametrize("layout", ["bucket(3, id)", "bucket(3, tenant)"])
def test_a_source_with_buckets_of_numbers_beside_other_files_is_read_whole(make_rig: MakeRig, layout: str) -> None:
    """Of numbers, comparisons are plain; and of one value, DuckDB tells a scan which, so that it leaves files out."""
    rig = make_rig()
    rig.sql("CREATE TABLE src.main.t (id BIGINT, tenant INTEGER, v VARCHAR)")
    rig.sql("INSERT INTO src.main.t SELECT i, i % 7, 'v' FROM range(40) r(i)")
    rig.sql(f"ALTER TABLE src.main.t SET PARTITIONED BY ({layout})")
    rig.sql("INSERT INTO src.main.t SELECT i, i % 7, 'v' FROM range(40, 80) r(i)")
    rig.add("a", "3")
    assert outcomes(rig.seed()) == [Outcome.APPLIED]
    assert wrong(rig) == []
    for key in (3, 73):
        said = change(rig, rig.head, f"UPDATE src.main.t SET v = 'w' WHERE [id] = [{key}]")
        assert outcomes(said) == [Outcome.APPLIED]
        assert wrong(rig) == []


@ON_SQLITE
@pytest.mark.parametrize("layout", ["tenant", "tenant, bucket(3, id)", "id"])
@pytest.mark.parametrize(("declared", "values"), [("INTEGER", "12"), ("DATE", ("2024-02-29", "infinity"))])
def test_a_source_that_is_partitioned_by_what_is_no_text_is_read(
    make_rig: MakeRig, declared: str, values: tuple[str, str], layout: str
) -> None:
    rig = make_rig()
    rig.sql(f"CREATE TABLE src.main.t (id BIGINT, tenant {declared}, v VARCHAR)")
    rig.sql(f"ALTER TABLE src.main.t SET PARTITIONED BY ({layout})")
    for number, value in enumerate(values):
        rig.con.execute(
            f"INSERT INTO src.main.t SELECT i, CAST(? AS {declared}), 'v' FROM range({20 + number}) r(i)", [value]
        )
        rig.add(f"t{number}", value)
    assert outcomes(rig.seed()) == [Outcome.APPLIED] * 2
    assert outcomes(change(rig, rig.head, "UPDATE src.main.t SET v = 'w' WHERE id < 5")) == [Outcome.APPLIED] * 2
    assert wrong(rig) == []


@EITHER_PATH
@pytest.mark.parametrize("text_keys", [True, False])
def test_a_destination_that_its_owner_partitions_by_buckets_keeps_no_row_twice(
    make_rig: MakeRig, text_keys: bool
) -> None:
    rig = two_keys(make_rig)
    if not text_keys:
        rig.sql("ALTER TABLE src.main.t ADD COLUMN id BIGINT", "UPDATE src.main.t SET id = substr(k, 2)::BIGINT")
        rig.routing = Routing(field="tenant", key_columns=("id",))
    rig.seed()
    for number, key in enumerate(("k1", "k3", "k1", "k5")):
        position = rig.head
        if number == 1:
            rig.write("b", f"ALTER TABLE dst.main.t SET PARTITIONED BY (bucket(4, {'k' if text_keys else 'id'}))")
        change(rig, position, f"UPDATE src.main.t SET v = 'w{number}' WHERE [k] = ['{key}']")
        assert wrong(rig) == []


def test_a_layout_is_asked_for_again_only_after_somebody_elses_commit() -> None:
    layouts, asked = Layouts(), list[int]()

    def at(snapshot: int, found: FileLayout = PLAIN) -> FileLayout:
        def ask() -> TableLook:
            asked.append(snapshot)
            return TableLook(found)

        return layouts.at(snapshot, ("main", "t"), ask).layout

    at(5)
    layouts.committed(6)
    layouts.committed(7)
    assert at(7) is PLAIN
    assert asked == [5]
    layouts.committed(9)
    assert at(9, UNBELIEVED) is UNBELIEVED, "the eighth was somebody else's"
    assert asked == [5, 9]
    assert at(9) is UNBELIEVED


def test_a_partitioning_says_what_may_be_believed() -> None:
    assert layout_of([]) == PLAIN
    assert layout_of([("bucket(4)", "k", 1)]).misleads
    assert not layout_of([("bucket(4)", "k", 0), ("identity", "tenant", 0)]).misleads
    assert layout_of([("bucket(4)", "k", 0), ("identity", "tenant", 0)]).single == {"tenant"}
    assert layout_of([("identity", "tenant", 3), ("year", "d", 3)]).single == frozenset()
    assert layout_of([("identity", "tenant", 3), ("year", "d", 3)]).partitioned == {"tenant", "d"}


@pytest.mark.parametrize("value", ["x", "o'brien", "hex:00", "\x00", "{AUTHOR}", "{x}", "ü😀", "\ud800{A", ""])
def test_a_cursor_keeps_any_routing_value_and_tells_it_again(value: str) -> None:
    assert told(kept(value)) == value
    assert "{A" not in kept(value)
    assert "\x00" not in kept(value)
    assert (kept(value) == value) is (value in ("x", "o'brien", "{x}", "ü😀", ""))


# -- one to blame -----------------------------------------------------------------------------------------------------


@ON_SQLITE
def test_a_reading_that_fails_for_a_group_is_split_until_who_is_to_blame_stands_alone(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = make_rig()
    rig.sql("CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, v VARCHAR)")
    rig.sql("INSERT INTO src.main.t SELECT i, 't' || (i % 7), 'v' FROM range(70) r(i)")
    names = [f"t{number}" for number in range(7)]
    for name in names:
        rig.add(name)
    rig.seed()
    before = rig.head
    rig.sql("UPDATE src.main.t SET v = 'w'")
    read, sizes = Feed.read, list[int]()

    def fails_for_t4(self: Feed, kind: ItemKind, targets: list[tuple[int, Target]], **options: Any) -> Reading:
        sizes.append(len(targets))
        if any(target.destination.destination == "t4" for _, target in targets):
            raise duckdb.BinderException("Binder Error: a value that DuckDB can't take")
        return read(self, kind, targets, **options)

    monkeypatch.setattr(Feed, "read", fails_for_t4)
    answers = rig.changes(before)
    assert outcomes(answers) == [Outcome.FAILED if name == "t4" else Outcome.APPLIED for name in names]
    assert sum(sizes) <= 7 * 4, "halves, not each by itself"


@ON_SQLITE
def test_a_reading_of_a_source_that_is_away_is_tried_once(make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig = make_rig()
    rig.sql("CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, v VARCHAR)")
    for name in ("a", "b", "c"):
        rig.add(name)
    tries = []

    def is_away(self: Feed, kind: ItemKind, targets: object, **options: Any) -> Reading:
        tries.append(targets)
        raise DestinationError("destination_unreachable", "connection refused", "")

    monkeypatch.setattr(Feed, "read", is_away)
    assert errors(rig.seed()) == ["source_unreachable"] * 3
    assert len(tries) == 1


@ON_SQLITE
def test_a_task_says_what_became_of_each_whatever_is_read(make_rig: MakeRig) -> None:
    """A routing value that is no value of its column refuses its own destination only."""
    rig = make_rig()
    rig.sql(
        "CREATE TABLE src.main.t (id BIGINT, tenant INTEGER, v VARCHAR)", "INSERT INTO src.main.t VALUES (1, 1, 'v')"
    )
    rig.add("one", "1")
    rig.add("none", "x\x00'; --")
    source = SourceTable(rig.source, "main", "t", rig.routing)
    targets = tuple(rig.target(name, ItemKind.SEED) for name in rig.destinations)
    results = run_task(Task(ItemKind.SEED, source, targets, rig.limits)).results
    assert errors([result.progress for result in results]) == [None, "invalid_destination"]
