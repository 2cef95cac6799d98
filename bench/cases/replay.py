"""What old work items that come again cost the living, on either kind of broker."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial

from bench.freshness import Stream
from bench.outcome import Case, Measured, at_most
from bench.replayed import Replay, measure
from bench.setting import Setting

P99_S = 3.0
WHAT = "100 tenants, 5 commits a second, beside 100,000 old items sent again in a minute (quick: 30, 33,000 in 20 s),"


def replayed(setting: Setting, broker: str) -> Measured:
    replay = setting.sized(
        quick=Replay(Stream(30, 5.0, 20.0), 33_000, 10.0), full=Replay(Stream(100, 5.0, 60.0), 100_000, 30.0)
    )
    found = measure(setting.on_postgres, setting.folder, replay, broker)
    what = f"age at arrival, p99, beside {found.sent:,} old items in {found.sending_s:.0f} s ({broker} broker)"
    return Measured([at_most(what, found.p99_s, P99_S, "s")], asdict(found))


CASES = (
    Case("replay", f"{WHAT} embedded broker", partial(replayed, broker="embedded")),
    Case("replay-kafka", f"{WHAT} real Kafka", partial(replayed, broker="kafka")),
)
