"""Old work items sent again by the ten thousand beside a stream of small commits: how old a change is when it arrives.

Each copy has a name and an earlier time of its own, as from a longer history than a benchmark can afford: one that an
applier has answered already would cost it even less.
"""

from __future__ import annotations

import random
import secrets
import statistics
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import psutil

from bench.freshness import Stream, ages_of, create, percentile_of, wait_seeded, write_stream
from bench.lakes import PostgresLakes
from bench.processes import cpu_seconds, pid_of, since
from bench.stand import standing
from bench.viaduck import Options, running_viaduck, wait_caught_up, wait_settled
from services.cli.runtime.running import RunningViaduck
from shared.contracts.messages import WorkItem
from shared.kafka.publisher import Publisher
from shared.kafka.scan import Scan
from shared.kafka.settings import BOOTSTRAP, KafkaSettings
from shared.kafka.signing import Signing
from shared.kafka.topics import Topics
from tests.servers.kafka import Kafka

EARLIER = timedelta(hours=1)
KEY_FILE = "signing.key"
SEND_WITHIN_S = 30.0


@dataclass(frozen=True)
class Replay:
    """``items`` old ones are sent again within the ``stream``'s time; ``warm_s`` of the same stream make them first."""

    stream: Stream
    items: int
    warm_s: float


@dataclass(frozen=True)
class Replayed:
    """Seconds from a source commit until it is in its tenant's lake, while old items come again."""

    broker: str
    replay: Replay
    distinct: int
    """Items of which there were copies."""
    sent: int
    sending_s: float
    pairs: int
    p50_s: float
    p99_s: float
    longest_s: float
    p99_alone_s: float
    """Of the changes that came before, beside nothing."""
    worked_off_s: float
    """From the last commit until everybody had it."""
    cpu_seconds: dict[str, float]
    """Of the services meanwhile, by kind of process."""
    compared: int


def measure(lakes: PostgresLakes, folder: Path, replay: Replay, broker: str) -> Replayed:
    """``broker``: ``embedded`` or ``kafka``."""
    names = [f"tenant{number:03d}" for number in range(replay.stream.tenants)]
    signing = _signing(folder)
    with standing(lakes, names) as stand, _broker(broker, folder) as (options, there):
        create(stand.con, names)
        with running_viaduck(folder, stand.source, stand.mirror, options) as viaduck:
            wait_seeded(viaduck.destinations, stand.mirror)
            warm = Stream(replay.stream.tenants, replay.stream.per_second, replay.warm_s)
            alone = write_stream(stand.con, warm, names)
            wait_settled(viaduck, stand.head())
            settings = KafkaSettings(there or _embedded(viaduck), embedded=there is None, signing=signing)
            old = list(_items(settings))
            before = cpu_seconds(viaduck.pid)
            with _sending(settings, old, replay) as told:
                touched = write_stream(stand.con, replay.stream, names, first=1_000_000)
            written = time.monotonic()
            wait_caught_up(viaduck, stand.head())
            worked_off_s = time.monotonic() - written
            spent = since(before, cpu_seconds(viaduck.pid))
        ages = sorted(ages_of(lakes, stand.source, stand.mirror, touched))
        ages_alone = sorted(ages_of(lakes, stand.source, stand.mirror, alone))
        compared = stand.require_equal()
    return Replayed(
        broker, replay, len(old), int(told["sent"]), round(told["seconds"], 1), len(ages),
        round(statistics.median(ages), 3), percentile_of(ages, 99), round(ages[-1], 3),
        percentile_of(ages_alone, 99), round(worked_off_s, 2), spent, compared,
    )  # fmt: skip


@contextmanager
def _sending(settings: KafkaSettings, old: Sequence[WorkItem], replay: Replay) -> Iterator[Mapping[str, float]]:
    """Copies go out evenly on a thread of their own, while the block runs and until all are sent."""
    told: dict[str, float] = {}

    def send() -> None:
        told.update(_send(settings, old, replay))

    sender = threading.Thread(target=send, name="replay")
    sender.start()
    try:
        yield told
    finally:
        sender.join()
    if told.get("sent") != replay.items:
        raise AssertionError(f"of {replay.items} copies {told.get('sent', 0)} were delivered")


def _send(settings: KafkaSettings, old: Sequence[WorkItem], replay: Replay) -> dict[str, float]:
    rng, topic, began = random.Random(7), Topics(settings.prefix).work, time.monotonic()
    delivered, publisher = [0], Publisher(settings, "bench-replay")

    def report(error: Exception | None) -> None:
        delivered[0] += error is None

    for number in range(replay.items):
        due = began + number * replay.stream.seconds / replay.items
        if (wait_s := due - time.monotonic()) > 0.01:
            time.sleep(wait_s)
        one = rng.choice(old)
        copy = one.model_copy(update={"item": f"{number:032x}", "published_at": one.published_at - EARLIER})
        publisher.send(topic, copy.key, copy.to_bytes(), None, report)
    publisher.flush(SEND_WITHIN_S)
    seconds = time.monotonic() - began
    publisher.close()
    return {"sent": delivered[0], "seconds": seconds}


def _items(settings: KafkaSettings) -> Iterator[WorkItem]:
    """Every item that the work topic holds."""
    scan = Scan(settings, "bench-scan")
    for record in scan.all(Topics(settings.prefix).work):
        yield WorkItem.from_bytes(record.value or b"")


def _signing(folder: Path) -> Signing:
    key = secrets.token_hex(32)
    (folder / KEY_FILE).write_text(key)
    (folder / KEY_FILE).chmod(0o600)
    return Signing(key.encode())


@contextmanager
def _broker(broker: str, folder: Path) -> Iterator[tuple[Options, str | None]]:
    """What the file says of it, and where it listens; None where ``viaduck up`` chooses that."""
    key = {"signing_key_file": str(folder / KEY_FILE)}
    if broker == "embedded":
        yield Options(sections={"kafka": key}), None
        return
    with Kafka() as kafka:
        there = {"bootstrap_servers": kafka.bootstrap, "replication_factor": 1}
        yield Options(sections={"kafka": {**key, **there}}), kafka.bootstrap


def _embedded(viaduck: RunningViaduck) -> str:
    """Where the embedded broker listens, as the services are told."""
    return psutil.Process(pid_of(viaduck.pid, "reader")).environ()[BOOTSTRAP]
