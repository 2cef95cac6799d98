"""The services beside control: readiness and metrics of all of them on one page."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager

import httpx
import pytest

from services.control.metrics_view import exposition
from services.control.readiness import Readiness
from services.control.view.status_store import StatusStore
from shared.runtime.http import ServiceServer
from shared.runtime.metrics import Metrics
from shared.runtime.own_address import listen
from shared.runtime.peers import Peers
from tests.fast.control.examples import PIPELINE, frontier, progress, registered
from tests.fast.waiting import eventually

READER, APPLIER = "http://reader", "http://applier"

Answers = Mapping[str, httpx.Response | Exception]
"""By address and path."""


@contextmanager
def beside(answers: Answers, names: Mapping[str, str] | None = None) -> Iterator[Peers]:
    def answer(request: httpx.Request) -> httpx.Response:
        found = answers.get(str(request.url), httpx.ConnectError("connection refused"))
        if isinstance(found, Exception):
            raise found
        return found

    addresses = {"reader": READER, "applier": APPLIER} if names is None else names
    with closing(Peers(addresses, httpx.MockTransport(answer))) as peers:
        yield peers


def ready(**checks: str | None) -> httpx.Response:
    return httpx.Response(503 if any(checks.values()) else 200, json={"status": "…", "checks": checks})


FINE: Answers = {
    f"{READER}/readyz": ready(broker=None, source=None),
    f"{APPLIER}/readyz": ready(broker=None, spark=None),
}


def all_checks(answers: Answers, source: str | None = None, **own: str | None) -> dict[str, str | None]:
    checks = {name: (lambda wrong=wrong: wrong) for name, wrong in ({"broker": None, "registry": None} | own).items()}
    with beside(answers) as peers, closing(Readiness(checks, peers, lambda: {"source": source})) as readiness:
        return readiness.checks()


def test_with_everybody_there_everything_is_checked_by_name() -> None:
    assert all_checks(FINE) == dict.fromkeys(["broker", "registry", "source", "reader", "applier"])


def test_a_peer_that_is_away_is_named_and_the_source_is_known_from_controls_own_look() -> None:
    checks = all_checks({f"{APPLIER}/readyz": ready(spark=None)}, source="not looked at yet")
    assert checks["reader"] == "does not answer"
    assert (checks["source"], checks["applier"]) == ("not looked at yet", None)


def test_what_the_reader_says_of_the_source_counts_more_than_controls_look_long_ago() -> None:
    away = {**FINE, f"{READER}/readyz": ready(source="connection refused")}
    assert all_checks(away)["source"] == "connection refused"
    assert all_checks(FINE, source="not looked at yet")["source"] is None


def test_an_applier_without_its_spark_session_is_not_ready() -> None:
    starting = {**FINE, f"{APPLIER}/readyz": ready(broker=None, spark="the session starts")}
    assert all_checks(starting)["applier"] == "spark: the session starts"


@pytest.mark.parametrize("text", ["", "[]", '{"checks": 7}', "<html>"])
def test_something_else_that_answers_there_is_not_ready(text: str) -> None:
    checks = all_checks({**FINE, f"{READER}/readyz": httpx.Response(200, text=text)})
    assert checks["reader"] == "answers with 200 and no checks"


def test_controls_own_dependencies_are_named_with_what_is_wrong() -> None:
    checks = all_checks(FINE, registry="the database is locked")
    assert (checks["registry"], checks["broker"]) == ("the database is locked", None)


def test_without_peers_only_the_own_dependencies_are_checked() -> None:
    with (
        beside({}, {}) as peers,
        closing(Readiness({"broker": lambda: None}, peers, lambda: {"source": "unknown"})) as readiness,
    ):
        assert readiness.checks() == {"broker": None}


def test_a_dependency_that_hangs_is_named_and_holds_nobody_up() -> None:
    hanging = threading.Event()

    def hang() -> str | None:
        hanging.wait(20.0)
        return None

    with beside({}, {}) as peers, closing(Readiness({"broker": hang}, peers, dict, within_s=0.05)) as readiness:
        assert readiness.checks() == {"broker": "did not answer within 0.05 s"}
        hanging.set()


def counting(**counts: float) -> Metrics:
    metrics = Metrics(PIPELINE)
    for name, count in counts.items():
        getattr(metrics, name).inc(count)
    return metrics


def status_store() -> StatusStore:
    status_store = StatusStore(PIPELINE)
    status_store.hold({"a": registered()})
    status_store.note(progress(position=15))
    status_store.note(frontier([registered()], head=17, lagging={"a": 15}))
    return status_store


def page(answers: Answers, own: Metrics | None = None, names: Mapping[str, str] | None = None) -> str:
    with beside(answers, names) as peers:
        return exposition([own or Metrics(PIPELINE)], peers, lambda: [status_store().view()], 500)


def text(metrics: Metrics) -> httpx.Response:
    return httpx.Response(200, text=metrics.exposition())


def test_one_page_shows_the_metrics_of_all_services() -> None:
    shown = page(
        {
            f"{READER}/metrics": text(counting(polls_total=5)),
            f"{APPLIER}/metrics": text(counting(cdc_rows_read_total=7)),
        }
    )
    assert 'viaduck_polls_total{pipeline="events"} 5.0' in shown
    assert 'viaduck_cdc_rows_read_total{pipeline="events"} 7.0' in shown
    assert shown.count("# TYPE viaduck_polls_total counter") == 1


@pytest.mark.parametrize("away", [httpx.ReadTimeout("late"), httpx.Response(500), httpx.Response(200, text="<html>")])
def test_a_peer_without_metrics_is_left_out(away: httpx.Response | Exception) -> None:
    shown = page({f"{READER}/metrics": text(counting(polls_total=5)), f"{APPLIER}/metrics": away})
    assert 'viaduck_polls_total{pipeline="events"} 5.0' in shown


LAG = 'viaduck_dest_lag_snapshots{destination="a",pipeline="events"}'


def test_how_far_destinations_are_is_the_readers_to_say_and_controls_while_it_is_away() -> None:
    reader = Metrics(PIPELINE)
    reader.dest_lag_snapshots.labels(destination="a").set(0)
    assert f"{LAG} 0.0" in page({f"{READER}/metrics": text(reader)})
    assert f"{LAG} 2.0" in page({})


def test_a_control_that_runs_alone_leaves_the_destinations_to_the_readers_own_page() -> None:
    """Prometheus asks each service then, and would see every lag twice."""
    assert LAG not in page({}, names={})


def test_the_real_pages_of_a_service_are_understood() -> None:
    metrics = counting(polls_total=3)
    listening = listen("127.0.0.1", 0, "reader.port")
    server = ServiceServer(listening, metrics.exposition, lambda: {"broker": None, "source": "away"})
    server.start()
    try:
        with closing(Peers({"reader": f"http://127.0.0.1:{server.port}/"})) as peers:
            assert peers.checks() == {"source": "away", "reader": None}
            assert 'viaduck_polls_total{pipeline="events"} 3.0' in peers.metrics()["reader"]
    finally:
        server.stop()


def test_a_dependency_that_hangs_is_not_asked_again_meanwhile() -> None:
    release, asked = threading.Event(), list[str]()

    def hang() -> None:
        asked.append("broker")
        release.wait(10.0)

    with beside({}, {}) as peers, closing(Readiness({"broker": hang}, peers, dict, within_s=0.01)) as readiness:
        for _ in range(20):
            assert readiness.checks()["broker"] is not None
        assert asked == ["broker"]
        release.set()
        eventually(lambda: readiness.checks()["broker"] is None)
