"""What strangers wrote does not steer a terminal."""

from __future__ import annotations

import pytest

from services.cli.main import _fail
from services.cli.output.sanitize import legible, legible_lines
from services.cli.up.progress import ProgressDisplay


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("\x1b[2J\x1b]0;title\x07", "\\x1b[2J\\x1b]0;title\\x07"),
        ("\x9b31m", "\\x9b31m"),
        ("\u202eevil\u2066\u200f\u061c", "\\u202eevil\\u2066\\u200f\\u061c"),
        ("two\nlines\r\u2028\x85", "two\\nlines\\r\\u2028\\x85"),
        ("\ufeff\u200b\x00\ud800", "\\ufeff\\u200b\\x00\\ud800"),
        ("株式会社 Ünïcode 🦆 می\u200cخواهم [red] \\", "株式会社 Ünïcode 🦆 می\u200cخواهم [red] \\"),
    ],
)
def test_what_steers_is_written_out_and_what_is_text_stays(written: str, shown: str) -> None:
    assert legible(written) == shown


def test_a_message_keeps_its_lines() -> None:
    assert legible_lines("a\n\x1bb") == "a\n\\x1bb"


def test_the_outcome_of_a_run_steers_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    ProgressDisplay().say("a is parked: \x1b[2J")
    assert capsys.readouterr().err == "a is parked: \\x1b[2J\n"


def test_an_error_that_ends_a_command_steers_nothing_either(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        _fail(2, "/v1: invalid: \x1b[2J\u202e")
    assert capsys.readouterr().err == "/v1: invalid: \\x1b[2J\\u202e\n"
