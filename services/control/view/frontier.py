"""Combines the pages that readers publish into one frontier per reader.

A frontier names the destinations that lag; a destination that it does not name is exact at the head. That holds only if
the reader knew of the destination in its present generation: a frontier is trusted if its digest equals the digest of
what control has published. Until it does (a destination was just added), the previous trusted frontier stays valid,
because what was exact then still is.
"""

from __future__ import annotations

from collections import ChainMap, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache

from shared.config.model import Partition
from shared.config.partition import assigned
from shared.contracts.digest import digest
from shared.contracts.messages import Problem
from shared.contracts.reports import Frontier, Lagging, Share

UNHEARD_AFTER_S = 20.0
"""A reader reports every five seconds; the last report of a reader that is silent for longer may be outdated."""

LONGEST_DELAY = timedelta(seconds=300)
"""How long a page may be on its way before its producer gives it up: librdkafka's ``message.timeout.ms``."""

HEARD_EVERY_S = 6.0
"""A reader that reports in time says itself that its poll of the source is overdue; for another, control adds the time
since that poll."""

UNSURE_AFTER_S = 10.0
"""How long a frontier may go on counting while newer ones of its reader know of other destinations than control."""

MAX_PAGES = 10_000
"""Readers publish fewer; it bounds the memory that garbage on the topic can use."""


@dataclass(frozen=True)
class Published:
    """The destinations of the pipeline as control has published them, removed ones left out."""

    generations: Mapping[str, int] = field(default_factory=dict)
    revisions: Mapping[str, str] = field(default_factory=dict)
    _digests: dict[Share, str] = field(default_factory=dict, compare=False, repr=False)

    def digest(self, share: Share) -> str:
        if share not in self._digests:
            self._digests[share] = digest(self._versions(share))
        return self._digests[share]

    def _versions(self, share: Share) -> Iterable[tuple[str, int, str]]:
        shared = (each for each in self.generations if holds(share, each))
        return ((each, self.generations[each], self.revisions[each]) for each in shared)


@dataclass(frozen=True)
class FrontierReport:
    """All pages of one cycle of one reader."""

    instance: str
    cycle: int
    head: int
    at: datetime
    share: Share
    revision: str
    settled: bool
    lagging: Mapping[str, Lagging]
    error: Problem | None = None
    notice: str | None = None
    look_age_s: float | None = None
    overdue: bool = False
    head_at: str | None = None
    """Of a topic, the offsets behind its newest stable records."""
    waits: Mapping[int, float] = field(default_factory=dict)

    @property
    def looked_at(self) -> datetime | None:
        """When the source was last looked at with success, by the reader's clock."""
        return None if self.look_age_s is None else self.at - timedelta(seconds=self.look_age_s)

    def knows(self, published: Published) -> bool:
        """Whether the reader had heard of everything that is published for its share, and of nothing else."""
        return self.revision == published.digest(self.share)


@dataclass(frozen=True)
class Trusted:
    """A frontier, and the generation of each destination that it speaks of."""

    report: FrontierReport
    generations: Mapping[str, int]

    def speaks_of(self, destination: str, generation: int) -> bool:
        return self.generations.get(destination) == generation and holds(self.report.share, destination)

    def known_through(self, destination: str) -> int:
        lagging = self.report.lagging.get(destination)
        return self.report.head if lagging is None else lagging.known_through

    def rows_through(self, destination: str) -> int:
        """The same of its rows alone: the source's columns may have changed, and it has still to follow."""
        lagging = self.report.lagging.get(destination)
        told = None if lagging is None else lagging.rows_through
        return self.known_through(destination) if told is None else told

    @property
    def order(self) -> tuple[int, datetime]:
        return self.report.head, self.report.at


