"""What ``viaduck destination schema`` says, from what control answers."""

from __future__ import annotations

from typing import Any

from services.cli.output.destination_schema import conclusion, rows


def column(number: int, *path: str, type: str = "INTEGER", **more: Any) -> dict[str, Any]:
    return {"id": number, "path": [*path], "type": type, "default": None, **more}


def answer(**more: Any) -> dict[str, Any]:
    return {
        "position": 5, "head": 9, "snapshot": 3, "policy": "follow",
        "columns": [column(1, "v", source_id=7), column(2, "mine", source_id=None)],
        "source_at_position": [column(7, "v")],
        "source_at_head": [column(7, "w", type="BIGINT"), column(8, "s", "a")],
        "steps": ["rename v to w", "widen v to BIGINT"], "refused": None, **more,
    }  # fmt: skip


def test_columns_stand_beside_their_counterparts_and_new_ones_come_last() -> None:
    found = [tuple(each.values()) for each in rows(answer())]
    assert found == [
        (1, "v", "INTEGER", 7, "v", "w", "BIGINT"),
        (2, "mine", "INTEGER", None, None, None, None),
        (None, None, None, 8, None, "s.a", "INTEGER"),
    ]


def test_what_is_to_be_done_or_why_not_is_said() -> None:
    assert [*conclusion(answer())][-1] == "to be done: rename v to w, widen v to BIGINT"
    assert [*conclusion(answer(steps=[]))][-1] == "nothing is to be done"
    refused = {"type": "schema_change", "message": "it goes", "hint": "reseed", "retryable": False}
    said = [*conclusion(answer(steps=[], refused=refused))]
    assert said[-1] == "not followed: schema_change: it goes → reseed"
    assert "nothing is to be done" not in said
    assert "not seeded yet" in next(conclusion(answer(position=None)))
    assert "a topic" in next(conclusion(answer(head=None, source_at_position=None, source_at_head=None)))
