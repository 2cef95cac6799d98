"""Follows ``viaduck.pipelines``: what control says of pipelines that came over REST, into a service's own copies."""

from __future__ import annotations

import threading
from collections.abc import Callable

import structlog

from shared.config.pipeline_files import PipelineFiles
from shared.contracts.latest import Latest
from shared.contracts.messages import PipelineDocument
from shared.kafka.record import Record, keyed_message

log = structlog.get_logger(__name__)


class PipelineCache:
    """``note`` hears each record of the topic, ``refresh`` makes the copies so; each on a thread of its own."""

    def __init__(self, copies: PipelineFiles, level: Callable[[], bool]) -> None:
        """``level``: whether the topic has been read up to what it held; before that its words may be long past."""
        self._copies = copies
        self._level = level
        self._news: dict[str, PipelineDocument] = {}
        self._latest: Latest[PipelineDocument] = Latest()
        self._lock = threading.Lock()
        self._failed = False

    def note(self, record: Record) -> None:
        """Raises ``UnreadableMessage``."""
        said = keyed_message(record, PipelineDocument)
        if said is None:
            return
        with self._lock:
            if self._latest.take(said):
                self._news[said.pipeline] = said

    def renewed(self) -> None:
        """The topics are others than before, and perhaps the registry is, too: its versions begin again."""
        with self._lock:
            self._latest.clear()

    def refresh(self) -> None:
        """Make the copies what was said last. Where they can't be written now it is done the next time."""
        if not self._level():
            return
        with self._lock:
            news = list(self._news.values())
        for said in news:
            try:
                self._copy(said)
            except OSError as error:
                self._complain(error)
                return
            self._done(said)
        self._failed = False

    def _copy(self, said: PipelineDocument) -> None:
        """Who went before the copy's version is back: another service wrote here what we have yet to hear."""
        if said.document is not None:
            self._copies.write(said.pipeline, said.document, said.version)
        elif self._copies.version(said.pipeline) <= said.version:
            self._copies.remove(said.pipeline)

    def _done(self, said: PipelineDocument) -> None:
        with self._lock:
            if self._news.get(said.pipeline) is said:
                del self._news[said.pipeline]

    def _complain(self, error: OSError) -> None:
        if not self._failed:
            folder = str(self._copies.folder)
            log.error("pipeline_copies_not_writable", folder=folder, error=str(error))
        self._failed = True
