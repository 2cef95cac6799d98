"""A tenant who attacks with all that is his, beside honest ones: his rows, his catalog, his files.

``test_strangers_catalogs`` has the catalog's texts one by one. Here everything goes on around an attack, and after each
step the honest lakes are held against the source, and the hostile one is searched for rows that are not his.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from shared.config.model import Routing
from shared.lake.engine import connect
from shared.messages import ItemKind, Outcome, Progress
from tests.lake.bed import Bed
from tests.lake.conftest import MakeBed
from tests.lake.test_strangers_catalogs import write

HONEST, HOSTILE = ("a", "b"), "m"

TEXTS = (
    "x\0', NULL); DELETE FROM lake.main.t; --",
    "{METADATA_CATALOG}",
    "{SNAPSHOT_ID} {AUTHOR}",
    'it\'s "so" $$ called; --',
    "../../a-data/main/t/x.parquet",
    "<script>alert(1)</script>",
    "é🦆" * 50,
    "",
)
"""What the hostile tenant writes into keys and values of his rows."""

CARRIED = TEXTS[3:]
"""Of these, what every catalog can hold: with the others he is parked before his lake is opened."""

Attack = Callable[[Bed], None]


def files_of(bed: Bed, name: str) -> list[Path]:
    return sorted((bed.folder / f"{name}-data").rglob("*.parquet"))


def victims_file(bed: Bed) -> Path:
    """A data file of an honest tenant, with rows in it."""
    (found,) = bed.look("a", "SELECT data_file FROM ducklake_list_files('dst', 't') LIMIT 1")
    return Path(found[0])


def name_an_absolute_path(bed: Bed) -> None:
    sql = "UPDATE {}ducklake_data_file SET path = ?, path_is_relative = false WHERE end_snapshot IS NULL"
    write(bed.lake(HOSTILE), sql, str(victims_file(bed)))


def name_a_path_that_climbs_out(bed: Bed) -> None:
    inside = bed.folder / f"{HOSTILE}-data" / "main" / "t"
    climbing = os.path.relpath(victims_file(bed), inside)
    assert climbing.startswith("../")
    write(bed.lake(HOSTILE), "UPDATE {}ducklake_data_file SET path = ? WHERE end_snapshot IS NULL", climbing)


def name_a_delete_file_of_somebody_else(bed: Bed) -> None:
    sql = (
        "INSERT INTO {0}ducklake_delete_file (delete_file_id, table_id, begin_snapshot, data_file_id, path,"
        " path_is_relative, format, delete_count, file_size_bytes, footer_size)"
        " SELECT 1000, table_id, begin_snapshot, data_file_id, ?, false, 'parquet', 1, 1000, 100"
        " FROM {0}ducklake_data_file WHERE end_snapshot IS NULL AND table_id IN (SELECT table_id FROM {0}ducklake_table"
        " WHERE table_name = 't' AND end_snapshot IS NULL) LIMIT 1"
    )
    write(bed.lake(HOSTILE), sql, str(victims_file(bed)))


def move_the_tables_folder(bed: Bed) -> None:
    folder = f"{victims_file(bed).parent}/"
    write(bed.lake(HOSTILE), "UPDATE {}ducklake_table SET path = ?, path_is_relative = false", folder)


def move_the_data_path(bed: Bed) -> None:
    sql = "UPDATE {}ducklake_metadata SET value = ? WHERE key = 'data_path'"
    write(bed.lake(HOSTILE), sql, f"{bed.folder}/a-data/")


def put_a_view_in_the_tables_place(bed: Bed) -> None:
    file = victims_file(bed)
    bed.write(HOSTILE, "DROP TABLE dst.main.t", f"CREATE VIEW dst.main.t AS SELECT * FROM read_parquet('{file}')")


def make_macros_of_our_functions_names(bed: Bed) -> None:
    file = victims_file(bed)
    bed.write(HOSTILE, f"CREATE MACRO dst.main.count(x) AS (SELECT count(*) FROM read_parquet('{file}'))",
              f"CREATE MACRO dst.main.coalesce(x, y) AS (SELECT v FROM read_parquet('{file}') LIMIT 1)")  # fmt: skip


def write_statements_as_types(bed: Bed) -> None:
    sql = "UPDATE {}ducklake_column SET column_type = ? WHERE column_name = 'v'"
    write(bed.lake(HOSTILE), sql, "varchar); ATTACH 'x' AS y; --")


ATTACKS: tuple[Attack, ...] = (
    name_an_absolute_path,
    name_a_path_that_climbs_out,
    name_a_delete_file_of_somebody_else,
    move_the_tables_folder,
    move_the_data_path,
    put_a_view_in_the_tables_place,
    make_macros_of_our_functions_names,
    write_statements_as_types,
)


class History:
    """A source of three tenants that moves, at random but the same each time."""

    def __init__(self, bed: Bed) -> None:
        self.bed, self.draw = bed, random.Random(7)
        self.positions: dict[str, int] = {}
        self.texts: tuple[str, ...] = CARRIED
        bed.sql("CREATE TABLE src.main.t (k1 VARCHAR, k2 VARCHAR, tenant VARCHAR, v VARCHAR)")
        for name in (*HONEST, HOSTILE):
            bed.add(name)
            self.rows(name)
        for answer in bed.seed():
            self.heard(answer)

    def rows(self, name: str) -> None:
        """Rows come, change and go."""
        words = [f"{name}{self.draw.randrange(50)}" for _ in range(20)]
        self.bed.con.execute("BEGIN")
        for number, word in enumerate(words):
            first = self.draw.choice(self.texts) if name == HOSTILE and number % 2 else word
            value = self.draw.choice(self.texts) if name == HOSTILE else f"{first}-{number}"
            key = [first, str(number), name]
            # a plain comparison would be the attack on whoever writes the source, too
            self.bed.con.execute("DELETE FROM src.main.t WHERE md5(k1) = md5(?) AND k2 = ? AND tenant = ?", key)
            self.bed.con.execute("INSERT INTO src.main.t VALUES (?, ?, ?, ?)", [*key, value])
        self.bed.con.execute("COMMIT")

    def step(self) -> dict[str, Progress]:
        """Everybody's rows change; all are brought up to date, and now and then tidied up, in one job."""
        for name in (*HONEST, HOSTILE):
            self.rows(name)
        answers: dict[str, Progress] = {}
        targets = [
            self.bed.target(name, ItemKind.CHANGES, expected=position, after=position)
            for name, position in self.positions.items()
        ]
        for answer in self.bed.run_targets(ItemKind.CHANGES, targets):
            self.heard(answer)
            answers[answer.destination] = answer
        return answers

    def upkeep(self) -> None:
        targets = [
            self.bed.target(name, ItemKind.UPKEEP, expected=position, after=position, through=position)
            for name, position in self.positions.items()
        ]
        self.bed.run_targets(ItemKind.UPKEEP, targets)

    def heard(self, answer: Progress) -> None:
        if answer.outcome in (Outcome.APPLIED, Outcome.EMPTY) and answer.position is not None:
            self.positions[answer.destination] = answer.position

    def foreign_rows(self) -> list[tuple[str, str]]:
        """Rows of others that are anywhere in the hostile tenant's files."""
        found: list[tuple[str, str]] = []
        with closing(connect()) as con:
            for file in files_of(self.bed, HOSTILE):
                names = {
                    row[0] for row in con.execute("DESCRIBE SELECT * FROM read_parquet(?)", [str(file)]).fetchall()
                }
                if "tenant" in names:
                    sql = "SELECT filename, tenant FROM read_parquet(?, filename = true) WHERE tenant <> ?"
                    found += con.execute(sql, [str(file), HOSTILE]).fetchall()
        return found


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_honest_lakes_stay_exact_and_unread_whatever_a_tenant_does(make_bed: MakeBed, attack: Attack) -> None:
    bed = make_bed(routing=Routing(field="tenant", key_columns=("k1", "k2")))
    history = History(bed)
    for _ in range(2):
        history.step()
    attack(bed)
    for turn in range(3):
        history.texts = CARRIED if turn < 2 else TEXTS
        answers = history.step()
        for name in HONEST:
            assert answers[name].outcome is Outcome.APPLIED, answers[name].error
            assert bed.rows(name) == bed.expected(name)
        hostile = answers[HOSTILE]
        if hostile.outcome is not Outcome.APPLIED:
            assert hostile.error is not None
            assert hostile.error.type not in ("internal", "source_unreachable"), hostile.error
        if turn == 1:
            history.upkeep()
        assert history.foreign_rows() == []
    for name in HONEST:
        assert bed.rows(name) == bed.expected(name)
