"""A file to load, written for one test."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from shared.config.loading import load
from shared.config.model import Config
from shared.contracts.errors import ConfigError

Load = Callable[..., Config]
Mistaken = Callable[..., tuple[str, ...]]

MINIMAL = """\
source: {catalog: "sqlite:source.sqlite", table: events}
routing: {field: company}
"""


@pytest.fixture
def load_text(tmp_path: Path) -> Load:
    """Load a text as the file ``viaduck.yaml`` of the test's folder."""

    def load_it(text: str, environ: Mapping[str, str] | None = None) -> Config:
        file = tmp_path / "viaduck.yaml"
        file.write_text(text, encoding="utf-8")
        return load(file, environ or {})

    return load_it


@pytest.fixture
def mistakes_of(load_text: Load) -> Mistaken:
    """The mistakes of a text; fails where there is none."""

    def mistakes(text: str, environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
        with pytest.raises(ConfigError) as raised:
            load_text(text, environ)
        assert all(line and "\n" not in line for line in raised.value.mistakes)
        return raised.value.mistakes

    return mistakes
