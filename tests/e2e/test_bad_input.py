"""Bad input reaches running services: it is told with a reason, harms its own destination at most, loses nothing.

Garbage and forgeries are on the broker; two tenants can't be reached, or written."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from services.cli.runtime.running import RunningViaduck
from shared.kafka.publisher import Publisher
from shared.kafka.settings import KafkaSettings
from shared.kafka.topics import Topics
from tests.e2e.deployment import Deployment
from tests.e2e.phases import phase
from tests.e2e.test_forged import harmful, letters, published, send, victim
from tests.torture.forged import FORGERIES

FORGED = ("unsigned", "of another key holder")
BAD = ("unwritable", "unreachable")
GARBAGE = (b"", b"\x00\xff", b"not json", b"[]", b"{}", b'{"v": 99}', b'{"record": "frontier"}', b"x" * 200_000)


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    not_a_folder = tmp_path / "a file"
    not_a_folder.write_text("in the way")
    beside = [
        {"id": "unreachable", "routing_value": "991", "catalog": "postgres:dbname=x host=127.0.0.1 port=1 user=x"},
        {"id": "unwritable", "routing_value": "992", "catalog": f"sqlite:{tmp_path}/unwritable.sqlite",
         "data_path": str(not_a_folder / "data")},
    ]  # fmt: skip
    made = Deployment(tmp_path, 21, beside=beside)
    yield made
    made.close()


def status(viaduck: RunningViaduck, name: str) -> dict[str, object]:
    return next((each for each in viaduck.destinations() if each["id"] == name), {})


@pytest.mark.timeout(600)
def test_forgeries_garbage_bad_tenants_and_a_late_one_leave_the_others_exact(
    deployment: Deployment, tmp_path: Path
) -> None:
    late = deployment.destinations.pop()
    deployment.declare(deployment.destinations)
    stolen = tmp_path / "stolen.sqlite"
    with deployment.run() as viaduck:
        viaduck.wait_until("readiness", viaduck.ready, 180)
        with phase("who has no key gets dead letters and nobody's rows"):
            deployment.wait_until_exact(viaduck)
            _forge(deployment, viaduck, stolen)
        with phase("garbage comes"):
            _send_garbage((deployment.folder / "state" / "broker.address").read_text())
            for _ in range(3):
                deployment.step()
            deployment.wait_until_exact(viaduck)
        with phase("two tenants are bad"):
            viaduck.wait_until(
                "the unwritable one to park", lambda: status(viaduck, "unwritable").get("state") == "parked", 60
            )
            viaduck.wait_until(
                "the unreachable one to fail", lambda: bool(status(viaduck, "unreachable").get("error")), 60
            )
            told = {name: status(viaduck, name)["error"] for name in BAD}
            assert [told[name]["type"] for name in told] == ["storage_refused", "destination_unreachable"]  # type: ignore[index]
            assert all(told[name]["hint"] for name in told)  # type: ignore[index]
        with phase("another one comes late"):
            deployment.destinations.append(late)
            deployment.declare(deployment.destinations)
            psutil.Process(viaduck.pid).send_signal(signal.SIGHUP)
            deployment.step()
            deployment.wait_until_exact(viaduck)
            assert viaduck.ready(), "a bad tenant makes nobody unready"
        letters = [line for line in viaduck.metrics().splitlines() if line.startswith("viaduck_dead_letters_total")]
    assert deployment.findings() == []
    assert not stolen.exists(), "no row went there"
    assert {topic for topic in ("destinations", "work", "progress") if any(topic in line for line in letters)} == {
        "destinations", "work", "progress",
    }  # fmt: skip


def _forge(deployment: Deployment, viaduck: RunningViaduck, stolen: Path) -> None:
    """Messages without a signature of the deployment's own."""
    messages = harmful(published(deployment), stolen)
    for name in FORGED:
        send(deployment, messages, FORGERIES[name])
    wanted = {(topic, why) for topic, _, _ in messages for why in ("it has no signature", "its signature is not")}
    viaduck.wait_until(
        "dead letters with the reason",
        lambda: wanted <= {(each["topic"], why) for each in letters(viaduck) for _, why in wanted
                           if why in each["reason"]},
        60,
    )  # fmt: skip
    for _ in range(3):
        deployment.step()
    deployment.wait_until_exact(viaduck)
    statuses = viaduck.destinations()
    assert {each["id"] for each in statuses} == {*BAD, *(each.id for each in deployment.destinations)}, "no ghost"
    others = [each for each in statuses if each["id"] not in BAD]
    assert {each["state"] for each in others} == {"running"}
    assert all(each["error"] is None for each in others)
    assert all(each["lag_seconds"] is not None for each in others), "the ghost's page froze nobody's lag"
    assert victim(viaduck)["generation"] == 1


def _send_garbage(bootstrap: str) -> None:
    publisher = Publisher(KafkaSettings(bootstrap, embedded=True), "stranger")
    topics = Topics()
    for topic in (topics.destinations, topics.work, topics.progress):
        for number, garbage in enumerate(GARBAGE):
            publisher.send(topic, f"events/garbage-{number}", garbage)
    assert publisher.flush(20) == 0
    publisher.close()
