"""What the owner of a Postgres server, a database or a role has set for every connection changes nothing of ours."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from shared.config.model import CommitChoice
from shared.contracts.messages import CommitPath, Outcome
from shared.lake.sql import ident, literal
from tests.lake.conftest import MakeRig
from tests.lake.rig import EITHER_PATH, MakeLake

ON_POSTGRES = pytest.mark.parametrize("make_lake", ["postgres"], indirect=True)

SETTINGS = {
    "DateStyle": "German, DMY",
    "IntervalStyle": "sql_standard",
    "TimeZone": "Asia/Kolkata",
    "bytea_output": "escape",
    "default_transaction_isolation": "serializable",
    "extra_float_digits": "-15",
    "search_path": "nowhere",
    "transform_null_equals": "on",
}

WAYS: dict[CommitChoice, CommitPath] = {"auto": CommitPath.DIRECT, "extension": CommitPath.EXTENSION}

TEXTS = ("a\\b", "two\\\\", "\\x41", "it's", "ä€", "\\", "1e-5")


@ON_POSTGRES
@EITHER_PATH
@pytest.mark.parametrize("name", SETTINGS)
def test_rows_are_exact_whatever_connections_begin_with(
    make_rig: MakeRig, make_lake: MakeLake, commit: CommitChoice, name: str
) -> None:
    for lake in ("source", "a"):
        set_for_all(make_lake, lake, name)
    rig = make_rig()
    rig.sql("CREATE TABLE src.main.t (id BIGINT, tenant VARCHAR, v VARCHAR, d DOUBLE, z TIMESTAMPTZ)")
    for number, text in enumerate(TEXTS):
        values = f"{number}, 'a', {literal(text)}, {number}.1234567890123, '2024-02-01 10:00:00+05'"
        rig.sql(f"INSERT INTO src.main.t VALUES ({values})")
    rig.add("a")
    rig.seed()
    for number in range(3):
        before = rig.head
        rig.sql(f"UPDATE src.main.t SET v = v || '\\{number}' WHERE id % 3 = {number}")
        (said,) = rig.changes(before, "a")
        assert (said.outcome, said.commit) == (Outcome.APPLIED, WAYS[commit]), said
    assert rig.rows("a") == rig.expected("a")


def set_for_all(make_lake: MakeLake, lake: str, name: str) -> None:
    with closing(psycopg.connect(make_lake(lake, Path()).conninfo, autocommit=True)) as con:
        con.execute(f"ALTER DATABASE {ident(con.info.dbname)} SET {name} = {literal(SETTINGS[name])}".encode())
