"""``viaduck verify``: prove with Spark that every destination equals its slice of the source.

It reads lakes, and asks control which destinations there are, or its registry where no control answers; it needs no
broker. Where control answers, parked destinations are reported as what they are.
"""

from __future__ import annotations

import difflib
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing
from functools import partial
from types import TracebackType
from typing import Self

from pyspark import SparkContext
from rich.console import Console
from rich.progress import Progress

from services.cli.runtime.console import console
from services.cli.runtime.interruptible import Interruption, interruptible
from services.cli.runtime.parked import parked
from services.cli.verify.comparison import ComparedSource, ComparisonResult, Past, Subject, Verdict, compare_all
from services.cli.verify.registered_destinations import everything
from services.cli.verify.report import Report
from services.cli.verify.topic_proof import proofs
from shared.config.declared import Lakes
from shared.config.deployment import Deployment
from shared.config.model import Config, FileDestination
from shared.contracts.errors import ConfigError, DependencyError, SourceError, ViaduckError
from shared.contracts.messages import Problem
from shared.lake.catalog.reader import CatalogReader
from shared.runtime.spark import session

EQUAL, NOT_EQUAL, UNREACHABLE = 0, 1, 3
SOURCE = "source"
DAEMON = "services.cli.verify.daemon"

Chosen = tuple[Config, Sequence[FileDestination]]

MAX_SHARE = 25
"""Destinations of one Spark task: enough to be worth opening the source, few enough for a progress bar that moves."""


def main(
    deployment: Deployment,
    ids: Sequence[str] = (),
    json: bool = False,
    pipeline: str | None = None,
    past: Past | None = None,
) -> int:
    """Compare all destinations, or those of ``ids``, and print the result. Returns the exit code.

    ``past``: their retained snapshots, too.

    If destinations other than those of the files cannot be listed, that is reported, and the result is no proof.

    Raises ``ConfigError`` for an unknown id and ``DependencyError`` if the source or Spark is unavailable. With several
    pipelines, an unavailable source is reported and the other pipelines are compared.
    """
    known = everything(deployment)
    configs = known.configs if pipeline is None else tuple(each for each in known.configs if each.pipeline == pipeline)
    chosen = _chosen(configs or (deployment.of(pipeline),), ids)
    unknown = () if ids else known.unknown
    for line in unknown:
        sys.stderr.write(f"{line}\n")
    code = interruptible(lambda interruption: _verify_all(chosen, json, past, interruption))
    return code or (UNREACHABLE if unknown else EQUAL)


def _verify_all(chosen: Sequence[Chosen], json: bool, past: Past | None, interruption: Interruption) -> int:
    codes = [EQUAL]
    with SparkOnDemand(interruption) as spark:
        for config, destinations in chosen:
            try:
                codes.append(_verify(config, destinations, json, past, spark))
            except DependencyError as error:
                if len(chosen) == 1 or error.what != SOURCE:
                    raise
                sys.stderr.write(f"{config.pipeline}: {error}\n{error.hint}\n")
                codes.append(UNREACHABLE)
    return max(codes)


def _verify(
    config: Config, chosen: Sequence[FileDestination], json: bool, past: Past | None, spark: SparkOnDemand
) -> int:
    began = time.monotonic()
    out = console(stderr=json)
    comparisons = Comparisons(config, out, spark)
    compare = partial(_topic_verdicts, config) if config.topic else partial(comparisons.compare, _origin(config))
    verdicts = _verdicts(config, chosen, past, compare)
    report = Report(config.pipeline, verdicts, _parked(config, chosen), time.monotonic() - began)
    if json:
        for line in report.to_json():
            print(line)
    else:
        report.print(out)
    return EQUAL if report.all_equal else NOT_EQUAL


def _chosen(configs: Sequence[Config], ids: Sequence[str]) -> list[Chosen]:
    """The pipelines to look at, each with its destinations; without ``ids`` all. Two pipelines may use one id."""
    known = {destination.id for config in configs for destination in config.destinations}
    mistakes = [f"--destination {name}: {_unknown(name, list(known))}" for name in ids if name not in known]
    if mistakes:
        raise ConfigError(mistakes)
    if not ids:
        return [(config, config.destinations) for config in configs]
    order = {name: number for number, name in reversed(list(enumerate(ids)))}
    chosen = [(config, [each for each in config.destinations if each.id in order]) for config in configs]
    return [(config, sorted(found, key=lambda each: order[each.id])) for config, found in chosen if found]


