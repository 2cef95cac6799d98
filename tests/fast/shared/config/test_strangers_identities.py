"""The identity of this deployment's machines is used for lakes of the operator's file, and for no stranger's."""

from __future__ import annotations

import pytest

from shared.config.declared import Lakes, entry_lake
from shared.config.model import COPIES, Config
from shared.contracts.errors import ConfigError, ViaduckError
from shared.contracts.messages import DesiredState, Destination, LakeRef, SeedMode
from tests.fast.shared.config.conftest import MINIMAL, Load, Mistaken

ROLE = "arn:aws:iam::123456789012:role/lakes"
CHAIN = {"s3_provider": "credential_chain"}
AZURE = {"azure_provider": "credential_chain", "azure_account": "acmelakes"}
CATALOG, ENVIRON = "postgres:host=db.internal dbname=x user=u", {"THEIR_KEY": "k", "CHAIN": "credential_chain"}

GENEROUS = MINIMAL + 'server: {allowed_variables: ["*"]}\n'
GIVES = GENEROUS + f"defaults: {{properties: {{s3_provider: credential_chain, s3_assume_role_arn: '{ROLE}'}}}}\n"


def opened(config: Config, lake: LakeRef, name: str = "theirs") -> dict[str, str]:
    """The properties with which a lake in a message is opened."""
    destination = Destination(
        pipeline=config.pipeline, destination=name, generation=1, routing_value=name, state=DesiredState.RUNNING,
        lake=lake, table="events", seed_mode=SeedMode.SCAN, revision="r", managed_by="api",
    )  # fmt: skip
    return dict(Lakes(config, ENVIRON).published(destination).properties)


def in_azure(properties: dict[str, str]) -> LakeRef:
    return LakeRef(catalog=CATALOG, data_path="az://lake/x/", properties=properties)


def on_s3(properties: dict[str, str]) -> LakeRef:
    return LakeRef(catalog=CATALOG, data_path="s3://bucket/x/", properties=properties)


@pytest.mark.parametrize("lake", [
    on_s3(CHAIN), on_s3({**CHAIN, "s3_chain": "env"}), on_s3({**CHAIN, "s3_assume_role_arn": ROLE}),
    on_s3({**CHAIN, "s3_endpoint": "evil:9000"}), on_s3({"s3_provider_env": "CHAIN"}), in_azure(AZURE),
    in_azure({"azure_provider_env": "CHAIN", "azure_account": "acmelakes"}), on_s3({"s3_assume_role_arn": ROLE}),
    on_s3({**CHAIN, "from_defaults": "true"}).model_copy(update={"from_defaults": True, "properties": CHAIN}),
])  # fmt: skip
def test_no_stranger_uses_the_identity_of_this_machine_whatever_variables_are_allowed(
    load_text: Load, lake: LakeRef
) -> None:
    config = load_text(GENEROUS, ENVIRON)
    with pytest.raises(ViaduckError, match=r"properties\.\w+: is (the identity of this deploy|no secret)") as caught:
        opened(config, lake)
    assert (caught.value.type, bool(caught.value.hint)) == ("not_allowed", True)
    assert dict(Lakes(config, ENVIRON).refusals("theirs", "theirs", lake)), "the same is refused as it is declared"


def test_what_defaults_give_to_every_lake_a_stranger_has_too_and_just_that(load_text: Load) -> None:
    config = load_text(GIVES, ENVIRON)
    inherited = entry_lake({"catalog": CATALOG, "data_path": "s3://bucket/x/"}, config)
    assert opened(config, inherited) == {**CHAIN, "s3_assume_role_arn": ROLE}
    for properties in (
        CHAIN,  # without the role it would be the machine itself
        {**CHAIN, "s3_assume_role_arn": ROLE + "-of-others"},
        {**CHAIN, "s3_assume_role_arn": ROLE, "s3_chain": "env"},
        {**CHAIN, "s3_assume_role_arn": ROLE, **AZURE},
    ):
        with pytest.raises(ViaduckError, match="identity of this deployment"):
            opened(config, on_s3(properties))
    for store in ({"s3_endpoint": "evil:9000"}, {"s3_use_ssl": "false"}):
        with pytest.raises(ViaduckError, match="another store than that of defaults"):
            opened(config, on_s3({**CHAIN, "s3_assume_role_arn": ROLE, **store}))


