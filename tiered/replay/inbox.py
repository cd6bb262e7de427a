"""Requests of operators: files that ``tiered replay`` leaves beside the ledger and the daemon's watch takes into it.

A request is whole or not there (written aside, synced, renamed), is entered in the ledger under its own id, and only then
removed: a crash between the two finds the id again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tiered import durable
from tiered.errors import Invalid, Unavailable

INBOX = "inbox"
SUFFIX = ".request"


@dataclass(frozen=True, slots=True)
class Asked:
    """One queue's part of a request: [start, end)."""

    queue_id: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class AskedFor:
    """A request: history of a topic for a group. ``name``: its id, also of its file."""

    name: str
    group: str
    topic: str
    asked_ms: int
    ranges: tuple[Asked, ...]

    @property
    def messages(self) -> int:
        """Offsets in all ranges."""
        return sum(r.end - r.start for r in self.ranges)


def leave(directory: Path, request: AskedFor) -> Path:
    """Put a request into the inbox of a replay directory, durably; where it lies."""
    inbox = directory / INBOX
    path = inbox / f"{request.name}{SUFFIX}"
    try:
        durable.make_directory(inbox)
        durable.replace(path, json.dumps(asdict(request)).encode())
    except OSError as error:
        raise Unavailable(
            "the request cannot be handed to the daemon", path=str(path), found=error.strerror or str(error),
            hint="run this as a user that may write the daemon's state.directory",
        ) from error  # fmt: skip
    return path


def waiting(directory: Path) -> tuple[list[AskedFor], list[Invalid]]:
    """Requests not taken yet, oldest first; and what is wrong with other files there."""
    requests: list[AskedFor] = []
    wrong: list[Invalid] = []
    inbox = directory / INBOX
    for path in sorted(inbox.glob(f"*{SUFFIX}")) if inbox.is_dir() else ():
        try:
            request = read(path)
        except Invalid as error:
            wrong.append(error)
        else:
            requests += [request] if request is not None else []
    return sorted(requests, key=lambda r: (r.asked_ms, r.name)), wrong


def read(path: Path) -> AskedFor | None:
    """A request; ``None`` if it is gone. ``Invalid`` if the file is not one."""
    try:
        told = json.loads(path.read_text("utf-8"))
        ranges = tuple(_asked(part) for part in told["ranges"])
        return AskedFor(
            path.name[: -len(SUFFIX)], str(told["group"]), str(told["topic"]), int(told["asked_ms"]), ranges
        )
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Invalid(
            "this file is not a request of `tiered replay`",
            path=str(path),
            found=str(error)[:100],
            hint="remove it",
        ) from error


def _asked(part: dict[str, int]) -> Asked:
    asked = Asked(int(part["queue_id"]), int(part["start"]), int(part["end"]))
    if not 0 <= asked.start < asked.end or asked.queue_id < 0:
        raise ValueError(f"not a range: {part}")
    return asked


def take_out(directory: Path, requests: Sequence[AskedFor]) -> None:
    """Remove requests that are in the ledger."""
    for request in requests:
        (directory / INBOX / f"{request.name}{SUFFIX}").unlink(missing_ok=True)
