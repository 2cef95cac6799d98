"""How to reach the cluster of a topic that a pipeline lands, which may not be the deployment's own."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace

from shared.config.model import Config
from shared.config.topic_rules import OF_FILES_ALONE
from shared.contracts.errors import ConfigError
from shared.kafka.settings import KafkaSettings, resolved_properties


def topic_settings(config: Config, environ: Mapping[str, str] = os.environ) -> KafkaSettings:
    """Raises ``ConfigError`` where the pipeline reads no topic, or a variable is missing.

    Properties go with a cluster: a topic on another one has nothing of the deployment's.
    """
    topic = config.topic
    if topic is None:
        raise ConfigError(["source: is a lake, and a topic is needed"])
    if config.over_rest:
        raise ConfigError([f"source.kind: {OF_FILES_ALONE}"])
    own = resolved_properties(topic.properties, "source.properties", environ)
    if topic.bootstrap_servers is None:
        deployment = KafkaSettings.reaching(config, environ)
        return replace(deployment, properties={**deployment.properties, **own})
    return KafkaSettings(bootstrap=topic.bootstrap_servers, properties=own)
