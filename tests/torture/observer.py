"""Somebody who looks at a site all the time, as its operators do, and remembers all that was shown."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import httpx
import psycopg
from prometheus_client.parser import text_string_to_metric_families

from services.reader.source.source_poller import LOOK_WITHIN_S
from tests.torture.fleet import Fleet, Member
from tests.torture.site import PIPELINE, Site
from tests.world.destination import Destination
from tests.world.holdings import Holdings
from tests.world.shown import Answer, Gauges, Held, Look, Past, Trouble, contradictions, lies

LOOK_EVERY_S = 1.0
ANSWERS_WITHIN_S = 5.0
ENDS_WITHIN_S = 60.0
POLLED_WITHIN_S = 1.0
"""A look at the source begins soon after it was due."""

CONTROL, READER = "control", "reader"
BROKER, SOURCE, REGISTRY = "the broker", "the source", "the registry"
UNREACHABLE = 3

NEWEST = (
    "SELECT commit_extra_info FROM ducklake_snapshot_changes WHERE author = 'viaduck'"
    " AND commit_extra_info NOT LIKE '%\"maintenance\"%' AND commit_extra_info NOT LIKE '%\"provision\"%'"
    " ORDER BY snapshot_id DESC LIMIT 1"
)
NO_LAKE = psycopg.errors.UndefinedTable


class Observer:
    """Looks on a thread of its own from ``start`` to ``stop``; ``lies`` judges what was seen since the last call."""

    def __init__(self, site: Site, fleet: Fleet, pipeline: str = PIPELINE) -> None:
        self._site, self._fleet, self._pipeline = site, fleet, pipeline
        self._past = Past({each.id: Holdings(each, site.source.truth) for each in site.destinations})
        self._looks: list[Look] = []
        self._troubles: list[Trouble] = []
        self._said: list[str] = []
        self._stopped = threading.Event()
        self._http = httpx.Client(base_url=f"http://127.0.0.1:{site.port}", timeout=ANSWERS_WITHIN_S)
        self._connections: dict[str, psycopg.Connection[Any]] = {}
        """To the catalogs that were reached last, on the observer's thread: another one for each look would be half of
        what looks cost, here and in the server."""
        self._thread = threading.Thread(target=self._run, name="observer", daemon=True)
        self.looks = 0
        """At which anything was shown."""

    def start(self) -> None:
        now_s = time.monotonic()
        self._past.made[self._site.source.truth.head] = now_s, now_s
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._http.close()

    @contextmanager
    def making(self) -> Iterator[None]:
        """The source changes meanwhile: its new snapshots are of this time."""
        before, began_s = self._site.source.truth.head, time.monotonic()
        yield
        done_s = time.monotonic()
        for snapshot in range(before + 1, self._site.source.truth.head + 1):
            self._past.made[snapshot] = began_s, done_s

    @contextmanager
    def silent(self, what: str) -> Iterator[None]:
        """Something that services need says nothing meanwhile, and they must not hide it."""
        known = [Trouble(f"{what} is silent", CONTROL, time.monotonic())]
        if what == SOURCE:  # control hears of it from its reader
            within_s = LOOK_WITHIN_S + POLLED_WITHIN_S
            known = [replace(known[0], shown_by=service, within_s=within_s) for service in (READER, CONTROL)]
        with self._during(known):
            yield

    @contextmanager
    def frozen(self, member: Member) -> Iterator[None]:
        """A service stands still: control says so of its reader; of appliers it knows only by their answers."""
        known = [Trouble(f"{member.name} stands still", CONTROL, time.monotonic())] if member.name == READER else []
        with self._during(known):
            yield

    def held(self, destination: Destination) -> Held | None:
        """What its lake says of itself now; None where it holds no life."""
        with self._site.connected(destination) as con:
            return _held(con)

    def ask_status(self, parked: Iterable[str] = (), *, reachable: bool = True, unusable: str | None = None) -> None:
        """Run ``viaduck status`` and hold its exit code against what it shows, and against the truth.

        ``unusable``: a pipeline that control does not serve. The destinations of the other one must be shown all the
        same, and of this one why.
        """
        command = [sys.executable, "-m", "services.cli.main", "status", "-c", str(self._site.file), "--json"]
        ended = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=ENDS_WITHIN_S, env=self._site.environ
        )
        if not reachable:
            if ended.returncode != UNREACHABLE:
                self._said.append(f"`viaduck status` ends with {ended.returncode}, and control can't answer")
            return
        if ended.returncode == UNREACHABLE:
            self._said.append(f"`viaduck status` can't ask a control that answers: {ended.stderr.strip()}")
            return
        shown = list(map(json.loads, ended.stdout.splitlines()))
        self._said += contradictions(ended.returncode, shown, parked, unusable=unusable is not None)
        if not shown or (unusable or "") not in ended.stderr:
            self._said.append(f"`viaduck status` shows {len(shown)} destinations, and says: {ended.stderr.strip()}")

    def lies(self) -> list[str]:
        """What was shown since the last call and is not true; each kind of lie once, with how often."""
        looks, self._looks = self._looks, []
        said, self._said = self._said, []
        found: dict[str, list[str]] = {}
        for look in looks:
            for lie in lies(look, self._past, self._troubles):
                found.setdefault(_kind(lie), []).append(lie)
        return said + [f"{each[0]} (and {len(each) - 1} times alike)" for each in found.values()]

    @contextmanager
    def _during(self, troubles: list[Trouble]) -> Iterator[None]:
        first = len(self._troubles)
        self._troubles += troubles
        try:
            yield
        finally:
            ended_s = time.monotonic()
            last = first + len(troubles)
            self._troubles[first:last] = [replace(each, ended_s=ended_s) for each in troubles]

    # -- on the observer's thread --------------------------------------------------------------------------------

    def _run(self) -> None:
        before: Mapping[str, Held | None] = self._held()
        while not self._stopped.wait(LOOK_EVERY_S):
            look = self._look(before)
            before = look.held
            self._looks.append(look)
            self.looks += look.statuses is not None
        for con in self._connections.values():
            con.close()

    def _look(self, before: Mapping[str, Held | None]) -> Look:
        asked_s = time.monotonic()
        found = self._json(f"/v1/pipelines/{self._pipeline}")
        statuses = self._json(f"/v1/pipelines/{self._pipeline}/destinations?limit=1000")
        gauges = self._gauges()
        ready = {CONTROL: self._ready("/readyz")}
        port = self._fleet.members[READER].port
        ready[READER] = self._ready(f"http://127.0.0.1:{port}/readyz")
        answered_s = time.monotonic()
        items = None if statuses is None else statuses["items"]
        return Look(asked_s, answered_s, items, found, gauges, ready, before, self._held())

    def _json(self, path: str) -> dict[str, Any] | None:
        answer = self._get(path)
        return answer.json() if answer is not None and answer.status_code == 200 else None

    def _ready(self, url: str) -> Answer | None:
        answer = self._get(url)
        return None if answer is None else Answer(answer.status_code, answer.json()["checks"])

    def _get(self, url: str) -> httpx.Response | None:
        try:
            return self._http.get(url)
        except httpx.HTTPError:
            return None

    def _gauges(self) -> Gauges:
        answer = self._get("/metrics")
        if answer is None or answer.status_code != 200:
            return {}
        samples = [sample for family in text_string_to_metric_families(answer.text) for sample in family.samples]
        return {
            (sample.name, sample.labels.get("destination", "")): sample.value
            for sample in samples
            if sample.labels.get("pipeline") == self._pipeline
        }

    def _held(self) -> dict[str, Held | None]:
        found = {}
        for each in self._site.destinations:
            try:
                found[each.id] = self._held_by(each)
            except NO_LAKE:
                found[each.id] = None
            except psycopg.Error:  # the server is away, or the table locked: nobody can tell
                continue
        return found

    def _held_by(self, destination: Destination) -> Held | None:
        kept = self._connections.get(destination.id)
        if kept is not None:
            try:
                return _held(kept)
            except psycopg.Error:
                if not kept.closed:
                    raise
        made = self._connections[destination.id] = self._site.connected(destination)  # the server was another one
        return _held(made)


def _held(con: psycopg.Connection[Any]) -> Held | None:
    con.execute("SET lock_timeout = '200ms'")
    row = con.execute(NEWEST, prepare=False).fetchone()
    stamp = {} if row is None else json.loads(row[0])
    return None if stamp.get("kind", "drop") == "drop" else Held(stamp["generation"], stamp["through"])


def _kind(lie: str) -> str:
    """The lie without its figures."""
    return "".join(each for each in lie if not each.isdigit())
