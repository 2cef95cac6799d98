"""A control without its process: a real registry and a real application, a broker and a source in memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from sqlalchemy.engine import make_url

from services.control.app import build, furnish
from services.control.model.conflicts import Neighbour
from services.control.operations.destination_service import DestinationService
from services.control.operations.discovery import Arrivals
from services.control.operations.long_operations import Operations
from services.control.operations.pipeline_service import PipelineService
from services.control.operations.reconciler import Reconciler
from services.control.operations.work_items import Work
from services.control.store.access_audit import Incidents
from services.control.store.audit_log import SERVER, Trail
from services.control.store.destination_topic import Announcer
from services.control.store.pipeline_store import Documents
from services.control.store.proposals import Proposals
from services.control.store.registry import Registry
from services.control.store.tokens import Tokens
from services.control.view.history import Pulse
from services.control.view.status_store import StatusStore
from services.control.web.context import PipelineHandle, Sources
from services.control.web.guard import Guard
from shared.config import public_url
from shared.config.deployment import Deployment
from shared.contracts.digest import value_digest
from shared.contracts.messages import LONGEST_OFFERED, Destination, Frontier, Offer, Offered, Outcome, Progress
from shared.runtime.metrics_access import Scraping
from tests.fast.control.examples import PIPELINE, START, frontier, progress
from tests.fast.control.fakes import FakeSource, FakeTopic
from tests.fast.control.files import config, destination
from tests.fast.control.http import Http

V1 = f"/v1/pipelines/{PIPELINE}"
D = f"{V1}/destinations"


SPARE: list[FastAPI] = []
"""Applications of rigs that are closed: to build one takes FastAPI a second."""


def application(sources: Sources, guard: Guard) -> FastAPI:
    if not SPARE:
        return build(sources, guard)
    app = SPARE.pop()
    furnish(app, sources, guard)
    return app


@dataclass
class Fleet:
    """As much of a fleet as the desk for pipelines needs: it takes up what is registered when it is told to."""

    deployment: Deployment
    board: StatusStore
    room: bool = True

    def neighbours(self, pipeline: str) -> list[Neighbour]:
        there = self.board.view().destinations.values()
        return [(self.board.pipeline, each.declared) for each in there if pipeline != self.board.pipeline]

    def settle(self, pipeline: str) -> None:
        self.deployment = self.deployment.with_copies({})


@dataclass
class ControlRig:
    """``file``: ids that the configuration file declares; ``sections`` of it besides."""

    folder: Path
    file: tuple[str, ...] = ()
    sections: Mapping[str, Any] = field(default_factory=dict)
    url: str | None = None
    token: str | None = None
    loopback: bool = True
    environ: dict[str, str] = field(default_factory=dict)
    source: FakeSource = field(default_factory=FakeSource)
    now: datetime = START
    work: Callable[[StatusStore, Trail], Work] | None = None
    pipeline: str = PIPELINE
    clock: Callable[[], float] = time.time
    """The pulse's."""
    public_url: str | None = None
    scraping: Scraping | None = None
    pipelines: Callable[[], Mapping[str, PipelineHandle]] | None = None
    closed: bool = False

    def __post_init__(self) -> None:
        self.config = config(
            self.folder, [destination(each) for each in self.file], pipeline=self.pipeline, **self.sections
        )
        self.registry = Registry(make_url(self.url or f"sqlite:///{self.folder}/registry.sqlite"), self.pipeline)
        self.registry.prepare()
        self.board, self.topic = StatusStore(self.pipeline), FakeTopic()
        announcer = Announcer(self.topic, "viaduck.destinations", self.pipeline)
        self.keeper = Reconciler(
            self.config, self.registry, self.board, announcer, self.environ, self.source.look, lambda: self.now
        )
        database = self.registry.database
        self.tokens, self.operations = Tokens(database), Operations(database, self.pipeline)
        self.desk = DestinationService(
            self.keeper, self.board, self.operations, Trail(database, self.pipeline), self.tokens, self.environ,
            lambda: self.now,
        )  # fmt: skip
        self.arrivals = Arrivals(
            self.keeper, self.board, self.desk, Proposals(database, self.pipeline), self.environ,
            lambda: self.now, lambda: (self.now - START).total_seconds(),
        )  # fmt: skip
        self.keeper.load()
        self.keeper.apply(self.config)
        work = None if self.work is None else self.work(self.board, self.desk.trail)
        deployment = Deployment((self.folder,), (self.config,)).with_copies({})
        self.fleet, self.pipelines_topic = Fleet(deployment, self.board), FakeTopic("viaduck.pipelines")
        self.documents = Documents(
            database, deployment.copies, self.pipelines_topic, "viaduck.pipelines", lambda: self.now
        )
        self.pipeline_desk = PipelineService(self.documents, self.fleet, self.environ, self.source.look)
        self.pulse = Pulse(self.board.view, self.clock)
        self.served = PipelineHandle(self.board.view, self.desk, work, self.pulse, self.arrivals)
        self.incidents = Incidents(database, lambda: self.now)
        sources = Sources(
            self.pipelines or (lambda: {self.pipeline: self.served}), dict, str, self.tokens, self.pipeline_desk,
            self.incidents, Trail(database, SERVER),
        )  # fmt: skip
        url = None if self.public_url is None else public_url.read(self.public_url)
        self.guard = Guard(
            loopback=self.loopback, token=self.token, tokens=self.tokens, public_url=url, scraping=self.scraping
        )
        self.http = Http(application(sources, self.guard))

    def close(self) -> None:
        self.registry.close()
        if not self.closed:
            self.closed = True
            SPARE.append(self.http.app)

    def add(self, id: str, **keys: Any) -> Any:
        """PUT a destination without a look at its lake; the answer's JSON."""
        answer = self.http.put(f"{D}/{id}?check=false", entry(id, **keys))
        assert answer.status_code in (200, 201), answer.text
        return answer.json()

    def offered(self, **rows: int) -> None:
        """A reader offers these routing values, with so many rows each."""
        self.offers([offered(value, number) for value, number in rows.items()])

    def offers(self, values: Sequence[Offered]) -> None:
        self.board.note(Offer(pipeline=PIPELINE, instance="viaduck-0", values=tuple(values)))
        self.arrivals.look()

    def proposals(self, **params: str) -> dict[str, Any]:
        """What the interface lists, by routing value."""
        items = self.http.get(f"{V1}/proposals", params).json()["items"]
        return {each["routing_value"]: each for each in items}

    def said(self, message: Progress | Frontier) -> None:
        """An applier's or a reader's word arrives, and control does what it asks for."""
        self.board.note(message)
        self.keeper.react()
        self.desk.close_operations()

    def applied(self, id: str, generation: int, position: int) -> None:
        self.said(progress(Outcome.APPLIED, id, generation=generation, position=position))

    def looked(self, head: int, lagging: Mapping[str, int] | None = None) -> None:
        """A reader that knows of everything has looked up to ``head``."""
        self.said(frontier(self.registry.destinations().values(), head=head, lagging=lagging))

    def published(self, id: str) -> Destination | None:
        return self.topic.kept[id]


def offered(value: str, rows: int = 1, first_seen: int = 5) -> Offered:
    """As a reader offers it: long ones by their beginning."""
    cut = value[:LONGEST_OFFERED]
    digest = value_digest(value)
    return Offered(value=cut, whole=cut == value, digest=digest, rows=rows, first_seen=first_seen)


def entry(of: str, **keys: Any) -> dict[str, Any]:
    return {"routing_value": f"value of {of}", "catalog": f"sqlite:lakes/{of}.sqlite", **keys}
