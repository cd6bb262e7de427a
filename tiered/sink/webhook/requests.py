"""Requests: lines of messages gathered up to a size, and the key by which a receiver knows one that comes again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tiered.sink.base import SinkBatch
from tiered.sink.fields import json_lines
from tiered.sink.kinds import SinkPlace

CONTENT_TYPES = {"ndjson": "application/x-ndjson", "json": "application/json"}


class PostedLine(NamedTuple):
    """A message as a line, and which one it is."""

    topic: str
    queue_id: int
    queue_offset: int
    line: bytes


@dataclass(frozen=True, slots=True)
class PostedRequest:
    """What is posted at once; each queue's messages in their order."""

    lines: tuple[PostedLine, ...]

    def body(self, form: str) -> bytes:
        """``ndjson``: a line for each message, ``json``: an array of them."""
        texts = [line.line for line in self.lines]
        return b"[" + b",".join(texts) + b"]" if form == "json" else b"\n".join(texts) + b"\n"

    def key(self, place: SinkPlace) -> str:
        """Of archive, sink and the ranges of the queues in it: the same whenever the same messages are posted together."""
        ranges: dict[tuple[str, int], tuple[int, int, int]] = {}
        for topic, queue, offset, _ in self.lines:
            first, _, count = ranges.get((topic, queue), (offset, offset, 0))
            ranges[topic, queue] = (first, offset, count + 1)
        told = repr((place.archive_id.hex(), place.name, place.sink_id.hex(), sorted(ranges.items())))
        return hashlib.sha256(told.encode()).hexdigest()[:40]

    def halves(self) -> tuple[PostedRequest, PostedRequest]:
        """Two requests, of at least one message each."""
        middle = len(self.lines) // 2
        return PostedRequest(self.lines[:middle]), PostedRequest(self.lines[middle:])


class Gathering:
    """Lines until they fill a request. ``most_bytes`` bounds the body, unless one message alone is longer."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._lines: list[PostedLine] = []
        self._bytes = 0

    def add(self, batch: SinkBatch) -> Iterator[PostedRequest]:
        """Take the rows of a batch; the requests that are full by then."""
        headers = batch.messages.headers[batch.rows]
        topics, queues, offsets = (headers[n].tolist() for n in ("topic_index", "queue_id", "queue_offset"))
        for topic, queue, offset, line in zip(topics, queues, offsets, json_lines(batch), strict=True):
            if self._lines and self._bytes + len(line) + 2 > self._most_bytes:
                yield from self.rest()
            self._lines.append(PostedLine(batch.messages.topics[topic], queue, offset, line))
            self._bytes += len(line) + 1

    def rest(self) -> Sequence[PostedRequest]:
        """The request that is not full, if there is one."""
        lines, self._lines, self._bytes = tuple(self._lines), [], 0
        return [PostedRequest(lines)] if lines else []
