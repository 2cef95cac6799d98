"""Tenants that appear by themselves: what control does with what readers offer and operators answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from services.control.store.proposals import Proposals
from shared.config.catalogs import ResolvedLake
from shared.contracts.errors import DependencyError
from shared.contracts.layout import TableLayout
from shared.contracts.messages import LakeRef
from shared.contracts.reports import Offer, Offered
from shared.lake.connection.attach import attach
from shared.lake.connection.engine import connect
from shared.runtime.background import problems
from tests.fast.control.examples import PIPELINE, START
from tests.fast.control.files import config
from tests.fast.control.rig import V1, ControlRig, D, entry, offered
from tests.fast.waiting import eventually

TEMPLATE: dict[str, Any] = {
    "id": "{routing_value}-lake",
    "catalog": "sqlite:lakes/{routing_value}.sqlite",
    "data_path": "data/{routing_value}/",
    "table": "events_{routing_value}",
    "seed_mode": "latest",
}

Open = Callable[..., ControlRig]


@pytest.fixture
def open_rig(tmp_path: Path) -> Iterator[Open]:
    with ExitStack() as closing:

        def make(policy: str = "create", template: dict[str, Any] = TEMPLATE, **other: Any) -> ControlRig:
            rules = {name: other.pop(name) for name in ("allow", "per_hour", "total") if name in other}
            sections: dict[str, Any] = {"template": template, "appear": {"policy": policy, **rules}}
            sections |= other.pop("sections", {})
            rig = ControlRig(tmp_path, sections=sections, **other)
            closing.callback(rig.close)
            return rig

        yield make


def ids(rig: ControlRig) -> set[str]:
    return {each.id for each in rig.registry.destinations().values() if not each.removed}


def reasons(rig: ControlRig) -> dict[str, str]:
    return {value: each["reason"] for value, each in rig.proposals().items()}


def answer(rig: ControlRig, value: str, action: str) -> Any:
    state = "open" if value in rig.proposals() else "dismissed"
    return rig.http.post(f"{V1}/proposals/{rig.proposals(state=state)[value]['id']}:{action}")


def test_a_value_that_the_policy_allows_becomes_an_ordinary_destination(open_rig: Open) -> None:
    rig = open_rig(sections={"defaults": {"properties": {"s3_region": "eu"}}})
    rig.offered(acme=3)
    assert rig.proposals() == {}
    published = rig.published("acme-lake")
    assert published is not None
    assert (published.routing_value, published.table, published.managed_by) == ("acme", "events_acme", "api")
    assert published.lake == LakeRef(
        catalog=f"sqlite:{rig.folder}/lakes/acme.sqlite",
        data_path=f"{rig.folder}/data/acme/",
        properties={"s3_region": "eu"},
    )
    assert published.seed_mode == "latest"
    shown = rig.http.get(f"{D}/acme-lake").json()
    assert (shown["author"], shown["generation"]) == ("policy", 1)
    (entry_of_the_trail,) = rig.http.get(f"{V1}/audit").json()["items"]
    assert (entry_of_the_trail["author"], entry_of_the_trail["deed"]) == ("policy", "added")


def test_the_policy_that_asks_lists_with_row_counts_the_greatest_first_in_pages(open_rig: Open) -> None:
    rig = open_rig("propose")
    rig.offered(**{f"t{number}": number + 1 for number in range(5)})
    assert ids(rig) == set()
    found: list[Any] = []
    after: dict[str, str] = {}
    while True:
        page = rig.http.get(f"{V1}/proposals", {"limit": "2", **after}).json()
        found += page["items"]
        if page["next"] is None:
            break
        after = {"after": page["next"]}
    assert [(each["routing_value"], each["rows"]) for each in found] == [(f"t{n}", n + 1) for n in (4, 3, 2, 1, 0)]
    assert {each["reason"] for each in found} == {"asks"}
    assert found[0]["destination"] == "t4-lake"


def test_rows_are_told_anew_and_the_first_sight_stays(open_rig: Open) -> None:
    rig = open_rig("propose")
    rig.offers([offered("acme", 3, first_seen=9)])
    rig.offers([offered("acme", 8, first_seen=12)])
    shown = rig.proposals()["acme"]
    assert (shown["rows"], shown["first_seen"]) == (8, 9)


def test_without_a_policy_nothing_is_remembered(open_rig: Open) -> None:
    rig = open_rig("off")
    rig.offered(acme=3)
    assert (rig.proposals(), ids(rig)) == ({}, set())


def test_a_yes_makes_it_whatever_pattern_and_limits_say(open_rig: Open) -> None:
    rig = open_rig("create", allow="no.*", per_hour=0)
    rig.offered(acme=3)
    assert reasons(rig) == {"acme": "not_allowed"}
    made = answer(rig, "acme", "accept")
    assert (made.status_code, made.json()["id"], made.json()["author"]) == (201, "acme-lake", "loopback")
    assert made.headers["location"] == f"{D}/acme-lake"
    assert rig.proposals() == {}
    assert rig.registry.destinations()["acme-lake"].appeared_at is None


def test_a_no_is_remembered_written_to_the_trail_and_can_be_taken_back(open_rig: Open) -> None:
    rig = open_rig("propose")
    rig.offered(acme=3)
    said = answer(rig, "acme", "dismiss")
    assert (said.status_code, said.json()["state"], said.json()["author"]) == (200, "dismissed", "loopback")
    rig.offered(acme=9)
    assert rig.proposals() == {}
    assert list(rig.proposals(state="dismissed")) == ["acme"]
    assert answer(rig, "acme", "dismiss").status_code == 200
    (trail,) = rig.http.get(f"{V1}/audit").json()["items"]
    assert (trail["deed"], trail["author"]) == ("dismissed", "loopback")
    assert trail["changes"]["routing_value"] == [None, "acme"]
    assert answer(rig, "acme", "accept").status_code == 201


def test_a_dismissed_value_is_not_made_when_the_policy_changes(open_rig: Open, tmp_path: Path) -> None:
    rig = open_rig("propose")
    rig.offered(acme=3, other=3)
    answer(rig, "acme", "dismiss")
    rig.reconciler.apply(config(tmp_path, template=TEMPLATE, appear={"policy": "create"}))
    rig.discovery.look()
    assert ids(rig) == {"other-lake"}


def test_what_an_operator_removed_does_not_come_back_by_itself(open_rig: Open) -> None:
    rig = open_rig()
    rig.offered(acme=3)
    assert rig.http.delete(f"{D}/acme-lake").status_code == 204
    rig.offered(acme=3)
    assert (ids(rig), reasons(rig)) == (set(), {"acme": "removed"})
    assert answer(rig, "acme", "accept").json()["generation"] == 2


def test_limits_are_kept_by_the_registry_over_restarts_and_time_makes_room(open_rig: Open) -> None:
    rig = open_rig(per_hour=2, total=3)
    rig.offered(a=1, b=2, c=3, d=4)
    assert (ids(rig), set(reasons(rig).values())) == ({"d-lake", "c-lake"}, {"hour_full"})
    again = open_rig(per_hour=2, total=3)
    again.offered(a=1, b=2)
    assert reasons(again) == {"a": "hour_full", "b": "hour_full"}
    again.now = START + timedelta(hours=1, seconds=1)
    again.discovery.look()
    assert (ids(again), reasons(again)) == ({"b-lake", "c-lake", "d-lake"}, {"a": "full"})


def test_two_controls_on_one_registry_keep_one_limit(open_rig: Open) -> None:
    one, other = open_rig(per_hour=1), open_rig(per_hour=1)
    one.offered(a=1)
    other.offered(b=1)
    assert ids(one) == {"a-lake"}
    assert reasons(other) == {"b": "hour_full"}


def test_values_that_differ_by_case_alone_are_left_to_an_operator(open_rig: Open) -> None:
    rig = open_rig()
    rig.offered(Acme=1, acme=9, other=1)
    assert (ids(rig), reasons(rig)) == ({"other-lake"}, {"Acme": "similar", "acme": "similar"})


def test_a_no_to_one_of_them_lets_the_other_appear(open_rig: Open) -> None:
    rig = open_rig()
    rig.offered(Acme=1, acme=9)
    answer(rig, "Acme", "dismiss")
    rig.discovery.look()
    assert (ids(rig), rig.proposals()) == ({"acme-lake"}, {})


def test_a_value_whose_id_is_somebody_elses_is_left_to_an_operator(open_rig: Open) -> None:
    rig = open_rig()
    rig.add("acme-lake", routing_value="something else")
    rig.offered(acme=9)
    assert reasons(rig) == {"acme": "taken"}
    refused = answer(rig, "acme", "accept")
    assert (refused.status_code, refused.json()["type"]) == (409, "/docs/errors#conflict")


def test_nothing_begins_by_itself_in_a_lake_that_is_there(open_rig: Open, tmp_path: Path) -> None:
    """A stranger may name himself after the source, or after somebody's lake."""
    con = connect()
    lake = ResolvedLake(f"sqlite:{tmp_path}/lakes/acme.sqlite", data_path=f"{tmp_path}/data/acme/")
    attach(con, "lake", lake, read_only=False, create=True)
    con.close()
    rig = open_rig()
    rig.offered(acme=9)
    shown = rig.proposals()["acme"]
    assert (ids(rig), shown["reason"]) == (set(), "failed")
    assert "a lake exists already" in shown["message"]
    assert answer(rig, "acme", "accept").status_code == 201


