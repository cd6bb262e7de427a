"""Plots as inline SVG: bars over time and bars of a distribution, each with a text that says what the plot shows."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, log10
from xml.etree.ElementTree import Element

from tiered_jobs.profile.report import element

_ONE = 0.3
"""How tall a single one is where powers of ten are, as a share of a power."""

_WIDTH, _HEIGHT = 360, 150
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 8, 10, 22


def bars(
    counts: Sequence[int],
    labels: Sequence[tuple[float, str]],
    *,
    name: str,
    says: str,
    colour: str = "one",
    decades: bool = False,
) -> Element:
    """Bars side by side. ``labels``: text under the plot, each at a share (0 to 1) of its width; ``says``: what a reader who
    does not see it should know. ``decades``: each power of ten is as tall as the next, so that the few are seen beside the
    many."""
    top = max(counts, default=0)
    ceiling = _rounded(top)
    marks = [(share, ceiling * share) for share in (0.0, 0.5, 1.0)]
    heights: list[float] = [count / ceiling for count in counts]
    if decades:
        most = max(1, ceil(log10(max(1, top))))
        step = ceil(most / 4)
        marks = [((power + _ONE) / (most + _ONE), 10.0**power) for power in range(0, most + 1, step)]
        heights = [(log10(count) + _ONE) / (most + _ONE) if count > 0 else 0.0 for count in counts]
    width, height = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
    base = _TOP + height
    lines = [part for share, value in marks for part in _mark(base - height * share, _short(value))]
    under = [
        element("text", label, x=f"{_LEFT + width * at:.1f}", y=_HEIGHT - 6, text_anchor=_anchor(at))
        for at, label in labels
    ]
    shape = element("path", class_=colour, d=_path(heights, _LEFT, _TOP, width, height))
    view = f"0 0 {_WIDTH} {_HEIGHT}"
    title, description = element("title", name), element("desc", says)
    return element("svg", title, description, *lines, shape, *under, viewBox=view, role="img")


def _mark(y: float, label: str) -> tuple[Element, Element]:
    """A line across the plot, and what it stands for."""
    line = element("path", class_="axis", d=f"M{_LEFT} {y:g}H{_WIDTH - _RIGHT}", fill="none")
    return line, element("text", label, x=_LEFT - 6, y=f"{y + 4:g}", text_anchor="end")


def spark(counts: Sequence[int], *, name: str, colour: str = "one") -> Element:
    """Bars as small as a word."""
    top = max(1, max(counts, default=0))
    shape = element("path", class_=colour, d=_path([count / top for count in counts], 0, 1, 120, 22))
    return element("svg", element("title", name), shape, viewBox="0 0 120 24", role="img")


def _path(heights: Sequence[float], left: float, top: float, width: float, height: float) -> str:
    """One outline of all bars, their heights shares of the whole; a bar of few is still seen."""
    step = width / max(1, len(heights))
    gap = min(1.0, step * 0.2)
    parts = []
    for at, share in enumerate(heights):
        if share > 0:
            tall = max(1.0, height * share)
            x, y = left + at * step, top + height
            parts.append(f"M{x:.1f} {y:g}v{-tall:.1f}h{step - gap:.2f}v{tall:.1f}z")
    return "".join(parts) or "M0 0"


def _anchor(at: float) -> str:
    return "start" if at <= 0 else "end" if at >= 1 else "middle"


def _rounded(value: float) -> float:
    """The next 1, 2 or 5 times a power of ten."""
    scale = 1.0
    while scale * 10 < value:
        scale *= 10
    return next(step * scale for step in (1, 2, 5, 10) if step * scale >= value)


def _short(value: float) -> str:
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"
