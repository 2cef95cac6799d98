"""The errors that the services share, and what is done about each.

::

    Error                       the root
    ├── ConfigError             mistakes in a file, one line each; exit code 2
    ├── DependencyError         a catalog, broker, registry or store can't be reached; exit code 3
    └── ViaduckError            carries type, message, hint, and where it happened
        ├── DestinationError    one destination can't go on; its ``type`` decides between retry and park
        └── SourceError         the source can't be read or is not what it was

Errors are told apart by the question "would the caller act differently?"; everything else is the message's business.
An exception that its own package always catches (``Refused``, ``CursorMoved``, ``Declined``) is defined there.
``POLICY`` maps each type to exactly one action. Nothing is skipped, ever: the only way past a bad item is through it
or an operator.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from shared.contracts.messages import Problem

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
    "secret_missing": Action.PARK,
    "invalid_destination": Action.PARK,
    "not_allowed": Action.PARK,
    # going on would do harm, or is impossible
    "invariant_broken": Action.CRASH,
    "source_gone": Action.CRASH,
    # someone else's turn
    "fenced": Action.FENCED,
}


class Error(Exception):
    """The root: an error with a text for its user."""


class ViaduckError(Error):
    """Base of all errors.

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
