"""What a demo shows while it runs: a live table on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

PLAIN_EVERY_S = 5.0


@dataclass(frozen=True)
class TenantRow:
    """One line of the table; None is what is not known yet."""

    carrier: str
    name: str
    state: str
    rows: int | None
    position: int | None
    lag_snapshots: int | None
    lag_seconds: float | None

    @property
    def exact(self) -> bool:
        """Whether it is known to be exact at the source's head."""
        return self.lag_snapshots == 0


@dataclass
class Scene:
    """Everything that the view draws."""

    headline: str = "starting"
    source_snapshot: int | None = None
    source_rows: int | None = None
    tenants: list[TenantRow] = field(default_factory=list)


class DemoView:
    """``with DemoView(console) as view: view.show(scene)``. ``clock`` gives seconds."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._live = Live(console=console, auto_refresh=False, transient=False) if console.is_terminal else None
        self._said_at: float | None = None
        self._said = ""

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, scene: Scene) -> None:
        if self._live is not None:
            self._live.update(live_table(scene), refresh=True)
        else:
            self._say(scene)

    def _say(self, scene: Scene) -> None:
        now, line = self._clock(), plain_line(scene)
        if line == self._said or (self._said_at is not None and now - self._said_at < PLAIN_EVERY_S):
            return
        self._said_at, self._said = now, line
        self._console.print(line, highlight=False, soft_wrap=True)


def live_table(scene: Scene) -> Table:
    table = Table(title=scene.headline, caption=_caption(scene), title_justify="left", caption_justify="left")
    table.add_column("tenant")
    table.add_column("airline")
    for column in ("rows", "position", "behind", "lag"):
        table.add_column(column, justify="right")
    table.add_column("state")
    for tenant in scene.tenants:
        table.add_row(
            tenant.carrier,
            tenant.name,
            _number(tenant.rows),
            _number(tenant.position),
            _number(tenant.lag_snapshots),
            "–" if tenant.lag_seconds is None else f"{tenant.lag_seconds:.1f} s",
            _state(tenant),
        )
    return table


def plain_line(scene: Scene) -> str:
    exact = sum(tenant.exact for tenant in scene.tenants)
    lags = [tenant.lag_seconds for tenant in scene.tenants if tenant.lag_seconds is not None]
    parts = [
        scene.headline,
        _caption(scene),
        f"{exact} of {len(scene.tenants)} tenants exact at the head" if scene.tenants else "",
        f"largest lag {max(lags):.1f} s" if lags else "",
    ]
    return " · ".join(part for part in parts if part)


def _caption(scene: Scene) -> str:
    if scene.source_snapshot is None:
        return ""
    rows = "" if scene.source_rows is None else f", {scene.source_rows:,} rows"
    return f"source at snapshot {scene.source_snapshot}{rows}"


def _state(tenant: TenantRow) -> Text:
    if tenant.state == "parked":
        return Text("parked", style="red")
    return Text("exact", style="green") if tenant.exact else Text(tenant.state, style="yellow")


def _number(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"
