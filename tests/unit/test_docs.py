"""What the repository says of itself resolves: citations, anchors, paths, names of tests, the glossary."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLACES = ("tiered", "spark", "tests", "docs", "deploy")
PAGES = {
    "DESIGN.md": ROOT / "docs/DESIGN.md",
    "FORMAT.md": ROOT / "docs/FORMAT.md",
    "CHECKPOINT.md": ROOT / "docs/CHECKPOINT.md",
}

CITED = re.compile(r'(DESIGN|FORMAT|CHECKPOINT)\.md`{0,2},((?:\s+(?:to\s+|and\s+)?"[^"\n]+",?)+)')
TEST = re.compile(r"`(tests/[\w/]+\.py)::(?:\w+::)?(test_\w+)`")
NAMED_PATH = re.compile(r"`([\w.-]+(?:/[\w.-]+)*\.(?:py|md|toml|java|svg))`")
DOCSTRING = re.compile(r'(?:#[^\n]*\n|\s)*r?"""(.*?)"""', re.DOTALL)
"""A module's, at its top, as ruff wants it: all modules are not parsed for that."""
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")

ELSEWHERE = {"tiered/cli/v.py", "tiered_jobs/j/job.py"}
"""Not files: ``v`` and ``j`` stand for any verb and any job."""


def sources(*suffixes: str) -> Iterator[Path]:
    """Texts of the repository."""
    yield from (p for p in ROOT.glob("*.md") if ".md" in suffixes)
    for place in PLACES:
        yield from (p for p in sorted((ROOT / place).rglob("*")) if p.suffix in suffixes and p.is_file())


@cache
def headings(page: Path) -> frozenset[str]:
    """The headings of a page."""
    return frozenset(
        line.lstrip("#").strip().split(",")[0]
        for line in page.read_text().splitlines()
        if line.startswith("#")
    )


def found(pattern: str, path: Path) -> list[str]:
    """What a pattern finds in a text."""
    return re.findall(pattern, path.read_text())


def resolves(name: str, page: Path) -> bool:
    """Whether a path as a page writes it is there: below the root, the package, or beside the page."""
    bases = (ROOT, ROOT / "tiered", ROOT / "spark", ROOT / "tests", ROOT / "tests/kit", *page.parents)
    return name in ELSEWHERE or any((base / name).exists() for base in bases if base.is_relative_to(ROOT))


def test_cited_headings_are_there() -> None:
    """``DESIGN.md, "Opening"``, wherever it stands."""
    cited = [
        (str(path.relative_to(ROOT)), f"{page}.md", heading)
        for path in sources(".py", ".md")
        for page, headings_ in CITED.findall(path.read_text())
        for heading in re.findall(r'"([^"]+)"', headings_)
    ]
    assert len(cited) > 20
    assert [c for c in cited if c[2] not in headings(PAGES[c[1]])] == []


def test_nothing_cites_what_is_not_in_the_repository() -> None:
    """No page that only some people have, and no section by number."""
    absent = re.compile(r"(?<!\w)(archive|invariants|house|anchors|mission)\.md|\.md``?,? sections? \d")
    assert [
        str(p) for p in sources(".py", ".md") if p != Path(__file__) and absent.search(p.read_text())
    ] == []


def test_laws_invariants_and_holes_are_there() -> None:
    """``law 3``, ``S10``, ``H8``: rows of the design and of the model's page."""
    design, model = PAGES["DESIGN.md"].read_text(), (ROOT / "tests/model/README.md").read_text()
    laws = set(
        re.findall(r"^(\d+)\. \*\*", design.split("## The six laws")[1].split("\n## ")[0], re.MULTILINE)
    )
    invariants = set(re.findall(r"^\| (S\d+) \|", design, re.MULTILINE))
    holes = set(re.findall(r"^\*\*(H\d+)\.", model, re.MULTILINE))
    assert (len(laws), len(invariants), len(holes)) == (6, 17, 13)
    lost = []
    for path in sources(".py", ".md"):
        lost += [(str(path), f"law {n}") for n in found(r"\b[Ll]aws? (\d+)\b", path) if n not in laws]
        lost += [(str(path), s) for s in found(r"\bS\d{1,2}\b", path) if s not in invariants]
        lost += [
            (str(path), h)
            for h in found(r"\b[Hh]ole (H\d+)\b|\b(H\d)\b", path)
            for h in h
            if h and h not in holes
        ]
    assert lost == []


def test_every_test_that_a_page_names_exists() -> None:
    """``tests/…/test_x.py::test_y``."""
    named = [(path, *match) for path in sources(".md") for match in TEST.findall(path.read_text())]
    assert len(named) > 40
    lost = [
        f"{module}::{name}"
        for _, module, name in named
        if not (ROOT / module).is_file() or f"def {name}(" not in (ROOT / module).read_text()
    ]
    assert lost == []


def test_every_invariant_names_a_test() -> None:
    """A promise that nothing attacks is a wish."""
    rows = re.findall(r"^\| (S\d+) \|.*$", PAGES["DESIGN.md"].read_text(), re.MULTILINE)
    lines = [row for row in PAGES["DESIGN.md"].read_text().splitlines() if re.match(r"\| S\d+ \|", row)]
    assert [row for row, line in zip(rows, lines, strict=True) if not TEST.search(line)] == []


@pytest.mark.parametrize("page", list(sources(".md")), ids=lambda p: str(p.relative_to(ROOT)))
def test_paths_and_links_of_a_page_lead_somewhere(page: Path) -> None:
    """Files in backticks, and links."""
    text = page.read_text()
    links = [link for link in LINK.findall(text) if "://" not in link]
    assert [link for link in links if not (page.parent / link).exists()] == []
    assert [name for name in NAMED_PATH.findall(text) if "/" in name and not resolves(name, page)] == []


def test_paths_in_docstrings_lead_somewhere() -> None:
    """```` ``archive/log/shadow.py`` ```` in a module's docstring."""
    lost, read = [], 0
    for path in sources(".py"):
        docstring = DOCSTRING.match(path.read_text())
        text = "" if docstring is None else docstring[1]
        read += docstring is not None
        lost += [
            (str(path.relative_to(ROOT)), n)
            for n in NAMED_PATH.findall(text.replace("``", "`"))
            if "/" in n and not resolves(n, path)
        ]
    assert lost == []
    assert read > 900, "docstrings were found"


def test_the_glossary_is_in_order_and_its_modules_exist() -> None:
    """One line a word, and each word once."""
    rows = re.findall(
        r"^\| ([^|]+) \| [^|]+ \| `([^`]+)` \|$", (ROOT / "docs/GLOSSARY.md").read_text(), re.MULTILINE
    )
    words = [word for word, _ in rows]
    assert len(words) > 60
    assert words == sorted(set(words), key=str.lower)
    assert [module for _, module in rows if not (ROOT / module).is_file()] == []


def test_where_to_find_what() -> None:
    """Each question is answered by one path, which is there."""
    rows = re.findall(r"^\| (.+) \| (.+) \|$", (ROOT / "docs/WHERE.md").read_text(), re.MULTILINE)
    paths = [re.findall(r"`([^`]+)`", answer) for question, answer in rows if question.startswith("…")]
    assert len(paths) >= 20
    assert [found for found in paths if len(found) != 1] == []
    named = re.findall(r"`([\w.-]+/[\w./-]*)`", (ROOT / "docs/WHERE.md").read_text())
    assert [name for name in named if not (ROOT / name).exists()] == []