def _unknown(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, 1)
    return f"there is no such destination; did you mean {near[0]}?" if near else "there is no such destination"


def _origin(config: Config) -> ComparedSource:
    """The source, after a look whether it is there. Raises ``DependencyError``."""
    try:
        lake = Lakes(config).source()
        with closing(CatalogReader(lake)) as catalog:
            catalog.head()
    except ViaduckError as error:
        raise DependencyError(SOURCE, error.message, error.hint) from None
    return ComparedSource(lake, config.source.schema_name, config.source.table, config.routing)


def _parked(config: Config, chosen: Sequence[FileDestination]) -> dict[str, Problem]:
    asked = {destination.id for destination in chosen}
    return {name: problem for name, problem in parked(config).items() if name in asked}


def _topic_verdicts(config: Config, subjects: Sequence[Subject]) -> list[Verdict]:
    """Raises ``DependencyError`` where the topic can't be read."""
    try:
        return proofs(config, subjects)
    except SourceError as error:
        raise DependencyError(SOURCE, error.message, error.hint) from None


def _verdicts(
    config: Config,
    chosen: Sequence[FileDestination],
    past: Past | None,
    compare: Callable[[Sequence[Subject]], Iterable[Verdict]],
) -> list[Verdict]:
    """One verdict per destination, in the order of the file."""
    verdicts: dict[str, Verdict] = {}
    subjects: list[Subject] = []
    for destination in chosen:
        try:
            subjects.append(_subject(config, destination, past))
        except ViaduckError as error:
            verdicts[destination.id] = Verdict(destination.id, ComparisonResult.FAILED, problem=error.problem())
    verdicts |= {verdict.destination: verdict for verdict in compare(subjects)}
    return [verdicts[destination.id] for destination in chosen]


def _subject(config: Config, destination: FileDestination, past: Past | None) -> Subject:
    return Subject(
        pipeline=config.pipeline,
        destination=destination.id,
        routing_value=destination.routing_value,
        lake=Lakes(config).listed(destination),
        schema=destination.schema_name,
        table=destination.table or config.source.table,
        seed_mode=destination.seed_mode or config.routing.seed_mode,
        past=past,
    )


class SparkOnDemand:
    """One session for all pipelines, whose files agree on the section ``spark``; started when it is first needed."""

    def __init__(self, interruption: Interruption) -> None:
        self._interruption = interruption
        self._context: SparkContext | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        if self._context is not None:
            self._context.stop()

    def context(self, config: Config) -> SparkContext:
        """Raises ``DependencyError``."""
        if self._context is None:
            with self._interruption.held():
                self._context = session(config, "viaduck-verify", daemon=DAEMON)
        return self._context


class Comparisons:
    """Spark, at work on comparisons, with a progress bar on a terminal."""

    def __init__(self, config: Config, console: Console, spark: SparkOnDemand) -> None:
        self._config = config
        self._console = console
        self._spark = spark

    def compare(self, origin: ComparedSource, subjects: Sequence[Subject]) -> Iterator[Verdict]:
        if not subjects:
            return
        with Progress(console=self._console, transient=True, disable=not self._console.is_terminal) as progress:
            task = progress.add_task("starting Spark", total=len(subjects))
            spark = self._spark.context(self._config)
            progress.update(task, description=f"comparing {len(subjects)} destinations")
            for verdicts in self._jobs(spark, origin, subjects):
                progress.advance(task, len(verdicts))
                yield from verdicts

    def _jobs(
        self, spark: SparkContext, origin: ComparedSource, subjects: Sequence[Subject]
    ) -> Iterator[list[Verdict]]:
        """One small job per share, as many at a time as Spark has cores: what is done can be shown at once."""
        parallel, memory_limit = max(1, spark.defaultParallelism), self._config.applier.memory_limit
        count = max(1, min(MAX_SHARE, len(subjects) // (2 * parallel)))
        shares = [subjects[first : first + count] for first in range(0, len(subjects), count)]

        def job(share: Sequence[Subject]) -> list[Verdict]:
            return spark.parallelize([share], 1).flatMap(lambda part: compare_all(origin, part, memory_limit)).collect()

        with ThreadPoolExecutor(parallel) as pool:
            jobs = [pool.submit(job, share) for share in shares]
            try:
                for done in as_completed(jobs):
                    yield done.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                spark.cancelAllJobs()
                raise
