"""One HTML file that needs nothing else: no script, no font, no picture, no link to the outside. Light and dark by the reader's
own setting.

``report.html`` and ``report.css`` are the page; its parts are elements, whose texts and attributes are escaped when the page is
written. Nothing here is HTML in a string.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from string import Template
from xml.etree.ElementTree import Element, tostring

from tiered.text.human import printable

Part = str | Element


@dataclass(frozen=True, slots=True)
class Tile:
    """A number that matters, with its name and a remark."""

    name: str
    value: str
    remark: str = ""
    warn: bool = False


def element(tag: str, *parts: Part, **attributes: object) -> Element:
    """An element with texts and elements inside, control characters made visible.

    Names of attributes: ``class_`` where Python has the word, ``text_anchor`` where HTML has a hyphen.
    """
    found = {name.rstrip("_").replace("_", "-"): printable(str(value)) for name, value in attributes.items()}
    made = Element(tag, found)
    for part in parts:
        if isinstance(part, Element):
            made.append(part)
        elif len(made):
            made[-1].tail = (made[-1].tail or "") + printable(part)
        else:
            made.text = (made.text or "") + printable(part)
    return made


def document(title: str, about: Sequence[str], body: Iterable[Element]) -> str:
    """The whole file. ``about``: lines under the title."""
    header = element("header", element("h1", title), *map(paragraph, about))
    return Template(_file("report.html")).substitute(
        title=_written(element("title", title)),
        style=_file("report.css"),
        body="\n".join(map(_written, (header, *body))),
    )


def _written(part: Element) -> str:
    return tostring(part, encoding="unicode", method="html")


def _file(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")


def tiles(found: Iterable[Tile]) -> Element:
    """Numbers side by side."""
    return element("dl", *map(_tile, found), class_="tiles")


def _tile(tile: Tile) -> Element:
    remark = (element("small", tile.remark),) if tile.remark else ()
    value = element("dd", tile.value, *remark)
    return element("div", element("dt", tile.name), value, class_="tile warn" if tile.warn else "tile")


def heading(title: str) -> Element:
    """The title of a section."""
    return element("h2", title)


def paragraph(line: str) -> Element:
    """A remark."""
    return element("p", line, class_="about")


def lines(*texts: str) -> Sequence[Part]:
    """Texts, one above the other."""
    return [part for text in texts for part in (element("br"), text)][1:]


def table(
    headings: Sequence[str],
    rows: Iterable[Sequence[Part | Sequence[Part]]],
    numbers: Iterable[int],
    caption: str = "",
) -> Element:
    """A table; the first cell of a row names it. ``numbers``: columns that are set to the right."""
    right = frozenset(numbers)

    def cell(at: int, value: Part | Sequence[Part], scope: str) -> Element:
        aligned = {"class_": "n"} if at in right else {}
        parts = [value] if isinstance(value, str | Element) else value
        return element("th", *parts, scope=scope, **aligned) if scope else element("td", *parts, **aligned)

    head = element("tr", *(cell(at, name, "col") for at, name in enumerate(headings)))
    body = [element("tr", *(cell(at, v, "" if at else "row") for at, v in enumerate(row))) for row in rows]
    named = (element("caption", caption),) if caption else ()
    return element("table", *named, element("thead", head), element("tbody", *body))


def box(kind: str, *parts: Part) -> Element:
    """A part of the page by its class in ``report.css``: ``wide`` scrolls sideways."""
    return element("div", *parts, class_=kind)


def folded(title: str, remark: str, *parts: Element, is_open: bool) -> Element:
    """A part that can be opened."""
    named = element("summary", title, element("span", remark))
    return element("details", named, *parts, **({"open": ""} if is_open else {}))


def figure(title: str, plot: Element) -> Element:
    """A plot under its name."""
    return element("figure", element("h3", title), plot)
