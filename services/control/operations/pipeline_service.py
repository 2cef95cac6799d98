"""Where wishes for whole pipelines are met: each is checked, registered, and taken up by the pipelines that run here.

May be used from several threads. Raises ``Refused``, ``InvalidEntry`` and ``DependencyError``; then nothing changed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from services.control.model.conflicts import Neighbour
from services.control.model.lifecycle import Refused
from services.control.model.problems import InvalidEntry
from services.control.operations.pipeline_entry import Look, clash_faults, declare_pipeline, source_faults
from services.control.store.pipeline_store import PipelineStore, StoredPipeline, same_content
from shared.config.deployment import Deployment
from shared.kafka.source_look import look

LONGEST = 500_000
"""Characters of a document as JSON: a broker takes messages of 1 MB."""

Same = Callable[[int], bool]
"""Whether it is still the version that the asker has seen."""


class Running(Protocol):
    """The part of ``services.control.pipeline_manager.PipelineManager`` that is used here."""

    @property
    def room(self) -> bool: ...
    @property
    def deployment(self) -> Deployment: ...
    def neighbours(self, pipeline: str) -> Iterable[Neighbour]: ...
    def refresh(self, pipeline: str) -> None: ...


@dataclass(frozen=True)
class Put:
    """``created``: it was not there before."""

    document: StoredPipeline
    created: bool


class PipelineService:
    def __init__(
        self, documents: PipelineStore, running: Running, environ: Mapping[str, str], look: Look = look
    ) -> None:
        self._documents = documents
        self._running = running
        self._environ = environ
        self._look = look

    @property
    def names(self) -> list[str]:
        """The pipelines that came over REST."""
        return [name for name in self._documents.all if self.find(name) is not None]

    def find(self, pipeline: str) -> StoredPipeline | None:
        """The registered document of a pipeline; None for an unknown pipeline or one of a file."""
        return None if self._is_of_a_file(pipeline) else self._documents.find(pipeline)

    def trouble(self, pipeline: str) -> tuple[str, ...]:
        """The reasons why control cannot run a registered pipeline."""
        return self._running.deployment.withheld.get(pipeline, ())

    def put(
        self,
        pipeline: str,
        document: Mapping[str, Any],
        author: str | None,
        same: Same | None = None,
        *,
        check: bool,
        new: bool = False,
    ) -> Put:
        """Create or change a pipeline. ``new``: only create."""
        self._require_room(pipeline)
        content = {key: value for key, value in document.items() if key != "pipeline"}
        if len(json.dumps(content)) > LONGEST:
            hint = "leave the destinations out, and import them"
            raise Refused("too_large", f"the document is longer than {LONGEST:,} characters", hint)
        config = declare_pipeline(pipeline, document, self._running.deployment, self._environ)
        faults = list(clash_faults(config, self._running.neighbours(pipeline), self._environ, policies=check))
        if check and self._is_news(pipeline, content):
            faults += source_faults(config, self._environ, self._look)
        if faults:
            raise InvalidEntry(faults)
        before: list[StoredPipeline | None] = []

        def require(known: StoredPipeline | None) -> None:
            before.append(known)
            if new and known is not None:
                hint = "leave If-None-Match out to change it"
                raise Refused("precondition_failed", f"{pipeline} exists already", hint)
            _require_same(pipeline, known, same)

        kept = self._documents.put(pipeline, content, author, require)
        self._running.refresh(pipeline)
        return Put(kept, created=before[-1] is None)

    def remove(self, pipeline: str, author: str | None, same: Same | None = None) -> None:
        """Stop and forget a pipeline and all its destinations; what they wrote stays."""
        if self._is_of_a_file(pipeline):
            raise _of_a_file(pipeline)

        def require(known: StoredPipeline | None) -> None:
            if known is None:
                raise Refused("not_found", f"there is no pipeline {pipeline}", "GET /v1/pipelines lists them")
            _require_same(pipeline, known, same)

        self._documents.end(pipeline, "deleted", author, require)
        self._running.refresh(pipeline)

    def _require_room(self, pipeline: str) -> None:
        if self._is_of_a_file(pipeline):
            raise _of_a_file(pipeline)
        if not self._running.room:
            said = f"{pipeline} cannot run beside a single file"
            raise Refused(
                "one_file_alone", said, "start the services with a folder of files (-c FOLDER), or with several"
            )

    def _is_of_a_file(self, pipeline: str) -> bool:
        return any(config.pipeline == pipeline for config in self._running.deployment.declared)

    def _is_news(self, pipeline: str, content: Mapping[str, Any]) -> bool:
        """Whether its source was not looked at before: a retry of the same PUT must not cost anything."""
        known = self._documents.find(pipeline)
        return known is None or not same_content(known.content, content)


def _of_a_file(pipeline: str) -> Refused:
    return Refused("declared_by_file", f"a file declares {pipeline}", "change the file, and send SIGHUP")


def _require_same(pipeline: str, known: StoredPipeline | None, same: Same | None) -> None:
    if same is None:
        return
    if known is None:
        said = f"there is no {pipeline} that came over REST"
        raise Refused("precondition_failed", said, "leave If-Match out to create it")
    if not same(known.version):
        said = f"{pipeline} is at version {known.version} now"
        raise Refused("precondition_failed", said, "GET it again, then decide")
