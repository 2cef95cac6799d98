"""Several pipelines in one control: each is itself, and the trouble of one is nobody else's."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import closing
from html import unescape
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from sqlalchemy.engine import make_url

from services.control.app import build
from services.control.store.database import Database
from services.control.store.pipeline_store import PipelineStore
from services.control.view.destination_status import View
from services.control.view.status_store import StatusStore
from services.control.web.context import PipelineHandle, Sources
from services.control.web.guard import Guard
from shared.config.pipeline_files import PipelineFiles
from shared.contracts.messages import Outcome
from shared.kafka.embedded import EmbeddedBroker
from tests.fast.control.examples import by_id, declared, frontier, problem, progress, registered
from tests.fast.control.fakes import FakeTopic
from tests.fast.control.files import destination, make_source, write
from tests.fast.control.http import Http
from tests.fast.control.rig import ControlRig, entry
from tests.fast.control.test_service import Running, control, generation, metrics
from tests.fast.waiting import eventually

__all__ = ["control"]


@pytest.fixture
def rigs(tmp_path: Path) -> Iterator[tuple[ControlRig, ControlRig]]:
    folders = [tmp_path / name for name in ("events", "orders")]
    for folder in folders:
        folder.mkdir()
    with (
        closing(ControlRig(folders[0], file=("a",))) as events,
        closing(ControlRig(folders[1], file=("a", "b"), pipeline="orders")) as orders,
    ):
        yield events, orders


@pytest.fixture
def http(rigs: tuple[ControlRig, ControlRig]) -> Http:
    served = {each.pipeline: each.handle for each in rigs}
    return Http(build(Sources(lambda: served, dict, str, rigs[0].tokens), Guard(loopback=True)))


def ids(http: Http, pipeline: str) -> list[str]:
    return [each["id"] for each in http.get(f"/v1/pipelines/{pipeline}/destinations").json()["items"]]


def test_all_pipelines_are_listed_and_paged(http: Http) -> None:
    first = http.get("/v1/pipelines?limit=1").json()
    assert [each["name"] for each in first["items"]] == ["events"]
    rest = http.get(f"/v1/pipelines?limit=1&after={first['next']}").json()
    assert ([each["name"] for each in rest["items"]], rest["next"]) == (["orders"], None)


def test_one_id_may_live_in_two_pipelines_and_each_is_changed_alone(
    http: Http, rigs: tuple[ControlRig, ControlRig]
) -> None:
    events, orders = rigs
    assert (ids(http, "events"), ids(http, "orders")) == (["a"], ["a", "b"])
    http.put("/v1/pipelines/orders/destinations/c?check=false", entry("c"))
    assert http.post("/v1/pipelines/orders/destinations/a/pause").status_code == 200
    assert (ids(http, "events"), ids(http, "orders")) == (["a"], ["a", "b", "c"])
    paused, running = orders.published("a"), events.published("a")
    assert paused is not None
    assert running is not None
    assert (paused.pipeline, paused.state, running.state) == ("orders", "paused", "running")


def test_a_pipeline_that_there_is_none_of_is_told_those_that_there_are(http: Http) -> None:
    refused = http.get("/v1/pipelines/nobody/destinations")
    assert (refused.status_code, refused.json()["hint"]) == (404, "this control serves events, orders")


def test_the_page_has_a_link_to_each_pipeline_whose_links_stay_with_it(http: Http) -> None:
    front = http.get("/").text
    assert 'href="pipelines/events/"' in front
    assert 'href="pipelines/orders/"' in front
    orders = http.get("/pipelines/orders/").text
    assert 'href="destinations/b"' in orders
    assert 'action="/pipelines/orders/add"' in orders
    assert 'sse-connect="/pipelines/orders/events?' in orders
    assert "destinations/b" not in http.get("/pipelines/events/").text
    assert 'href="/pipelines/orders/destinations/b/pause"' in http.get("/pipelines/orders/destinations/b").text
    assert 'href="/destinations' not in front + orders
    assert http.get("/pipelines/orders/pulse").status_code == 200
    assert http.get("/pipelines/nobody/").status_code == 404


def test_the_page_of_all_shows_what_is_in_flight_and_who_is_worst(
    http: Http, rigs: tuple[ControlRig, ControlRig]
) -> None:
    _, orders = rigs
    word = frontier(orders.registry.destinations().values(), head=10, lagging={"a": 4, "b": 6})
    lagging = {name: each.model_copy(update={"in_flight": True}) for name, each in word.lagging.items()}
    orders.said(word.model_copy(update={"pipeline": "orders", "lagging": lagging}))
    error = problem("access_denied", retryable=False)
    orders.said(progress(Outcome.PARKED, "b", error=error).model_copy(update={"pipeline": "orders"}))
    orders.history.feel()
    row = http.get("/").text.split('href="pipelines/orders/"')[1].split("</tr>")[0]
    assert '<td class="number wide">2</td>' in row
    worst = row.index('href="pipelines/orders/destinations/b">b</a> <span class="parked">')
    assert worst < row.index('href="pipelines/orders/destinations/a">a</a>')


def test_the_page_of_all_has_pages_and_stays_small(tmp_path: Path) -> None:
    served = {f"{number:03}{'p' * 197}": PipelineHandle(crowded(f"{number:03}{'p' * 197}")) for number in range(60)}
    http = Http(build(Sources(lambda: served, dict, str), Guard(loopback=True)))
    first = http.get("/")
    rows = first.text.split("<tbody")[1].split("</tbody>")[0]
    assert (rows.count("<tr>"), len(rows.encode()) < 50_000) == (25, True)
    following = unescape(first.text.split('<a href="')[-1].split('"')[0])
    second = http.get(following).text
    assert ("025ppp" in second, "024ppp" in second) == (True, False)


def crowded(pipeline: str) -> Callable[[], View]:
    status_store = StatusStore(pipeline)
    held = [registered(declared=declared(f"{'x' * 190}{name}")) for name in "abc"]
    status_store.hold(by_id(held))
    for each in held:
        said = progress(Outcome.PARKED, each.id, error=problem("access_denied"))
        status_store.note(said.model_copy(update={"pipeline": pipeline}))
    trouble = problem().model_copy(update={"message": '"' * 9_000, "hint": "株" * 9_000})
    status_store.note(frontier(held).model_copy(update={"pipeline": pipeline, "error": trouble}))
    return status_store.view


def test_an_action_on_a_pipeline_s_page_goes_back_to_that_page(http: Http, rigs: tuple[ControlRig, ControlRig]) -> None:
    done = http.post("/pipelines/orders/destinations/b/pause")
    assert (done.status_code, done.headers["location"]) == (303, "/pipelines/orders/destinations/b")
    paused = rigs[1].published("b")
    assert paused is not None
    assert paused.state == "paused"


def test_without_a_name_a_page_of_one_pipeline_says_where_to_choose(http: Http) -> None:
    refused = http.get("/destinations/a")
    assert (refused.status_code, refused.json()["hint"]) == (404, "the page / has links to each")


# -- the process ------------------------------------------------------------------------------------------------------


def declare(control: Running, pipeline: str, *names: str, **sections: Any) -> Path:
    """A pipeline's file in the folder ``files``, beside its source if there is one."""
    folder = control.folder / pipeline
    folder.mkdir(exist_ok=True)
    file = write(
        folder,
        [destination(each) for each in names],
        **{"pipeline": pipeline, "server": {"port": control.port}, "state_dir": str(control.folder / "state"),
           "source": {"catalog": f"sqlite:{folder}/source.sqlite", "table": "events"}, **sections},
    )  # fmt: skip
    files = control.folder / "files"
    files.mkdir(exist_ok=True)
    return file.rename(files / f"{pipeline}.yaml")


