"""A destination's lake may travel over Kafka; the secrets that a file holds may not."""

from __future__ import annotations

import pytest

from shared.config.catalogs import resolve
from shared.config.loading import lake_of, public_lake
from shared.config.model import Config
from shared.contracts.errors import ViaduckError
from shared.contracts.messages import DesiredState, Destination, LakeRef, SeedMode
from tests.fast.shared.config.conftest import MINIMAL, Load

TEXT = (
    MINIMAL
    + """
destinations:
  - {id: variable, routing_value: a, postgres_uri_env: LAKE, properties: {s3_secret_access_key_env: KEY}}
  - {id: password, routing_value: b, catalog: "postgresql://u:hunter2@db/b", properties: {s3_region: r}}
  - id: key
    routing_value: c
    catalog: sqlite:c.db
    properties: {s3_access_key_id: hunter2, s3_secret_access_key: hunter2, s3_session_token: hunter2, s3_region: r}
  - {id: plain, routing_value: d, catalog: "postgres:dbname=d host=db user=u"}
"""
)

ENVIRON = {"LAKE": "postgresql://u:hunter2@db/a", "KEY": "hunter2"}


@pytest.fixture
def config(load_text: Load) -> Config:
    return load_text(TEXT, ENVIRON)


def test_no_lake_that_travels_holds_a_secret(config: Config) -> None:
    travelling = [public_lake(each) for each in config.destinations]
    assert all("hunter2" not in lake.model_dump_json() for lake in travelling)
    assert [lake.from_file for lake in travelling] == [False, True, True, False]


def test_what_is_no_secret_travels(config: Config) -> None:
    _, password, key, plain = (public_lake(each) for each in config.destinations)
    assert (password.catalog, password.properties) == ("postgres:user=u dbname=b host=db", {"s3_region": "r"})
    assert key.properties == {"s3_region": "r"}
    assert plain == config.destinations[3].lake


def test_whoever_has_the_file_gets_the_whole_lake_back(config: Config) -> None:
    for each in config.destinations:
        sent = Destination.from_bytes(_published(each.id, public_lake(each)).to_bytes())
        assert resolve(lake_of(config, sent), ENVIRON) == resolve(each.lake, ENVIRON)


def test_a_lake_that_came_over_rest_is_taken_as_it_was_sent(config: Config) -> None:
    lake = LakeRef(catalog="sqlite:/rest.db")
    assert lake_of(config, _published("rest", lake)) == lake


@pytest.mark.parametrize("id", ["gone", "plain", "variable"])
def test_a_service_whose_file_lacks_the_secrets_says_so_instead_of_writing_elsewhere(config: Config, id: str) -> None:
    published = _published(id, public_lake(config.destinations[1]))
    with pytest.raises(ViaduckError) as raised:
        lake_of(config, published)
    assert raised.value.type == "secret_missing"
    assert "same file" in raised.value.hint


def test_a_service_with_an_older_file_does_not_write_to_the_older_lake(config: Config, load_text: Load) -> None:
    moved = load_text(TEXT.replace("@db/b", "@db/moved"), ENVIRON)
    with pytest.raises(ViaduckError, match="does not hold that lake"):
        lake_of(config, _published("password", public_lake(moved.destinations[1])))


def _published(id: str, lake: LakeRef) -> Destination:
    return Destination(
        pipeline="events",
        destination=id,
        generation=1,
        routing_value="x",
        state=DesiredState.RUNNING,
        lake=lake,
        table="events",
        seed_mode=SeedMode.SCAN,
        revision="1",
    )
