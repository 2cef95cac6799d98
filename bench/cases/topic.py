"""A Kafka topic that lands as one table: how fast, how late, and what it costs while nothing comes."""

from __future__ import annotations

import time
from statistics import median

from bench.freshness import percentile_of
from bench.outcome import LIMIT, VIADUCK, Case, Check, Measured, at_most, nothing, ratio
from bench.processes import Peaks, frozen
from bench.setting import Setting
from bench.topic import LIST_OFFSETS, PlainRun, RequestCounter, TopicSite, topic_site
from bench.viaduck import polls
from services.cli.runtime.running import RunningViaduck
from tests.servers.kafka import Kafka
from viaduck_demo.topic_command import main as demo

OF_PLAIN_S = 0.5
"""Of the plain loop's seconds: twice its records a second."""

OF_PLAIN_MEMORY, WORKER_MB = 1.2, 512.0
PER_SECOND, P50_S, P99_S = 200.0, 1.5, 3.0
FLUSH_S = 1.0
DEMO_S = 120.0
SETTLED_S = 8.0
"""After which nothing of what was under way is left, and the offsets of the consumer group are written, too."""


def landing(setting: Setting) -> Measured:
    """The records are all on the topic when the reader looks; the plain loop lands the same ones afterwards."""
    records, warm = setting.sized(quick=(100_000, 20_000), full=(1_000_000, 100_000))
    ours: list[float] = []
    with topic_site(setting) as site:
        with site.viaduck(seconds=FLUSH_S) as viaduck, Peaks(viaduck.pid) as peaks:
            site.send(warm)
            site.wait_landed(viaduck)
            site.plain(warm)
            theirs = [_both(site, viaduck, records, ours) for _ in range(setting.runs)]
        compared = [site.require_exact(lake) for lake in (site.lake, site.plain_lake)]
    beside = {VIADUCK: ours, LIMIT: [each.seconds for each in theirs]}
    checks = [
        ratio(f"seconds for {records:,} records", beside, OF_PLAIN_S),
        *memory_checks(peaks.mb, median(each.peak_mb for each in theirs)),
    ]
    figures = {
        "beside": beside,
        "records": records,
        "records_per_second": {name: [round(records / each) for each in runs] for name, runs in beside.items()},
        "peaks_mb": peaks.mb,
        "plain_peak_mb": [each.peak_mb for each in theirs],
        "plain_json": theirs[0].json,
        "compared": compared,
    }
    return Measured(checks, figures)


def memory_checks(peaks_mb: dict[str, float], plain_mb: float) -> list[Check]:
    """``peaks_mb``: the largest process of each kind. An applier without its JVM is its driver and its worker."""
    applier_mb = peaks_mb["applier"] + peaks_mb["worker"]
    return [
        at_most(
            "applier and worker without the JVM, beside the plain loop", applier_mb / plain_mb, OF_PLAIN_MEMORY, "x"
        ),
        at_most("largest worker", peaks_mb["worker"], WORKER_MB, "MB", 0),
    ]


def _both(site: TopicSite, viaduck: RunningViaduck, records: int, ours: list[float]) -> PlainRun:
    """One run of each on the same records; Viaduck's seconds go to ``ours``."""
    with frozen(viaduck.pid, "reader"):
        site.send(records)
    began = time.time()
    site.wait_landed(viaduck)
    ours.append(round(site.lakes.last_commit(site.lake) - began, 3))
    return site.plain(records)


def trickle(setting: Setting) -> Measured:
    seconds, warm = setting.sized(quick=10.0, full=60.0), 2_000
    with topic_site(setting) as site:
        with site.viaduck(seconds=FLUSH_S) as viaduck:
            site.send(warm)
            site.wait_landed(viaduck)
            site.trickle(PER_SECOND, seconds)
            site.wait_landed(viaduck)
        ages = site.ages(warm)
        compared = site.require_exact(site.lake)
    p50_s, p99_s = round(median(ages), 3), percentile_of(ages, 99)
    checks = [at_most("age at arrival, p50", p50_s, P50_S, "s"), at_most("age at arrival, p99", p99_s, P99_S, "s")]
    return Measured(checks, {"records": len(ages), "p50_s": p50_s, "p99_s": p99_s, "longest_s": round(ages[-1], 3),
                             "compared": compared})  # fmt: skip


def idle(setting: Setting) -> Measured:
    seconds, counter = setting.sized(quick=10.0, full=60.0), RequestCounter()
    with topic_site(setting) as site:
        assert site.kafka.proxy is not None, "the source is reached by the second way in"
        site.kafka.proxy.heard = counter
        with site.viaduck(seconds=FLUSH_S) as viaduck:
            site.send(1_000)
            site.wait_landed(viaduck)
            time.sleep(SETTLED_S)
            snapshots, polled, asked = site.snapshots(), polls(viaduck), dict(counter.by_kind)
            time.sleep(seconds)
            grown, made = site.snapshots() - snapshots, polls(viaduck) - polled
            requests = {kind: count - asked.get(kind, 0) for kind, count in counter.by_kind.items()}
        site.require_exact(site.lake)
    assert made > 0, "the reader did not poll"
    assert requests.get(LIST_OFFSETS), "no request was counted"
    # Once a minute the reader asks for the topic's identity and oldest records, too: three requests more.
    each = round(sum(requests.values()) / made, 1)
    checks = [
        nothing("snapshots while no record comes", grown),
        at_most("requests to the broker, each poll", each, 1.0),
    ]
    return Measured(checks, {"seconds": seconds, "polls": made, "requests_by_kind": requests})


def demonstrated(setting: Setting) -> Measured:
    """The whole of ``viaduck demo --kind kafka``, its proof included; what it says goes to the terminal."""
    events = setting.sized(quick=20_000, full=None)
    with Kafka() as kafka:
        began = time.monotonic()
        code = demo(setting.folder / "demo", kafka.bootstrap, events)
        seconds = round(time.monotonic() - began, 1)
    checks = [
        nothing("exit code, which is 1 where the table is not exact", code),
        at_most("until a year of real flights has landed and is proven", seconds, DEMO_S, "s"),
    ]
    return Measured(checks, {"seconds": seconds, "most_events": events})


CASES = (
    Case("topic", "1,000,000 JSON records of 380 bytes, 8 partitions (quick: 100,000), beside a plain loop", landing),
    Case("topic-trickle", "200 records a second for a minute, flushed every second (quick: 10 s)", trickle),
    Case("topic-idle", "a topic to which nothing is sent for a minute (quick: 10 s)", idle),
    Case("topic-demo", "viaduck demo --kind kafka: a million events of flights (quick: 20,000)", demonstrated),
)
