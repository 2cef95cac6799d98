"""How to reach the cluster of a topic that a pipeline lands, which may not be the deployment's own."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace

from shared.config.model import Config, TopicSource
from shared.contracts.errors import ConfigError
from shared.kafka.schema_registry import RegistrySettings
from shared.kafka.settings import KafkaSettings, resolved_properties


def registry_settings(topic: TopicSource, environ: Mapping[str, str] = os.environ) -> RegistrySettings | None:
    """None where the file names no registry. Raises ``ConfigError`` where a variable is missing."""
    given = topic.format.registry
    if given.url is None and given.url_env is None:
        return None
    named = {"url": given.url} if given.url is not None else {"url_env": given.url_env or ""}
    url = resolved_properties(named, "source.format.registry", environ)["url"]
    own = resolved_properties(given.properties, "source.format.registry.properties", environ)
    return RegistrySettings(url, tuple(sorted(own.items())))


def topic_settings(config: Config, environ: Mapping[str, str] = os.environ) -> KafkaSettings:
    """Raises ``ConfigError`` where the pipeline reads no topic, or a variable is missing.

    Properties go with a cluster: a topic on another one has nothing of the deployment's.
    """
    topic = config.topic
    if topic is None:
        raise ConfigError(["source: is a lake, and a topic is needed"])
    own = resolved_properties(topic.properties, "source.properties", environ)
    if topic.bootstrap_servers is None:
        deployment = KafkaSettings.reaching(config, environ)
        return replace(deployment, properties={**deployment.properties, **own})
    return KafkaSettings(bootstrap=topic.bootstrap_servers, properties=own)
