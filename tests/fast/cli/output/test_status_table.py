"""``viaduck status`` in front of a control that says what a test wants."""

from __future__ import annotations

from typing import Any

from typer.testing import CliRunner

from services.cli.main import app
from tests.fast.cli.fake_control import FakeControl, serving, status

NOTICE = 'main.t is read whole: ALTER TABLE "main"."t" RESET PARTITIONED BY [\x1b]'


class Noticed(FakeControl):
    def answer(self, path: str, query: dict[str, list[str]]) -> tuple[int, dict[str, Any]]:
        code, body = super().answer(path, query)
        if path.strip("/") == "v1/pipelines/events":
            body["frontier"] = {"at": None, "notice": NOTICE}
        return code, body


def test_what_makes_a_source_dear_to_read_is_told_beside_the_table() -> None:
    with serving(Noticed([status("a")])) as control:
        table, lines = (CliRunner().invoke(app, ["status", "--url", control.url, *words]) for words in ([], ["--json"]))
    assert (table.exit_code, lines.exit_code) == (0, 0)
    told = " ".join(table.stderr.split())
    assert told == NOTICE.replace("main.t is", "events: main.t is").replace("\x1b", "\\x1b")
    assert lines.stdout.count("\n") == 1


def test_nothing_is_told_of_a_source_that_is_not() -> None:
    with serving(FakeControl([status("a")])) as control:
        done = CliRunner().invoke(app, ["status", "--url", control.url])
    assert (done.exit_code, done.stderr) == (0, "")
