"""What can go wrong between a client and a control service."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class ClientError(Exception):
    """The base of all errors of this package. ``hint`` says what to do, where anything is known."""

    hint: str = ""


class InvalidAddress(ClientError):
    """The address of a control service is no URL, or a name is none that an address can hold."""


class Rejected(ClientError):
    """Control rejects a request. ``problem`` is the RFC 9457 document, ``status`` the HTTP status."""

    def __init__(self, path: str, status: int, problem: Mapping[str, Any]) -> None:
        said = str(problem.get("detail") or problem.get("title") or f"{status}")
        hint = str(problem.get("hint") or "")
        super().__init__(f"{path}: {prefix(problem)}{said}" + (f" ({hint})" if hint else ""))
        self.status = status
        self.problem = dict(problem)

    @property
    def kind(self) -> str:
        """The word behind the # of the problem's type."""
        return kind(self.problem)


class Unavailable(ClientError):
    """Control does not answer, answers something else, or can't do what was asked at the moment."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(f"control: {message}")
        self.hint = hint


def kind(problem: Mapping[str, Any]) -> str:
    """The word behind the # of a problem's type."""
    return str(problem.get("type", "")).rpartition("#")[2]


def prefix(problem: Mapping[str, Any]) -> str:
    """A problem's kind as the beginning of a message; empty where it has none."""
    word = kind(problem)
    return f"{word}: " if word else ""