def test_what_fails_its_checks_is_proposed_with_the_reason_and_tried_again_later(
    open_rig: Open, tmp_path: Path
) -> None:
    in_the_way = tmp_path / "data"
    in_the_way.write_text("a file")
    rig = open_rig()
    rig.offered(acme=9)
    assert (ids(rig), reasons(rig)) == (set(), {"acme": "failed"})
    assert "storage_refused" in rig.proposals()["acme"]["message"]
    refused = answer(rig, "acme", "accept")
    assert (refused.status_code, refused.json()["type"]) == (422, "/docs/errors#check_failed")
    in_the_way.unlink()
    rig.now += timedelta(seconds=60)
    rig.discovery.look()
    assert ids(rig) == set()
    rig.now += timedelta(seconds=300)
    rig.discovery.look()
    assert (ids(rig), rig.proposals()) == ({"acme-lake"}, {})


def test_many_failures_do_not_hold_up_the_look(open_rig: Open, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    rig = open_rig()
    rig.offered(**{f"t{number}": 1 for number in range(9)})
    said = [each["message"] for each in rig.proposals().values()]
    assert sum("after several failures" in each for each in said) == 4
    assert sum("storage_refused" in each for each in said) == 5
    rig.now += timedelta(seconds=60)
    rig.discovery.look()
    assert all("storage_refused" in each["message"] for each in rig.proposals().values())


def test_the_servers_lists_bound_what_a_template_makes(open_rig: Open) -> None:
    rig = open_rig(sections={"server": {"port": 0, "allowed_paths": ["/elsewhere"]}})
    rig.offered(acme=9)
    assert "is not below one of the paths" in rig.proposals()["acme"]["message"]


def test_a_value_with_a_destination_is_no_proposal_and_one_that_gets_it_no_longer(open_rig: Open) -> None:
    rig = open_rig("propose", file=("filed",))
    rig.offers([offered("value of filed"), offered("acme")])
    assert list(rig.proposals()) == ["acme"]
    rig.add("mine", routing_value="acme")
    assert rig.proposals() == {}
    rig.discovery.look()
    assert rig.discovery.proposals.all() == {}


def test_before_the_file_is_in_force_nobody_appears(open_rig: Open) -> None:
    rig = open_rig()
    rig.status_store.file_in_force = False
    rig.offered(acme=3)
    assert ids(rig) == set()


def test_a_flood_of_values_fills_the_registry_no_further(open_rig: Open) -> None:
    rig = open_rig("propose")
    rig.discovery.proposals = Proposals(rig.registry.database, PIPELINE, most_open=3)
    rig.offered(**{f"t{number}": 1 for number in range(9)})
    rig.offered(**{f"u{number}": 1 for number in range(9)})
    assert len(rig.proposals()) == 3
    answer(rig, next(iter(rig.proposals())), "dismiss")
    rig.discovery.look()
    assert len(rig.proposals()) == 3


def test_a_template_for_one_lake_differs_by_table(open_rig: Open) -> None:
    rig = open_rig(template={"catalog": "sqlite:shared.sqlite", "table": "{routing_value}"})
    rig.offered(a=1, b=1)
    assert ids(rig) == {"a", "b"}
    both = [rig.published(name) for name in ("a", "b")]
    assert [each.table for each in both if each] == ["a", "b"]


def test_what_appears_has_the_layout_of_the_template_over_that_of_the_pipeline(open_rig: Open) -> None:
    template = {**TEMPLATE, "layout": {"sorted_by": "", "encrypted": True}}
    rig = open_rig(template=template, sections={"layout": {"partitioned_by": "company", "sorted_by": "id"}})
    rig.offered(acme=3)
    published = rig.published("acme-lake")
    assert published is not None
    assert published.layout == TableLayout(partitioned_by="company", encrypted=True)


def test_names_that_postgres_would_cut_are_not_made(open_rig: Open) -> None:
    template = {"catalog": "postgres:dbname=lakes host=nowhere", "metadata_schema": "t" * 20 + "_{routing_value}",
                "data_path": "data/{routing_value}"}  # fmt: skip
    rig = open_rig(template=template)
    rig.offered(**{"x" * 43: 1})
    assert "longer than 63 bytes" in rig.proposals()["x" * 43]["message"]


def test_answers_to_what_is_not_there_are_refused(open_rig: Open) -> None:
    rig = open_rig("propose")
    for action in ("accept", "dismiss"):
        missing = rig.http.post(f"{V1}/proposals/{'0' * 32}:{action}")
        assert (missing.status_code, missing.json()["type"]) == (404, "/docs/errors#not_found")
        assert rig.http.post(f"{V1}/proposals/acme:{action}").status_code == 422


def test_the_registry_may_be_away(open_rig: Open) -> None:
    rig = open_rig()
    rig.registry.close()
    (rig.folder / "registry.sqlite").unlink()
    (rig.folder / "registry.sqlite").mkdir()
    with pytest.raises(DependencyError):
        rig.offered(acme=3)


def test_a_destination_put_by_hand_takes_the_rows_of_a_value_without_a_safe_name(open_rig: Open) -> None:
    rig = open_rig()
    rig.offers([offered("a/b", 4)])
    refused = answer(rig, "a/b", "accept")
    assert (refused.status_code, refused.json()["type"]) == (422, "/docs/errors#unsafe_value")
    assert "PUT a destination with an id of your own" in refused.json()["detail"]
    assert rig.http.put(f"{D}/mine?check=false", entry("mine", routing_value="a/b")).status_code == 201
    assert rig.proposals() == {}


def test_the_page_lists_them_and_takes_an_answer(open_rig: Open) -> None:
    rig = open_rig("propose")
    rig.offers([offered("acme", 1234), offered("other"), offered("x" * 300)])
    html = rig.http.get("/proposals").text
    assert "1,234" in html
    assert "(its beginning)" in html
    acme, other = rig.proposals()["acme"]["id"], rig.proposals()["other"]["id"]
    assert rig.http.post(f"/proposals/{acme}/accept").headers["location"] == "/destinations/acme-lake"
    assert rig.http.post(f"/proposals/{other}/dismiss").headers["location"] == "/proposals"
    assert (ids(rig), "acme" in rig.http.get("/proposals").text) == ({"acme-lake"}, False)
    assert "other" in rig.http.get("/proposals", {"state": "dismissed"}).text
    again = rig.http.post(f"/proposals/{acme}/accept")
    assert again.status_code == 409
    assert "there is no proposal" in again.text
    assert rig.http.post(f"/proposals/{other}/burn").status_code == 404
    assert rig.http.get("/proposals", {"after": "nonsense"}).status_code == 422


def test_a_thread_of_its_own_meets_what_is_offered(open_rig: Open) -> None:
    rig = open_rig()
    rig.discovery.start()
    try:
        rig.status_store.note(Offer(pipeline=PIPELINE, instance="viaduck-0", values=(offered("acme"),)))
        eventually(lambda: ids(rig) == {"acme-lake"})
        assert problems() == {}
    finally:
        rig.discovery.stop(3.0)


def test_a_defect_in_meeting_an_offer_is_named_and_the_next_offer_is_met(open_rig: Open) -> None:
    rig = open_rig()
    rig.status_store.offers = _fails_once(rig.status_store.offers)  # type: ignore[method-assign]
    rig.discovery.start()
    try:
        rig.status_store.note(Offer(pipeline=PIPELINE, instance="viaduck-0", values=(offered("acme"),)))
        eventually(lambda: problems() == {f"thread arrivals {PIPELINE}": "ended by KeyError; it begins again"})
        rig.status_store.note(Offer(pipeline=PIPELINE, instance="viaduck-0", values=(offered("acme"),)))
        eventually(lambda: ids(rig) == {"acme-lake"})
    finally:
        rig.discovery.stop(3.0)


def _fails_once(offers: Callable[[], list[Offered]]) -> Callable[[], list[Offered]]:
    failures: list[Exception] = [KeyError("a defect")]

    def failing() -> list[Offered]:
        if failures:
            raise failures.pop()
        return offers()

    return failing


def test_an_offer_of_another_pipeline_is_nobodys(open_rig: Open) -> None:
    rig = open_rig()
    rig.status_store.note(Offer(pipeline="another", instance="viaduck-0", values=(offered("acme"),)))
    rig.discovery.look()
    assert ids(rig) == set()
