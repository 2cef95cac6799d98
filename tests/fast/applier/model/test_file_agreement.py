"""What a message says of a destination that the file declares is believed where it says what the file says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from services.applier.model.file_agreement import Agreement
from shared.config.catalogs import ResolvedLake
from shared.config.loading import load, public_lake
from shared.config.model import Config
from shared.contracts.errors import Action, DestinationError
from shared.contracts.messages import DesiredState, Destination, SeedMode
from shared.lake.connection.attach import attach
from shared.lake.connection.engine import connect


@pytest.fixture
def config(tmp_path: Path) -> Config:
    file = tmp_path / "viaduck.yaml"
    file.write_text(
        yaml.safe_dump(
            {
                "pipeline": "events",
                "source": {"catalog": "sqlite:source.sqlite", "table": "events"},
                "routing": {"field": "tenant", "key_columns": ["id"]},
                "destinations": [
                    {"id": "a", "routing_value": "8", "catalog": "sqlite:a.sqlite", "data_path": "a-files/"},
                    {
                        "id": "b",
                        "routing_value": "007.0",
                        "postgres_uri_env": "TENANT_B",
                        "data_path": "s3://bbb/lake/",
                        "properties": {"s3_access_key_id_env": "KEY_B", "s3_secret_access_key_env": "SECRET_B"},
                    },
                    {"id": "c", "routing_value": "9", "catalog": "postgres:host=db dbname=c user=u password=hidden1"},
                ],
                "state_dir": str(tmp_path / "state"),
            }
        )
    )
    return load(file, {"TENANT_B": "postgresql://u@db/b", "KEY_B": "k", "SECRET_B": "s"})


def said(config: Config, id: str, **changed: Any) -> Destination:
    """As control would say it."""
    known = next(each for each in config.destinations if each.id == id)
    fields = {
        "pipeline": "events", "destination": id, "generation": 3, "routing_value": known.routing_value,
        "state": DesiredState.RUNNING, "lake": public_lake(known), "schema_name": known.schema_name,
        "table": known.table, "seed_mode": SeedMode.SCAN, "revision": "r",
    }  # fmt: skip
    return Destination.model_validate(fields | changed)


@pytest.mark.parametrize("id", ["a", "b", "c"])
def test_what_the_file_says_is_taken(config: Config, id: str) -> None:
    Agreement(config).require(said(config, id))
    Agreement(config).require(said(config, id, state=DesiredState.PAUSED, generation=9, replace=True))


def test_what_no_file_declares_is_not_the_files_to_refuse(config: Config) -> None:
    Agreement(config).require(said(config, "a", destination="over-rest", table="other", drop=True))


@pytest.mark.parametrize(
    ("id", "lake", "named"),
    [
        ("a", {"catalog": "sqlite:/elsewhere.sqlite"}, "catalog"),
        ("a", {"data_path": "/elsewhere/"}, "data_path"),
        ("a", {"metadata_schema": "theirs"}, "metadata_schema"),
        ("b", {"postgres_uri_env": "TENANT_A"}, "postgres_uri_env"),
        ("b", {"data_path": "s3://aaa/lake/"}, "data_path"),
        ("b", {"properties": {"s3_access_key_id_env": "KEY_A", "s3_secret_access_key_env": "SECRET_B"}}, "properties"),
        ("b", {"postgres_uri_env": None, "catalog": "postgres:host=db dbname=a user=u"}, "postgres_uri_env"),
        ("c", {"from_file": False}, "catalog"),
    ],
)
def test_another_lake_than_the_files_is_refused_by_name(
    config: Config, id: str, lake: dict[str, Any], named: str
) -> None:  # fmt: skip
    honest = said(config, id)
    forged = honest.model_copy(update={"lake": honest.lake.model_copy(update=lake)})
    with pytest.raises(DestinationError, match="differs from") as refused:
        Agreement(config).require(forged)
    assert (refused.value.type, refused.value.action) == ("destination_differs", Action.RETRY)
    assert named in refused.value.message
    assert "viaduck.yaml" in refused.value.message
    assert "hidden1" not in refused.value.message


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"table": "other"}, "table"),
        ({"schema_name": "other"}, "schema"),
        ({"drop": True, "state": DesiredState.STOPPED}, "removal"),
    ],
)
def test_another_table_or_a_removal_is_refused(config: Config, changed: dict[str, Any], named: str) -> None:
    with pytest.raises(DestinationError, match=named):
        Agreement(config).require(said(config, "a", **changed))


def test_a_routing_value_is_the_files_in_its_columns_spelling_and_no_other(config: Config, tmp_path: Path) -> None:
    source = ResolvedLake(f"sqlite:{tmp_path}/source.sqlite")
    with connect() as con:
        attach(con, "src", source, read_only=False, create=True)
        con.execute("CREATE TABLE src.main.events (id BIGINT, tenant INTEGER)")
    agreement = Agreement(config)
    agreement.require(said(config, "b", routing_value="7"))
    for other in ("9", "07", ""):
        with pytest.raises(DestinationError, match="routing_value"):
            agreement.require(said(config, "b", routing_value=other))