def make(control: Running, *pipelines: str) -> None:
    for pipeline in pipelines:
        (control.folder / pipeline).mkdir(exist_ok=True)
        make_source(control.folder / pipeline)


def destinations(control: Running, pipeline: str) -> list[str]:
    found = control.get(f"/v1/pipelines/{pipeline}/destinations")
    return [each["id"] for each in found["items"]] if found and "items" in found else []


def hang_up(control: Running) -> None:
    assert control.process is not None
    control.process.send_signal(signal.SIGHUP)


def test_a_source_that_is_gone_and_a_file_that_its_source_refutes_keep_control_from_nothing(control: Running) -> None:
    make(control, "fine", "wrong")
    declare(control, "fine", "a")
    declare(control, "gone", "b")
    declare(control, "wrong", "c", routing={"field": "compny"})
    control.serving_folder(control.folder / "files")
    eventually(lambda: destinations(control, "fine") == ["a"])
    eventually(lambda: control.get("/v1/pipelines/wrong")["refused"])
    assert "no column compny" in control.get("/v1/pipelines/wrong")["refused"][0]
    assert control.get("/v1/pipelines/gone")["destinations"] == {"total": 0}
    ages = {f"source ({name})": None for name in ("fine", "gone", "wrong")}
    ready = {"status": "ready", "checks": {"broker": None, "registry": None}, "look_age_seconds": ages}
    assert control.get("/readyz") == ready

    control.say(progress(Outcome.APPLIED, "a", position=15).model_copy(update={"pipeline": "fine"}))
    eventually(lambda: control.get("/v1/pipelines/fine/destinations/a")["position"] == 15)

    make(control, "gone")
    declare(control, "wrong", "c")
    hang_up(control)
    eventually(lambda: destinations(control, "gone") == ["b"], 60)
    eventually(lambda: "file_needs_restart" in control.log())
    assert "Traceback" not in control.log()


