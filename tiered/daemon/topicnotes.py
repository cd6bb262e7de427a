"""The file that notes since when topics are gone: what changes is appended, and now and then it is written anew.

Its first line names the archive. Each other line notes topics with a time, or says that topics are no longer noted; in front of
each stands the CRC-32C of its JSON. A last line without its end was never acknowledged and counts for nothing; a file that is
damaged anywhere else, of another archive or of another form counts for nothing at all: the time begins anew, and nothing goes
too early. Files of the form before (one JSON object, written anew each time) are read, and replaced by the next change.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tiered import durable
from tiered.codec.checksum import crc32c

GONE, EMPTY = "since_ms", "empty_since_ms"
"""What is noted: topics of which messages are archived, and topics of which nothing is left."""

TOPICS_OF_A_LINE = 1000
SPARE = 4096
"""Topics in lines beyond twice those that are noted, before the file is written anew."""

_CRC_DIGITS = 8


@dataclass(slots=True)
class Noted:
    """``times``: of what is noted, each topic's first time. ``named``: topics in all lines, also those that count no more;
    ``whole``: bytes of lines that are whole, 0 where the file must be written anew."""

    times: dict[str, dict[str, int]] = field(default_factory=lambda: {GONE: {}, EMPTY: {}})
    named: int = 0
    whole: int = 0


class TopicNotes:
    """The file at ``path``, of one archive. One process writes it, others may read it at any time."""

    def __init__(self, path: Path, archive_id: bytes) -> None:
        self._path = path
        self._archive_id = archive_id.hex()

    def read(self) -> Noted:
        """What it says; nothing where it is not there, damaged, or of another archive."""
        try:
            data = self._path.read_bytes()
        except OSError:
            return Noted()
        try:
            return self._former(data) if data.startswith(b"{") else self._read(data)
        except (ValueError, KeyError, TypeError, AttributeError):
            return Noted()

    def write(self, noted: Noted, what: str, since: Mapping[str, int]) -> None:
        """Note ``since`` in place of what ``noted``, just read, has of ``what``. ``OSError``."""
        before = noted.times[what]
        over = [topic for topic in before if topic not in since]
        new = {topic: at for topic, at in since.items() if before.get(topic) != at}
        if not over and not new:
            return
        kept = sum(len(times) for name, times in noted.times.items() if name != what) + len(since)
        named = noted.named + len(over) + len(new)
        if not noted.whole or named > 2 * kept + (SPARE if kept else 0):
            lines = [_line({"archive_id": self._archive_id})]
            for name, times in {**noted.times, what: since}.items():
                lines += _noted(name, times)
            durable.replace(self._path, b"".join(lines))
            return
        gone = [_line({"over": what, "topics": some}) for some in _parts(over)]
        durable.append(self._path, noted.whole, b"".join([*gone, *_noted(what, new)]))

    def _read(self, data: bytes) -> Noted:
        found = Noted(whole=data.rfind(b"\n") + 1)
        first, *lines = data[: found.whole].splitlines()
        if _said(first)["archive_id"] != self._archive_id:
            return Noted()
        for line in lines:
            said = _said(line)
            found.named += len(said["topics"])
            if "over" in said:
                for topic in said["topics"]:
                    del found.times[said["over"]][topic]
            else:
                found.times[said["noted"]].update(dict.fromkeys(said["topics"], int(said["ms"])))
        return found

    def _former(self, data: bytes) -> Noted:
        said = json.loads(data)
        if said["archive_id"] != self._archive_id:
            return Noted()
        return Noted(
            {
                name: {str(topic): int(at) for topic, at in said.get(name, {}).items()}
                for name in (GONE, EMPTY)
            }
        )


def _noted(what: str, since: Mapping[str, int]) -> Iterator[bytes]:
    """Lines that note these topics: those of one look have one time."""
    looks: dict[int, list[str]] = {}
    for topic, at in since.items():
        looks.setdefault(at, []).append(topic)
    for at, topics in looks.items():
        for some in _parts(topics):
            yield _line({"noted": what, "ms": at, "topics": some})


def _parts(topics: Sequence[str]) -> Iterator[Sequence[str]]:
    return (topics[at : at + TOPICS_OF_A_LINE] for at in range(0, len(topics), TOPICS_OF_A_LINE))


def _line(said: Mapping[str, object]) -> bytes:
    text = json.dumps(said, separators=(",", ":")).encode()
    return b"%08x %s\n" % (crc32c(text), text)


def _said(line: bytes) -> dict[str, Any]:
    text = line[_CRC_DIGITS + 1 :]
    if line[:_CRC_DIGITS] != b"%08x" % crc32c(text):
        raise ValueError("the checksum of a line does not fit")
    found: dict[str, Any] = json.loads(text)
    return found
