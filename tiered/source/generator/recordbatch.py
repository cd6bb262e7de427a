"""Rendering many records at once for the generator: a template per shape, per-message fields put in by
column.

A *shape* is one (topic length, body length); all records of a shape have the same size, so they are rows of a
byte matrix.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tiered.codec.checksum import body_crcs
from tiered.codec.record.layout import MAGIC_V1, MAGIC_V2, MAX_V1_TOPIC_BYTES, V4_HEAD_DTYPE
from tiered.codec.record.message import Message, encode_message
from tiered.codec.record.ragged import gather
from tiered.codec.types import Ints

Octets = npt.NDArray[np.uint8]
"""Bytes that numpy writes."""

HEAD_BYTES = V4_HEAD_DTYPE.itemsize

_POOL_BYTES = 4 << 20
_MARK_DIGITS = 12
_KEY_PLACE = "K" + "0" * _MARK_DIGITS
_UNIQUE_PLACE = "0" * 32
_HEX = np.frombuffer(b"0123456789ABCDEF", np.uint8)


def text_pool(rng: np.random.Generator, length: int = _POOL_BYTES) -> Octets:
    """Text like a service's log: a few thousand words of skewed frequency, times, ids and numbers."""
    letters = np.frombuffer(b"etaoinshrdlucmfwypvbgkjqxz", np.uint8)
    chosen = letters[np.minimum(rng.geometric(0.12, 20_000) - 1, 25)].tobytes().decode()
    words = [chosen[i * 7 : i * 7 + 3 + i % 5] for i in range(2_500)]
    words += [
        "INFO",
        "WARN",
        "\n2024-05-17T10:2",
        "level=",
        "status=200",
        "user=",
        "GET /api/v1/",
        "ms",
        "order",
    ]
    words += [f"{n}" for n in rng.integers(0, 1_000_000, 400).tolist()]
    words += [f"id={n:012x}" for n in rng.integers(0, 1 << 48, 300).tolist()]
    order = rng.permutation(len(words))
    picks = np.minimum(rng.zipf(1.35, length // 4), len(words)) - 1
    pool = " ".join(map(words.__getitem__, order[picks].tolist())).encode()
    while len(pool) < length:
        pool += pool
    return np.frombuffer(pool[:length], np.uint8)


def noise_pool(rng: np.random.Generator, length: int = _POOL_BYTES) -> Octets:
    """Octets that no compressor shortens."""
    return rng.integers(0, 256, length, np.uint8)


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """One batch to write: per message its topic (index), queue, offsets, body length, size, running number
    and tag (index).
    """

    topic: Ints
    queue_id: Ints
    queue_offset: Ints
    physical_offset: Ints
    body_length: Ints
    size: Ints
    sequence: Ints
    tag: Ints
    now_ms: int

    def head(self, count: int) -> BatchPlan:
        """The first ``count`` messages."""
        return BatchPlan(
            self.topic[:count],
            self.queue_id[:count],
            self.queue_offset[:count],
            self.physical_offset[:count],
            self.body_length[:count],
            self.size[:count],
            self.sequence[:count],
            self.tag[:count],
            self.now_ms,
        )


class BatchRenderer:
    """Plans → bytes. ``tags`` must be equally long in UTF-8; hosts must be IPv4."""

    def __init__(
        self,
        topics: Sequence[str],
        tags: Sequence[str],
        born_host: str,
        store_host: str,
        rng: np.random.Generator,
        compressible: bool,
    ) -> None:
        self.topics = topics
        self.tags = tags
        self.born_host = born_host
        self.store_host = store_host
        self.rng = rng
        self.compressible = compressible
        self._pool: Octets | None = None
        self._names: dict[int, npt.NDArray[np.void]] = {}
        self._run_id = rng.integers(0, 256, 8, np.uint8).tobytes().hex().upper().encode()
        self.topic_bytes = np.array([len(t.encode()) for t in topics], np.int64)
        # Sizes of everything but body and topic.
        self._frame_bytes = len(self._template("", b""))

    def record_sizes(self, topic: Ints, body_length: Ints) -> Ints:
        """Octets of each record."""
        topic_bytes = self.topic_bytes[topic]
        sizes: Ints = self._frame_bytes + topic_bytes + (topic_bytes > MAX_V1_TOPIC_BYTES) + body_length
        return sizes

    def bodies(self, lengths: Ints, sequence: Ints) -> list[bytes]:
        """Bodies as ``render`` makes them, for messages that are encoded one by one."""
        return [self._bodies(int(n), sequence[i : i + 1]).tobytes() for i, n in enumerate(lengths.tolist())]

    def render(self, plan: BatchPlan) -> Octets:
        """The records of ``plan`` back to back."""
        shape = self.topic_bytes[plan.topic] * (1 << 32) + plan.body_length
        if (shape == shape[0]).all():
            return self._render_shape(plan, np.arange(len(shape))).reshape(-1)
        out: Octets = np.empty(int(plan.size.sum()), np.uint8)
        places = np.cumsum(plan.size) - plan.size
        for one in np.unique(shape):
            rows = np.flatnonzero(shape == one)
            matrix = self._render_shape(plan, rows)
            size = matrix.shape[1]
            # Overlapping windows over the output; the places chosen never overlap.
            windows: npt.NDArray[np.void] = np.ndarray(
                (len(out) - size + 1,), f"V{size}", buffer=out, strides=(1,)
            )
            windows[places[rows]] = matrix.view(f"V{size}")[:, 0]
        return out

    def _template(self, topic: str, body: bytes) -> bytes:
        properties = {
            "UNIQ_KEY": _UNIQUE_PLACE,
            "KEYS": _KEY_PLACE,
            "WAIT": "true",
            "TAGS": self.tags[0],
        }
        born, store = self.born_host, self.store_host
        return encode_message(Message(topic, 0, 0, 0, body, properties, born_host=born, store_host=store))

    def _render_shape(self, plan: BatchPlan, rows: npt.NDArray[np.intp]) -> Octets:
        count, body_length = len(rows), int(plan.body_length[rows[0]])
        topic = self.topics[int(plan.topic[rows[0]])]
        template = np.frombuffer(self._template(topic, bytes(body_length)), np.uint8)
        size, body_end = len(template), HEAD_BYTES + body_length
        matrix: Octets = np.empty((count, size), np.uint8)
        matrix[:, :HEAD_BYTES] = template[:HEAD_BYTES]
        matrix[:, body_end:] = template[body_end:]
        sequence = plan.sequence[rows]
        if body_length:
            matrix[:, HEAD_BYTES:body_end] = self._bodies(body_length, sequence)
        starts = np.arange(count, dtype=np.int64) * size + HEAD_BYTES
        self._put_head(matrix, plan, rows, body_crcs(matrix.data.cast("B"), starts, starts + body_length))
        self._put_tail(matrix, plan, rows, template[body_end:].tobytes(), body_end)
        return matrix

    def _put_head(
        self, matrix: Octets, plan: BatchPlan, rows: npt.NDArray[np.intp], crcs: npt.NDArray[np.uint32]
    ) -> None:
        head = np.ascontiguousarray(matrix[:, :HEAD_BYTES]).view(V4_HEAD_DTYPE)[:, 0]
        head["body_crc"] = crcs
        head["queue_id"] = plan.queue_id[rows]
        head["queue_offset"] = plan.queue_offset[rows]
        head["physical_offset"] = plan.physical_offset[rows]
        head["born_timestamp"] = plan.now_ms - 1
        head["store_timestamp"] = plan.now_ms
        matrix[:, :HEAD_BYTES] = head.view(np.uint8).reshape(len(rows), HEAD_BYTES)

    def _put_tail(
        self, matrix: Octets, plan: BatchPlan, rows: npt.NDArray[np.intp], tail: bytes, tail_at: int
    ) -> None:
        wide = 1 if matrix[0, 7] == MAGIC_V1 & 0xFF else 2
        assert matrix[0, 7] in (MAGIC_V1 & 0xFF, MAGIC_V2 & 0xFF)
        length = int(self.topic_bytes[plan.topic[rows[0]]])
        if length:
            # Topics of one length share a shape; each row gets its own name.
            own = self._names_of(length)[plan.topic[rows]]
            at = tail_at + wide
            matrix[:, at : at + length] = own.view(np.uint8).reshape(len(rows), length)
        sequence = plan.sequence[rows]
        unique_at = tail_at + tail.index(_UNIQUE_PLACE.encode())
        matrix[:, unique_at : unique_at + 16] = np.frombuffer(self._run_id, np.uint8)
        shifts = np.arange(60, -1, -4, dtype=np.int64)
        matrix[:, unique_at + 16 : unique_at + 32] = _HEX[(sequence[:, None] >> shifts) & 15]
        key_at = tail_at + tail.index(_KEY_PLACE.encode()) + 1
        matrix[:, key_at : key_at + _MARK_DIGITS] = _digits(sequence)
        tags = np.array([t.encode() for t in self.tags], f"V{len(self.tags[0].encode())}")
        own_tags = tags[plan.tag[rows]]
        matrix[:, -1 - tags.itemsize : -1] = own_tags.view(np.uint8).reshape(len(rows), tags.itemsize)

    def _names_of(self, length: int) -> npt.NDArray[np.void]:
        """Names of all topics that are so many bytes long, each at its topic's place."""
        if length not in self._names:
            places = np.flatnonzero(self.topic_bytes == length)
            names = np.zeros(len(self.topics), f"V{length}")
            names[places] = np.array([self.topics[at].encode() for at in places.tolist()], f"V{length}")
            self._names[length] = names
        return self._names[length]

    def _bodies(self, length: int, sequence: Ints) -> Octets:
        """Rows of ``length`` bytes: pieces of the pool at random places, beginning with the running number if
        it fits.
        """
        if self._pool is None:
            self._pool = (text_pool if self.compressible else noise_pool)(self.rng)
        if length > len(self._pool) // 2:
            repeats = -(-length // len(self._pool)) + 1
            pool = np.tile(self._pool, repeats)
        else:
            pool = self._pool
        places = self.rng.integers(0, len(pool) - length + 1, len(sequence))
        bodies = gather(pool.data, places, f"V{length}").view(np.uint8).reshape(len(sequence), length)
        if length > _MARK_DIGITS:
            bodies[:, :_MARK_DIGITS] = _digits(sequence)
            bodies[:, _MARK_DIGITS] = 0x20
        return bodies


def _digits(numbers: Ints) -> Octets:
    """Twelve decimal digits of each number."""
    powers = 10 ** np.arange(_MARK_DIGITS - 1, -1, -1, dtype=np.int64)
    digits: Octets = ((numbers[:, None] // powers) % 10 + 0x30).astype(np.uint8)
    return digits