def test_a_file_that_goes_takes_its_destinations_with_it_and_a_new_one_brings_its_own(control: Running) -> None:
    make(control, "one", "two", "three")
    declare(control, "one", "a")
    going = declare(control, "two", "b")
    control.serving_folder(control.folder / "files")
    eventually(lambda: control.kept.keys() == {"a", "b"} and all(control.kept.values()))
    url = f"http://127.0.0.1:{control.port}/v1/pipelines/two/destinations/over-rest?check=false"
    assert httpx.put(url, json=entry("over-rest")).status_code == 201

    kept = going.read_text()
    going.unlink()
    declare(control, "three", "c")
    hang_up(control)
    eventually(lambda: control.kept["b"] is None)
    eventually(lambda: destinations(control, "three") == ["c"])
    assert [each["name"] for each in control.get("/v1/pipelines")["items"]] == ["one", "three"]
    said = progress(Outcome.APPLIED, "c", position=7).model_copy(update={"pipeline": "three"})
    control.say(said)
    eventually(lambda: control.get("/v1/pipelines/three/destinations/c")["position"] == 7)

    clash = {"routing_value": "x", "catalog": f"sqlite:{control.folder}/files/lakes/c.sqlite"}
    url = f"http://127.0.0.1:{control.port}/v1/pipelines/one/destinations/x?check=false"
    refused = httpx.put(url, json=clash)
    assert refused.status_code == 422
    assert "those of c in the pipeline three too" in refused.text

    going.write_text(kept)
    hang_up(control)
    eventually(lambda: (control.kept["b"] is not None and control.kept["b"].generation) == 2)
    assert destinations(control, "two") == ["b", "over-rest"]
    control.publisher.send(control.topics.progress, "three/c", b"garbage")
    eventually(lambda: 'viaduck_dead_letters_total{pipeline="three",topic="viaduck.progress"} 1.0' in metrics(control))
    assert control.end() == 143
    assert "Traceback" not in control.log()


# -- over REST --------------------------------------------------------------------------------------------------------


def url_of(control: Running, path: str) -> str:
    return f"http://127.0.0.1:{control.port}/v1/pipelines/{path}"


def document(control: Running, pipeline: str, *names: str, **sections: Any) -> dict[str, Any]:
    """A pipeline as it is put; its source is the one in the folder of its name."""
    folder = control.folder / pipeline
    return {
        "source": {"catalog": f"sqlite:{folder}/source.sqlite", "table": "events"},
        "routing": {"field": "company", "key_columns": ["event_id"]},
        "destinations": [
            {"id": each, "routing_value": each, "catalog": f"sqlite:{folder}/{each}.sqlite"} for each in names
        ],
        **sections,
    }


