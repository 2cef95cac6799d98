"""A routing or key column that is renamed stays the same column, whichever of its names the configuration has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from services.control.model.conflicts import PipelineContext
from services.control.operations.reconciler import Reconciler
from services.control.store.destination_topic import DestinationPublisher
from services.control.store.registry import DestinationRegistry
from services.control.view.status_store import StatusStore
from shared.config.model import Config, Routing
from shared.contracts.errors import ConfigError
from shared.contracts.messages import ItemKind, Outcome, Progress
from shared.lake.checks.source import look_at_lake
from tests.fast.control.fakes import FakeTopic
from tests.fast.control.files import config
from tests.lake.conftest import MakeRig
from tests.lake.rig import ApplyRig, schema_of
from tests.lake.ten_rows import Rows, applied, seeded, slice_of
from tests.lake.test_identity import parked_for

OLD, NEW = Routing(field="tenant", key_columns=("id",)), Routing(field="org", key_columns=("no",))
REGION = Routing(field="region", key_columns=("id",))
EITHER_NAME = pytest.mark.parametrize("configured", [OLD, NEW], ids=["old name", "new name"])
ON_SQLITE = pytest.mark.parametrize("make_lake", ["sqlite"], indirect=True)
RENAMED = ("ALTER TABLE src.main.t RENAME COLUMN tenant TO org", "ALTER TABLE src.main.t RENAME COLUMN id TO no")


@pytest.fixture
def routing() -> Routing:
    return OLD


@pytest.fixture
def rig(make_rig: MakeRig, routing: Routing) -> ApplyRig:
    return seeded(make_rig, routing)


def slice_now(rig: ApplyRig, column: str = "org") -> Rows:
    return slice_of(rig, "t", column)


def refused(answers: list[Progress], *why: str) -> None:
    (answer,) = answers
    assert answer.outcome is Outcome.FAILED
    assert answer.error is not None
    assert (answer.error.type, answer.error.retryable) == ("destination_differs", True)
    assert [each for each in why if each not in answer.error.message] == []


@EITHER_NAME
def test_a_range_or_a_life_that_ends_before_it_is_read_by_the_name_of_then(rig: ApplyRig, configured: Routing) -> None:
    """So are a destination that is behind, a rewind, and an item of a reader that has the file's older names."""
    position, rig.routing = rig.head, configured
    end = rig.sql("INSERT INTO src.main.t VALUES (100, 'a', 1)")
    rows = slice_now(rig, "tenant")
    rig.sql(*RENAMED, "INSERT INTO src.main.t VALUES (101, 'a', 1)")
    applied(rig.changes(position, pinned=True, through=end))
    assert rig.rows("a") == rows
    rig.sql("UPDATE src.main.t SET v = -1 WHERE no IN (6, 7)")
    applied(rig.changes(end))
    assert rig.rows("a") == slice_now(rig)
    rig.add("a", generation=2)
    applied(rig.seed(pinned=True, through=end))
    assert rig.rows("a") == rows


@EITHER_NAME
@pytest.mark.parametrize("routing", [Routing(field="tenant")])
def test_appended_rows_before_it_are_read_by_the_name_of_then(rig: ApplyRig, configured: Routing) -> None:
    position, rig.routing = rig.head, Routing(field=configured.field)
    end = rig.sql("INSERT INTO src.main.t VALUES (100, 'a', 1)", "ALTER TABLE src.main.t ADD COLUMN n INTEGER")
    rig.sql(*RENAMED, "INSERT INTO src.main.t VALUES (101, 'a', 1, 2)")
    applied(rig.changes(position, pinned=True, through=end))
    applied(rig.changes(end, pinned=True))
    assert rig.rows("a") == slice_now(rig)


