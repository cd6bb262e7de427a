"""One run at a time on a table: two would replace each other's directories of silver and gold.

A run puts ``_running.json`` into the table's directory, writes it anew every few seconds, and deletes it at its end. Who finds
one waits for a sign of life: if there is one, it is refused; if there is none for long, or the process is known to be gone, the
run that wrote it was cut off. File systems differ in what they promise about creating a file, so the writer looks after a
moment whether it is still its own, and again each time it writes.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

from tiered.clock import Clock
from tiered.errors import Refused
from tiered_jobs.pipeline.queries import Say
from tiered_jobs.pipeline.table import Files, Table

BEAT_SECONDS = 5.0
"""Between two signs of life."""

DEAD_SECONDS = 120.0
"""Without one, a run is taken for dead: much longer than its driver is busy with anything but waiting."""

SETTLE_SECONDS = 0.5

_mine: set[str] = set()  # runs of this process


class TableClaim:
    """The right to write to a table, from ``with`` to its end. ``beat`` is to be called often, and raises if it was lost."""

    def __init__(self, files: Files, table: Table, clock: Clock, say: Say) -> None:
        self._files, self._table, self._clock, self._say = files, table, clock, say
        self._url = f"{table.root}/_running.json"
        self._run = secrets.token_hex(16)
        self._beats = 0
        self._at = clock.monotonic()

    def __enter__(self) -> Self:
        """``Refused`` while another run is at work."""
        found = self._read()
        if found is not None:
            self._outwait(found)
        _mine.add(self._run)
        try:
            self._write()
            self._clock.wait(SETTLE_SECONDS)
            self._look()
        except BaseException:
            _mine.discard(self._run)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _mine.discard(self._run)
        try:
            self._look()
            self._files.delete(self._url)
        except Refused:  # it is another's, who has begun
            pass
        except Py4JJavaError as failed:  # the run's own end counts more
            self._say(f"{self._url} could not be removed, the next run removes it: {failed.java_exception}")

    def beat(self) -> None:
        """A sign of life, if it is time for one. ``Refused`` if another run has taken over."""
        if self._clock.monotonic() - self._at >= BEAT_SECONDS:
            self._look()
            self._write()

    def _write(self) -> None:
        self._beats += 1
        told = {
            "run": self._run,
            "host": socket.gethostname(),
            "space": _space(),
            "pid": os.getpid(),
            "beats": self._beats,
        }
        self._files.replace(self._url, json.dumps(told).encode())
        self._at = self._clock.monotonic()

    def _look(self) -> None:
        found = self._read()
        if found is None or _told(found).get("run") != self._run:
            raise self._refused("another run has taken this table over", found)

    def _read(self) -> bytes | None:
        """``None`` if there is none; something that is not JSON if it is just being written."""
        try:
            return self._files.read(self._url)
        except Py4JJavaError as error:
            kind = str(error.java_exception.getClass().getSimpleName())
            if kind == "FileNotFoundException":
                return None
            if kind in ("ChecksumException", "EOFException"):
                return b""
            raise

    def _outwait(self, found: bytes) -> None:
        """Return when the run that wrote this is known to be gone; ``Refused`` if it is not."""
        told = _told(found)
        if told.get("run") in _mine:
            raise self._refused("another run is at work on this table", found)
        if told.get("space") == _space() != "" and not _runs(told.get("pid")):
            return
        self._say(f"{self._url} is there: looking for up to {DEAD_SECONDS:g} s whether its run is alive")
        end = self._clock.monotonic() + DEAD_SECONDS
        while self._clock.monotonic() < end:
            self._clock.wait(1.0)
            now = self._read()
            if now is None:
                return
            if now != found:
                raise self._refused("another run is at work on this table", now)

    def _refused(self, message: str, found: bytes | None) -> Refused:
        told = _told(found or b"")
        return Refused(
            message, table=self._table.root, host=told.get("host"), pid=told.get("pid"),
            hint="run this again when the other run has ended; it continues where that one stopped",
        )  # fmt: skip


def _told(data: bytes) -> dict[str, Any]:
    try:
        told = json.loads(data)
    except ValueError:  # it is being written
        return {}
    return told if isinstance(told, dict) else {}


def _space() -> str:
    """Where process ids mean what they mean here: this start of this machine, and its container. Empty if that is not known."""
    try:
        start = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{start} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _runs(pid: object) -> bool:
    return not isinstance(pid, int) or (pid != os.getpid() and Path(f"/proc/{pid}").exists())