def put(control: Running, pipeline: str, *names: str, **sections: Any) -> httpx.Response:
    return httpx.put(url_of(control, pipeline), json=document(control, pipeline, *names, **sections), timeout=20.0)


def there(control: Running) -> list[tuple[str, str]]:
    return [(each["name"], each["managed_by"]) for each in control.get("/v1/pipelines")["items"]]


@pytest.fixture
def running(control: Running) -> Running:
    """One that runs on a folder with one file."""
    make(control, "one", "put")
    declare(control, "one", "a")
    control.serving_folder(control.folder / "files")
    eventually(lambda: control.kept.keys() == {"a"})
    return control


def test_a_pipeline_that_is_put_runs_at_once_and_goes_with_everything_when_it_is_deleted(running: Running) -> None:
    put_at = put(running, "put", "b")
    assert (put_at.status_code, put_at.json()["refused"]) == (201, []), put_at.text
    eventually(lambda: destinations(running, "put") == ["b"])
    over_rest = {"routing_value": "c", "catalog": f"sqlite:{running.folder}/put/c.sqlite"}
    assert httpx.put(url_of(running, "put/destinations/c?check=false"), json=over_rest).status_code == 201
    running.say(progress(Outcome.APPLIED, "b", position=7).model_copy(update={"pipeline": "put"}))
    eventually(lambda: running.get("/v1/pipelines/put/destinations/b")["position"] == 7)
    assert running.said("put")[-1].document == document(running, "put", "b")

    # with a mistake nothing changes; with another source it begins anew, and the file's goes on
    before = running.get("/v1/pipelines/put")
    refused = put(running, "put", "b", routing={"field": "compny"})
    assert refused.json()["fields"][0]["path"] == "routing.field"
    assert running.get("/v1/pipelines/put") == before
    make(running, "other")
    source = document(running, "other")["source"]
    assert put(running, "put", "b", source=source).headers["etag"] == '"2"'
    eventually(lambda: running.log().count("pipeline_served") == 2)
    eventually(lambda: running.get("/v1/pipelines/put/destinations/b")["position"] == 7)

    assert httpx.delete(url_of(running, "put")).status_code == 204
    eventually(lambda: running.kept["b"] is None and running.kept["c"] is None)
    assert (there(running), running.said("put")[-1].document) == ([("one", "file")], None)
    assert running.kept["a"] is not None

    assert put(running, "put", "b").status_code == 201
    eventually(lambda: generation(running, "b") == 2)
    assert destinations(running, "put") == ["b"]
    assert "Traceback" not in running.log()


def test_it_is_there_after_a_crash_and_after_its_registry_was_lost(running: Running) -> None:
    assert put(running, "put", "b").status_code == 201
    eventually(lambda: running.kept.keys() == {"a", "b"})
    running.end(signal.SIGKILL)
    copy = running.folder / "state" / "pipelines" / "put.yaml"
    copy.unlink()
    running.serving_folder(running.folder / "files")
    assert (there(running), copy.exists()) == ([("one", "file"), ("put", "api")], True)
    nobodys = copy.with_name("nobodys.yaml")
    nobodys.write_text(copy.read_text().replace("put", "nobodys"))
    eventually(lambda: not nobodys.exists())
    assert there(running) == [("one", "file"), ("put", "api")]

    for lost in ([copy], []):  # the topic remembers it, and so does the copy
        running.end(signal.SIGKILL)
        for file in [*lost, *(running.folder / "state").glob("registry.sqlite*")]:
            file.unlink()
        running.serving_folder(running.folder / "files")
        assert there(running) == [("one", "file"), ("put", "api")]
        shown = running.get("/v1/pipelines/put")
        assert (shown["version"], shown["author"]) == (1, "rebuild")
        eventually(lambda: destinations(running, "put") == ["b"])
        assert generation(running, "b") == 1

    running.end(signal.SIGKILL)  # the broker as well: there is the copy alone
    for file in (running.folder / "state").glob("registry.sqlite*"):
        file.unlink()
    broker = EmbeddedBroker()
    with closing(Running(running.folder, broker.bootstrap, running.port)) as again:
        again.serving_folder(running.folder / "files")
        assert there(again) == [("one", "file"), ("put", "api")]
        eventually(lambda: again.kept.keys() == {"a", "b"})
    assert running.log().count("pipelines_recovered") == 3


