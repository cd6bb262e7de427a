"""Each group that has offsets at the broker, whether it is watched and why not: for ``/status`` and ``tiered replay status``.

The watch leaves it in a file beside the ledger, since what counts is what the daemon does, not what its settings look like.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tiered.errors import Corrupt, Unavailable
from tiered.replay.groups import Groups

FILE = "groups.json"
MAX_ROWS = 10_000


@dataclass(frozen=True, slots=True)
class Row:
    """One group. ``topics``: how many have its offsets; ``watched_topics``: how many of them are watched. ``why``: why none is,
    or what else is to be said. ``skipped``: messages it was skipped over while it was not watched, as far as was seen."""

    group: str
    watched: bool
    why: str
    topics: int
    watched_topics: int
    skipped: int


def roster(
    groups: Groups,
    topics: Mapping[str, Collection[str]],
    watched: Mapping[str, Collection[str]],
    skipped: Mapping[str, int],
) -> list[Row]:
    """A row for each group in ``topics``; ``watched``: topics by group."""
    rows = []
    for group in sorted(topics)[:MAX_ROWS]:
        mine = watched.get(group, ())
        why = "" if mine else groups.why_not(group, topics[group], ()) or "not looked at yet"
        if mine and groups.facts(group).ordered:
            why = "it consumes in order: skipped messages are reported, not replayed"
        rows.append(Row(group, bool(mine), why, len(topics[group]), len(mine), skipped.get(group, 0)))
    return rows


def write(directory: Path, looked_ms: int, rows: Sequence[Row]) -> None:
    """Replace the file. ``Unavailable`` if that cannot be."""
    path = directory / FILE
    fresh = path.with_suffix(".new")
    try:
        fresh.write_text(json.dumps({"looked_ms": looked_ms, "groups": [asdict(row) for row in rows]}))
        os.replace(fresh, path)
    except OSError as error:
        raise Unavailable(
            "the list of groups cannot be written", path=str(path), found=error.strerror or str(error),
            hint="let the daemon's user write to state.directory, and check that its disk has room",
        ) from error  # fmt: skip


def read(directory: Path) -> tuple[int | None, list[Row]]:
    """When the daemon looked last (ms since 1970; ``None``: never), and what it saw. ``Corrupt`` if the file is not a list."""
    path = directory / FILE
    try:
        told = json.loads(path.read_bytes())
        return int(told["looked_ms"]), [Row(**row) for row in told["groups"]]
    except FileNotFoundError:
        return None, []
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise Corrupt(
            "the list of groups cannot be read", path=str(path), found=repr(error)[:200],
            hint="remove it; the daemon writes it again",
        ) from error  # fmt: skip
