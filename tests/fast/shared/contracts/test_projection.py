"""A model takes of other values what bears its fields' names, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from pydantic import BaseModel, ConfigDict, ValidationError

from shared.contracts.projection import project


class Shown(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str
    rows: int
    note: str | None = None


@dataclass
class Held:
    name: str
    rows: int
    secret: str = "s"


@dataclass
class Noted:
    name: str
    note: str


def test_fields_come_from_the_attributes_of_their_names() -> None:
    assert project(Shown, Held("a", 3)) == Shown(name="a", rows=3)


def test_of_several_sources_the_first_that_has_a_name_counts() -> None:
    assert project(Shown, Held("a", 3), Noted("b", "n")) == Shown(name="a", rows=3, note="n")


def test_what_is_given_by_name_counts_before_every_source() -> None:
    assert project(Shown, Held("a", 3), name="c") == Shown(name="c", rows=3)


def test_a_field_that_no_source_has_is_an_error() -> None:
    with pytest.raises(ValidationError, match="rows"):
        project(Shown, Noted("b", "n"))
