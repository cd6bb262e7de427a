"""Command lines that the pages show: each names a verb and options that the program has."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from tiered.cli.main import build
from tiered.cli.verbs import EXAMPLES, VERBS

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    page
    for place in ("README.md", "docs/**/*.md", "deploy/*.md", "spark/**/*.md", "tests/*.md", "tiered/*.md")
    for page in ROOT.glob(place)
)
SHOWN = re.compile(r"^(?:    |\t)(?:\$ )?(tiered .*)$|`(tiered [^`]+)`", re.MULTILINE)
PASSED_ON = ("spark",)
"""Verbs that hand their options to a program of its own."""


def lines(page: Path) -> Iterator[str]:
    """Command lines of a page: of its code, and in the text between backticks."""
    text = page.read_text().replace("\\\n", " ")
    for block, inline in SHOWN.findall(text):
        yield block or " ".join(inline.split())


@cache
def command(verb: str) -> Any:
    """A verb with its options, as the program takes it."""
    return typer.main.get_command(build([verb])).commands[verb]  # type: ignore[attr-defined]


def wrong(line: str) -> str | None:
    """What the program would not understand of a line, whose values may be anything."""
    words = [word for word in shlex.split(line.replace("…", ""), comments=True)[1:] if word not in ("[", "]")]
    words = words[
        : next((at for at, word in enumerate(words) if word in ("|", "&&", ">", "&", ";")), len(words))
    ]
    if not words or words[0].startswith(("-", "<", "…")):
        return None
    verb, *rest = words
    if verb not in VERBS:
        return f"no verb {verb}"
    if verb in PASSED_ON:
        return None
    at = command(verb)
    for word in rest:
        if not word.startswith("-"):
            at = getattr(at, "commands", {}).get(word, at)
            continue
        name = word.strip("[]").split("=")[0]
        known = {option for parameter in at.params for option in (*parameter.opts, *parameter.secondary_opts)}
        if name.startswith("--") and name not in known | {"--help", "--debug"}:
            return f"no option {name}"
    return None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_command_lines_of_a_page_are_understood(page: Path) -> None:
    assert [(line, found) for line in lines(page) if (found := wrong(line))] == []


@pytest.mark.parametrize("verb", EXAMPLES)
def test_the_example_of_a_verb_is_understood(verb: str) -> None:
    line = f"tiered {EXAMPLES[verb]}"
    assert line.split()[1] == verb
    assert wrong(line) is None


def test_lines_are_found_and_wrong_ones_are_named() -> None:
    assert sum(1 for page in PAGES for _ in lines(page)) > 100
    assert wrong("tiered kv cas ns k v --if-version 0") == "no option --if-version"
    assert wrong("tiered archivate --now") == "no verb archivate"
    assert wrong("tiered queues --limit=3") is None
