from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from shared.config.model import Config, Kafka, Routing, Source
from shared.contracts.errors import ConfigError
from shared.kafka.settings import KafkaSettings
from tests.signed import ENVIRON


def config(**kafka: object) -> Config:
    return Config(
        path=Path("/etc/viaduck.yaml"),
        pipeline="events",
        source=Source(table="events"),
        routing=Routing(field="company"),
        kafka=Kafka.model_validate(kafka),
        state_dir=Path("/var/viaduck"),
    )


def test_without_a_configured_broker_the_embedded_one_is_used() -> None:
    settings = KafkaSettings.from_config(config(), {**ENVIRON, "VIADUCK_BOOTSTRAP": "127.0.0.1:5"})
    assert (settings.bootstrap, settings.embedded) == ("127.0.0.1:5", True)


def test_a_configured_broker_wins_over_an_inherited_address() -> None:
    settings = KafkaSettings.from_config(
        config(bootstrap_servers="k:9092"), {**ENVIRON, "VIADUCK_BOOTSTRAP": "127.0.0.1:5"}
    )
    assert (settings.bootstrap, settings.embedded) == ("k:9092", False)


def test_a_service_alone_without_a_broker_is_a_mistake_in_the_file() -> None:
    with pytest.raises(ConfigError, match=r"kafka\.bootstrap_servers: needed"):
        KafkaSettings.from_config(config(), {})


def test_properties_that_name_a_variable_are_resolved_and_never_shown() -> None:
    kafka = {"bootstrap_servers": "k:1", "properties": {"sasl.password_env": "PW", "sasl.username": "u"}}
    settings = KafkaSettings.from_config(config(**kafka), {**ENVIRON, "PW": "hunter2"})
    assert settings.properties == {"sasl.password": "hunter2", "sasl.username": "u"}
    assert "hunter2" not in repr(settings)


def test_every_missing_variable_is_named_by_its_path() -> None:
    kafka = {"bootstrap_servers": "k:1", "properties": {"sasl.password_env": "PW", "ssl.key.password_env": "KEY"}}
    with pytest.raises(ConfigError) as wrong:
        KafkaSettings.from_config(config(**kafka), {})
    assert [line.split(":")[0] for line in wrong.value.mistakes] == [
        "kafka.properties.sasl.password_env",
        "kafka.properties.ssl.key.password_env",
    ]


def test_a_user_may_tune_a_client_but_not_give_up_what_delivery_rests_on() -> None:
    given = {"linger.ms": "50", "acks": "0", "enable.auto.commit": "true", "enable.idempotence": "true"}
    settings = KafkaSettings("k:1", properties=given)
    producer = settings.producer("c", lambda _: None)
    assert (producer["linger.ms"], producer["acks"], producer["enable.idempotence"]) == ("50", "all", False)
    assert producer["max.in.flight.requests.per.connection"] == 1
    assert settings.consumer("c", "g", lambda _: None)["enable.auto.commit"] is False


def test_who_does_not_sign_is_told_at_each_start() -> None:
    with capture_logs() as logged:
        settings = KafkaSettings.from_config(config(bootstrap_servers="k:9092", signing="off"), {})
    assert settings.signing is None
    assert [line["log_level"] for line in logged if line["event"] == "signing_off"] == ["warning"]
    with capture_logs() as logged:
        assert KafkaSettings.from_config(config(bootstrap_servers="k:9092"), ENVIRON).signing is not None
    assert logged == []
