"""What a demo shows, on a terminal and elsewhere."""

from __future__ import annotations

import io

from rich.console import Console

from viaduck_demo.view import PLAIN_EVERY_S, DemoView, Scene, TenantRow, live_table, plain_line

BEHIND = TenantRow("AA", "American Airlines Inc.", "running", 32_000, 7, 2, 1.25)
EXACT = TenantRow("UA", "United Air Lines Inc.", "running", 58_000, 9, 0, 0.0)
UNKNOWN = TenantRow("9E", "Endeavor Air Inc.", "waiting", None, None, None, None)
SCENE = Scene("01 July 2013: schedule published", 9, 161_275, [BEHIND, EXACT, UNKNOWN])


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def written(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def console(*, terminal: bool) -> Console:
    return Console(file=io.StringIO(), force_terminal=terminal, width=120)


def test_a_line_says_who_is_exact_and_how_far_the_last_one_is_behind() -> None:
    line = plain_line(SCENE)
    assert "1 of 3 tenants exact" in line
    assert "largest lag 1.2 s" in line
    assert "snapshot 9, 161,275 rows" in line


def test_the_table_has_a_line_for_each_tenant() -> None:
    shown = console(terminal=False)
    shown.print(live_table(SCENE))
    text = written(shown)
    for part in ("American Airlines", "32,000", "exact", "waiting", "1.2 s"):
        assert part in text


def test_without_a_terminal_it_says_a_line_now_and_then() -> None:
    clock, shown = Clock(), console(terminal=False)
    with DemoView(shown, clock) as view:
        for second in range(11):
            clock.now = float(second)
            view.show(Scene(f"second {second}", 9, 1, [EXACT]))
    lines = written(shown).splitlines()
    assert len(lines) == 1 + int(10 / PLAIN_EVERY_S)
    assert "\x1b" not in written(shown)


def test_it_does_not_repeat_itself() -> None:
    clock, shown = Clock(), console(terminal=False)
    with DemoView(shown, clock) as view:
        for second in range(0, 60, 6):
            clock.now = float(second)
            view.show(SCENE)
    assert len(written(shown).splitlines()) == 1


def test_on_a_terminal_the_table_lives() -> None:
    shown = console(terminal=True)
    with DemoView(shown) as view:
        view.show(SCENE)
        view.show(SCENE)
    assert "United Air Lines" in written(shown)