def test_a_name_that_two_columns_exchanged_parks(rig: ApplyRig) -> None:
    """The names alone do not tell by which of the two its rows were chosen."""
    position = rig.sql("ALTER TABLE src.main.t ADD COLUMN org VARCHAR DEFAULT 'a'")
    applied(rig.changes(position - 1))
    before = rig.rows("a")
    rig.sql(
        "ALTER TABLE src.main.t RENAME COLUMN tenant TO x",
        "ALTER TABLE src.main.t RENAME COLUMN org TO tenant",
        "ALTER TABLE src.main.t RENAME COLUMN x TO org",
        "UPDATE src.main.t SET v = -1",
    )
    for configured in ("tenant", "org"):
        rig.routing = Routing(field=configured, key_columns=("id",))
        (answer,) = rig.changes(position)
        assert "was renamed to" in parked_for(answer, "schema_change")
    assert rig.rows("a") == before


# -- control beside an applier ----------------------------------------------------------------------------------------


@dataclass
class ControlOf:
    """Control's part in it, of the rig's source: it decides from the file and from the source's own catalog."""

    rig: ApplyRig
    registry: DestinationRegistry
    topic: FakeTopic = field(default_factory=FakeTopic)

    def file(self, routing: Routing) -> Config:
        return config(
            self.rig.folder,
            [{"id": "a", "routing_value": "a", "catalog": f"sqlite:{self.rig.folder}/a.sqlite", "table": "t"}],
            source={"catalog": self.rig.source.catalog, "table": "t"} | schema_of(self.rig.source),
            routing={"field": routing.field, "key_columns": list(routing.key_columns)},
        )

    def restart(self, routing: Routing) -> int:
        """With the file's present names; returns the life that the destination is in."""
        file, status_store = self.file(routing), StatusStore("events")
        announcer = DestinationPublisher(self.topic, "viaduck.destinations", "events")
        reconciler = Reconciler(
            file, self.registry, status_store, announcer, PipelineContext({}, lambda _: ()), look_at_lake
        )
        reconciler.load()
        reconciler.apply(file)
        return self.registry.destinations()["a"].generation

    def tell(self) -> None:
        """Appliers get to know the destination as it was published last."""
        said = self.topic.kept["a"]
        assert said is not None
        self.rig.add("a", generation=said.generation, routed_by=said.routed_by)


@pytest.fixture
def control(rig: ApplyRig, tmp_path: Path) -> Iterator[ControlOf]:
    with closing(DestinationRegistry(make_url(f"sqlite:///{tmp_path}/registry.sqlite"), "events")) as registry:
        registry.prepare()
        yield ControlOf(rig, registry)


@ON_SQLITE
def test_the_file_takes_the_new_names_after_the_source(rig: ApplyRig, control: ControlOf) -> None:
    assert control.restart(OLD) == 1
    position = rig.head
    rig.sql(*RENAMED, "UPDATE src.main.t SET v = -1 WHERE no < 4", "DELETE FROM src.main.t WHERE no = 8")
    assert [control.restart(OLD), control.restart(NEW)] == [1, 1]
    applied(rig.changes(position, through=position + 3))  # an applier that still has the older file
    rig.routing = NEW
    position = rig.head
    rig.sql("INSERT INTO src.main.t VALUES (100, 'a', 1)")
    applied(rig.changes(position))
    assert rig.rows("a") == slice_now(rig)
    assert [control.restart(OLD), control.restart(NEW)] == [1, 1], "another control may have the older file"


@ON_SQLITE
def test_the_file_takes_the_new_names_before_the_source(rig: ApplyRig, control: ControlOf) -> None:
    assert control.restart(OLD) == 1
    held = control.registry.destinations()
    with pytest.raises(ConfigError) as refused:
        control.restart(NEW)
    assert "routing.field: the source table has no column org" in str(refused.value)
    assert "routing.key_columns[0]: the source table has no column no" in str(refused.value)
    assert control.registry.destinations() == held
    position, rig.routing = rig.head, NEW
    rig.sql("UPDATE src.main.t SET v = -2 WHERE id = 2", *RENAMED, "DELETE FROM src.main.t WHERE no = 4")
    assert control.restart(NEW) == 1
    applied(rig.changes(position))
    assert rig.rows("a") == slice_now(rig)