def test_a_removal_that_a_crash_cut_short_is_finished_at_the_next_start(running: Running) -> None:
    assert put(running, "put", "b").status_code == 201
    eventually(lambda: running.kept.keys() == {"a", "b"})
    running.end(signal.SIGKILL)
    state = running.folder / "state"
    with closing(Database(make_url(f"sqlite:///{state}/registry.sqlite"))) as database:
        pipeline_store = PipelineStore(
            database, PipelineFiles(state), FakeTopic("viaduck.pipelines"), "viaduck.pipelines"
        )
        pipeline_store.end("put", "deleted", "somebody")
    running.serving_folder(running.folder / "files")
    eventually(lambda: running.kept["b"] is None)
    assert there(running) == [("one", "file")]
    assert put(running, "put", "b").status_code == 201
    eventually(lambda: generation(running, "b") == 2)


def test_a_put_waits_for_no_file_and_takes_none_over(running: Running) -> None:
    (running.folder / "files" / "one.yaml").write_text("{")
    assert put(running, "put", "b").status_code == 201
    eventually(lambda: destinations(running, "put") == ["b"])
    assert destinations(running, "one") == ["a"]
    hang_up(running)
    eventually(lambda: "files_refused" in running.log())
    assert there(running) == [("one", "file"), ("put", "api")]


def test_a_file_takes_over_what_came_over_rest_and_its_destinations_live_on(running: Running) -> None:
    assert put(running, "put", "b").status_code == 201
    eventually(lambda: running.kept.keys() == {"a", "b"})
    there_before = document(running, "put", "b")
    file = running.folder / "files" / "put.yaml"
    file.write_text(yaml.safe_dump({"pipeline": "put", **there_before}))
    hang_up(running)
    eventually(lambda: there(running) == [("one", "file"), ("put", "file")])
    assert put(running, "put", "b").json()["type"] == "/docs/errors#declared_by_file"
    assert not (running.folder / "state" / "pipelines" / "put.yaml").exists()
    eventually(lambda: running.get("/v1/pipelines/put")["refused"] == [])
    assert (destinations(running, "put"), generation(running, "b")) == (["b"], 1)
    file.unlink()
    hang_up(running)
    eventually(lambda: there(running) == [("one", "file")])
    eventually(lambda: running.kept["b"] is None)
    assert running.end() == 143
    assert "Traceback" not in running.log()


def test_two_controls_take_over_from_each_other_what_is_put(running: Running, tmp_path: Path) -> None:
    other = Running(tmp_path / "second", running.bootstrap)
    try:
        files = tmp_path / "second" / "files"
        files.mkdir(parents=True)
        text = (running.folder / "files" / "one.yaml").read_text()
        sections = yaml.safe_load(text) | {
            "server": {"port": other.port}, "state_dir": str(tmp_path / "second" / "state"),
            "registry": {"url": f"sqlite:///{running.folder}/state/registry.sqlite"},
        }  # fmt: skip
        (files / "one.yaml").write_text(yaml.safe_dump(sections))
        other.serving_folder(files)
        assert put(running, "put", "b").status_code == 201
        eventually(lambda: there(other) == [("one", "file"), ("put", "api")])
        eventually(lambda: destinations(other, "put") == ["b"])
        assert httpx.delete(url_of(other, "put")).status_code == 204
        eventually(lambda: there(running) == [("one", "file")])
        eventually(lambda: running.kept["b"] is None)
    finally:
        other.close()
    assert "Traceback" not in running.log() + other.log()
