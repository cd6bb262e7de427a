"""What a replay has been promised so far, noted in a directory or bucket: which offsets of which source queues.

A note names exact offsets, so that it holds whatever partitions, order or filter a later run of the query has. Notes are small
objects, each written once under a name of its own (``<replay id>/acked/…``), by whichever task; their union counts. One more
object (``<replay id>/target.json``) says where the replay goes.
"""

from __future__ import annotations

import contextlib
import functools
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass

import msgpack
import numpy as np
import numpy.typing as npt

from tiered.clock import Clock
from tiered.codec.checksum import crc32c
from tiered.codec.types import Ints
from tiered.codec.zstd import deflate, inflate
from tiered.errors import Conflict, Corrupt, Invalid
from tiered.provider.base import Provider
from tiered.provider.resolve import create_root
from tiered_spark.replay.options import ReplayOptions
from tiered_spark.snapshot import shared_provider

FLUSH_SECONDS = 10.0
"""Longest time between two notes of a task that sends."""

FORMAT = 1
_MAX_NOTE_BYTES = 256 << 20
_HINT = "take a new replayId (what was sent before is sent again), or restore the object"


@dataclass(frozen=True, slots=True)
class _Note:
    """One object. ``spans``: source queue → lowest and highest of its offsets."""

    url: str
    key: str
    spans: Mapping[str, tuple[int, int]]


def _notes(url: str) -> Provider:
    """Where notes are kept, made if it is not there: a note that went to an empty mount point costs a repeat, no message."""
    provider = shared_provider(url)
    create_root(provider)
    return provider


def claim(options: ReplayOptions) -> None:
    """Bind the replay id to its target. ``Invalid`` if it was begun towards another one: its notes would leave messages out."""
    if not options.checkpoint:
        return
    provider, key = _notes(options.checkpoint), f"{options.replay_id}/target.json"
    mine = {"topic": options.topic, "nameServers": list(options.name_servers)}
    try:
        provider.put(key, [json.dumps(mine).encode()])
        return
    except Conflict:
        data = bytes(provider.get(key).data)
    try:
        told = json.loads(data)
        topic, servers = str(told["topic"]), {str(s) for s in told["nameServers"]}
    except (ValueError, KeyError, TypeError) as error:
        raise Corrupt("the target of a replay cannot be read", hint=_HINT, key=key) from error
    if topic != options.topic or not servers & set(options.name_servers):
        raise Invalid(
            "this replay was begun with another target", replayId=options.replay_id,
            expected=f"{topic} at {';'.join(sorted(servers))}", found=f"{options.topic} at {';'.join(options.name_servers)}",
            hint="take a new replayId for another topic or cluster; of the name servers, one must be the same",
        )  # fmt: skip


class ReplayProgress:
    """One task's view: what was noted before it began, and what it has to note."""

    def __init__(self, options: ReplayOptions, clock: Clock) -> None:
        """Reads the names of all notes, and those that this process has not seen yet."""
        self._url, self._id, self._clock, self._every = (
            options.checkpoint, options.replay_id, clock, options.every,
        )  # fmt: skip
        self._provider = _notes(options.checkpoint)
        self._name = secrets.token_hex(16)
        self._number = 0
        self._new: dict[str, list[int]] = {}
        self._count = 0
        self._noted_at = clock.monotonic()
        names = [found.key for found in self._provider.list(f"{self._id}/acked/")]
        self._notes: dict[str, list[_Note]] = {}
        for key in names:
            note = _note(self._url, key)
            for queue in note.spans:
                self._notes.setdefault(queue, []).append(note)

    def sent(self, queue: str, offsets: Ints) -> npt.NDArray[np.bool_]:
        """Which of a source queue's offsets were acknowledged before this task began."""
        found = np.zeros(len(offsets), np.bool_)
        if not len(offsets):
            return found
        low, high = int(offsets.min()), int(offsets.max())
        for note in self._notes.get(queue, ()):
            first, last = note.spans[queue]
            if first <= high and last >= low:
                found |= np.isin(offsets, _offsets(note.url, note.key)[queue])
        return found

    def add(self, queue: str, offset: int) -> None:
        """A message was acknowledged."""
        self._new.setdefault(queue, []).append(offset)
        self._count += 1

    def keep_up(self) -> None:
        """Write a note if enough has come together, or time has gone by."""
        if self._count >= self._every or (
            self._count and self._clock.monotonic() - self._noted_at >= FLUSH_SECONDS
        ):
            self.flush()

    def flush(self) -> None:
        """Write a note of what is not noted yet."""
        if self._count:
            key = f"{self._id}/acked/{self._name}-{self._number:08d}"
            with contextlib.suppress(
                Conflict
            ):  # nobody else has this name: a try of ours whose answer was lost
                self._provider.put(key, encode_note(self._new))
            self._number += 1
            self._new, self._count = {}, 0
        self._noted_at = self._clock.monotonic()


def encode_note(offsets: Mapping[str, list[int]]) -> list[bytes]:
    """A note's bytes: CRC32C of what follows (4 bytes, little-endian), then a zstd frame of msgpack."""
    arrays = {queue: np.unique(np.array(found, np.int64)) for queue, found in offsets.items()}
    table = [[queue, int(found[0]), int(found[-1]), len(found)] for queue, found in arrays.items()]
    steps = b"".join(np.diff(found, prepend=0).astype("<i8").tobytes() for found in arrays.values())
    frame = deflate(msgpack.packb({"format": FORMAT, "queues": table, "steps": steps}), level=3)
    return [crc32c(frame).to_bytes(4, "little"), frame]


def decode_note(data: bytes, key: str) -> tuple[dict[str, tuple[int, int]], dict[str, Ints]]:
    """Spans and offsets of each source queue. ``Corrupt`` if the bytes are not what was written."""
    frame = data[4:]
    if len(data) < 8 or crc32c(frame) != int.from_bytes(data[:4], "little"):
        raise Corrupt("a note of a replay's progress is damaged", hint=_HINT, key=key)
    raw = inflate(frame, raw_length=None, bound=_MAX_NOTE_BYTES, key=key, position=4)
    try:
        told = msgpack.unpackb(raw)
        if told["format"] != FORMAT:
            raise Invalid(
                "a note of a replay's progress was written by a newer version", key=key, found=told["format"],
                expected=FORMAT, hint="install that version, or take a new replayId",
            )  # fmt: skip
        table = [(str(queue), int(low), int(high), int(count)) for queue, low, high, count in told["queues"]]
        steps = np.frombuffer(told["steps"], "<i8")
    except (ValueError, KeyError, TypeError, msgpack.UnpackException) as error:
        raise Corrupt("a note of a replay's progress cannot be read", hint=_HINT, key=key) from error
    if any(count < 1 for *_, count in table) or sum(count for *_, count in table) != len(steps):
        raise Corrupt("a note of a replay's progress lacks offsets that its table names", hint=_HINT, key=key)
    edges = np.cumsum([0] + [count for *_, count in table])
    arrays = {row[0]: np.cumsum(steps[edges[i] : edges[i + 1]]) for i, row in enumerate(table)}
    return {queue: (low, high) for queue, low, high, _ in table}, arrays


@functools.lru_cache(maxsize=65_536)
def _note(url: str, key: str) -> _Note:
    spans, _ = decode_note(bytes(shared_provider(url).get(key).data), key)
    return _Note(url, key, spans)


@functools.lru_cache(maxsize=64)
def _offsets(url: str, key: str) -> dict[str, Ints]:
    """Read again when it is needed: offsets of many notes would not fit into memory."""
    return decode_note(bytes(shared_provider(url).get(key).data), key)[1]
