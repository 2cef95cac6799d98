"""The pipelines of one control: which there are now, and what comes and goes with their files."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

import structlog

from services.control.api.state import Served
from services.control.pipeline import Common, Pipeline
from services.control.status import View
from shared.config.deployment import LOOK_AGAIN_S, Deployment
from shared.config.model import Config
from shared.errors import ConfigError, DependencyError
from shared.messages import Frontier, Offer, Progress
from shared.metrics import Metrics
from shared.peers import source_check

log = structlog.get_logger(__name__)

AGAIN_S = 1.0
END_WITHIN_S = 0.5
"""For all of them together, when control ends."""


class Fleet:
    """May be used from several threads; one of its own reads the files again when ``reload`` asks for it."""

    def __init__(self, deployment: Deployment, common: Common, came: Callable[[], None]) -> None:
        """``came``: a pipeline is new, and has heard nothing of what the topics hold."""
        self._deployment, self._common, self._came = deployment, common, came
        alone = len(deployment.configs) == 1 and not deployment.left_out
        self._pipelines: dict[str, Pipeline] = {
            config.pipeline: Pipeline(config, common, self._load, self._now, alone=alone)
            for config in deployment.configs
        }
        self._stopped, self._reload = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="files", daemon=True)

    def begin(self) -> None:
        """Take up what was. Raises ``DependencyError``."""
        for pipeline in self._pipelines.values():
            pipeline.begin()

    def start(self) -> None:
        for pipeline in self._pipelines.values():
            pipeline.start()
        self._thread.start()

    def close(self) -> None:
        self._stopped.set()
        self._reload.set()
        for pipeline in self._pipelines.values():
            pipeline.tell_to_stop()
        for pipeline in self._pipelines.values():
            pipeline.stop(END_WITHIN_S)

    def reload(self) -> None:
        """Read the files again, soon; may be called from a signal handler."""
        self._reload.set()

    def repeat(self) -> None:
        """Publish everything again, soon: nobody may have kept it."""
        for pipeline in self._now():
            pipeline.worker.repeat()

    # -- what there is ------------------------------------------------------------------------------------------------

    def served(self) -> Mapping[str, Served]:
        return {pipeline.name: pipeline.served for pipeline in self._now()}

    def views(self) -> list[View]:
        return [pipeline.board.view() for pipeline in self._now()]

    @property
    def metrics(self) -> list[Metrics]:
        return [pipeline.metrics for pipeline in self._now()]

    def metrics_of(self, key: str) -> Metrics:
        """Those of the pipeline that a message's key names, or of the first."""
        found = self._pipelines.get(key.partition("/")[0])
        return self._now()[0].metrics if found is None else found.metrics

    def note(self, message: Progress | Frontier | Offer) -> None:
        """What an applier or a reader said, onto the board of its pipeline; others' is ignored."""
        pipeline = self._pipelines.get(message.pipeline)
        if pipeline is not None:
            pipeline.board.note(message)

    def sources(self) -> dict[str, str | None]:
        """What control's own look at each source came to, and which files their sources refute."""
        now = self._now()
        found = {source_check(each.name, alone=len(now) == 1): each.worker.source_problem for each in now}
        return found | {f"file ({each.name})": "; ".join(each.board.refused) for each in now if each.board.refused}

    def _now(self) -> list[Pipeline]:
        return list(self._pipelines.values())

    # -- what comes and goes ------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._reload.wait(LOOK_AGAIN_S if self._deployment.left_out else None)
            self._reload.clear()
            try:
                self._read_again()
            except DependencyError as error:
                log.warning("pipelines have to wait", error=str(error), hint=error.hint, retry_in_s=AGAIN_S)
                self._stopped.wait(AGAIN_S)
                self._reload.set()
            except Exception:
                log.exception("the files could not be taken over")  # the pipelines go on with what they have

    def _read_again(self) -> None:
        """Raises ``DependencyError``; what is done by then is done, and doing it again changes nothing."""
        if self._stopped.is_set():
            return
        try:
            new = self._deployment.again()
        except ConfigError as error:
            if error.mistakes != self._deployment.left_out:
                log.error("the files have mistakes; the old ones stay", mistakes=list(error.mistakes))
            return
        self._deployment = new
        for pipeline in self._now():
            if new.find(pipeline.name) is None:
                self._let_go(pipeline)
            else:
                pipeline.worker.reload()
        for config in new.configs:
            if config.pipeline not in self._pipelines:
                self._take_up(config)

    def _let_go(self, pipeline: Pipeline) -> None:
        pipeline.stop()
        pipeline.keeper.withdraw()
        self._pipelines = {name: each for name, each in self._pipelines.items() if each is not pipeline}
        log.info("its file is gone, and its destinations with it", pipeline=pipeline.name)

    def _take_up(self, config: Config) -> None:
        pipeline = Pipeline(config, self._common, self._load, self._now, alone=False)
        pipeline.begin()
        self._pipelines = {**self._pipelines, pipeline.name: pipeline}
        pipeline.start()
        self._came()
        log.info("its file is new", pipeline=pipeline.name)

    def _load(self, pipeline: str) -> Config:
        """A pipeline's file, as it was when all were read."""
        return self._deployment.of(pipeline)
