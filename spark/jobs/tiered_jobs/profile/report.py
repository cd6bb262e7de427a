"""One HTML file that needs nothing else: no script, no font, no picture, no link to the outside. Light and dark by the reader's
own setting. Whatever is text here is escaped here; what a function returns is HTML.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from tiered.text.human import printable

STYLE = """
:root { color-scheme: light dark; --page: #f6f7f9; --card: #ffffff; --ink: #1c2430; --soft: #5a6675; --line: #dde2e9;
  --one: #2563a8; --two: #0f7b6c; --three: #9a5b13; --warn: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --page: #14181e; --card: #1d232c; --ink: #e6eaf0; --soft: #a2adbb;
  --line: #323b47; --one: #6aa9ee; --two: #4cc2ae; --three: #e0a458; --warn: #ff8a80; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, "Segoe UI", Roboto, sans-serif; }
main { max-width: 92rem; margin: 0 auto; padding: 2rem 1.25rem 4rem; }
h1 { font-size: 1.7rem; margin: 0; line-height: 1.2; } h2 { font-size: 1.2rem; margin: 2.5rem 0 .75rem; }
h3 { font-size: .85rem; margin: 0 0 .25rem; color: var(--soft); font-weight: 600; }
p.about { color: var(--soft); margin: .35rem 0; overflow-wrap: anywhere; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(13.5rem, 44%), 1fr)); gap: .75rem;
  margin: 1.5rem 0; padding: 0; }
.tile, .card, .wide { background: var(--card); border: 1px solid var(--line); border-radius: .5rem; }
.tile { padding: .8rem 1rem; } .tile dt { color: var(--soft); font-size: .8rem; }
.tile dd { margin: 0; font-size: 1.35rem; font-weight: 600; font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
.tile dd small { display: block; font-size: .78rem; font-weight: 400; color: var(--soft); }
.tile.warn dd { color: var(--warn); }
.wide { overflow-x: auto; font-size: .84rem; background:
  linear-gradient(to right, var(--card) 40%, transparent) 0 0 / 2.5rem 100% no-repeat local,
  linear-gradient(to left, var(--card) 40%, transparent) 100% 0 / 2.5rem 100% no-repeat local,
  linear-gradient(to right, var(--soft), transparent) 0 0 / .4rem 100% no-repeat scroll,
  linear-gradient(to left, var(--soft), transparent) 100% 0 / .4rem 100% no-repeat scroll, var(--card); }
caption { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .4rem .55rem; text-align: left; border-bottom: 1px solid var(--line); white-space: nowrap; }
th { color: var(--soft); font-size: .78rem; font-weight: 600; }
tbody tr:last-child > * { border-bottom: 0; } td.n, th.n { text-align: right; }
tbody th { color: inherit; font-size: inherit; max-width: min(18rem, 40vw); overflow: hidden;
  text-overflow: ellipsis; }
.wide th, .wide td { padding: .35rem .42rem; line-height: 1.3; } .wide thead th { white-space: normal; vertical-align: bottom; }
.wide tbody th { max-width: 15rem; } .wide td:last-child { font-size: .92em; }
details { background: var(--card); border: 1px solid var(--line); border-radius: .5rem; margin: .6rem 0; }
summary { cursor: pointer; padding: .65rem 1rem; font-weight: 600; overflow-wrap: anywhere; }
summary span { color: var(--soft); font-weight: 400; margin-left: .6rem; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(19rem, 1fr)); gap: 1rem; padding: .25rem 1rem 1rem; }
figure { margin: 0; } svg { display: block; width: 100%; height: auto; }
svg text { fill: var(--soft); font: 11px system-ui, sans-serif; } svg .axis { stroke: var(--line); stroke-width: 1; }
svg .one { fill: var(--one); } svg .two { fill: var(--two); } svg .three { fill: var(--three); }
td svg { width: 5rem; } .lists { display: grid; grid-template-columns: repeat(auto-fit, minmax(15rem, 1fr)); gap: 1rem;
  padding: 0 1rem 1rem; } .lists td, .lists th { padding: .15rem .5rem .15rem 0; white-space: normal; overflow-wrap: anywhere; }
.lists tbody th { min-width: 6.5rem; max-width: none; } .lists .n { white-space: nowrap; overflow-wrap: normal; }
@media print { body { background: none; } details { break-inside: avoid; } }
"""


@dataclass(frozen=True, slots=True)
class Tile:
    """A number that matters, with its name and a remark."""

    name: str
    value: str
    remark: str = ""
    warn: bool = False


@dataclass(frozen=True, slots=True)
class Markup:
    """HTML that is made already."""

    html: str


Cell = str | Markup


def text(value: str) -> str:
    """``value`` as HTML, control characters made visible."""
    return escape(printable(value), quote=True)


def document(title: str, about: Sequence[str], body: Iterable[str]) -> str:
    """The whole file. ``about``: lines under the title."""
    lines = "".join(f'<p class="about">{text(line)}</p>\n' for line in about)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{text(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"<header>\n<h1>{text(title)}</h1>\n{lines}</header>\n{''.join(body)}</main>\n</body>\n</html>\n"
    )


def tiles(found: Iterable[Tile]) -> str:
    """Numbers side by side."""
    made = "".join(
        f'<div class="tile{" warn" if t.warn else ""}"><dt>{text(t.name)}</dt><dd>{text(t.value)}'
        + (f"<small>{text(t.remark)}</small>" if t.remark else "")
        + "</dd></div>\n"
        for t in found
    )
    return f'<dl class="tiles">\n{made}</dl>\n'


def heading(title: str) -> str:
    """The title of a section."""
    return f"<h2>{text(title)}</h2>\n"


def paragraph(line: str) -> str:
    """A remark."""
    return f'<p class="about">{text(line)}</p>\n'


def table(
    headings: Sequence[str], rows: Iterable[Sequence[Cell]], numbers: Iterable[int], caption: str = ""
) -> str:
    """A table; the first cell of a row names it. ``numbers``: columns that are set to the right."""
    right = frozenset(numbers)

    def cell(at: int, value: Cell, kind: str, scope: str = "") -> str:
        inner = value.html if isinstance(value, Markup) else text(value)
        aligned = ' class="n"' if at in right else ""
        return f"<{kind}{scope}{aligned}>{inner}</{kind}>"

    head = "".join(cell(at, name, "th", ' scope="col"') for at, name in enumerate(headings))
    body = "".join(
        "<tr>"
        + "".join(cell(at, v, "td" if at else "th", "" if at else ' scope="row"') for at, v in enumerate(row))
        + "</tr>\n"
        for row in rows
    )
    named = f"<caption>{text(caption)}</caption>" if caption else ""
    return f"<table>{named}<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody></table>\n"


def wide(inner: str) -> str:
    """A card that scrolls sideways."""
    return f'<div class="wide">{inner}</div>\n'


def folded(title: str, remark: str, inner: str, *, is_open: bool) -> str:
    """A part that can be opened."""
    named = f"<summary>{text(title)}<span>{text(remark)}</span></summary>"
    return f"<details{' open' if is_open else ''}>{named}\n{inner}</details>\n"


def figure(title: str, svg: str) -> str:
    """A plot under its name."""
    return f"<figure><h3>{text(title)}</h3>{svg}</figure>\n"
