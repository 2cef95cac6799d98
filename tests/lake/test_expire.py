"""`viaduck source expire` on real lakes, beside a real control: nothing goes that a destination needs."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml
from psycopg import sql
from typer.testing import CliRunner, Result

from services.cli.expire.needs import need_of
from services.cli.main import app
from services.cli.verify.registered_destinations import Life
from shared.contracts.errors import ConfigError, DependencyError, ViaduckError
from shared.contracts.messages import ItemKind, Outcome, Progress, SeedMode
from shared.contracts.ranges import NOT_SEEDED
from shared.lake.catalog.reader import CatalogReader
from shared.lake.cursor import Position
from shared.lake.upkeep.retention import snapshots_since
from tests.fast.control.live_server import served
from tests.fast.control.rig import ControlRig
from tests.lake.rig import ApplyRig
from tests.servers.ports import free_port


@dataclass
class Site:
    """A source with two destinations, and the file and control of their pipeline."""

    lakes: ApplyRig
    control: ControlRig
    file: Path

    @property
    def head(self) -> int:
        return self.lakes.head

    def said(self, name: str, position: int | None = None, outcome: Outcome = Outcome.APPLIED) -> None:
        self.control.status_store.note(
            Progress(pipeline="p", destination=name, item="i", kind=ItemKind.CHANGES, outcome=outcome, generation=1,
                     position=position)
        )  # fmt: skip

    def expire(self, *words: str, code: int = 0) -> Result:
        self.control.source_watch.look()
        done = CliRunner().invoke(app, ["source", "expire", "-c", str(self.file), *words])
        assert done.exit_code == code, (done.output, done.exception)
        return done

    def retained(self) -> list[int]:
        with closing(CatalogReader(self.lakes.source)) as catalog:
            return [each.id for each in snapshots_since(catalog, 0, 1_000)]

    def trail(self) -> list[Any]:
        found = self.control.http.get("/v1/pipelines/p/audit").json()["items"]
        return [each for each in found if each["deed"] == "source_expired"]


@pytest.fixture
def site(rig: ApplyRig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    environ = {f"LAKE_{name.upper()}": rig.lake(name).catalog for name in ("a", "b")}
    for name, catalog in environ.items():
        monkeypatch.setenv(name, catalog)
    sections = {
        "server": {"port": 0, "allowed_variables": ["LAKE_*"]},
        "source": {"catalog": rig.source.catalog, "table": "t"},
        "routing": {"field": "tenant", "key_columns": ["id"]},
        "registry": {"url": f"sqlite:///{tmp_path}/registry.sqlite"},
    }
    rig.seed()
    rig.sql(*(f"INSERT INTO src.main.t VALUES ({100 + n}, 'a', 'x')" for n in range(6)))
    with closing(ControlRig(tmp_path, pipeline="p", sections=sections, environ=environ)) as control:
        for name in ("a", "b"):
            entry = {"routing_value": name, "catalog_env": f"LAKE_{name.upper()}", "table": "t"}
            answer = control.http.put(f"/v1/pipelines/p/destinations/{name}?check=false", entry)
            assert answer.status_code == 201, answer.text
        with served(control) as url:
            yield Site(rig, control, write_for(tmp_path, control, int(url.rpartition(":")[2])))


def write_for(folder: Path, control: ControlRig, port: int, registry: str = "registry") -> Path:
    """The file of a command, whose control is at ``port``."""
    document = yaml.safe_load(control.config.path.read_text())
    document["server"]["port"] = port
    document["registry"] = {"url": f"sqlite:///{folder}/{registry}.sqlite"}
    file = folder / f"port-{port}.yaml"
    file.write_text(yaml.safe_dump(document))
    return file


def test_everything_before_the_lowest_position_goes_and_that_destination_continues(site: Site) -> None:
    lakes, seeded = site.lakes, 2
    site.said("a", seeded)
    site.said("b", site.head)
    shown = site.expire().stdout
    assert f"kept from snapshot {seeded} on: p/a (running) needs it" in shown
    assert site.retained() == list(range(seeded, site.head + 1))
    assert [(each["changes"]["snapshots"], each["changes"]["through"]) for each in site.trail()] == [
        ([None, seeded], [None, seeded - 1])
    ]
    assert [each.outcome for each in lakes.changes(seeded, "a")] == [Outcome.APPLIED]
    assert lakes.rows("a") == lakes.expected("a")
    assert "nothing to expire" in site.expire().stdout


def test_a_destination_whose_position_went_anyway_parks_while_others_move(site: Site) -> None:
    site.said("a", 2)
    site.said("b", site.head)
    site.expire("--ignore-destination", "p/a")
    assert site.retained() == [site.head]
    site.lakes.changes(2, "b", after=site.head)
    site.lakes.sql("INSERT INTO src.main.t VALUES (900, 'a', 'y'), (901, 'b', 'y')")
    (behind,) = site.lakes.changes(2, "a")
    assert (behind.outcome, behind.error and behind.error.type) == (Outcome.PARKED, "history_expired")


def test_a_rewind_that_loses_the_race_parks_and_changes_nothing(site: Site) -> None:
    """Its snapshot was there when it was accepted, and when its item was sent."""
    lakes, then = site.lakes, 2
    lakes.changes(then, "a")
    rows = lakes.rows("a")
    lakes.add("a", generation=2, seed_at=then)
    sent = lakes.target("a", ItemKind.SEED, through=then, pinned=True)
    site.said("a", site.head)
    site.said("b", site.head)
    site.expire()
    assert site.retained() == [site.head]
    (late,) = lakes.run_targets(ItemKind.SEED, [sent])
    assert (late.outcome, late.error and late.error.type) == (Outcome.PARKED, "history_expired")
    assert lakes.rows("a") == rows != []


@pytest.mark.parametrize("make_lake", ["sqlite"], indirect=True)
def test_a_dry_run_changes_nothing_and_is_not_in_the_trail(site: Site) -> None:
    site.said("a", site.head)
    site.said("b", site.head)
    before = site.retained()
    assert f"to expire: {site.head:,} snapshots, 0 to {site.head - 1}" in site.expire("--dry-run").stdout
    assert (site.retained(), site.trail()) == (before, [])


def test_an_unknown_position_refuses_and_is_named(site: Site) -> None:
    site.said("a", site.head)
    before = site.retained()
    refused = site.expire(code=1)
    assert "unknown position: p/b" in refused.stderr
    assert (site.retained(), site.trail()) == (before, [])
    site.expire("--ignore-destination", "b")
    assert site.retained() == [site.head]


def test_what_is_asked_for_keeps_more(site: Site) -> None:
    site.said("a", site.head)
    site.said("b", site.head)
    for words, first in (
        (["--keep", "3"], site.head - 2), (["--keep", "100"], 0), (["--floor", "4", "--floor", "6"], 4),
        (["--older-than", "1h"], 0), (["--older-than", "0s"], site.head),
    ):  # fmt: skip
        assert f"kept from snapshot {first} on:" in site.expire("--dry-run", *words).stdout, words
    assert "and more with the next run" in site.expire("--limit", "2").stdout
    assert site.retained() == list(range(2, site.head + 1))
    site.expire("--older-than", "0s")
    assert site.retained() == [site.head]


@pytest.mark.parametrize("make_lake", ["sqlite"], indirect=True)
def test_mistakes_are_refused_before_anything_is_asked(site: Site) -> None:
    site.said("a", site.head)
    site.said("b", site.head)
    before = site.retained()
    assert "goes without --keep" in site.expire("--older-than", "1d", "--keep", "5", code=2).output
    assert "is no duration" in site.expire("--older-than", "soon", code=2).output
    beyond = CliRunner().invoke(app, ["source", "expire", "-c", str(site.file), "--floor", str(site.head + 1)])
    assert isinstance(beyond.exception, ConfigError)
    assert f"head is snapshot {site.head}" in str(beyond.exception)
    assert site.retained() == before


def test_files_that_were_let_go_long_ago_are_deleted_and_never_too_soon(site: Site, tmp_path: Path) -> None:
    lakes = site.lakes
    more = (f"INSERT INTO src.main.t SELECT {n} + i, 'a', 'x' FROM range(20) r(i)" for n in (1_000, 2_000, 3_000))
    lakes.sql(*more, "DELETE FROM src.main.t")
    site.said("a", site.head)
    site.said("b", site.head)
    assert "deleted 0 files" in site.expire("--clean-older-than", "2d").stdout
    waiting = lakes.con.execute(
        "SELECT count(*) FROM ducklake_cleanup_old_files('src', cleanup_all => true, dry_run => true)"
    ).fetchall()[0][0]
    assert waiting >= 4
    file = lakes.source.sqlite_file
    if file is None:
        assert f"deleted {waiting} files" in site.expire("--clean-older-than", "0s").stdout
        return
    cutoff = datetime.now(UTC) - timedelta(days=2)
    with closing(sqlite3.connect(file)) as catalog, catalog:
        for number, (row,) in enumerate(
            catalog.execute("SELECT rowid FROM ducklake_files_scheduled_for_deletion").fetchall()
        ):
            at = cutoff - timedelta(days=2) if number == 0 else cutoff + timedelta(minutes=1)
            catalog.execute(
                "UPDATE ducklake_files_scheduled_for_deletion SET schedule_start = ? WHERE rowid = ?",
                [at.strftime("%Y-%m-%d %H:%M:%S.%f+00"), row],
            )
    assert "deleted 1 files" in site.expire("--clean-older-than", "2d").stdout


def test_without_control_the_registry_and_the_cursors_tell(site: Site, tmp_path: Path) -> None:
    file = write_for(tmp_path, site.control, free_port())
    done = CliRunner().invoke(app, ["source", "expire", "-c", str(file)])
    assert done.exit_code == 0, (done.output, done.exception)
    assert "p/a needs it" in done.stdout
    assert done.stderr == ""
    (entry,) = site.trail()
    assert (entry["destination"], entry["author"]) == ("the pipeline", "viaduck source expire")
    assert entry["changes"] == {"snapshots": [None, 2], "through": [None, 1], "ignored": [None, []]}
    assert datetime.now(UTC) - datetime.fromisoformat(entry["at"]) < timedelta(minutes=10)
    assert site.retained() == list(range(2, site.head + 1))


@pytest.mark.parametrize("make_lake", ["sqlite"], indirect=True)
def test_without_control_what_the_trail_does_not_take_is_not_done(site: Site, tmp_path: Path) -> None:
    file = write_for(tmp_path, site.control, free_port())
    with closing(sqlite3.connect(tmp_path / "registry.sqlite")) as registry, registry:
        registry.execute("ALTER TABLE audit RENAME TO gone")
    done = CliRunner().invoke(app, ["source", "expire", "-c", str(file)])
    assert (type(done.exception), site.retained()[0]) == (DependencyError, 0), done.output
    assert "no entry in the audit trail" in str(done.exception)


@pytest.mark.parametrize("make_lake", ["sqlite"], indirect=True)
def test_without_control_and_registry_nothing_is_expired(site: Site, tmp_path: Path) -> None:
    file = write_for(tmp_path, site.control, free_port(), "nowhere")
    done = CliRunner().invoke(app, ["source", "expire", "-c", str(file)])
    assert (done.exit_code, site.retained()[0]) == (1, 0), (done.output, done.exception)


CURSOR = Position(2, 500, "t", "a", "s")


@pytest.mark.parametrize(
    ("life", "mode", "cursor", "needed"),
    [
        (Life(2), SeedMode.SCAN, CURSOR, 500),
        (Life(1), SeedMode.SCAN, CURSOR, 500),
        (Life(2), SeedMode.SCAN, Position(2, 50, "t", "a", "s"), None),
        (Life(3, seed_at=300), SeedMode.SCAN, CURSOR, 300),
        (Life(3, seed_at=30), SeedMode.SCAN, CURSOR, None),
        (Life(3), SeedMode.REPLAY, CURSOR, 120),
        (Life(1), SeedMode.REPLAY, None, 120),
        (Life(2, removing=True), SeedMode.SCAN, CURSOR, None),
    ],
)
def test_a_cursor_of_the_present_life_decides_else_where_it_is_to_begin(
    life: Life, mode: SeedMode, cursor: Position | None, needed: int | None
) -> None:
    assert need_of(life, mode, cursor, 120) == needed


@pytest.mark.parametrize("cursor", [None, Position(1, 500, "t", "a", "s"), Position(2, NOT_SEEDED, "t", "a", "s")])
def test_a_seed_that_may_be_running_is_unknown_without_control(cursor: Position | None) -> None:
    with pytest.raises(LookupError, match="first seed"):
        need_of(Life(2), SeedMode.SCAN, cursor, 120)


@pytest.mark.parametrize("make_lake", ["postgres"], indirect=True)
def test_a_source_that_refuses_writes_is_told_and_keeps_everything(site: Site) -> None:
    site.said("a", site.head)
    site.said("b", site.head)
    before = site.retained()
    with psycopg.connect(site.lakes.source.conninfo, autocommit=True) as con:
        name = con.execute("SELECT current_database()").fetchone()
        assert name is not None
        con.execute(sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = on").format(sql.Identifier(name[0])))
    site.control.source_watch.look()
    refused = CliRunner().invoke(app, ["source", "expire", "-c", str(site.file)])
    assert isinstance(refused.exception, ViaduckError), refused.output
    assert "read-only" in refused.exception.message
    assert "expired 0 of" in refused.stdout
    assert site.retained() == before


@pytest.mark.parametrize("make_lake", ["sqlite"], indirect=True)
def test_a_source_that_is_away_ends_with_its_reason(site: Site) -> None:
    file = site.lakes.source.sqlite_file
    assert file is not None
    file.rename(file.with_suffix(".away"))
    away = CliRunner().invoke(app, ["source", "expire", "-c", str(site.file)])
    file.with_suffix(".away").rename(file)
    assert isinstance(away.exception, DependencyError), away.output
    assert "there is no catalog file" in str(away.exception)
