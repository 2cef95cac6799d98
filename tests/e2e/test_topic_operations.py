"""A topic's pipeline as its operator sees and moves it: lag, a rewind, what retention took, a second one over REST."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from services.cli.runtime.running import RunningViaduck
from tests.e2e.test_topics_up import WITHIN_S, TopicDeployment
from tests.e2e.topics import Topic
from tests.servers.kafka import Kafka


@pytest.fixture
def topic(kafka: Kafka) -> Topic:
    return Topic(kafka, 3)


class Operator:
    """Asks the control of a deployment over REST."""

    def __init__(self, viaduck: RunningViaduck, deployment: TopicDeployment) -> None:
        self._viaduck, self._deployment = viaduck, deployment
        self._http = httpx.Client(base_url=f"{viaduck.url}/v1/pipelines", timeout=30.0)

    def close(self) -> None:
        self._http.close()

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        answer = self._http.request(method, path, json=body)
        assert answer.is_success, answer.text
        return answer.json()

    def do(self, path: str, body: Any = None) -> None:
        """Something that takes longer than a request, to its end."""
        begun = self.ask("POST", f"clicks/destinations/clicks{path}", body)
        place = f"clicks/operations/{begun['id']}"
        self._viaduck.wait_until(path, lambda: self.ask("GET", place)["state"] == "succeeded", WITHIN_S)

    def level(self) -> dict[str, Any]:
        """What is said of the topic once nothing is behind."""
        newest = self._deployment.wait_until_landed(self._viaduck)
        self._viaduck.wait_until(f"no lag before {newest.text}", lambda: self.is_level("clicks"), WITHIN_S)
        found: dict[str, Any] = self.ask("GET", "clicks/destinations/clicks")["topic"]
        return found

    def is_level(self, name: str) -> bool:
        """Whether the destination of a pipeline, both of one name, is there and lacks no record."""
        answer = self._http.get(f"{name}/destinations/{name}")
        return answer.is_success and (answer.json()["topic"] or {}).get("lag_records") == 0


@pytest.mark.timeout(600)
def test_an_operator_sees_the_lag_rewinds_skips_what_is_gone_and_puts_another_pipeline(
    topic: Topic, tmp_path: Path
) -> None:
    topic.send(*({"id": number} for number in range(10)))
    topic.send({"id": 10}, partition=1)
    deployment = TopicDeployment(tmp_path, topic, on_gap="skip")
    with deployment.run() as viaduck, closing(Operator(viaduck, deployment)) as operator:
        partitions = operator.level()["partitions"]
        assert [(each["head"], each["position"], each["lag_seconds"]) for each in partitions] == [
            (10, 10, 0.0), (1, 1, 0.0),
        ]  # fmt: skip

        operator.do(":rewind", {"to": {"0": 4}})
        operator.level()
        assert deployment.findings() == []

        operator.ask("POST", "clicks/destinations/clicks:pause")
        topic.send(*({"id": number} for number in range(20, 30)))
        topic.forget_before(p0=13)
        operator.ask("POST", "clicks/destinations/clicks:resume")
        operator.level()
        trail = operator.ask("GET", "clicks/audit?destination=clicks")["items"]
        (skipped,) = (each["changes"] for each in trail if each["deed"] == "records skipped")
        assert (skipped["records"][1], skipped["offsets"][1]) == (3, {"partition 0": "10 to 12"})
        counted = httpx.get(f"{viaduck.url}/metrics", timeout=30.0).text
        assert 'viaduck_topic_records_total{outcome="skipped",pipeline="clicks"} 3.0' in counted
        assert 'viaduck_commits_total{path="direct",pipeline="clicks",reason=""}' in counted

        operator.ask("PUT", "second", {
            "source": {"kind": "kafka", "topic": topic.name},
            "routing": {},
            "flush": {"seconds": 0.2},
            "destinations": [{"id": "second", "catalog": f"sqlite:{tmp_path}/second.sqlite",
                              "data_path": f"{tmp_path}/second", "table": "clicks"}],
        })  # fmt: skip
        viaduck.wait_until("the pipeline over REST to land the topic", lambda: operator.is_level("second"), WITHIN_S)
        assert operator.ask("GET", "second/destinations/second")["rows_applied"] == 8
    proof = deployment.verdict(0)
    assert (proof["result"], proof["rows"]) == ("equal", 18)
