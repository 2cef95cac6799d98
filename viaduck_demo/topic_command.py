"""``viaduck demo --kind kafka``: a million events of real flights become one exact table, from a topic."""

from __future__ import annotations

import sys
import time
import uuid
from contextlib import closing
from datetime import datetime
from pathlib import Path

from rich.console import Console

from services.cli.runtime.interruptible import Interruption, interruptible
from services.cli.runtime.ports import free_port
from services.cli.runtime.running import RunningViaduck, run_to_end
from shared.contracts.errors import DependencyError
from shared.lake.connection.engine import connect
from viaduck_demo.flight_events import FlightTopic, events
from viaduck_demo.folder import PIPELINE, DemoFolder

STAGE_WITHIN_S = 300.0
REFRESH_S = 0.5

HINT = "start a broker, such as `docker run -p 9092:9092 apache/kafka:4.3.1`, or name yours with --bootstrap-servers"

CONFIG = """\
# A topic of flight events, one table of them. Written by `viaduck demo --kind kafka`; try `viaduck up -c` on it.
pipeline: "{pipeline}"
source:
  kind: "kafka"
  topic: "{topic}"
  columns:
    - {{name: "flight_id", path: "$.flight_id", type: "BIGINT", required: true}}
    - {{name: "flight_date", path: "$.flight_date", type: "DATE"}}
    - {{name: "scheduled_hour", path: "$.scheduled_hour", type: "TIMESTAMPTZ"}}
routing: {{}}
flush: {{rows: 250000, seconds: 2}}
kafka: {{bootstrap_servers: "{bootstrap}", topic_prefix: "{topic}-viaduck"}}
poll: {{interval_seconds: 0.5}}
server: {{host: "127.0.0.1", port: {port}}}
state_dir: ".viaduck"
destinations:
  - id: "flights"
    catalog: "sqlite:flights.sqlite"
    data_path: "flights/"
    table: "flights"
"""


def main(folder: Path = Path("viaduck-demo"), bootstrap: str = "localhost:9092", records: int | None = None) -> int:
    """Play in ``folder`` with a broker, whose new topic stays. Returns the exit code.

    ``records``: at most so many. Raises ``ConfigError`` for a folder that is not the demo's and ``DependencyError``
    where the broker or Viaduck does not run.
    """
    console, demo = Console(), DemoFolder(folder)
    try:
        topic = FlightTopic(bootstrap, f"flights-{uuid.uuid4().hex[:8]}")
    except DependencyError as error:
        raise DependencyError("kafka", error.message, HINT) from None

    def perform(_: Interruption) -> int:
        with demo.claimed() as made_at:
            if made_at is not None:
                console.print(f"Replacing the demo of {datetime.fromtimestamp(made_at):%Y-%m-%d %H:%M} in {demo.root}")
            return TopicPerformance(demo, console, topic, bootstrap, records).run()

    code = interruptible(perform)
    if code > 128:
        console.print(f"Interrupted; everything has ended. What was there stays in {demo.root}")
    return code


class TopicPerformance:
    """One run of the demo, from an empty folder to the last line on the screen."""

    def __init__(
        self, folder: DemoFolder, console: Console, topic: FlightTopic, bootstrap: str, records: int | None
    ) -> None:
        self._folder = folder
        self._console = console
        self._topic = topic
        self._bootstrap = bootstrap
        self._records = records
        self._port = free_port()
        self._began_s = time.monotonic()

    def run(self) -> int:
        self._topic.create()
        self._folder.config.write_text(
            CONFIG.format(pipeline=PIPELINE, topic=self._topic.name, bootstrap=self._bootstrap, port=self._port)
        )
        url = f"http://127.0.0.1:{self._port}"
        self._say(f"Sending the flights of 2013, event by event, to the topic {self._topic.name}; live page: {url}")
        with RunningViaduck(self._folder.config, url, PIPELINE, self._folder.log) as viaduck:
            with closing(connect()) as con:
                sent = self._topic.send(events(con), self._records)
            self._say(f"{sent:,} records are on the topic after {self._seconds:.0f} s")
            self._await_landed(viaduck, sent)
        self._say(f"{sent:,} records have landed after {self._seconds:.0f} s")
        return self._conclude(sent)

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self._began_s

    def _await_landed(self, viaduck: RunningViaduck, sent: int) -> None:
        def have_landed() -> bool:
            return self._landed(viaduck) >= sent

        viaduck.wait_until(f"{sent:,} records to land", have_landed, STAGE_WITHIN_S, REFRESH_S)

    def _landed(self, viaduck: RunningViaduck) -> int:
        return max((each["known_through"] or 0 for each in viaduck.destinations()), default=0)

    def _conclude(self, sent: int) -> int:
        """Prove it, from topic and lake alone: Viaduck has ended by now."""
        self._say("Viaduck has ended. Proving that the table holds each record of the topic once:")
        different = run_to_end([sys.executable, "-m", "services.cli.main", "verify", "-c", str(self._folder.config)])
        if different:
            self._say(f"The table is not exact; the log is in {self._folder.log}")
            return different
        self._say(f"\nThe table holds exactly the {sent:,} events; {self._seconds:.0f} s in all.")
        commands = ("check", "up", "verify")
        self._say("\nTry next:", *(f"  viaduck {command} -c {self._folder.config}" for command in commands))
        self._say(
            f"\nThe broker keeps the topics {self._topic.name} and {self._topic.name}-viaduck.*; delete them there."
        )
        return 0

    def _say(self, *lines: str) -> None:
        for line in lines:
            self._console.print(line, highlight=False, soft_wrap=True, markup=False)
