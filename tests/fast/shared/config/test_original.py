"""The published example of the single-process Viaduck loads as it is, and means what it meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from shared.config.catalogs import resolve
from shared.config.loading import load
from shared.config.model import Config
from shared.contracts.messages import SeedMode

EXAMPLE = Path(__file__).parent / "original.yaml"

ENVIRON = {
    "SOURCE_POSTGRES_URI": "postgres:host=db port=5432 user=viaduck password=hunter2 dbname=source",
    "DEST_QUACKSWORTH_POSTGRES_URI": "postgres:host=db user=viaduck password=hunter2 dbname=quacksworth",
    "DEST_MALLARDINE_POSTGRES_URI": "postgres:host=db user=viaduck password=hunter2 dbname=mallardine",
    "S3_ACCESS_KEY_ID": "key",
    "S3_SECRET_ACCESS_KEY": "secret",
}


@pytest.fixture(scope="module")
def config() -> Config:
    return load(EXAMPLE, ENVIRON)


def test_its_source_is_read_with_the_credentials_of_its_variables(config: Config) -> None:
    lake = resolve(config.source.lake, ENVIRON)
    assert lake.conninfo == "user=viaduck password=hunter2 dbname=source host=db port=5432"
    assert lake.data_path == "s3://source-bucket/data"
    assert lake.properties == {
        "s3_endpoint": "minio:9000",
        "s3_access_key_id": "key",
        "s3_secret_access_key": "secret",
        "s3_use_ssl": "false",
        "s3_url_style": "path",
    }


def test_its_routing_is_keyed_and_seeds_by_a_scan(config: Config) -> None:
    assert (config.routing.field, config.routing.key_columns) == ("company", ("event_id",))
    assert config.routing.seed_mode is SeedMode.SCAN
    assert not config.routing.append_only


def test_its_destinations_inherit_the_table_and_the_default_properties(config: Config) -> None:
    assert [(each.id, each.routing_value, each.name, each.table) for each in config.destinations] == [
        ("quacksworth-lake", "quacksworth", "quacksworth_catalog", "events"),
        ("mallardine-lake", "mallardine", "mallardine_catalog", "events"),
    ]
    for each in config.destinations:
        assert each.properties == {"s3_endpoint": "minio:9000", "s3_use_ssl": "false", "s3_url_style": "path"}


def test_its_other_sections_are_kept(config: Config) -> None:
    assert config.poll.interval_seconds == 5
    assert config.server.port == 8000
    assert (config.instance.id, config.instance.partition.mode) == ("viaduck-0", "all")


def test_its_pipeline_is_named_after_the_table(config: Config) -> None:
    assert config.pipeline == "events"


def test_printing_it_shows_no_secret(config: Config) -> None:
    assert "hunter2" not in f"{config!r} {config}"
