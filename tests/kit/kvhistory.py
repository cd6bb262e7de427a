"""Histories of the key-value view: what clients asked, when, and what they were answered; and whether that can have happened.

``checked()`` has porcupine's checker (``porcupine/``, in Go) say whether each key's history is linearizable. ``went_back()``
looks at reads by rule ANY, which promise less: what one client is shown by one view never goes back. The two have
nothing of the program in them.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.kit import cache

GET, PUT, DELETE = "get", "put", "delete"
ANSWERED, UNKNOWN, FAILED = "answered", "unknown", "failed"
LINEARIZABLE, NOT_LINEARIZABLE, UNDECIDED = "linearizable", "not linearizable", "unknown"
CHECK_SECONDS = 60.0


def digest(value: bytes) -> str:
    """By which a history speaks of a value: enough of its SHA-256 to tell values apart."""
    return shortened(hashlib.sha256(value).digest())


def shortened(sha256: bytes) -> str:
    """The same of a whole SHA-256, as conditions have it."""
    return sha256[:8].hex()


@dataclass(slots=True)
class Operation:
    """One call. Times: nanoseconds of one clock. ``outcome`` of a write: ANSWERED; UNKNOWN: it may take effect at any time
    after its call, or never; FAILED: it never does. A read without an answer says nothing.

    ``applied``, ``version``, ``current``: a write's answer. ``found``: what a read found, version and digest.
    ``shown_by``: the view that answered a read by rule ANY, which nothing else checks; ``None``: it had to see the latest.
    """

    client: int
    key: str
    kind: str
    call: int
    value: str = ""
    if_absent: bool = False
    if_version: int | None = None
    if_value: str = ""
    outcome: str = UNKNOWN
    returned: int | None = None
    applied: bool = False
    version: int | None = None
    current: int | None = None
    found: tuple[int, str] | None = None
    shown_by: str | None = None

    @property
    def answered(self) -> bool:
        """Whether there is an answer."""
        return self.outcome == ANSWERED

    @property
    def writes(self) -> bool:
        """Whether it is a put or a deletion."""
        return self.kind != GET

    def line(self) -> str:
        """As porcupine's checker reads it."""
        facts: dict[str, Any] = {"client": self.client, "key": self.key, "kind": self.kind, "call": self.call}
        facts |= {"outcome": self.outcome, "value": self.value, "if_absent": self.if_absent}
        facts |= {"if_value": self.if_value, "applied": self.applied}
        given = {"if_version": self.if_version, "return": self.returned, "version": self.version}
        facts |= {name: number for name, number in given.items() if number is not None}
        if self.current is not None:
            facts["current"] = self.current
        if self.found is not None:
            facts["found"] = {"version": self.found[0], "value": self.found[1]}
        return json.dumps(facts)


@dataclass(frozen=True, slots=True)
class ReadTogether:
    """Reads of several keys by one call, as of one moment. ``applied``: which, by its own word: everything below was seen."""

    reads: tuple[Operation, ...]
    applied: int | None = None


@dataclass(slots=True)
class History:
    """Operations of any threads, as they were called; ``together``: reads that one call answered."""

    operations: list[Operation] = field(default_factory=list)
    together: list[ReadTogether] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, *operations: Operation) -> None:
        """Note calls before they are made; an answer is written into its call."""
        with self._lock:
            self.operations.extend(operations)

    def add_together(self, reads: ReadTogether) -> None:
        """Note that reads were answered by one call."""
        with self._lock:
            self.together.append(reads)

    @property
    def latest(self) -> list[Operation]:
        """All that promise linearizability."""
        return [operation for operation in self.operations if operation.shown_by is None]

    def save(self, path: Path) -> Path:
        """For the checker, a line an operation."""
        path.write_text("".join(operation.line() + "\n" for operation in self.latest))
        return path


@dataclass(frozen=True, slots=True)
class Checked:
    """What the checker says of one history. ``key``, ``counter_example``: whose, and the end of the shortest beginning of it
    that cannot be."""

    verdict: str
    keys: int
    operations: int
    unanswered: int
    key: str = ""
    counter_example: tuple[dict[str, Any], ...] = ()

    @property
    def good(self) -> bool:
        """Too little time to tell is not good."""
        return self.verdict == LINEARIZABLE

    def __str__(self) -> str:
        lines = [
            f"{self.verdict}: {self.operations:,} operations of {self.keys} keys, {self.unanswered} unanswered"
        ]
        lines += [f"  key {self.key}"] if self.key else []
        return "\n".join([*lines, *(f"    {json.dumps(each)}" for each in self.counter_example)])


def checked(paths: Sequence[Path], seconds: float = CHECK_SECONDS) -> list[Checked]:
    """What the checker says of each file, in one process; ``seconds``: the most time that each has."""
    command = [str(cache.checker_binary()), "-seconds", str(seconds), *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1, 2):
        raise ValueError(f"the checker ended with {done.returncode}: {done.stderr[-2000:]}")
    facts = [json.loads(line) for line in done.stdout.splitlines()]
    found = [
        Checked(
            each["verdict"], each["keys"], each["operations"], each["unanswered"], each.get("key", ""),
            tuple(each.get("counter_example") or ()),
        )
        for each in facts
    ]  # fmt: skip
    worst = max(
        ({LINEARIZABLE: 0, NOT_LINEARIZABLE: 1, UNDECIDED: 2}[each.verdict] for each in found), default=0
    )
    if len(found) != len(paths) or worst != done.returncode:
        raise ValueError(f"the checker said {done.stdout[-2000:]} and ended with {done.returncode}")
    return found


def went_back(operations: Iterable[Operation]) -> list[str]:
    """Reads by ANY that cannot be of a prefix that only grows: of what one client was shown of a key by one view, one call
    after the other, a version lies below one before it, or stands again behind its own absence."""
    seen: dict[tuple[int, str, str], tuple[int, bool]] = {}
    wrong = []
    for read in sorted(operations, key=lambda each: each.call):
        if read.shown_by is None or not read.answered:
            continue
        place = (read.client, read.shown_by, read.key)
        highest, gone = seen.get(place, (-1, False))
        if read.found is None:
            seen[place] = (highest, True)
            continue
        version = read.found[0]
        if version < highest or (gone and version == highest):
            wrong.append(
                f"client {read.client} saw {read.key} by {read.shown_by} at {version} after {highest}"
            )
        seen[place] = (max(highest, version), False)
    return wrong
