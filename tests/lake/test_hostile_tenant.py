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
from shared.contracts.messages import ItemKind, Outcome, Progress
from shared.lake.connection.engine import connect
from tests.lake.conftest import MakeRig
from tests.lake.rig import ApplyRig
from tests.lake.test_strangers_catalogs import write

HONEST, HOSTILE = ("a", "b"), "m"

INLINED = 5
"""Rows of a statement that stay in the source's catalog."""

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

Attack = Callable[[ApplyRig], None]


def files_of(rig: ApplyRig, name: str) -> list[Path]:
    return sorted((rig.folder / f"{name}-data").rglob("*.parquet"))


def victims_file(rig: ApplyRig) -> Path:
    """A data file of an honest tenant, with rows in it."""
    (found,) = rig.look("a", "SELECT data_file FROM ducklake_list_files('dst', 't') LIMIT 1")
    return Path(found[0])


def name_an_absolute_path(rig: ApplyRig) -> None:
    sql = "UPDATE {}ducklake_data_file SET path = ?, path_is_relative = false WHERE end_snapshot IS NULL"
    write(rig.lake(HOSTILE), sql, str(victims_file(rig)))


def name_a_path_that_climbs_out(rig: ApplyRig) -> None:
    inside = rig.folder / f"{HOSTILE}-data" / "main" / "t"
    climbing = os.path.relpath(victims_file(rig), inside)
    assert climbing.startswith("../")
    write(rig.lake(HOSTILE), "UPDATE {}ducklake_data_file SET path = ? WHERE end_snapshot IS NULL", climbing)


def name_a_delete_file_of_somebody_else(rig: ApplyRig) -> None:
    sql = (
        "INSERT INTO {0}ducklake_delete_file (delete_file_id, table_id, begin_snapshot, data_file_id, path,"
        " path_is_relative, format, delete_count, file_size_bytes, footer_size)"
        " SELECT 1000, table_id, begin_snapshot, data_file_id, ?, false, 'parquet', 1, 1000, 100"
        " FROM {0}ducklake_data_file WHERE end_snapshot IS NULL AND table_id IN (SELECT table_id FROM {0}ducklake_table"
        " WHERE table_name = 't' AND end_snapshot IS NULL) LIMIT 1"
    )
    write(rig.lake(HOSTILE), sql, str(victims_file(rig)))


def move_the_tables_folder(rig: ApplyRig) -> None:
    folder = f"{victims_file(rig).parent}/"
    write(rig.lake(HOSTILE), "UPDATE {}ducklake_table SET path = ?, path_is_relative = false", folder)


def move_the_data_path(rig: ApplyRig) -> None:
    sql = "UPDATE {}ducklake_metadata SET value = ? WHERE key = 'data_path'"
    write(rig.lake(HOSTILE), sql, f"{rig.folder}/a-data/")


def put_a_view_in_the_tables_place(rig: ApplyRig) -> None:
    file = victims_file(rig)
    rig.write(HOSTILE, "DROP TABLE dst.main.t", f"CREATE VIEW dst.main.t AS SELECT * FROM read_parquet('{file}')")


def make_macros_of_our_functions_names(rig: ApplyRig) -> None:
    file = victims_file(rig)
    rig.write(HOSTILE, f"CREATE MACRO dst.main.count(x) AS (SELECT count(*) FROM read_parquet('{file}'))",
              f"CREATE MACRO dst.main.coalesce(x, y) AS (SELECT v FROM read_parquet('{file}') LIMIT 1)")  # fmt: skip


