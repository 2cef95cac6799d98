"""What benchmarks make of their figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import freshness
from bench.control import NONE, Figures, Requests, percentile
from bench.control_site import kinds_of_lists
from bench.freshness import Freshness, Stream
from bench.lakes import VARIABLES, Lake
from bench.statements import ASKED_FIRST, NAMES, OTHER, spoken
from bench.viaduck import entry, write_file
from services.control.operations.destination_entry import Entry, declare_entry
from shared.config.declared import Lakes
from shared.config.loading import load

GOOD = Requests(100, 0, 200.0, 10.0, 150.0)


def figures() -> Figures:
    requests = {"status": GOOD} | {name: GOOD for name, _ in kinds_of_lists()}
    return Figures(5_000, 60.0, requests, 100, 10, 40_000, 150.0, 0.4, [400.0])


def missed(found: Figures) -> list[str]:
    return [what for what, _, _, met in found.checks() if not met]


def test_a_percentile_is_a_time_that_this_share_did_not_exceed() -> None:
    times = {10.0: 98, 500.0: 1, 900.0: 1}
    assert [percentile(times, share) for share in (0.5, 0.98, 0.99, 1.0)] == [10.0, 10.0, 500.0, 900.0]
    assert percentile({}, 0.99) == 0.0


def test_a_target_that_is_missed_is_named_and_so_is_what_nobody_measured() -> None:
    assert missed(figures()) == []
    slow = figures()
    slow.requests["REST, sorted"] = Requests(100, 1, 2.0, 10.0, 200.0)
    slow.requests["page"] = NONE
    slow.watchers, slow.largest_update_bytes, slow.memory_mb = 99, 0, 500.0
    assert missed(slow) == [
        "page, p99", "REST, sorted, p99", "failed requests", "watchers at once", "largest update", "memory of control"
    ]  # fmt: skip


class TestABrokenTenant:
    def found(self, p99_s: float, *, broken: bool) -> Freshness:
        return Freshness(Stream(200, 5.0, 600.0), broken, 45 if broken else 0, 9000, 1.0, p99_s, 9.0, 5.0, 200)

    @pytest.mark.parametrize(("p99_s", "said"), [(2.4, "1.20 times"), (1.0, "0.50 times")])
    def test_may_cost_the_others_a_fifth(self, p99_s: float, said: str) -> None:
        told = freshness.compared(self.found(2.0, broken=False), self.found(p99_s, broken=True))
        assert said in told
        assert told.endswith("met")

    def test_that_costs_them_more_is_told(self) -> None:
        assert freshness.compared(self.found(2.0, broken=False), self.found(2.5, broken=True)).endswith("MISSED")

    def test_has_shown_nothing_where_no_row_of_its_came_or_where_it_got_them(self) -> None:
        freshness._require_broken([{"id": "broken", "position": None}], {7: {"broken", "tenant001"}})
        with pytest.raises(AssertionError, match="no row"):
            freshness._require_broken([{"id": "broken", "position": None}], {7: {"tenant001"}})
        with pytest.raises(AssertionError, match="is not broken"):
            freshness._require_broken([{"id": "broken", "position": 7}], {7: {"broken"}})


def test_statements_are_told_apart_and_one_that_is_only_described_is_no_statement_of_its_kind() -> None:
    log = (
        "lake|LOG:  duration: 0.5 ms  parse <unnamed>: SELECT id FROM ducklake_snapshot\n"
        "lake|LOG:  duration: 1.5 ms  statement: COPY (SELECT id\n FROM ducklake_snapshot) TO STDOUT\n"
        "elsewhere|LOG:  duration: 9.0 ms  statement: COMMIT\n"
        "lake|LOG:  duration: 2.5 ms  statement: VACUUM\n"
    )
    found = spoken(log, "lake")
    assert found == {ASKED_FIRST: [0.5], "newest snapshot": [1.5], OTHER: [2.5]}
    assert set(found) <= set(NAMES)


@pytest.mark.parametrize("variable", [None, f"{VARIABLES}ACME"], ids=["in plain words", "by a variable"])
def test_control_takes_the_tenants_that_a_case_adds(tmp_path: Path, variable: str | None) -> None:
    source = Lake("source", f"sqlite:{tmp_path}/source.sqlite", f"{tmp_path}/source")
    early = Lake("early", f"sqlite:{tmp_path}/early.sqlite", f"{tmp_path}/early")
    lake = Lake("acme", f"sqlite:{tmp_path}/acme.sqlite", f"{tmp_path}/acme", variable)
    config = load(write_file(tmp_path, source, {"early": early}, port=8080), {})
    written = Entry.model_validate(entry("acme", lake))
    environ = {} if variable is None else {variable: "postgres:dbname=acme password=secret"}
    assert declare_entry("acme", written, "acme", Lakes(config, environ)).id == "acme"
