"""The Locust file of ``python -m bench.control``, in a process of its own: gevent patches whatever it is imported into.

Readers of one status each, readers of lists, and watchers of the page's events, who write down what they saw.
The plan is a file, because nothing of ours may be imported here.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from locust import FastHttpUser, HttpUser, User, constant_throughput, events, task

PLAN: dict[str, Any] = json.loads(Path(os.environ["VIADUCK_BENCH_PLAN"]).read_text())
STATUSES_PER_READER_S = 10
NEXT_UPDATE_AFTER_S = 0.3
"""Events that come closer together than that are one update of the page."""

updates: list[int] = []
"""Bytes of each."""
watching = {"now": 0, "most": 0}


class Patient:
    """They do not all begin at one moment, and so never fall into step."""

    def on_start(self) -> None:
        time.sleep(random.random())


class StatusReader(Patient, FastHttpUser):
    fixed_count = PLAN["statuses_per_s"] // STATUSES_PER_READER_S
    wait_time = constant_throughput(STATUSES_PER_READER_S)

    @task
    def read(self) -> None:
        name = PLAN["names"][random.randrange(len(PLAN["names"]))]
        self.client.get(f"{PLAN['destinations']}/{name}/status", name="status")


class ListReader(Patient, HttpUser):
    """The fast client reads 4 KB at a time, and would measure its own turns on a busy machine."""

    fixed_count = PLAN["lists_per_s"]
    wait_time = constant_throughput(1)

    @task
    def read(self) -> None:
        name, path = random.choice(PLAN["lists"])
        self.client.get(path, name=name)


class Watcher(User):
    """A browser that looks on. Locust itself counts only what it opens."""

    fixed_count = PLAN["watchers"]

    @task
    def watch(self) -> None:
        address = urlsplit(str(self.host))
        connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=60)
        began = time.perf_counter()
        connection.request("GET", random.choice(PLAN["events"]), headers={"Accept": "text/event-stream"})
        answer = connection.getresponse()
        self.environment.events.request.fire(
            request_type="GET", name="events, opened", response_length=0,
            response_time=1_000 * (time.perf_counter() - began),
            exception=None if answer.status == 200 else RuntimeError(f"status {answer.status}"),
        )  # fmt: skip
        watching["now"] += 1
        watching["most"] = max(watching.values())
        try:
            look_on(answer)
        finally:
            watching["now"] -= 1
            connection.close()


def look_on(answer: http.client.HTTPResponse) -> None:
    """Until the server ends it, or Locust ends us."""
    size, last = 0, time.monotonic()
    while came := answer.read1(1 << 18):
        now = time.monotonic()
        if now - last > NEXT_UPDATE_AFTER_S and size:
            updates.append(size)
            size = 0
        size, last = size + len(came), now


@events.quitting.add_listener
def tell(**_: Any) -> None:
    Path(PLAN["watched"]).write_text(json.dumps({"watchers": watching["most"], "updates": updates}))
