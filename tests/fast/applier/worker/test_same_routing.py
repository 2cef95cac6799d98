"""Which targets may be moved by the routing of an applier's file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from services.applier.worker.in_flight import Numbered
from services.applier.worker.same_routing import routed_otherwise
from shared.contracts.errors import Action, DestinationError
from shared.contracts.routed_by import RoutedBy
from shared.lake.catalog.reader import TableInfo
from shared.lake.columns.history import ColumnVersion
from tests.fast.applier.worker.test_in_flight import target

TENANT, ORG, REGION = (RoutedBy(field=each) for each in ("tenant", "org", "region"))
APPENDED = RoutedBy(field="tenant", append_only=True)
RENAMED = (
    ColumnVersion(1, None, "tenant", "varchar", None, 1, 5),
    ColumnVersion(1, None, "org", "varchar", None, 5, None),
    ColumnVersion(2, None, "region", "varchar", None, 1, None),
)
TABLE = TableInfo("main", "t", 1, "a table", "a lake", 1, (), RENAMED, snapshot=9)


def numbered(number: int, declared: RoutedBy | None, counted: RoutedBy | None = None) -> Numbered:
    made = target()
    destination = made.destination.model_copy(update={"routed_by": declared})
    return number, replace(made, destination=destination, item=made.item.model_copy(update={"routed_by": counted}))


def never() -> TableInfo:
    raise AssertionError("the source is not to be looked at")


@pytest.mark.parametrize(("declared", "counted"), [(TENANT, None), (TENANT, TENANT), (None, None), (None, TENANT)])
def test_the_same_name_or_none_needs_no_look_at_the_source(declared: RoutedBy, counted: RoutedBy) -> None:
    assert routed_otherwise([numbered(0, declared, counted)], TENANT, never) == []


@pytest.mark.parametrize(
    ("declared", "counted", "own", "why"),
    [
        (ORG, None, TENANT, None),
        (TENANT, ORG, TENANT, None),
        (TENANT, ORG, ORG, None),
        (REGION, None, TENANT, "generation 1 by 'region'"),
        (TENANT, REGION, TENANT, "the reader counted its changes by 'region'"),
        (REGION, TENANT, REGION, "the reader counted its changes by 'tenant'"),
        (APPENDED, None, TENANT, "by 'tenant', append-only"),
        (RoutedBy(field="gone"), None, TENANT, "by 'gone'"),
    ],
)
def test_another_name_is_the_same_where_it_means_one_column(
    declared: RoutedBy, counted: RoutedBy | None, own: RoutedBy, why: str | None
) -> None:
    found = routed_otherwise([numbered(0, declared, counted)], own, lambda: TABLE)
    assert [why is not None and why in error.message for _, error in found] == ([] if why is None else [True])
    assert all(error.action is Action.RETRY for _, error in found)


@pytest.mark.parametrize("look", [lambda: None, lambda: replace(TABLE, versions=())], ids=["no table", "a topic"])
def test_where_no_column_is_known_only_the_same_name_is_the_same(look: Callable[[], TableInfo | None]) -> None:
    others = routed_otherwise([numbered(0, ORG), numbered(1, TENANT)], TENANT, look)
    assert [number for (number, _), _ in others] == [0]


def test_a_source_that_does_not_respond_fails_those_in_doubt_after_one_look() -> None:
    looks = []
    gone = DestinationError("source_unreachable", "silence")

    def look() -> TableInfo:
        looks.append(1)
        raise gone

    found = routed_otherwise([numbered(0, ORG), numbered(1, TENANT), numbered(2, REGION)], TENANT, look)
    assert [(number, why) for (number, _), why in found] == [(0, gone), (2, gone)]
    assert looks == [1]