class Frontiers:
    """The newest frontier of each reader, and the newest that can be trusted. Not for several threads at once."""

    def __init__(self) -> None:
        self._pages: dict[str, dict[int, Frontier]] = {}
        self._reports: dict[str, FrontierReport] = {}
        self._trusted: dict[str, Trusted] = {}
        self._said_s: dict[str, float] = {}
        """When each reader made its last page, by control's clock."""
        self._delays: dict[str, deque[tuple[datetime, float]]] = {}
        """How long each reader's pages took, plus what the two clocks differ by: only what may still be the least."""

    def note(self, page: Frontier, published: Published, now_s: float = 0.0) -> None:
        """Take in a page; pages of different keys may come in any order."""
        if not 0 <= page.page < page.pages <= MAX_PAGES or self._is_past(page):
            return
        self._said_s[page.instance] = now_s - self._lateness_s(page, now_s)
        pages = self._pages.setdefault(page.instance, {})
        pages[page.page] = page
        found = [pages.get(number) for number in range(page.pages)]
        complete = [other for other in found if other is not None and _cycle(page) == _cycle(other)]
        if len(complete) == page.pages:
            self._reports[page.instance] = _report_of(complete)
            self._pages[page.instance] = {other.page: other for other in complete}
            self.trust(published)

    def unsure(self, now_s: float) -> frozenset[str]:
        """Readers whose trusted frontier no longer bounds any lag."""
        return frozenset(name for name in self._trusted if self._is_unsure(name, now_s))

    def _is_unsure(self, instance: str, now_s: float) -> bool:
        report, silent_s = self._reports[instance], now_s - self._said_s[instance]
        looked_s = silent_s + (report.look_age_s or 0.0) if silent_s >= HEARD_EVERY_S else silent_s
        if report.overdue or looked_s >= UNHEARD_AFTER_S:
            return True
        outdated_s = (self._reports[instance].at - self._trusted[instance].report.at).total_seconds()
        return outdated_s >= UNSURE_AFTER_S

    def _lateness_s(self, page: Frontier, now_s: float) -> float:
        """How much longer a page took than the quickest recent page of its reader: a broker may have delayed it.

        Clocks may differ, so the delay of the first page is unknown.
        """
        delay_s = now_s - page.at.timestamp()
        delays = self._delays.setdefault(page.instance, deque())
        while delays and delays[-1][1] >= delay_s:
            delays.pop()
        delays.append((page.at, delay_s))
        while delays[0][0] < page.at - LONGEST_DELAY:
            delays.popleft()
        return delay_s - delays[0][1]

    def _is_past(self, page: Frontier) -> bool:
        """Whether its reader has reported more since: after added partitions, or when old messages are sent again.

        Two readers with one name are both accepted.
        """
        known = self._reports.get(page.instance)
        return known is not None and page.cycle < known.cycle and page.at <= known.at

    def trust(self, published: Published) -> None:
        """Remember which of the newest frontiers speak of what is published now."""
        for instance, report in self._reports.items():
            if report.knows(published):
                self._trusted[instance] = Trusted(report, published.generations)

    @property
    def newest(self) -> tuple[FrontierReport, ...]:
        return tuple(self._reports.values())

    @property
    def trusted(self) -> tuple[Trusted, ...]:
        """Of each reader the newest frontier that can be trusted, the furthest first."""
        return tuple(sorted(self._trusted.values(), key=lambda trusted: trusted.order, reverse=True))


def holds(share: Share, destination: str) -> bool:
    return share.mode == "all" or assigned(_partition(share), destination)


@lru_cache(maxsize=256)
def _partition(share: Share) -> Partition:
    return Partition.model_validate(share.model_dump())


def of(trusted: Iterable[Trusted], destination: str, generation: int) -> Trusted | None:
    """Whose word counts for a destination: the furthest frontier that speaks of it; ``trusted`` is in that order."""
    for each in trusted:  # thousands of times a second: a generator would cost twice as much
        if each.speaks_of(destination, generation):
            return each
    return None


def _cycle(page: Frontier) -> tuple[int, int, int, str]:
    """What the pages of one cycle share. The number alone repeats after a reader restarts."""
    return page.cycle, page.pages, page.head, page.revision


def _report_of(pages: list[Frontier]) -> FrontierReport:
    first = pages[0]
    return FrontierReport(
        instance=first.instance,
        cycle=first.cycle,
        head=first.head,
        at=max(page.at for page in pages),
        share=first.share,
        revision=first.revision,
        settled=all(page.settled for page in pages),
        lagging=dict(ChainMap(*(page.lagging for page in pages))),
        error=next((page.error for page in pages if page.error is not None), None),
        notice=next((page.notice for page in pages if page.notice is not None), None),
        look_age_s=pages[-1].look_age_seconds,
        overdue=any(page.overdue for page in pages),
        head_at=pages[-1].head_at,
        waits=pages[-1].waits or {},
    )
