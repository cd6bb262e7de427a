"""Keys of the fold's ordered map: one prefix byte per kind of record, big-endian numbers, so that byte order
is meaning.

    h                                                      head of the log
    l  lineage u4                                          where that lineage's marks are
    m  lineage u4, ordinal u8                              mark
    e  lineage u4, ordinal u8                              last mark of one commitlog file
    p  lineage u4, start u8                                ``PhysGap``
    q  queue                                               queue with its current generation
    g  queue, generation u4                                generation that is not current
    r  queue, generation u4, first queue offset u8         live run
    c  queue, generation u4, closing commit u8, start u8, run id u8 u4  closed part
    y  queue, generation u4, start u8                      ``Gap``
    b  queue                                               lite queue with its current generation
    a  queue, generation u4, first offset u8               alias run of a lite queue
    o  commit u8, index u4                                 object
    k  object path                                         object path to ``o``
    x  path                                                retired path
    f  floor u8                                            commit that moved the floor there
    s  sink id, 16 bytes                                   sink
    t  sink id, queue                                      how far a sink is in a queue
    u  sink id, queue                                      where a sink put the messages of a queue
    01                                                     dispatch offsets of the flush on its way; *not part of the fold*
    d                                                      the same, as earlier versions kept them; *neither*
    d  queue                                               a dispatch offset, as still earlier versions kept them; *neither*

A queue is its topic in UTF-8 with every 00 written as 00 FF, then 00 01, then the queue id u4. Topics
therefore sort by their bytes and no topic's keys lie between another's.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from tiered.errors import Corrupt
from tiered.model import MessageQueue, ObjectRef

HEAD = b"h"
LINEAGE = b"l"
MARK = b"m"
FILE_MARK = b"e"
PHYS_GAP = b"p"
QUEUE = b"q"
GENERATION = b"g"
RUN = b"r"
CLOSED = b"c"
GAP = b"y"
LITE_QUEUE = b"b"
ALIAS = b"a"
OBJECT = b"o"
OBJECT_PATH = b"k"
RETIRED = b"x"
FLOOR = b"f"
SINK = b"s"
SINK_QUEUE = b"t"
SINK_MAP = b"u"
DISPATCH = b"d"
UNDER_WAY = b"\x01"
"""Before all that is walked over: it has some 40 bytes for each queue of a flush, and a walk that ends before it decompresses
its block, in each young file of the engine."""

FOLD_PREFIXES: tuple[bytes, ...] = tuple(bytes([b]) for b in sorted(b"hlmepqgrcyokxfabstu"))
"""Every prefix of the fold, ascending: what a checkpoint saves."""

U4 = struct.Struct(">I")
U8 = struct.Struct(">Q")
U4_U8 = struct.Struct(">IQ")
U8_U4 = struct.Struct(">QI")
_CLOSED_TAIL = struct.Struct(">IQQQI")

_TOPIC_END = b"\0\x01"
_QUEUE_TAIL = len(_TOPIC_END) + 4


def topic_key(topic: str) -> bytes:
    """The part of a queue's key that all queues of ``topic`` share and no queue of another topic has."""
    try:
        return topic.encode().replace(b"\0", b"\0\xff") + _TOPIC_END
    except UnicodeEncodeError as e:
        raise Corrupt("a topic is not valid Unicode", found=repr(topic)) from e


def topic_beginning(prefix: str) -> bytes:
    """What the keys of all queues of topics whose names begin with ``prefix`` begin with, and of no others."""
    return topic_key(prefix)[: -len(_TOPIC_END)]


def queue_key(mq: MessageQueue) -> bytes:
    """A queue without a prefix byte."""
    return topic_key(mq.topic) + U4.pack(mq.queue_id)


def queue_keys(topics: Sequence[str], queue_ids: npt.NDArray[np.integer]) -> list[bytes]:
    """``queue_key`` of many queues, without Python code per queue. Ids must be in [0, 2^32)."""
    heads = {t: topic_key(t) for t in dict.fromkeys(topics)}
    return list(map(operator.add, map(heads.__getitem__, topics), packed(queue_ids.astype(">u4"))))


def queue_of(key: bytes) -> MessageQueue:
    """The queue of a ``queue_key``."""
    topic = key[:-_QUEUE_TAIL].replace(b"\0\xff", b"\0")
    return MessageQueue(topic.decode(), U4.unpack_from(key, len(key) - 4)[0])


def topic_of(head: bytes) -> str:
    """The topic of a ``topic_key``."""
    return head[: -len(_TOPIC_END)].replace(b"\0\xff", b"\0").decode()


def packed(array: npt.NDArray[np.generic]) -> list[bytes]:
    """The bytes of every element of a one-dimensional array."""
    found: list[bytes] = np.ascontiguousarray(array).view(f"V{array.dtype.itemsize}").tolist()
    return found


def prefixed(prefix: bytes, keys: Iterable[bytes]) -> list[bytes]:
    """``prefix`` before every key."""
    return list(map(prefix.__add__, keys))


def generation_prefix(prefix: bytes, queue: bytes, generation: int) -> bytes:
    """Start of every key of one generation under ``RUN``, ``CLOSED`` or ``GAP``; the whole key under
    ``GENERATION``."""
    return prefix + queue + U4.pack(generation)


def offset_key(prefix: bytes, queue: bytes, generation: int, offset: int) -> bytes:
    """Key of a live run (``RUN``) or an alias run (``ALIAS``) by its first offset, or of a gap (``GAP``) by its start."""
    return prefix + queue + U4_U8.pack(generation, offset)


def offset_keys(
    prefix: bytes, queues: Sequence[bytes], generations: npt.NDArray[np.int64], offsets: npt.NDArray[np.int64]
) -> list[bytes]:
    """``offset_key`` of many, without Python code per key."""
    tails = np.empty(len(queues), dtype=[("generation", ">u4"), ("offset", ">u8")])
    tails["generation"] = generations
    tails["offset"] = offsets
    return list(map(operator.add, map(prefix.__add__, queues), packed(tails)))


def closed_key(
    queue: bytes, generation: int, closed_by: int, start: int, commit_seq: int, index: int
) -> bytes:
    """Key of a closed part."""
    return CLOSED + queue + _CLOSED_TAIL.pack(generation, closed_by, start, commit_seq, index)


def split_run_key(key: bytes) -> tuple[bytes, int]:
    """Queue part and generation of a ``RUN``, ``GAP`` or ``ALIAS`` key."""
    return key[1:-12], U4.unpack_from(key, len(key) - 12)[0]


def split_closed_key(key: bytes) -> tuple[bytes, int]:
    """Queue part and generation of a ``CLOSED`` key."""
    cut = len(key) - _CLOSED_TAIL.size
    return key[1:cut], U4.unpack_from(key, cut)[0]


def object_key(ref: ObjectRef) -> bytes:
    """Key of an object."""
    return OBJECT + U8_U4.pack(ref.commit_seq, ref.index)


def lineage_key(prefix: bytes, lineage: int, number: int | None = None) -> bytes:
    """``prefix``, lineage and, when given, an ordinal or a physical offset."""
    return prefix + (U4.pack(lineage) if number is None else U4_U8.pack(lineage, number))
