"""What decoders of values have in common."""

from __future__ import annotations

from typing import Any, Protocol

from shared.contracts.errors import Error


class Undecodable(Error):
    """The bytes are no value of the schema."""


class UnusableSchema(Error):
    """No value can be read by the schema."""


class Decoder(Protocol):
    """Values of one schema."""

    @property
    def columns(self) -> dict[str, str]:
        """The types of columns that take its fields, where it tells them."""

    def decode(self, data: bytes) -> Any:
        """What ``json`` can spell. Raises ``Undecodable``."""
