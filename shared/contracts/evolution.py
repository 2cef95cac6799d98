"""Which changes of the source's columns a destination follows, as a file, an operator and messages say it."""

from __future__ import annotations

from enum import StrEnum


class EvolutionPolicy(StrEnum):
    """What is not followed parks the destination."""

    FOLLOW = "follow"
    """Every change that can be followed."""
    ADDITIVE = "additive"
    """Columns and fields that are added, and types that become wider."""
    FREEZE = "freeze"
    """None."""
