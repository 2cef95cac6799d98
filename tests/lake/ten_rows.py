"""A source of two tenants of ten rows each, of which one has been seeded."""

from __future__ import annotations

from shared.config.model import Routing
from shared.contracts.messages import Outcome, Progress
from tests.lake.conftest import MakeRig
from tests.lake.rig import ApplyRig

Rows = list[tuple[object, ...]]


def seeded(make_rig: MakeRig, routing: Routing) -> ApplyRig:
    """With tenant ``a`` and columns ``id``, ``tenant``, ``v``."""
    made = make_rig(routing=routing)
    made.sql(
        "CREATE TABLE src.main.t (id INTEGER, tenant VARCHAR, v INTEGER)",
        "INSERT INTO src.main.t SELECT i, chr((97 + i % 2)::INTEGER), i FROM range(20) r(i)",
    )
    made.add("a")
    made.seed()
    return made


def slice_of(rig: ApplyRig, table: str, column: str) -> Rows:
    """The source's rows of ``a`` as they are now, by whatever its table and routing column are called."""
    return sorted(rig.con.execute(f"SELECT * FROM src.main.{table} WHERE {column} = 'a'").fetchall(), key=repr)


def applied(answers: list[Progress]) -> None:
    assert [(each.outcome, each.error) for each in answers] == [(Outcome.APPLIED, None)]
