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
from services.control.model.conflicts import Neighbour, PipelineContext
from services.control.operations.destination_past import DestinationPast
from services.control.operations.destination_schema import DestinationSchemas
from services.control.operations.destination_service import DestinationService
from services.control.operations.discovery import Discovery
from services.control.operations.long_operations import Operations
from services.control.operations.pipeline_service import PipelineService
from services.control.operations.reconciler import Reconciler
from services.control.operations.source_watch import SourceWatch
from services.control.operations.work_items import Work
from services.control.store.access_audit import AccessAudit
from services.control.store.audit_log import SERVER, AuditLog
from services.control.store.destination_topic import DestinationPublisher
from services.control.store.pipeline_store import PipelineStore
from services.control.store.proposals import Proposals
from services.control.store.registry import DestinationRegistry
from services.control.store.tokens import Tokens
from services.control.view.history import History
from services.control.view.status_store import StatusStore
from services.control.web.context import PipelineHandle, Sources
from services.control.web.guard import Guard
from shared.config import public_url
from shared.config.deployment import Deployment
from shared.contracts.digest import value_digest
from shared.contracts.messages import Destination, Outcome, Progress
from shared.contracts.reports import LONGEST_OFFERED, Frontier, Offer, Offered
from shared.runtime.metrics_access import MetricsAccess
from tests.fast.control.examples import PIPELINE, START, frontier, progress
from tests.fast.control.fakes import FakeSource, FakeTopic
from tests.fast.control.files import config, destination
from tests.fast.control.fresh_registry import fresh
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
class PipelineManager:
    """As much of the manager as the pipeline service needs: it takes up what is registered when it is asked to."""

    deployment: Deployment
    status_store: StatusStore
    room: bool = True

    def neighbours(self, pipeline: str) -> list[Neighbour]:
        there = self.status_store.view().destinations.values()
        own, upkeep = self.status_store.pipeline, self.deployment.common.upkeep
        return [Neighbour(own, each.declared, upkeep) for each in there if pipeline != own]

    def refresh(self, pipeline: str) -> None:
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
    work: Callable[[StatusStore, AuditLog], Work] | None = None
    pipeline: str = PIPELINE
    clock: Callable[[], float] = time.time
    """That of the history."""
    public_url: str | None = None
    scraping: MetricsAccess | None = None
    pipelines: Callable[[], Mapping[str, PipelineHandle]] | None = None
    closed: bool = False

    def __post_init__(self) -> None:
        self.config = config(
            self.folder, [destination(each) for each in self.file], pipeline=self.pipeline, **self.sections
        )
        url = fresh(self.folder / "registry.sqlite") if self.url is None else make_url(self.url)
        self.registry = DestinationRegistry(url, self.pipeline)
        self.registry.prepare()
        self.status_store, self.topic = StatusStore(self.pipeline), FakeTopic()
        announcer = DestinationPublisher(self.topic, "viaduck.destinations", self.pipeline)
        context = PipelineContext(self.environ, lambda _: ())
        self.reconciler = Reconciler(
            self.config, self.registry, self.status_store, announcer, context, self.source.look, lambda: self.now
        )
        database = self.registry.database
        self.tokens, self.operations = Tokens(database), Operations(database, self.pipeline)
        self.tokens.refresh()
        self.service = DestinationService(
            self.reconciler, self.status_store, self.operations, AuditLog(database, self.pipeline), context,
            lambda: self.now,
        )  # fmt: skip
        self.discovery = Discovery(
            self.reconciler, self.status_store, self.service, Proposals(database, self.pipeline), self.environ,
            lambda: self.now, lambda: (self.now - START).total_seconds(),
        )  # fmt: skip
        self.reconciler.load()
        self.reconciler.apply(self.config)
        work = None if self.work is None else self.work(self.status_store, self.service.audit_log)
        deployment = Deployment((self.folder,), (self.config,)).with_copies({})
        self.manager, self.pipelines_topic = (
            PipelineManager(deployment, self.status_store),
            FakeTopic("viaduck.pipelines"),
        )
        self.pipeline_store = PipelineStore(
            database, deployment.copies, self.pipelines_topic, "viaduck.pipelines", lambda: self.now
        )
        self.pipeline_service = PipelineService(self.pipeline_store, self.manager, self.environ, self.source.look)
        self.history = History(self.status_store.view, self.clock)
        self.source_watch = SourceWatch(self.reconciler, self.status_store, self.environ, lambda: self.now)
        past = DestinationPast(
            lambda: self.reconciler.config, self.status_store.view, self.environ, self.source_watch.times_of
        )
        self.handle = PipelineHandle(
            self.status_store.view, self.service, work, self.history, self.discovery, self.source_watch, past,
            schemas=DestinationSchemas(lambda: self.reconciler.config, self.status_store.view, self.environ),
        )  # fmt: skip
        self.incidents = AccessAudit(database, lambda: self.now)
        sources = Sources(
            self.pipelines or (lambda: {self.pipeline: self.handle}), dict, str, self.tokens, self.pipeline_service,
            self.incidents, AuditLog(database, SERVER),
        )  # fmt: skip
        public = None if self.public_url is None else public_url.read(self.public_url)
        self.guard = Guard(
            loopback=self.loopback, token=self.token, tokens=self.tokens, public_url=public, scraping=self.scraping
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
        self.status_store.note(Offer(pipeline=PIPELINE, instance="viaduck-0", values=tuple(values)))
        self.discovery.look()

    def proposals(self, **params: str) -> dict[str, Any]:
        """What the interface lists, by routing value."""
        items = self.http.get(f"{V1}/proposals", params).json()["items"]
        return {each["routing_value"]: each for each in items}

    def said(self, message: Progress | Frontier) -> None:
        """An applier's or a reader's word arrives, and control does what it asks for."""
        self.status_store.note(message)
        self.reconciler.react()
        self.service.close_operations()

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
