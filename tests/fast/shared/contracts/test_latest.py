"""The message of a compacted topic that holds is the one of the highest order, in whatever order they are read."""

from __future__ import annotations

from itertools import permutations

import pytest

from shared.contracts.latest import Latest
from shared.contracts.messages import PipelineDocument


def said(version: int, document: dict[str, int] | None = None, pipeline: str = "p") -> PipelineDocument:
    return PipelineDocument(pipeline=pipeline, version=version, document=document)


@pytest.mark.parametrize("read", list(permutations([said(1, {}), said(2), said(3, {"a": 1})])))
def test_the_highest_order_holds_whatever_is_read_last(read: tuple[PipelineDocument, ...]) -> None:
    latest: Latest[PipelineDocument] = Latest()
    taken = [each for each in read if latest.take(each)]
    assert list(latest) == [said(3, {"a": 1})]
    assert taken[-1] == said(3, {"a": 1})


def test_of_equal_orders_the_last_read_holds() -> None:
    latest: Latest[PipelineDocument] = Latest()
    assert latest.take(said(1, {"a": 1}))
    assert latest.take(said(1, {"a": 2}))
    assert latest.get("p") == said(1, {"a": 2})


def test_each_key_has_a_message_of_its_own_and_none_after_a_clear() -> None:
    latest: Latest[PipelineDocument] = Latest()
    latest.take(said(5))
    assert latest.take(said(1, pipeline="q"))
    assert len(list(latest)) == 2
    latest.clear()
    assert latest.get("p") is None
    assert latest.take(said(1))
