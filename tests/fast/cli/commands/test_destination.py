"""`viaduck destination`, `proposal`, `pipeline`, `token` and `work` against a real control."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import closing
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result
from viaduck_client import Client, ClientError, Rejected

from services.cli.commands.destination_actions import progress as progress_bar
from services.cli.commands.work import KINDS_HELP
from services.cli.main import app
from services.control.operations.work_items import Work
from services.control.store.audit_log import AuditLog
from services.control.view.status_store import StatusStore
from shared.contracts.errors import ConfigError
from shared.contracts.messages import CommitPath, ItemKind, Outcome
from tests.fast.control.examples import PIPELINE, problem, progress
from tests.fast.control.files import make_source
from tests.fast.control.live_server import served
from tests.fast.control.operations.test_work_items import TOPICS, FakeBroker, item, letter
from tests.fast.control.rig import ControlRig, offered
from tests.fast.control.sample_deployment import SHOWN, commit_an_hour
from tests.fast.control.view.test_lake_health import figures
from tests.fast.control.view.test_lake_health import told as health_told
from tests.fast.control.view.test_retention import LOOK
from tests.fast.waiting import eventually


class Terminal:
    """Commands as a user types them, for one control."""

    def __init__(self, rig: ControlRig, url: str) -> None:
        self.rig, self.url = rig, url
        self.broker = FakeBroker()

    def run(self, *words: str, code: int = 0) -> Result:
        done = CliRunner().invoke(app, [*words, "--url", self.url])
        assert done.exit_code == code, (done.output, done.exception)
        return done

    def json(self, *words: str, code: int = 0) -> list[Any]:
        return [json.loads(line) for line in self.run(*words, "--json", code=code).stdout.splitlines()]

    def fails(self, *words: str) -> ConfigError | ClientError:
        done = CliRunner().invoke(app, [*words, "--url", self.url])
        assert isinstance(done.exception, (ConfigError, ClientError)), done.output
        return done.exception


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    broker = FakeBroker()

    def work(board: StatusStore, trail: AuditLog) -> Work:
        return Work(PIPELINE, TOPICS, broker, broker, board.view, trail)

    sections = {
        "template": {"catalog": "sqlite:lakes/{routing_value}.sqlite", "data_path": "data/{routing_value}"},
        "appear": {"policy": "propose"},
    }
    with closing(ControlRig(tmp_path, sections=sections, work=work)) as rig, served(rig) as url:
        terminal = Terminal(rig, url)
        terminal.broker = broker
        yield terminal


def add(terminal: Terminal, name: str, *more: str, code: int = 0) -> list[Any]:
    return terminal.json("destination", "add", name, "--routing-value", f"value of {name}",
                         "--catalog", f"sqlite:lakes/{name}.sqlite", *more, code=code)  # fmt: skip


def test_a_destination_is_added_switched_shown_and_removed(terminal: Terminal) -> None:
    (added,) = add(terminal, "a", "--property", "s3_region=eu", "--no-check")
    assert (added["id"], added["lake"]["properties"]) == ("a", {"s3_region": "eu"})
    for action, state in [("pause", "paused"), ("resume", "seeding"), ("stop", "stopped"), ("restart", "seeding")]:
        (switched,) = terminal.json("destination", action, "a")
        assert switched["state"] == state
    assert [each["id"] for each in terminal.json("destination", "list", "--prefix", "a")] == ["a"]
    assert terminal.json("destination", "list", "--state", "paused") == []
    assert "is removed" in terminal.run("destination", "remove", "a").stdout
    assert terminal.json("destination", "list") == []


def test_who_made_the_last_commit_is_shown(terminal: Terminal) -> None:
    add(terminal, "a", "--no-check")
    terminal.rig.said(progress(position=15, commit=CommitPath.EXTENSION, commit_reason="schema_change"))
    (shown,) = terminal.json("destination", "show", "a")
    assert (shown["commit"], shown["commit_reason"]) == ("extension", "schema_change")
    assert "schema_change" in terminal.run("destination", "show", "a").stdout
    with Client(terminal.url) as client:
        assert client.destination(PIPELINE, "a")["commit"] == "extension"


def test_who_made_each_commit_is_listed(terminal: Terminal, tmp_path: Path) -> None:
    commit_an_hour(tmp_path / "lakes" / f"{SHOWN}.sqlite")
    add(terminal, SHOWN, "--no-check")
    listed = terminal.json("destination", "history", SHOWN)
    assert [each["path"] for each in listed[:3]] == [None, "direct", "extension"]
    assert "path" in terminal.run("destination", "history", SHOWN).stdout


def test_a_layout_is_given_by_options(terminal: Terminal) -> None:
    layout = ("--partitioned-by", "year(ts)", "--sorted-by", "event_id DESC")
    (added,) = add(terminal, "a", *layout, "--encrypted", "--no-check")
    assert added["layout"] == {"partitioned_by": "year(ts)", "sorted_by": "event_id DESC", "encrypted": True}
    (plain,) = add(terminal, "b", "--no-encrypted", "--no-check")
    assert plain["layout"] == {"partitioned_by": None, "sorted_by": None, "encrypted": False}
    refused = terminal.fails("destination", "add", "c", "--routing-value", "x", "--catalog", "sqlite:lakes/c.sqlite",
                             "--partitioned-by", "bucket(4, event_id)", "--no-check")  # fmt: skip
    assert "layout.partitioned_by" in str(refused)
    assert "bucket()" in str(refused)


def test_what_control_refuses_is_said_in_its_words(terminal: Terminal) -> None:
    refused = terminal.fails("destination", "add", "a", "--routing-value", "x", "--catalog", "postgresql://u:s3cret@h")
    assert isinstance(refused, Rejected)
    assert (refused.kind, refused.status) == ("secret_in_request", 422)
    assert "s3cret" not in str(refused)
    assert "not_found: there is no destination" in str(terminal.fails("destination", "pause", "nobody"))


def test_a_dry_run_says_what_speaks_against_a_destination_and_adds_nothing(terminal: Terminal) -> None:
    checks = add(terminal, "a", "--dry-run")
    assert {each["check"] for each in checks} >= {"duplicates", "catalog"}
    in_the_way = terminal.rig.folder / "a file"
    in_the_way.write_text("")
    add(terminal, "a", "--dry-run", "--data-path", f"{in_the_way}/data", code=1)
    assert terminal.json("destination", "list") == []


def test_waiting_ends_with_the_operation(terminal: Terminal) -> None:
    add(terminal, "a", "--no-check")
    done: list[Any] = []
    waiting = threading.Thread(target=lambda: done.extend(terminal.json("destination", "reseed", "a", "--wait")))
    waiting.start()
    eventually(lambda: terminal.rig.published("a") and terminal.rig.registry.destinations()["a"].generation == 2)
    terminal.rig.applied("a", 2, 5)
    waiting.join(10)
    assert [each["state"] for each in done] == ["succeeded"]


def test_waiting_for_what_fails_ends_with_1_and_the_reason(terminal: Terminal) -> None:
    add(terminal, "a", "--no-check")
    begun = terminal.json("destination", "reseed", "a")[0]
    terminal.rig.said(progress(Outcome.PARKED, generation=2, error=problem("access_denied", retryable=False)))
    with Client(terminal.url) as client:
        assert client.wait(PIPELINE, begun["id"], timeout_s=5)["state"] == "failed"
    shown = terminal.run("destination", "remove", "a", "--drop-data", "--wait", "--timeout", "0", code=1)
    assert "drop of a: running" in shown.stdout
    terminal.rig.said(progress(kind=ItemKind.DROP, generation=3, position=-1))
    assert terminal.json("destination", "list") == []


def test_thousands_are_imported_and_bad_lines_are_named(terminal: Terminal, tmp_path: Path) -> None:
    file = tmp_path / "tenants.ndjson"
    good = {"id": "a", "routing_value": "x", "catalog": "sqlite:lakes/a.sqlite"}
    file.write_text(json.dumps(good) + "\n{\n")
    done = terminal.run("destination", "import", str(file), code=1)
    assert "1 created, 0 changed, 1 failed" in done.stdout
    assert "line 2: " in done.stderr


def test_the_trail_is_shown(terminal: Terminal) -> None:
    add(terminal, "a", "--no-check")
    terminal.run("destination", "pause", "a")
    assert [each["deed"] for each in terminal.json("pipeline", "audit", "--destination", "a")] == ["paused", "added"]
    assert "running → paused" in terminal.run("pipeline", "audit").stdout
    assert terminal.json("pipeline", "list")[0]["name"] == PIPELINE


PUT = """
source: {catalog: "sqlite:/lakes/orders.sqlite", table: orders}
routing: {field: company}
destinations: [{id: a, routing_value: 007, catalog: "sqlite:/lakes/a.sqlite"}]
poll: {interval_seconds: 0.5}
"""


def test_a_pipeline_is_put_from_a_file_shown_and_removed(terminal: Terminal, tmp_path: Path) -> None:
    file = tmp_path / "orders.yaml"
    file.write_text(PUT)
    (put,) = terminal.json("pipeline", "put", "orders", "-f", str(file))
    assert (put["name"], put["managed_by"], put["version"]) == ("orders", "api", 1)
    assert put["document"]["destinations"][0]["routing_value"] == "007"
    assert terminal.json("pipeline", "show", "orders") == [put]
    assert "sqlite:/lakes/orders.sqlite" in terminal.run("pipeline", "show", "orders").stdout
    assert [each["managed_by"] for each in terminal.json("pipeline", "list")] == ["file", "api"]
    with Client(terminal.url) as client:
        assert client.put_pipeline("orders", put["document"], check=False)["version"] == 1
    assert "orders and its destinations are removed" in terminal.run("pipeline", "remove", "orders").stdout
    refused = terminal.fails("pipeline", "remove", "orders")
    assert isinstance(refused, Rejected)
    assert refused.kind == "not_found"


def test_waiting_for_a_pipeline_ends_when_it_is_refused_or_time_is_over(terminal: Terminal, tmp_path: Path) -> None:
    file = tmp_path / "orders.yaml"
    file.write_text(PUT)
    words = ("pipeline", "put", "orders", "-f", str(file), "--wait", "--timeout", "0.5")
    assert terminal.json(*words, code=1)[0]["caught_up"] is False


def test_mistakes_of_a_file_that_is_put_are_told_by_their_place(terminal: Terminal, tmp_path: Path) -> None:
    file = tmp_path / "orders.yaml"
    for text, said in [
        (PUT + "server: {port: 1}", "server: belongs to the deployment"),
        (PUT + "poll: {}", "poll: is given twice, on lines 5 and 6"),
        ("[]", "must be a mapping of sections"),
        (PUT.replace("company", ""), "routing.field: is required and has no value"),
    ]:
        file.write_text(text)
        assert said in str(terminal.fails("pipeline", "put", "orders", "-f", str(file)))
    assert "there is no such file" in str(terminal.fails("pipeline", "put", "orders", "-f", "nowhere.yaml"))
    assert [each["name"] for each in terminal.json("pipeline", "list")] == [PIPELINE]


def test_proposals_are_listed_accepted_and_dismissed(terminal: Terminal) -> None:
    terminal.rig.offered(acme=7, other=3, third=1)
    listed = terminal.json("proposal", "list")
    assert [(each["routing_value"], each["rows"]) for each in listed] == [("acme", 7), ("other", 3), ("third", 1)]
    (made,) = terminal.json("proposal", "accept", listed[0]["id"])
    assert (made["id"], made["routing_value"]) == ("acme", "acme")
    assert terminal.json("proposal", "dismiss", listed[1]["id"])[0]["state"] == "dismissed"
    assert [each["routing_value"] for each in terminal.json("proposal", "list")] == ["third"]
    assert [each["routing_value"] for each in terminal.json("proposal", "list", "--state", "dismissed")] == ["other"]


def test_what_a_stranger_wrote_does_not_steer_a_terminal(terminal: Terminal) -> None:
    hostile = "\x1b[2J\x1b]0;title\x07[red]\u202eevil\n"
    terminal.rig.offers([offered(hostile)])
    shown = terminal.run("proposal", "list").stdout
    assert not {"\x1b", "\x07", "\u202e"} & set(shown)
    assert "[red]" in shown
    assert terminal.json("proposal", "list")[0]["routing_value"] == hostile
    refused = terminal.fails("proposal", "accept", terminal.json("proposal", "list")[0]["id"])
    assert isinstance(refused, Rejected)
    assert refused.kind == "unsafe_value"
    dismissed = terminal.run("proposal", "dismiss", terminal.json("proposal", "list")[0]["id"]).stdout
    assert "\x1b" not in dismissed


def test_every_kind_of_item_can_be_asked_for_and_no_other(terminal: Terminal) -> None:
    for kind in ItemKind:
        assert kind.value in KINDS_HELP
        assert terminal.json("work", "replay", "--kind", kind.value, "--dry-run")[0]["matched"] == 0
    refused = terminal.fails("work", "replay", "--kind", "change", "--dry-run")
    assert isinstance(refused, Rejected)
    assert (refused.kind, refused.status) == ("invalid", 422)


STEERING = "\x1b[2J\x1b]0;title\x07[red]\u202eevil\n"


@pytest.mark.parametrize(
    "words",
    [
        ("destination", "show", "a"),
        ("destination", "list"),
        ("destination", "pause", "a"),
        ("destination", "add", "a", "--routing-value", STEERING, "--catalog", "sqlite:lakes/a.sqlite", "--no-check"),
        ("status",),
        ("pipeline", "audit"),
    ],
)
def test_no_command_lets_a_value_or_a_message_steer_a_terminal(terminal: Terminal, words: tuple[str, ...]) -> None:
    terminal.rig.add("a", routing_value=STEERING, name=STEERING)
    error = problem("access_denied", retryable=False).model_copy(update={"message": STEERING, "hint": STEERING})
    terminal.rig.said(progress(Outcome.PARKED, error=error))
    shown = CliRunner().invoke(app, [*words, "--url", terminal.url]).stdout
    assert not {"\x1b", "\x07", "\u202e"} & set(shown)
    assert ("\\x1b[2J" in shown, "[red]" in shown) == (True, True)


def test_scripts_get_a_value_as_it_is(terminal: Terminal) -> None:
    terminal.rig.add("a", routing_value=STEERING)
    assert terminal.json("destination", "show", "a")[0]["routing_value"] == STEERING


def test_operations_are_listed_and_shown(terminal: Terminal) -> None:
    for name in ("a", "b"):
        add(terminal, name, "--no-check")
        terminal.json("destination", "reseed", name)
    assert {each["destination"] for each in terminal.json("operation", "list")} == {"a", "b"}
    (listed,) = terminal.json("operation", "list", "--destination", "a")
    assert terminal.json("operation", "show", listed["id"]) == [listed]
    assert listed["id"] in terminal.run("operation", "list").stdout
    terminal.rig.applied("a", 2, 5)
    assert terminal.json("operation", "show", listed["id"], "--wait")[0]["state"] == "succeeded"


def test_a_list_is_narrowed_by_what_it_holds_and_by_lag(terminal: Terminal) -> None:
    for name in ("a", "b"):
        terminal.rig.add(name)
    terminal.rig.looked(10, {"a": 4})
    assert [each["id"] for each in terminal.json("destination", "list", "--search", "VALUE of b")] == ["b"]
    assert [each["id"] for each in terminal.json("destination", "list", "--min-lag", "2.5")] == ["a"]
    assert terminal.json("destination", "list", "--min-lag", "2.6") == []


@pytest.mark.parametrize(
    "words", [("pause", "a"), ("reseed", "a"), ("remove", "a"),
              ("add", "a", "--routing-value", "x", "--catalog", "sqlite:lakes/x.sqlite", "--no-check")]
)  # fmt: skip
def test_a_change_of_what_somebody_else_has_changed_since_is_refused(
    terminal: Terminal, words: tuple[str, ...]
) -> None:
    terminal.rig.add("a")
    version = terminal.rig.add("a", name="changed")["version"]
    refused = terminal.fails("destination", *words, "--if-match", str(version - 1))
    assert isinstance(refused, Rejected)
    assert refused.kind == "precondition_failed"
    assert terminal.rig.registry.destinations()["a"].version == version


def test_a_change_of_what_was_seen_is_made(terminal: Terminal) -> None:
    version = terminal.rig.add("a")["version"]
    assert terminal.json("destination", "pause", "a", "--if-match", str(version))[0]["state"] == "paused"


@pytest.mark.parametrize(
    ("words", "sent"),
    [
        (("rewind", "a", "--to", "12"), {"to": 12}),
        (("rewind", "a", "--to", "0=100", "--to", "1=98"), {"to": {"0": 100, "1": 98}}),
        (("reseed", "a", "--from", "earliest"), {"from": "earliest"}),
    ],
)
def test_where_a_life_is_to_begin_is_sent_as_it_was_given(
    terminal: Terminal, words: tuple[str, ...], sent: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def ask(_: Client, method: str, path: str, params: Any = None, **body: Any) -> Any:
        asked.append(body.get("json"))
        return {"items": [{"name": PIPELINE}], "next": None, "kind": "x", "destination": "a", "state": "running",
                "error": None, "id": "1"}  # fmt: skip

    monkeypatch.setattr(Client, "_ask", ask)
    terminal.run("destination", *words)
    assert asked[-1] == sent


@pytest.mark.parametrize("to", [("x",), ("0=1", "0=2"), ("1", "2"), ("0=-1",), ("0=",), ("=1",), ("-1",)])
def test_what_is_no_position_is_not_sent(terminal: Terminal, to: tuple[str, ...]) -> None:
    terminal.rig.add("a")
    words = [word for each in to for word in ("--to", each)]
    assert "PARTITION=OFFSET" in " ".join(terminal.run("destination", "rewind", "a", *words, code=2).output.split())
    assert terminal.rig.registry.destinations()["a"].generation == 1


def test_who_waits_sees_a_bar_once_it_is_known_how_far_it_is() -> None:
    screen = Console(file=StringIO(), force_terminal=True, width=100)
    with progress_bar("orders catches up\x1b[2J", screen) as tell:
        tell(1, 4)
    shown = screen.file.getvalue()  # type: ignore[attr-defined]
    assert ("orders catches up\\x1b[2J" in shown, "25%" in shown) == (True, True)


def test_work_is_shown_and_replayed(terminal: Terminal) -> None:
    add(terminal, "a", "--no-check")
    terminal.broker.put(item("one"))
    terminal.broker.put(letter())
    assert [each["item"] for each in terminal.json("work", "list")] == ["one"]
    assert terminal.json("work", "replay", "--kind", "seed", "--dry-run")[0]["matched"] == 0
    assert terminal.json("work", "replay", "--kind", "changes", "--dry-run")[0]["matched"] == 1
    assert terminal.json("work", "replay", "--destination", "a")[0]["sent"] == 1
    assert terminal.json("work", "replay", "--after", "5", "--dry-run")[0]["matched"] == 0
    assert [each["reason"] for each in terminal.json("work", "dead-letters")] == ["not JSON"]
    assert terminal.json("work", "redrive", "--partition", "0", "--offset", "0")[0]["sent"] == 1


def test_the_first_token_is_made_in_the_registry_itself(
    terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "viaduck.yaml"
    file.write_text(file.read_text() + f"\nregistry: {{url: 'sqlite:///{tmp_path}/registry.sqlite'}}\n")
    made = CliRunner().invoke(app, ["token", "create", "olga", "--scope", "admin", "-c", str(file), "--json"])
    token = json.loads(made.stdout)
    terminal.rig.tokens.refresh()
    assert isinstance(terminal.fails("token", "list"), Rejected)
    monkeypatch.setenv("VIADUCK_TOKEN", token["token"])
    assert [each["name"] for each in terminal.json("token", "list")] == ["olga"]
    terminal.run("token", "create", "deploy", "--scope", "read")
    terminal.run("token", "revoke", token["id"])
    assert isinstance(terminal.fails("token", "list"), Rejected)


def test_the_health_of_lakes_is_shown_with_the_most_files_first(terminal: Terminal) -> None:
    for name, files in (("a", 3), ("b", 9), ("c", 5)):
        add(terminal, name, "--no-check")
        terminal.rig.status_store.note(health_told(name, figures=figures(files=files)))
    assert [each["id"] for each in terminal.json("destination", "health")] == ["b", "c", "a"]
    assert [each["id"] for each in terminal.json("destination", "health", "--sort", "id", "--limit", "2")] == ["a", "b"]
    (one,) = terminal.json("destination", "health", "a")
    assert (one["files"], one["small_file_share"]) == (3, 0.3333)
    shown = terminal.run("destination", "health").stdout
    assert shown.index("\nb") < shown.index("\nc") < shown.index("\na")


def test_a_lake_that_can_t_be_looked_at_makes_the_exit_code_1(terminal: Terminal) -> None:
    add(terminal, "a", "--no-check")
    terminal.rig.status_store.note(health_told("a", figures=None, error=problem("access_denied")))
    assert "access_denied: it is access_denied" in terminal.run("destination", "health", code=1).stdout
    assert terminal.json("destination", "health", "a", code=1)[0]["error"]["type"] == "access_denied"


def test_a_sort_key_that_is_none_is_refused_with_those_that_there_are(terminal: Terminal) -> None:
    refused = terminal.fails("destination", "health", "--sort", "size")
    assert isinstance(refused, Rejected)
    assert "size" in str(refused)
    assert "small_file_share" in str(refused)
    assert isinstance(terminal.fails("destination", "health", "nowhere"), Rejected)


def test_the_retention_of_sources_is_shown_and_an_unknown_position_makes_the_exit_code_1(terminal: Terminal) -> None:
    terminal.rig.status_store.note_retention(LOOK)
    add(terminal, "a", "--no-check")
    unknown = terminal.run("source", "retention", code=1)
    assert "unknown position: events/a" in unknown.stderr
    terminal.rig.applied("a", 1, 812)
    assert [each["may_expire_through"] for each in terminal.json("source", "retention")] == [811]
    assert "events/a (running)" in terminal.run("source", "retention").stdout


def test_the_columns_of_a_destination_are_shown_beside_the_source_s(terminal: Terminal) -> None:
    add(terminal, "a", "--no-check")
    assert "source" in str(terminal.fails("destination", "schema", "a")), "there is none yet"
    make_source(terminal.rig.folder)
    shown = terminal.run("destination", "schema", "a").stdout
    assert "not seeded yet" in shown
    assert "company" in shown
    (found,) = terminal.json("destination", "schema", "a")
    assert (found["position"], found["columns"], found["refused"]) == (None, [], None)
    assert isinstance(terminal.fails("destination", "schema", "nowhere"), Rejected)


def test_a_moment_or_a_position_is_asked_for_and_not_both(terminal: Terminal) -> None:
    add(terminal, "a", "--no-check")
    for words in ((), ("--time", "2026-03-01T00:00:00Z", "--position", "3")):
        assert "either --time or --position" in terminal.run("destination", "at", "a", *words, code=2).output
    assert isinstance(terminal.fails("destination", "at", "a", "--time", "in March"), Rejected)
    refused = terminal.fails("destination", "at", "a", "--position", "3")
    assert "not_retained" in str(refused) or "has no snapshot" in str(refused)
