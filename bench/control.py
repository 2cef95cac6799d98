"""``python -m bench.control``: control with 5,000 destinations, under load, beside what it is meant to do.

The real process on the embedded broker, while an applier and a reader keep talking: 200 reads of a status a second,
lists as a page and over REST, 100 browsers that look on, a first paint in a real browser, and memory. Locust makes the
load; it is in the dependency group ``bench``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.control_site import D, Site, busy_control, kinds_of_lists, name_of
from bench.processes import cpu_seconds, memory_mb
from bench.results import RESULTS, machine
from tests.fast.control.browser import CHROMIUM, chromium

STATUSES_PER_S, LISTS_PER_S, WATCHERS = 200, 10, 100
WATCHED = ("/events", "/events?sort=lag", "/events?search=tenant-01", "/events?state=running")
START_S = 5.0
"""In which all users come; what they see then does not count."""

P99_MS, MEMORY_MB, PAINT_MS, UPDATE_BYTES = 200.0, 500.0, 1_000.0, 50_000
PAINTS = 5


@dataclass(frozen=True)
class Requests:
    """All requests of one kind."""

    count: int
    failed: int
    per_second: float
    p50_ms: float
    p99_ms: float


NONE = Requests(0, 0, 0.0, float("inf"), float("inf"))
"""Nobody was answered."""


@dataclass
class Figures:
    """``paint_ms``: first contentful paints in a fresh browser, before the load."""

    destinations: int
    seconds: float
    requests: dict[str, Requests] = field(default_factory=dict)
    watchers: int = 0
    updates: int = 0
    largest_update_bytes: int = 0
    memory_mb: float = 0.0
    cpu_share: float = 0.0
    paint_ms: list[float] = field(default_factory=list)

    def checks(self) -> list[tuple[str, str, str, bool]]:
        """(what, target, found, whether it is met)."""
        lists = [(name, self.requests[name]) for name, _ in kinds_of_lists()]
        rate = self.requests["status"].per_second
        found = [
            *((f"{name}, p99", f"< {P99_MS:.0f} ms", f"{each.p99_ms:.0f} ms", each.p99_ms < P99_MS)
              for name, each in [*lists, ("status", self.requests["status"])]),
            ("status reads", f"{STATUSES_PER_S}/s", f"{rate:.0f}/s", rate > 0.97 * STATUSES_PER_S),
            ("failed requests", "0", str(self.failed), self.failed == 0),
            ("watchers at once", str(WATCHERS), str(self.watchers), self.watchers == WATCHERS),
            ("largest update", f"< {UPDATE_BYTES:,} B", f"{self.largest_update_bytes:,} B",
             0 < self.largest_update_bytes < UPDATE_BYTES),
            ("memory of control", f"< {MEMORY_MB:.0f} MB", f"{self.memory_mb:.0f} MB", self.memory_mb < MEMORY_MB),
        ]  # fmt: skip
        if self.paint_ms:
            paint = median(self.paint_ms)
            found.append(("first paint", f"< {PAINT_MS:.0f} ms", f"{paint:.0f} ms", paint < PAINT_MS))
        return found

    @property
    def failed(self) -> int:
        return sum(each.failed for each in self.requests.values())


def main() -> int:
    asked = _arguments()
    console = Console() if sys.stdout.isatty() else Console(width=120)
    if find_spec("locust") is None:
        console.print("Locust is not installed; `make bench-control` does it")
        return 2
    figures = measure(asked.destinations, asked.seconds)
    console.print(_table(figures), _requests_table(figures))
    console.print(f"written to {_keep(figures)}")
    return 0 if all(met for *_, met in figures.checks()) else 1


def measure(destinations: int, seconds: float) -> Figures:
    figures = Figures(destinations, seconds)
    with tempfile.TemporaryDirectory(prefix="viaduck-control-") as home, busy_control(Path(home), destinations) as site:
        if CHROMIUM is not None:
            figures.paint_ms = _first_paints(site)
        spent = sum(cpu_seconds(site.pid).values())
        stats, watched = _load(site, Path(home), destinations, seconds)
        figures.cpu_share = (sum(cpu_seconds(site.pid).values()) - spent) / (seconds + START_S)
        figures.memory_mb = sum(memory_mb(site.pid).values())
    answered = {each["name"]: _requests(each, seconds) for each in stats}
    wanted = ["status", *(name for name, _ in kinds_of_lists())]
    figures.requests = {name: answered.get(name, NONE) for name in wanted}
    figures.watchers, figures.updates = watched["watchers"], len(watched["updates"])
    figures.largest_update_bytes = max(watched["updates"], default=0)
    return figures


def _first_paints(site: Site) -> list[float]:
    """Milliseconds from the navigation to the first content, nothing cached."""
    asked = "performance.getEntriesByName('first-contentful-paint').map(entry => entry.startTime)"
    found = []
    with chromium() as browser:
        for _ in range(PAINTS):
            page = browser.new_page(base_url=site.url)
            page.goto("/")
            page.wait_for_function(f"{asked}.length > 0")
            found.append(float(page.evaluate(asked)[0]))
            page.close()
    return found


def _load(site: Site, home: Path, destinations: int, seconds: float) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Locust's statistics, and what the watchers saw."""
    watched = home / "watched.json"
    plan = {
        "destinations": D, "names": [name_of(number) for number in range(destinations)], "lists": kinds_of_lists(),
        "events": WATCHED, "statuses_per_s": STATUSES_PER_S, "lists_per_s": LISTS_PER_S, "watchers": WATCHERS,
        "watched": str(watched),
    }  # fmt: skip
    users = STATUSES_PER_S // 10 + LISTS_PER_S + WATCHERS
    command = [
        sys.executable, "-m", "locust", "-f", str(Path(__file__).with_name("control_load.py")), "--headless",
        "--host", site.url, "--users", str(users), "--spawn-rate", str(users / START_S * 1.2), "--reset-stats",
        "--run-time", f"{seconds + START_S:.0f}s", "--stop-timeout", "1", "--json", "--loglevel", "WARNING",
        "--exit-code-on-error", "0",
    ]  # fmt: skip
    plan_file = home / "plan.json"
    plan_file.write_text(json.dumps(plan))
    environ = {**os.environ, "VIADUCK_BENCH_PLAN": str(plan_file)}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    return json.loads(done.stdout), json.loads(watched.read_text())