def write_statements_as_types(rig: ApplyRig) -> None:
    sql = "UPDATE {}ducklake_column SET column_type = ? WHERE column_name = 'v'"
    write(rig.lake(HOSTILE), sql, "varchar); ATTACH 'x' AS y; --")


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

    def __init__(self, rig: ApplyRig) -> None:
        self.rig, self.draw = rig, random.Random(7)
        self.positions: dict[str, int] = {}
        self.texts: tuple[str, ...] = CARRIED
        rig.sql("CREATE TABLE src.main.t (k1 VARCHAR, k2 VARCHAR, tenant VARCHAR, v VARCHAR)")
        for name in (*HONEST, HOSTILE):
            rig.add(name)
            self.rows(name)
        for answer in rig.seed():
            self.heard(answer)

    def rows(self, name: str) -> None:
        """Rows come, change and go."""
        words = [f"{name}{self.draw.randrange(50)}" for _ in range(20)]
        rows = []
        for number, word in enumerate(words):
            first = self.draw.choice(self.texts) if name == HOSTILE and number % 2 else word
            value = self.draw.choice(self.texts) if name == HOSTILE else f"{first}-{number}"
            rows.append((first, str(number), name, value))
        self.rig.con.execute("BEGIN")
        # a plain comparison would be the attack on whoever writes the source, too
        old = " OR ".join(["md5(k1) = md5(?) AND k2 = ?"] * len(rows))
        keys = [text for row in rows for text in row[:2]]
        self.rig.con.execute(f"DELETE FROM src.main.t WHERE tenant = ? AND ({old})", [name, *keys])
        for at in range(0, len(rows), INLINED):
            few = rows[at : at + INLINED]
            places = ", ".join(["(?, ?, ?, ?)"] * len(few))
            self.rig.con.execute(f"INSERT INTO src.main.t VALUES {places}", [text for row in few for text in row])
        self.rig.con.execute("COMMIT")

    def step(self) -> dict[str, Progress]:
        """Everybody's rows change; all are brought up to date, and now and then tidied up, in one job."""
        for name in (*HONEST, HOSTILE):
            self.rows(name)
        answers: dict[str, Progress] = {}
        targets = [
            self.rig.target(name, ItemKind.CHANGES, expected=position, after=position)
            for name, position in self.positions.items()
        ]
        for answer in self.rig.run_targets(ItemKind.CHANGES, targets):
            self.heard(answer)
            answers[answer.destination] = answer
        return answers

    def upkeep(self) -> None:
        targets = [
            self.rig.target(name, ItemKind.UPKEEP, expected=position, after=position, through=position)
            for name, position in self.positions.items()
        ]
        self.rig.run_targets(ItemKind.UPKEEP, targets)

    def heard(self, answer: Progress) -> None:
        if answer.outcome in (Outcome.APPLIED, Outcome.EMPTY) and answer.position is not None:
            self.positions[answer.destination] = answer.position

    def foreign_rows(self) -> list[tuple[str, str]]:
        """Rows of others that are anywhere in the hostile tenant's files."""
        found: list[tuple[str, str]] = []
        with closing(connect()) as con:
            for file in files_of(self.rig, HOSTILE):
                names = {
                    row[0] for row in con.execute("DESCRIBE SELECT * FROM read_parquet(?)", [str(file)]).fetchall()
                }
                if "tenant" in names:
                    sql = "SELECT filename, tenant FROM read_parquet(?, filename = true) WHERE tenant <> ?"
                    found += con.execute(sql, [str(file), HOSTILE]).fetchall()
        return found


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_honest_lakes_stay_exact_and_unread_whatever_a_tenant_does(make_rig: MakeRig, attack: Attack) -> None:
    rig = make_rig(routing=Routing(field="tenant", key_columns=("k1", "k2")))
    history = History(rig)
    for _ in range(2):
        history.step()
    attack(rig)
    for turn in range(3):
        history.texts = CARRIED if turn < 2 else TEXTS
        answers = history.step()
        for name in HONEST:
            assert answers[name].outcome is Outcome.APPLIED, answers[name].error
            assert rig.rows(name) == rig.expected(name)
        hostile = answers[HOSTILE]
        if hostile.outcome is not Outcome.APPLIED:
            assert hostile.error is not None
            assert hostile.error.type not in ("internal", "source_unreachable"), hostile.error
        if turn == 1:
            history.upkeep()
        assert history.foreign_rows() == []
    for name in HONEST:
        assert rig.rows(name) == rig.expected(name)
