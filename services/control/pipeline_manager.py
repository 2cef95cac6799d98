"""The pipelines of one control: which there are now, and what comes and goes with files and over REST."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import cache

import structlog

from services.control.model.conflicts import Neighbour
from services.control.model.lifecycle import BY_ANY, Revision
from services.control.operations.pipeline_entry import declared_in
from services.control.pipeline import REPEAT_EVERY_S, Pipeline, SharedResources, forget
from services.control.registry_recovery import published, recover
from services.control.store.pipeline_store import PipelineStore
from services.control.view.destination_status import View
from services.control.web.context import PipelineHandle
from shared.config.deployment import LOOK_AGAIN_S, Deployment
from shared.config.model import Config
from shared.contracts.errors import ConfigError, DependencyError
from shared.contracts.reports import Told
from shared.runtime.background import Background
from shared.runtime.checks import source_check
from shared.runtime.metrics import Metrics
from shared.runtime.process import is_supervised

log = structlog.get_logger(__name__)

LOOK_EVERY_S = 2.0
"""How soon what another control put into the registry is taken up here."""

AGAIN_S = 1.0
SETTLED_WITHIN_S = 5.0
END_WITHIN_S = 0.5
"""For all of them together, when control ends."""

REPLACED = ("source", "topic", "routing")
"""Sections whose change makes a pipeline from REST another pipeline: its components are created again."""


class PipelineManager:
    """May be used from several threads; one of its own looks after what comes and goes."""

    def __init__(
        self, deployment: Deployment, common: SharedResources, documents: PipelineStore, came: Callable[[], None]
    ) -> None:
        """``came``: a pipeline is new, and has heard nothing of what the topics hold."""
        self._deployment = deployment
        self._common = common
        self._documents = documents
        self._came = came
        self.room = deployment.may_grow or is_supervised(common.environ)
        """Whether pipelines may come over REST: where one file is all, only `viaduck up` has its reader make room."""
        self._pipelines: dict[str, Pipeline] = {}
        self._registered: Mapping[str, int] = {}
        """Versions of the pipelines that came over REST, as they run here."""
        self._was_copy: dict[str, bool] = {}
        """Of pipelines whose file is another one now, or none: what it was before."""
        self._woken = threading.Event()
        self._turned = threading.Condition()
        self._reload = threading.Event()
        self._look_at_s = self._repeat_at_s = 0.0
        self._waits = False
        self._loop = Background("pipelines", self._run)

    def begin(self) -> None:
        """Take up what was. Raises ``DependencyError``."""
        if self.room:
            recover(self._documents, self._deployment.copies, self._common)
            self._documents.refresh()
            self._cede(self._deployment)
            self._documents.mend()
        self._deployment = self._deployment.with_copies(self._common.environ)
        self._registered = self._versions()
        alone = len(self._deployment.configs) == 1 and not (self._deployment.left_out or self._deployment.withheld)
        self._pipelines = {config.pipeline: self._made(config, alone=alone) for config in self._deployment.configs}
        told = cache(lambda: published(self._common))  # read once for all of them, and not where all are new
        for pipeline in self._pipelines.values():
            pipeline.begin(told)
        self._finish_removals()

    def start(self) -> None:
        for pipeline in self._pipelines.values():
            pipeline.start()
        self._loop.start()

    def close(self) -> None:
        self._loop.stopped.set()
        self._woken.set()
        for pipeline in self._pipelines.values():
            pipeline.tell_to_stop()
        for pipeline in self._pipelines.values():
            pipeline.stop(END_WITHIN_S)
        self._loop.stop(END_WITHIN_S)

    def reload(self) -> None:
        """Read the files again, soon; may be called from a signal handler."""
        self._reload.set()
        self._woken.set()

    def repeat(self) -> None:
        """Publish everything again soon: the broker may have lost it."""
        self._repeat_at_s = 0.0
        for pipeline in self._now():
            pipeline.worker.repeat()

    def refresh(self, pipeline: str) -> None:
        """Read the registered state of a pipeline now and wait for that; with a limit, since a broker may be away."""
        self._woken.set()
        with self._turned:
            self._turned.wait_for(lambda: self._is_refreshed(pipeline), SETTLED_WITHIN_S)

    # -- what there is ------------------------------------------------------------------------------------------------

    @property
    def deployment(self) -> Deployment:
        return self._deployment

    def handles(self) -> Mapping[str, PipelineHandle]:
        return {pipeline.name: pipeline.handle for pipeline in self._now()}

    def views(self) -> list[View]:
        return [pipeline.status_store.view() for pipeline in self._now()]

    def neighbours(self, pipeline: str) -> Iterator[Neighbour]:
        """The destinations of all others: what is registered, and what files say that wait for their source."""
        for other in self._now():
            if other.name == pipeline:
                continue
            yield from other.neighbours(BY_ANY)
            config = self._deployment.find(other.name)
            if config is not None and not other.status_store.file_in_force:
                there = declared_in(config, self._common.environ)
                yield from (Neighbour(other.name, each, config.upkeep) for each in there)

    @property
    def metrics(self) -> list[Metrics]:
        return [pipeline.metrics for pipeline in self._now()]

    def metrics_of(self, key: str) -> Metrics:
        """Those of the pipeline that a message's key names, or of the first."""
        found = self._pipelines.get(key.partition("/")[0])
        return self._now()[0].metrics if found is None else found.metrics

    def note(self, message: Told) -> None:
        """What an applier or a reader said, into the status store of its pipeline; others' is ignored."""
        pipeline = self._pipelines.get(message.pipeline)
        if pipeline is not None:
            pipeline.status_store.note(message)

    def sources(self) -> dict[str, str | None]:
        """What control's own look at each source came to, and which files their sources refute."""
        now = self._now()
        found = {source_check(each.name, alone=len(now) == 1): each.worker.source_problem for each in now}
        refused = {
            **self._deployment.withheld,
            **{each.name: each.status_store.refused for each in now if each.status_store.refused},
        }
        return found | {f"file ({name})": "; ".join(said) for name, said in refused.items()}

    def _now(self) -> list[Pipeline]:
        return list(self._pipelines.values())

    # -- what comes and goes ------------------------------------------------------------------------------------------

    def _run(self, loop: Background) -> None:
        while not loop.stopped.is_set():
            loop.turned()
            self._woken.wait(LOOK_EVERY_S)
            self._woken.clear()
            try:
                self._turn()
            except DependencyError as error:
                if not self._waits:
                    log.warning("pipelines_delayed", error=str(error), hint=error.hint, retry_in_s=AGAIN_S)
                self._waits = True
                loop.stopped.wait(AGAIN_S)
            else:
                self._waits = False

    def _turn(self) -> None:
        """Raises ``DependencyError``; what is done by then is done, and the rest is done the next time."""
        if self._loop.stopped.is_set():
            return
        self._read_files()
        if self.room:
            self._read_registry()
        self._meet()
        with self._turned:
            self._turned.notify_all()

    def _read_files(self) -> None:
        asked = self._reload.is_set()
        if not asked and not (self._deployment.left_out and time.monotonic() >= self._look_at_s):
            return
        self._reload.clear()
        self._look_at_s = time.monotonic() + LOOK_AGAIN_S
        try:
            new = self._deployment.again()
        except ConfigError as error:
            if error.mistakes != self._deployment.left_out:
                log.error("files_refused", mistakes=list(error.mistakes))
            return
        if self.room:
            self._cede(new)
        self._take(new.with_copies(self._common.environ), asked=asked)

    def _cede(self, new: Deployment) -> None:
        """What a file declares is the file's from then on."""
        for config in new.declared:
            known = self._documents.all.get(config.pipeline)
            if known is not None and known.state != "ceded":
                try:
                    self._documents.end(config.pipeline, "ceded", "file")
                except DependencyError:
                    self._reload.set()
                    raise
                log.info("pipeline_taken_over_by_file", pipeline=config.pipeline)

    def _read_registry(self) -> None:
        self._documents.refresh()
        versions = self._versions()
        if versions != self._registered or self._deployment.copies_changed():
            self._documents.mend()
            self._take(self._deployment.with_copies(self._common.environ), asked=False)
            self._registered = versions
        if time.monotonic() >= self._repeat_at_s:
            self._documents.announce_all()
            self._repeat_at_s = time.monotonic() + REPEAT_EVERY_S

    def _versions(self) -> Mapping[str, int]:
        return {name: each.version for name, each in self._documents.all.items() if each.content is not None}

    def _take(self, new: Deployment, *, asked: bool) -> None:
        """``asked``: on request, so every file counts as changed, even if its content is the same."""
        old, self._deployment = self._deployment, new
        self._was_copy |= {config.pipeline: config.over_rest for config in old.configs}
        self._say_withheld(old.withheld)
        for pipeline in self._now():
            before, after = old.find(pipeline.name), new.find(pipeline.name)
            if after is not None and before is not None and (asked or before != after):
                if _is_another(before, after):
                    self._let_go(pipeline)
                else:
                    pipeline.worker.reload()

    def _meet(self) -> None:
        """Run what the deployment has, and nothing else."""
        for pipeline in self._now():
            if self._deployment.find(pipeline.name) is None:
                self._let_go(pipeline)
        for config in self._deployment.configs:
            if config.pipeline not in self._pipelines:
                self._take_up(config)

    def _let_go(self, pipeline: Pipeline) -> None:
        pipeline.stop()
        if self._deployment.find(pipeline.name) is None:
            self._withdraw(pipeline)
        self._pipelines = {name: each for name, each in self._pipelines.items() if each is not pipeline}

    def _withdraw(self, pipeline: Pipeline) -> None:
        """What was put into a file's pipeline over REST waits for the file to come back; a DELETE forgets all."""
        if not self._was_copy[pipeline.name]:
            pipeline.reconciler.withdraw()
            log.info("pipeline_file_removed", pipeline=pipeline.name)
        elif self._is_deleted(pipeline.name):
            pipeline.reconciler.forget(self._documents.all[pipeline.name].author)
            log.info("pipeline_deleted", pipeline=pipeline.name)

    def _take_up(self, config: Config) -> None:
        pipeline = self._made(config, alone=False)
        pipeline.begin()
        for each in self._now():
            each.worker.alone = False
        self._pipelines = {**self._pipelines, pipeline.name: pipeline}
        pipeline.start()
        self._came()
        log.info("pipeline_served", pipeline=pipeline.name, over_rest=config.over_rest)

    def _finish_removals(self) -> None:
        """Of pipelines that were deleted by a control which died before it had forgotten their destinations."""
        revision = Revision(uuid.uuid4().hex, datetime.now(UTC), "rebuild")
        for name in self._documents.all:
            if self._is_deleted(name) and name not in self._pipelines:
                forget(self._common, name, revision)

    def _is_deleted(self, name: str) -> bool:
        known = self._documents.all.get(name)
        return known is not None and known.state == "deleted"

    def _is_refreshed(self, name: str) -> bool:
        document = self._documents.find(name)
        if document is None:
            return name not in self._pipelines
        taken = self._registered.get(name) == document.version
        return taken and (name in self._pipelines or name in self._deployment.withheld)

    def _say_withheld(self, before: Mapping[str, tuple[str, ...]]) -> None:
        for name, mistakes in self._deployment.withheld.items():
            if before.get(name) != mistakes:
                log.error("pipeline_refused", pipeline=name, mistakes=list(mistakes))

    def _made(self, config: Config, *, alone: bool) -> Pipeline:
        return Pipeline(config, self._common, self._load, self._now, alone=alone)

    def _load(self, pipeline: str) -> Config:
        """A pipeline's file, as it was when all were read."""
        return self._deployment.of(pipeline)


def _is_another(before: Config, after: Config) -> bool:
    """Whether a pipeline that came over REST, or ceases to, is so changed that no running part of it can go on."""
    if not (before.over_rest or after.over_rest):
        return False
    return any(getattr(before, name) != getattr(after, name) for name in REPLACED)
