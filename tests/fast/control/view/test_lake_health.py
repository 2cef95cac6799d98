"""What control makes of the appliers' looks at the catalogs: over HTTP, on the page, as metrics."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from services.control.lake_metrics_view import WORST, lake_metrics
from services.control.view.lake_health import SORTED_BY, after, shown
from shared.contracts.reports import LakeFigures, LakeHealth, parse_progress
from shared.runtime.metrics import together
from tests.fast.control.examples import PIPELINE, at, problem
from tests.fast.control.rig import V1, ControlRig, D

HOSTILE = "<script>alert(1)</script>\u202e\x1b[31m"


def figures(**changes: Any) -> LakeFigures:
    plain = {
        "format_version": "1.0", "files": 4, "bytes": 2_500_000, "rows": 1_000, "delete_files": 1, "dead_rows": 20,
        "inlined_rows": 3, "small_files": 1, "old_files": 7, "old_bytes": 900, "cleanup_files": 2, "snapshots": 30,
        "oldest_snapshot": 5, "oldest_at": at(0), "oldest_age_seconds": 100.0,
    }  # fmt: skip
    return LakeFigures.model_validate({**plain, **changes})


def told(id: str | None = "a", seconds: float = 10.0, generation: int | None = 1, **changes: Any) -> LakeHealth:
    fields: dict[str, Any] = {"figures": figures(), **changes}
    return LakeHealth(pipeline=PIPELINE, destination=id, generation=generation, at=at(seconds), **fields)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[ControlRig]:
    made = ControlRig(tmp_path)
    yield made
    made.close()


def health(rig: ControlRig, id: str = "a") -> Any:
    answer = rig.http.get(f"{D}/{id}/health")
    assert answer.status_code == 200, answer.text
    return answer.json()


def listed(rig: ControlRig, **params: str) -> Any:
    answer = rig.http.get(f"{V1}/health", params)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_message_is_told_apart_from_the_topic_s_others() -> None:
    assert parse_progress(told().to_bytes()) == told()
    assert told().key == f"{PIPELINE}/a/@health"
    assert told(None).key == f"{PIPELINE}/@source/@health"


def test_a_destination_shows_its_last_figures(rig: ControlRig) -> None:
    rig.add("a")
    assert health(rig)["looked_at"] is None
    assert health(rig)["files"] is None
    rig.status_store.note(told())
    found = health(rig)
    assert (found["id"], found["files"], found["old_bytes"], found["error"]) == ("a", 4, 900, None)
    assert (found["small_file_share"], found["oldest_age_seconds"]) == (0.25, 100.0)
    assert found["looked_at"] == "2026-01-01T00:00:10Z"


def test_a_look_that_failed_is_told_beside_the_figures_before_it(rig: ControlRig) -> None:
    rig.add("a")
    rig.status_store.note(told())
    rig.status_store.note(told(seconds=20, figures=None, error=problem("access_denied")))
    found = health(rig)
    assert (found["files"], found["looked_at"], found["failed_at"]) == (
        4, "2026-01-01T00:00:10Z", "2026-01-01T00:00:20Z",
    )  # fmt: skip
    assert found["error"]["type"] == "access_denied"
    rig.status_store.note(told(seconds=30))
    assert (health(rig)["error"], health(rig)["failed_at"]) == (None, None)


def test_what_is_older_comes_too_late_and_another_life_s_is_not_shown(rig: ControlRig) -> None:
    rig.add("a")
    rig.status_store.note(told(seconds=20))
    rig.status_store.note(told(seconds=10, figures=figures(files=99)))
    assert health(rig)["files"] == 4
    rig.status_store.note(told(seconds=90, generation=2, figures=figures(files=99)))
    assert health(rig)["files"] is None, "of a life that control does not know"
    rig.status_store.note(told(seconds=95, generation=1))
    assert after(after(None, told(generation=2)), told(generation=1)).generation == 2


def test_a_destination_that_went_is_forgotten_and_one_that_never_was_is_not_remembered(rig: ControlRig) -> None:
    rig.add("a")
    rig.status_store.note(told())
    rig.status_store.note(told("nowhere"))
    assert rig.status_store.view().health.keys() == {"a"}
    assert rig.http.delete(f"{D}/a").status_code == 204
    assert rig.status_store.view().health == {}
    assert rig.http.get(f"{D}/a/health").status_code == 404


def test_the_list_is_sorted_by_any_figures_and_read_page_by_page(rig: ControlRig) -> None:
    for name, files, old_bytes in (("a", 1, 5), ("b", 9, 1), ("c", 9, 7), ("d", 3, 0)):
        rig.add(name)
        rig.status_store.note(told(name, figures=figures(files=files, old_bytes=old_bytes)))
    rig.add("e")
    rig.status_store.note(told(None, generation=None))
    assert [each["id"] for each in listed(rig)["items"]] == ["a", "b", "c", "d", "e"]
    sort = "-files,-free_bytes,-oldest_age"
    first = listed(rig, sort=sort, limit="2")
    second = listed(rig, sort=sort, limit="2", after=first["next"])
    third = listed(rig, sort=sort, limit="2", after=second["next"])
    pages = [first, second, third]
    assert [[each["id"] for each in page["items"]] for page in pages] == [["c", "b"], ["d", "a"], ["e"]]
    assert [page["source"]["files"] for page in pages] == [4, 4, 4]
    assert third["next"] is None
    assert [each["id"] for each in listed(rig, sort="files")["items"]] == ["a", "d", "b", "c", "e"]


@pytest.mark.parametrize("key", SORTED_BY)
def test_every_figure_can_be_sorted_by(rig: ControlRig, key: str) -> None:
    values: dict[str, Any] = {
        name: 9 for name in LakeFigures.model_fields if name not in ("format_version", "oldest_at")
    }
    values |= {"small_files": 1, "files": 1}
    rig.add("a")
    rig.add("z")
    rig.status_store.note(told("a", figures=figures(**dict.fromkeys(values, 0), oldest_at=at(50))))
    rig.status_store.note(told("z", figures=figures(**values, oldest_at=at(0))))
    assert [each["id"] for each in listed(rig, sort=f"-{key}")["items"]] == ["z", "a"]
    assert [each["id"] for each in listed(rig, sort=key)["items"]] == ["a", "z"]


@pytest.mark.parametrize(
    "sort", ["nothing", "", ",", "files,", "--files", "files;drop", "-id", "files," * 6 + "files", "x" * 200]
)
def test_what_is_no_key_is_refused_by_its_name(rig: ControlRig, sort: str) -> None:
    answer = rig.http.get(f"{V1}/health", {"sort": sort})
    assert answer.status_code == 422
    assert answer.json()["detail"].startswith("sort: ")
    assert answer.json()["type"].endswith("invalid")


@pytest.mark.parametrize("cursor", ["x", "W10", "W1sxXSwieCJd", "W1tudWxsXSwieCJd", "W1tOYU5dLCJ4Il0", "ImEi"])
def test_a_cursor_of_another_list_is_refused(rig: ControlRig, cursor: str) -> None:
    rig.add("a")
    answer = rig.http.get(f"{V1}/health", {"sort": "-files,-rows", "after": cursor})
    assert answer.status_code == 422, answer.text


def test_the_page_shows_a_lake_s_figures_and_sorts_by_them(rig: ControlRig) -> None:
    for name, files in (("a", 7_001), ("b", 9_002)):
        rig.add(name)
        rig.status_store.note(told(name, figures=figures(files=files)))
    page = rig.http.get("/?sort=files").text
    assert page.index(">9002<") < page.index(">7001<")
    assert '<a href="?sort=files">files</a>' in page
    assert '<option value="files" selected>' in page
    detail = rig.http.get("/destinations/a").text
    assert "2.5 MB" in detail
    assert "7,001" in detail
    assert "the oldest is 1 min 40 s old" in detail


def test_the_page_says_where_a_look_failed_or_never_was(rig: ControlRig) -> None:
    rig.add("a")
    assert "have not looked at it yet" in rig.http.get("/destinations/a").text
    rig.status_store.note(told(figures=None, error=problem("access_denied")))
    assert "The last look failed" in rig.http.get("/destinations/a").text


def test_what_a_catalog_holds_is_only_text_on_the_page(rig: ControlRig) -> None:
    rig.add("a")
    rig.status_store.note(told(figures=figures(format_version=HOSTILE[:40])))
    page = rig.http.get("/destinations/a").text
    assert "<script>alert" not in page
    rig.status_store.note(
        told(seconds=30, figures=None, error=problem("lake_missing").model_copy(update={"message": HOSTILE}))
    )
    assert "<script>alert" not in rig.http.get("/destinations/a").text


def samples(rig: ControlRig, most: int) -> dict[str, dict[str, float]]:
    """By metric: values by destination, or by bucket."""
    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(together([lake_metrics(rig.status_store.view(), most)])):
        for sample in family.samples:
            label = sample.labels.get("destination", sample.labels.get("le", ""))
            found.setdefault(sample.name, {})[label] = sample.value
    return found


def test_every_lake_has_gauges_while_there_are_not_too_many(rig: ControlRig) -> None:
    rig.add("a")
    rig.add("b")
    rig.status_store.note(told("a"))
    rig.status_store.note(told("b", figures=None, error=problem()))
    rig.status_store.note(told(None, generation=None, figures=figures(files=70)))
    found = samples(rig, 500)
    assert found["viaduck_lake_files"] == {"a": 4}
    assert found["viaduck_lake_oldest_snapshot_age_seconds"] == {"a": 100}
    assert found["viaduck_lake_small_file_share"] == {"a": 0.25}
    assert found["viaduck_source_lake_files"] == {"": 70}
    assert found["viaduck_lakes_failing"] == {"": 1}
    assert "viaduck_lakes_files_bucket" not in found


def test_of_more_lakes_only_the_worst_have_gauges_and_all_are_in_histograms(rig: ControlRig) -> None:
    names = [f"d{number:03}" for number in range(WORST + 10)]
    for number, name in enumerate(names):
        rig.add(name)
        rig.status_store.note(told(name, figures=figures(files=number, small_files=0, old_bytes=1_000 - number)))
    found = samples(rig, WORST + 9)
    assert found["viaduck_lake_files"].keys() == {*names[10:]}
    assert found["viaduck_lake_old_bytes"].keys() == {*names[:WORST]}
    assert found["viaduck_lakes_files_count"] == {"": len(names)}
    assert found["viaduck_lakes_files_bucket"]["10.0"] == 11
    assert len(samples(rig, WORST + 10)["viaduck_lake_files"]) == WORST + 10
    assert len(samples(rig, 3)["viaduck_lake_files"]) == 3
    assert "viaduck_lake_files" not in samples(rig, 0)


def test_an_unknown_lake_is_shown_as_such() -> None:
    assert shown(PIPELINE, "a", None).model_dump(exclude_none=True) == {"id": "a", "pipeline": PIPELINE}