@ON_SQLITE
def test_a_name_that_means_another_column_is_another_life(rig: ApplyRig, control: ControlOf) -> None:
    assert control.restart(OLD) == 1
    rig.sql("ALTER TABLE src.main.t ADD COLUMN region VARCHAR")
    assert control.restart(Routing(field="region", key_columns=("id",))) == 2


@ON_SQLITE
def test_no_row_of_a_life_is_chosen_by_the_column_of_an_older_file(rig: ApplyRig, control: ControlOf) -> None:
    control.restart(OLD)
    rig.sql("ALTER TABLE src.main.t ADD COLUMN region VARCHAR", "UPDATE src.main.t SET region = 'a' WHERE id < 5")
    assert control.restart(REGION) == 2
    control.tell()
    before, commits = rig.rows("a"), rig.commits("a")
    refused(rig.seed(), "routed by 'tenant', with key columns", "generation 2 by 'region', with key columns")
    assert (rig.rows("a"), rig.commits("a")) == (before, commits)
    rig.routing = REGION
    applied(rig.seed())
    assert rig.rows("a") == slice_now(rig, "region")

    position, commits = rig.head, rig.commits("a")
    rig.sql("INSERT INTO src.main.t VALUES (100, 'a', 1, 'b'), (101, 'b', 1, 'a')")
    rig.routing = OLD
    refused(rig.changes(position), "nothing is moved")
    rig.routing = REGION
    counted = {"expected": position, "after": rig.head - 1, "routed_by": OLD.routed_by}
    for kind in (ItemKind.CHANGES, ItemKind.ADVANCE):
        refused(rig.run(kind, **counted), "but the reader counted its changes by 'tenant'")
    assert rig.commits("a") == commits
    applied(rig.changes(position))
    assert rig.rows("a") == slice_now(rig, "region")


@ON_SQLITE
def test_a_life_of_all_changes_takes_no_range_of_an_append_only_file(rig: ApplyRig, control: ControlOf) -> None:
    control.restart(OLD)
    control.tell()
    position, commits, rig.routing = rig.head, rig.commits("a"), Routing(field="tenant")
    rig.sql("INSERT INTO src.main.t VALUES (100, 'a', 1)")
    refused(rig.changes(position), "by 'tenant', append-only in this applier's file")
    assert rig.commits("a") == commits


@ON_SQLITE
def test_either_name_of_one_column_is_the_same_routing(rig: ApplyRig, control: ControlOf) -> None:
    control.restart(OLD)
    control.tell()
    position = rig.head
    rig.sql(*RENAMED, "INSERT INTO src.main.t VALUES (100, 'a', 1)")
    rig.routing = NEW
    applied(rig.changes(position, routed_by=OLD.routed_by))
    control.restart(NEW)
    control.tell()
    position, rig.routing = rig.head, OLD
    rig.sql("DELETE FROM src.main.t WHERE no = 100")
    applied(rig.changes(position, routed_by=OLD.routed_by))
    assert rig.rows("a") == slice_now(rig)


@ON_SQLITE
def test_two_columns_that_exchange_their_names_begin_another_life_once_the_file_follows(
    rig: ApplyRig, control: ControlOf
) -> None:
    rig.sql("ALTER TABLE src.main.t ADD COLUMN org VARCHAR")
    assert control.restart(OLD) == 1
    rig.sql(
        "ALTER TABLE src.main.t RENAME COLUMN tenant TO x",
        "ALTER TABLE src.main.t RENAME COLUMN org TO tenant",
        "ALTER TABLE src.main.t RENAME COLUMN x TO org",
    )
    assert control.restart(OLD) == 1, "its appliers park it, as of a name with two meanings"
    assert control.restart(Routing(field="org", key_columns=("id",))) == 2
