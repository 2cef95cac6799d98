"""Logging: structured, to standard error, without secrets; the libraries' loggers go the same way."""

from __future__ import annotations

import logging
import sys

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from shared.config.secrets import LONGEST_LINE, told

QUIET = ("py4j", "httpx", "httpcore", "uvicorn", "urllib3")
"""Libraries that would fill the log with their daily life."""


def configure(service: str, json: bool = False) -> None:
    """Set up logging for a process; every line names its ``service``. Call it once, first thing."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_formatter(json))
    logging.basicConfig(handlers=[handler], level=logging.INFO, force=True)
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
    structlog.configure(
        processors=[*_shared(), structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.clear_contextvars()
    _Service.name = service


def _formatter(json: bool) -> structlog.stdlib.ProcessorFormatter:
    console = structlog.dev.ConsoleRenderer(
        colors=sys.stderr.isatty(), pad_event_to=0, exception_formatter=structlog.dev.plain_traceback
    )
    last: list[Processor] = [
        structlog.stdlib.ProcessorFormatter.remove_processors_meta,
        *([structlog.processors.format_exc_info] if json else []),
        structlog.processors.JSONRenderer(ensure_ascii=False) if json else console,
    ]
    return _ScrubbingFormatter(foreign_pre_chain=_shared(), processors=last)


def _shared() -> list[Processor]:
    return [
        structlog.contextvars.merge_contextvars,
        _Service.add,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]


class _Service:
    """Which service this process is: one per process, known to threads that start later, unlike a context variable."""

    name = "viaduck"

    @classmethod
    def add(cls, _: WrappedLogger, __: str, event: EventDict) -> EventDict:
        return {**event, "service": cls.name}


class _ScrubbingFormatter(structlog.stdlib.ProcessorFormatter):
    """Takes secrets out of the finished line: wherever they came from, a traceback or a library, they end here."""

    def format(self, record: logging.LogRecord) -> str:
        return told(super().format(record), LONGEST_LINE)
