"""Actions → messages on the work and progress topics."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any, Protocol

import structlog

from services.reader.messaging.message_decoder import Undelivered, Unsaid
from services.reader.planner.actions import Action, Park, Republish, Send
from services.reader.planner.frontier import FrontierPage
from shared.contracts.messages import ItemKind, Outcome, Progress, WorkItem, now
from shared.contracts.projection import project
from shared.contracts.reports import Frontier, Offer, Offered, Share
from shared.contracts.routed_by import RoutedBy
from shared.kafka.sender import Sender
from shared.kafka.topics import Topics

log = structlog.get_logger(__name__)

ITEM_HEADER, TRACE_HEADER = "viaduck-item", "traceparent"


class WorkSender(Sender, Protocol):
    def partitions(self, topic: str) -> int | None: ...


class WorkPublisher:
    """Publishes for one reader. What the broker refuses is reported to ``undelivered``, from any thread."""

    def __init__(
        self,
        sender: WorkSender,
        topics: Topics,
        pipeline: str,
        instance: str,
        share: Share,
        undelivered: Callable[[Undelivered | Unsaid], None],
        routed_by: RoutedBy | None = None,
    ) -> None:
        """``routed_by``: by what changes are counted. A destination may have been declared by another column."""
        self._sender = sender
        self._topics = topics
        self._pipeline = pipeline
        self._instance = instance
        self._share = share
        self._undelivered = undelivered
        self._routed_by = routed_by

    def publish(self, action: Action) -> None:
        if isinstance(action, Send):
            self._send(action)
        else:
            self._park(action)

    def partitions(self) -> int | None:
        """How many the work topic has; None where the broker does not say now."""
        return self._sender.partitions(self._topics.work)

    def repeat(self, word: Republish) -> None:
        """Say once more where a destination stands. A failure keeps its time, so that the next try is not put off."""
        about = word.about
        at = about.told_at if word.outcome is Outcome.FAILED and about.told_at is not None else now()
        since = None if word.problem is None else about.told_at
        progress = self._progress(
            about.name, word.kind, word.outcome, about.spec.generation, about.position,
            position_at=about.position_at or None, rows_applied=about.rows_applied, error=word.problem, at=at,
            since=since,
        )  # fmt: skip

        def delivered(error: Exception | None) -> None:
            if error is not None:
                self._undelivered(Unsaid(about.name))

        self._sender.send(self._topics.progress, progress.key, progress.to_bytes(), None, delivered)

    def frontier(self, page: FrontierPage, cycle: int, age_s: float | None = None) -> None:
        """Publish one page of a cycle. ``age_s``: since the source was last looked at."""
        message = project(
            Frontier,
            page,
            page.standing,
            pipeline=self._pipeline,
            instance=self._instance,
            cycle=cycle,
            page=page.number,
            share=self._share,
            error=page.problem,
            look_age_seconds=None if age_s is None else round(age_s, 3),
            head_at=None if page.ends is None else page.ends.head_at,
            waits=None if page.ends is None else page.ends.waits,
        )
        self._sender.send(self._topics.progress, message.key, message.to_bytes())

    def offer(self, values: tuple[Offered, ...], more: bool) -> None:
        """Publish which routing values have no destination."""
        offer = Offer(pipeline=self._pipeline, instance=self._instance, values=values, more=more)
        self._sender.send(self._topics.progress, offer.key, offer.to_bytes())

    def _send(self, send: Send) -> None:
        draft = send.draft
        item = WorkItem(
            item=send.item,
            kind=draft.kind,
            pipeline=self._pipeline,
            destination=send.destination,
            generation=send.generation,
            expected=draft.expected,
            after=draft.after,
            through=draft.through,
            expected_at=draft.expected_at or None,
            through_at=draft.through_at or None,
            after_at=draft.after_at or None,
            read_at=draft.read_at or None,
            keeps=draft.keeps or None,
            rows=draft.rows,
            pinned=draft.pinned,
            attempt=send.attempt,
            rows_applied=send.rows_applied,
            seen=send.seen,
            routed_by=None if send.routed_by in (None, self._routed_by) else self._routed_by,
        )

        def delivered(error: Exception | None) -> None:
            if error is not None:
                log.warning("item_not_delivered", destination=send.destination, item=send.item, error=str(error))
                self._undelivered(Undelivered(send.destination, send.item))

        self._sender.send(self._topics.work, item.key, item.to_bytes(), trace(send.item), delivered)

    def _park(self, park: Park) -> None:
        log.warning(
            "destination_parked", destination=park.destination, type=park.problem.type, why=park.problem.message
        )
        progress = self._progress(
            park.destination, ItemKind.CHANGES, Outcome.PARKED, park.generation, park.position,
            position_at=park.position_at or None, error=park.problem, applier=f"reader {self._instance}",
        )  # fmt: skip
        self._sender.send(self._topics.progress, progress.key, progress.to_bytes())

    def _progress(
        self,
        destination: str,
        kind: ItemKind,
        outcome: Outcome,
        generation: int,
        position: int | None,
        **more: Any,
    ) -> Progress:
        """An answer that the reader gives itself, to no published item."""
        return Progress(
            pipeline=self._pipeline,
            destination=destination,
            item=new_item_id(),
            kind=kind,
            outcome=outcome,
            generation=generation,
            position=position,
            **more,
        )


def new_item_id() -> str:
    """32 hexadecimal digits, so that an item's name is its trace's too."""
    return secrets.token_hex(16)


def trace(item: str) -> dict[str, str]:
    """Headers of an item: its name, and the W3C trace that begins with it."""
    return {ITEM_HEADER: item, TRACE_HEADER: f"00-{item}-{secrets.token_hex(8)}-01"}