def _requests(stats: Mapping[str, Any], seconds: float) -> Requests:
    times = {float(time): int(count) for time, count in stats["response_times"].items()}
    lasted = stats["last_request_timestamp"] - stats["start_time"] or seconds
    count = int(stats["num_requests"])
    return Requests(
        count, int(stats["num_failures"]), round(count / lasted, 1), percentile(times, 0.5), percentile(times, 0.99)
    )


def percentile(times: Mapping[float, int], share: float) -> float:
    """``times``: how many requests took so long, in milliseconds."""
    left = share * sum(times.values())
    for time in sorted(times):
        left -= times[time]
        if left <= 0:
            return time
    return 0.0


def _table(figures: Figures) -> Table:
    table = Table(title=f"control with {figures.destinations:,} destinations, {figures.seconds:.0f} s")
    for name in ("what", "target", "found", ""):
        table.add_column(name, justify="left" if name == "what" else "right")
    for what, target, found, met in figures.checks():
        table.add_row(what, target, found, "met" if met else "MISSED")
    table.add_row("CPU of control", "", f"{figures.cpu_share:.0%} of a core", "")
    table.add_row("updates seen", "", f"{figures.updates:,}", "")
    return table


def _requests_table(figures: Figures) -> Table:
    table = Table(title="requests")
    for name in ("kind", "count", "failed", "per second", "p50 ms", "p99 ms"):
        table.add_column(name, justify="left" if name == "kind" else "right")
    for name, each in figures.requests.items():
        table.add_row(name, *map(str, (each.count, each.failed, each.per_second, each.p50_ms, each.p99_ms)))
    return table


def _keep(figures: Figures) -> Path:
    now = datetime.now(UTC)
    RESULTS.mkdir(exist_ok=True)
    file = RESULTS / f"control-{now:%Y%m%dT%H%M%S}.json"
    file.write_text(json.dumps({"at": now.isoformat(), "machine": machine(), "control": asdict(figures)}, indent=1))
    return file


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--destinations", type=int, default=5_000)
    parser.add_argument("--seconds", type=float, default=60.0, help="of load")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
