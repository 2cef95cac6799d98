"""The errors of the services, and what is done about each.

::

    Error                       the root
    ├── ConfigError             mistakes in a file, one line each; exit code 2
    ├── DependencyError         a catalog, broker, registry or store can't be reached; exit code 3
    ├── ViaduckError            carries type, message, hint, and where it happened
    │   ├── DestinationError    one destination can't go on; its ``type`` decides between retry and park
    │   │   ├── LakeAbsent      its catalog can be reached and holds no lake yet (lake.failure)
    │   │   └── RowsLack        its rows don't have what an update left out (applier.apply.columns.left_out)
    │   └── SourceError         the source can't be read or is not what it was
    ├── UnreadableMessage       a message is not of its topic's model; it becomes a dead letter
    ├── CatalogRefused          an entry names a catalog that can't be used (config.catalogs)
    ├── LayoutRefused           a text that is no layout of a table (config.table_layout)
    ├── NotFollowed             columns can't become what they are at the source (lake.columns.evolution)
    ├── NotDelivered            the broker did not confirm a message; it is sent again (kafka.failure)
    ├── ClientLost              a Kafka client can't continue and is created again (kafka.failure)
    ├── NotCommitted            a direct commit brought nothing about (lake.direct.catalogs)
    │   └── RivalCommitted      what it rested on has changed; it looks again (lake.direct.catalogs)
    ├── KeysInUse               an instance holds other keys for these files (lake.direct.lakes)
    ├── UnlikeFiles             a table has a file that only DuckLake can read (lake.changes.changed_rows)
    ├── Declined                the extension has to commit instead (applier.apply.direct.look)
    │   └── NoCatalog           a seed finds no lake, which may be created (applier.apply.direct.seed)
    ├── Undecodable             bytes are no value of their schema (applier.records.decoder)
    ├── UnusableSchema          no value can be read by a schema (applier.records.decoder)
    ├── ColumnsChange           records that were let go have to be staged again (applier.records.parse)
    ├── CursorMoved             the compare-and-set found another cursor; decide again (applier.apply.cursor.fence)
    ├── TimeIsUp                a sample has taken as long as it may (applier.worker.topic_sample)
    ├── Expired                 a range begins before what the source retains (reader.source.source_reader)
    ├── Refused                 a destination's state does not allow the action (control.model.lifecycle)
    ├── InvalidEntry            an entry over REST, with all that is wrong with it (control.model.problems)
    ├── S3Refused               a store did not take the probe (control.operations.s3_probe)
    ├── PolicyChanged           a value may no longer become a destination (control.operations.discovery)
    └── HttpProblem             an answer of a route, as a problem document (control.web.problems)

Those with a module behind them are defined there, and caught in the same service. Every exception that Viaduck's code
raises for a caller to handle derives from ``Error``. Exceptions of the standard library stay where they mean what they
mean there: ``ValueError`` of a parser or of a Pydantic validator, ``LookupError`` of a search, ``OSError`` of a file.

Errors are told apart by the question "would the caller act differently?"; everything else is the message's business.
``POLICY`` maps each type to exactly one action. Nothing is skipped, ever: the only way past a bad item is through it
or an operator.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from pydantic import BaseModel, ConfigDict

MAX_ATTEMPTS = 5
"""Failed tries in a row after which ``up --once`` gives a destination up; a running reader goes on, ever slower."""


class Action(StrEnum):
    RETRY = "retry"
    PARK = "park"
    CRASH = "crash"
    FENCED = "fenced"


POLICY: dict[str, Action] = {
    # the world is in the way; it may step aside
    "destination_unreachable": Action.RETRY,
    "destination_busy": Action.RETRY,
    "destination_unknown": Action.RETRY,
    "destination_differs": Action.RETRY,
    "source_unreachable": Action.RETRY,
    "source_behind": Action.RETRY,
    "storage_failed": Action.RETRY,
    "deadline_exceeded": Action.RETRY,
    "commit_unknown": Action.RETRY,
    "not_direct": Action.RETRY,
    "internal": Action.RETRY,
    # an operator is needed
    "access_denied": Action.PARK,
    "lake_missing": Action.PARK,
    "lake_incompatible": Action.PARK,
    "storage_refused": Action.PARK,
    "table_mismatch": Action.PARK,
    "table_not_empty": Action.PARK,
    "key_not_unique": Action.PARK,
    "history_expired": Action.PARK,
    "history_damaged": Action.PARK,
    "source_recreated": Action.PARK,
    "source_moved": Action.PARK,
    "schema_change": Action.PARK,
    "routing_value_changed": Action.PARK,
    "delete_in_append_only": Action.PARK,
    "update_in_append_only": Action.PARK,
    "value_refused": Action.PARK,
    "foreign_files": Action.PARK,
    "unsafe_catalog": Action.PARK,
    "value_not_carried": Action.PARK,
    "cursor_damaged": Action.PARK,
    "destination_damaged": Action.PARK,
    "upkeep_damaged": Action.PARK,
    "secret_missing": Action.PARK,
    "invalid_destination": Action.PARK,
    "not_allowed": Action.PARK,
    # going on would do harm, or is impossible
    "invariant_broken": Action.CRASH,
    "source_gone": Action.CRASH,
    # someone else's turn
    "fenced": Action.FENCED,
}


class Problem(BaseModel):
    """An error as users see it, in messages, over HTTP and in the terminal. ``type`` is a key of ``POLICY``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    type: str
    message: str
    hint: str
    retryable: bool


class Error(Exception):
    """The root: an error with a text for its user."""


class ViaduckError(Error):
    """Base of the errors that an operator reads.

    ``type`` is a key of ``POLICY``; ``message`` says what was attempted, where, on which range and why it failed;
    ``hint`` says what an operator can do.
    """

    def __init__(self, kind: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        if kind not in POLICY:
            raise KeyError(f"no failure policy for {kind!r}")
        self.type = kind
        self.message = message
        self.hint = hint

    @property
    def action(self) -> Action:
        return POLICY[self.type]

    def problem(self) -> Problem:
        return Problem(type=self.type, message=self.message, hint=self.hint, retryable=self.action is Action.RETRY)


class DestinationError(ViaduckError):
    """One destination can't go on."""


class SourceError(ViaduckError):
    """The source can't be read, or is not the table that it was."""


class DependencyError(Error):
    """Something that a command needs does not answer; ends it with exit code 3."""

    def __init__(self, what: str, message: str, hint: str = "") -> None:
        super().__init__(f"{what}: {message}")
        self.what = what
        self.message = message
        self.hint = hint


class ConfigError(Error):
    """Mistakes in a configuration file, one line each: path, what is wrong, what to write instead. Exit code 2."""

    def __init__(self, mistakes: Sequence[str]) -> None:
        super().__init__("\n".join(mistakes))
        self.mistakes = tuple(mistakes)


class UnreadableMessage(Error):
    """A message that is not of its topic's model; ``str()`` is the reason for the dead-letter topic."""
