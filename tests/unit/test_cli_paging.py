"""Pages of what verbs list, and the options that many verbs have."""

from __future__ import annotations

from typing import Any, cast

import click
import pytest
import typer

from tiered.cli.main import build
from tiered.cli.paging import Paged


class Said:
    """What was noted."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.mark.parametrize(
    ("limit", "shown", "more"),
    [(0, 5, None), (2, 2, "there are more rows: --after 1"), (5, 5, None), (9, 5, None)],
)
def test_a_page_is_so_many_rows_and_names_the_last_where_there_are_more(
    limit: int, shown: int, more: str | None
) -> None:
    page, said = Paged(iter(range(5)), limit), Said()
    assert list(page) == list(range(shown))
    page.note_more(cast(Any, said), "rows", str)
    assert said.notes == ([] if more is None else [more])


def test_of_nothing_no_page_is_next() -> None:
    page, said = Paged(iter([]), 3), Said()
    assert list(page) == []
    page.note_more(cast(Any, said), "rows", str)
    assert said.notes == []


def options(command: click.Command) -> list[click.Parameter]:
    below = getattr(command, "commands", {})
    return [*command.params, *(found for each in below.values() for found in options(each))]


def test_the_state_directory_is_described_in_the_same_words_everywhere() -> None:
    verbs = ("groups", "maintain", "queues", "repair", "replay", "retain", "run", "scrub", "status", "table")
    found = [
        cast(Any, option).help
        for verb in verbs
        for option in options(cast(Any, typer.main.get_command(build([verb]))).commands[verb])
        if "--state" in option.opts
    ]
    assert len(found) >= len(verbs)
    assert set(found) == {"The daemon's state directory (state.directory)."}
