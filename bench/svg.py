"""Bar charts as SVG: a few rectangles and words, readable on light and on dark pages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

GOOD, BAD, OTHER = "#2e8b57", "#d2553d", "#8a94a6"
INK = "#7a8290"
"""On white and on black alike."""

WIDTH, LABELS, WORDS = 900, 360, 150
ROW, TOP, BAR = 24, 44, 14
LETTER = 6.4
"""Of the width of a line's letters, about."""


@dataclass(frozen=True)
class Bar:
    """``value`` decides the length; ``text`` is what stands behind it."""

    label: str
    value: float
    text: str
    colour: str


def bar_chart(title: str, bars: Sequence[Bar], *, most: float, line: tuple[float, str] | None = None) -> str:
    """Bars up to ``most``, where longer ones are cut off; ``line`` is a mark across all of them, with its name."""
    height = TOP + ROW * len(bars) + 8
    scale = (WIDTH - LABELS - WORDS) / most
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
        f' role="img" aria-label="{escape(title)}" font-family="system-ui, sans-serif" font-size="12" fill="{INK}">',
        _text(0, 16, title, size=14),
        *(_bar(number, bar, most, scale) for number, bar in enumerate(bars)),
    ]
    if line is not None:
        parts.append(_line(LABELS + line[0] * scale, line[1], height))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _bar(number: int, bar: Bar, most: float, scale: float) -> str:
    top, length = TOP + number * ROW, max(1.0, min(bar.value, most) * scale)
    base = top + BAR - 2
    cut = " …" if bar.value > most else ""
    return "\n".join(
        (
            _text(LABELS - 8, base, _shortened(bar.label), anchor="end"),
            f'<rect x="{LABELS}" y="{top}" width="{length:.1f}" height="{BAR}" rx="2" fill="{bar.colour}"/>',
            _text(LABELS + length + 6, base, f"{cut}{bar.text}"),
        )
    )


def _line(x: float, name: str, height: int) -> str:
    return "\n".join(
        (
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP - 8}" y2="{height - 8}" stroke="{INK}" stroke-dasharray="3 3"/>',
            _text(x, TOP - 12, name, anchor="middle"),
        )
    )


def _text(x: float, y: float, words: str, *, anchor: str = "start", size: int = 12) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">{escape(words)}</text>'


def _shortened(label: str) -> str:
    most = int((LABELS - 8) / LETTER)
    return label if len(label) <= most else label[: most - 1] + "…"
