"""Ten thousand tenants come and go, each with a lake of its own: an applier keeps no more of them than its bounds."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.applier import pipeline_consumer, spark_jobs
from services.applier.known_positions import KnownPositions
from shared.contracts.messages import ItemKind, LakeRef
from tests.fast.applier.consumers import item
from tests.fast.applier.driven_consumer import PIPELINE, Replayed, changes, probe
from tests.fast.growth import sizes

LIVES, AT_ONCE, MOST = 10_000, 100, 100
TOPIC = (".directory._known._held",)
"""Holds what its topic holds: of a tenant that was removed the message that says so, or an older one would count."""

pytestmark = pytest.mark.slow


@pytest.fixture
def consumer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Replayed:
    monkeypatch.setattr(pipeline_consumer, "KnownPositions", lambda: KnownPositions(MOST, MOST))
    monkeypatch.setattr(spark_jobs, "MOST_HOMES", MOST)
    return Replayed(tmp_path)


def lives(consumer: Replayed, first: int) -> None:
    """Of tenants that are probed, seeded, get rows, fail, and are removed while an item of theirs is on its way."""
    names = [f"life-{number}" for number in range(first, first + AT_ONCE)]
    for name in names:
        consumer.wants(name, 1, lake=LakeRef(catalog=f"sqlite:/{name}.sqlite"))
    seeds = [item(PIPELINE, name, 1, item=f"seed {name}", kind=ItemKind.SEED, rows=10_000) for name in names]
    for items in ([probe(name, 1) for name in names], seeds, [changes(name, 1, 2, rows=10_000) for name in names]):
        consumer.sends(*items)
        consumer.works_off()
    consumer.lakes.broken |= set(names)
    consumer.sends(*[changes(name, 2, 3) for name in names])
    consumer.works_off()
    for name in names:
        consumer.say(name, removed=True)
        consumer.consumer._metrics.forget(name)  # as the service does with that message
    consumer.sends(*[changes(name, 3, 4) for name in names])
    consumer.works_off()
    consumer.sent.answers.clear()


def test_ten_thousand_lives_leave_nothing_but_what_has_a_bound(consumer: Replayed) -> None:
    for first in range(0, LIVES, AT_ONCE):
        lives(consumer, first)
    held = {path: size for path, size in sizes(consumer.consumer).items() if not path.endswith(TOPIC)}
    assert {path for path in held if path.endswith(("_homes", "_known", "_answered", "_failing", "_newest"))}
    assert {path: size for path, size in held.items() if size > MOST} == {}
    assert consumer.in_hand == 0
    assert "life" not in consumer.consumer._metrics.exposition()