def test_a_stranger_with_keys_of_its_own_inherits_no_role(load_text: Load) -> None:
    config = load_text(GIVES, ENVIRON)
    keys = {"s3_access_key_id_env": "THEIR_KEY", "s3_secret_access_key_env": "THEIR_KEY"}
    lake = entry_lake({"catalog": CATALOG, "data_path": "s3://bucket/x/", "properties": keys}, config)
    assert opened(config, lake) == {"s3_access_key_id": "k", "s3_secret_access_key": "k"}


def test_a_pipeline_that_came_over_rest_gives_itself_no_identity(load_text: Load) -> None:
    """Its defaults are the client's own words, as is its source."""
    file = load_text(GIVES, ENVIRON)
    config = file.model_copy(update={"path": file.state_dir / COPIES / "p.yaml"})
    assert config.over_rest
    source = config.source.model_copy(update={"catalog": CATALOG, "data_path": "s3://b-1/", "properties": CHAIN})
    with pytest.raises(ViaduckError, match="identity of this deployment"):
        Lakes(config.model_copy(update={"source": source}), ENVIRON).source()
    with pytest.raises(ViaduckError, match="identity of this deployment"):
        opened(config, entry_lake({"catalog": CATALOG, "data_path": "s3://bucket/x/"}, config))


def test_the_files_own_lakes_and_template_use_it(load_text: Load) -> None:
    template = "template: {catalog: 'sqlite:/lakes/{routing_value}', data_path: 's3://bucket/{routing_value}/',"
    role = f"{ROLE}-{{routing_value}}"
    properties = f"properties: {{s3_provider: credential_chain, s3_assume_role_arn: '{role}'}}}}\n"
    listed = f"destinations: [{{id: own, routing_value: own, catalog: 'sqlite:o', properties: {CHAIN}}}]\n"
    config = load_text(GENEROUS + f"{template} {properties}{listed}", ENVIRON)
    assert opened(config, config.destinations[0].lake, "own") == CHAIN
    made = LakeRef(catalog="sqlite:/lakes/acme", data_path="s3://bucket/acme/",
                   properties={**CHAIN, "s3_assume_role_arn": f"{ROLE}-acme"})  # fmt: skip
    assert opened(config, made, "acme")["s3_assume_role_arn"] == f"{ROLE}-acme"
    with pytest.raises(ViaduckError, match="identity of this deployment"):
        opened(config, made, "another")


@pytest.mark.parametrize(("properties", "why"), [
    ({"azure_provider": "credential_chain", "azure_account": "a{routing_value}"}, "choose a host"),
    ({**CHAIN, "s3_assume_role_arn": "arn:aws:iam::{routing_value}:role/x"}, "choose an account"),
])  # fmt: skip
def test_a_routing_value_chooses_no_host_and_no_account(
    mistakes_of: Mistaken, properties: dict[str, str], why: str
) -> None:
    template = {"catalog": "sqlite:/lakes/{routing_value}", "data_path": "s3://b-1/{routing_value}/"}
    lines = mistakes_of(f"{GENEROUS}template: { {**template, 'properties': properties} }\n", ENVIRON)
    assert any(why in line for line in lines)


def test_the_refusal_says_what_to_do_instead(load_text: Load) -> None:
    with pytest.raises((ViaduckError, ConfigError), match="name keys of your own"):
        opened(load_text(GENEROUS, ENVIRON), on_s3(CHAIN))
