"""A commitlog of many messages that differ in all that a message can differ in; the same for the same seed."""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import zstandard

from tests.kit.brokerlog import BLANK
from tiered.codec.record.message import Message, encode_message

FILE_BYTES = 1 << 28
START_MS = 1_700_000_000_000
PLAIN = "PLAIN_CRC"
"""Property of every message: CRC-32 of its body before it was compressed."""

TOPICS = ("Orders", "Payments", "audit-trail_2", "%RETRY%readers", "t" * 120)
QUEUES = 2
TAGS = (None, "A", "TagB", "é", "a tag", "x" * 60)
WORDS = (
    'say "this"',
    "back\\slash",
    "tab\tand\nline",
    "žluťoučký",
    "日本語",
    "🙂",
    "\u2028",
    "plain",
    "0",
    "{}",
    "\x7f",
)
HOSTS = ("10.1.2.3:50001", "192.168.255.254:1", "[2001:db8::1]:4711", "[::ffff:1.2.3.4]:65535")
STORES = ("127.0.0.1:10911", "[::1]:10911")
NUMBERS = (0, 1, 16, -1, 2**31 - 1, -(2**31))


def _lz4(body: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "lz4") as stream:
        stream.write(body)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


PACKERS: tuple[tuple[int, Callable[[bytes], bytes]], ...] = (
    (0x001, zlib.compress),
    (0x101, _lz4),
    (0x201, zstandard.ZstdCompressor().compress),
    (0x301, zlib.compress),
)


def messages(count: int, seed: int = 0) -> Iterator[Message]:
    """Without physical offsets."""
    chance = random.Random(seed)
    following = dict.fromkeys(((t, q) for t in TOPICS for q in range(QUEUES)), 0)
    places = list(following)
    now = START_MS
    for number in range(count):
        topic, queue_id = places[int(len(places) * chance.random() ** 2)]  # some queues are much longer
        offset = following[topic, queue_id]
        following[topic, queue_id] += 1
        now += int(chance.random() * 20)
        body = _body(chance, number)
        properties = _properties(chance, number, body)
        flags = 0x2 * (number % 7 == 0) | 0x8 * (number % 11 == 0)
        if number % 6 == 0:
            flag, pack = PACKERS[number // 6 % len(PACKERS)]
            flags, body = flags | flag, pack(body)
        yield Message(
            topic, queue_id, offset, 0, body, properties,
            flag=NUMBERS[number % 6] if number % 5 == 0 else number % 4,
            sys_flag=flags, born_timestamp=now - number % 5000, born_host=HOSTS[number % 4 if number % 3 == 0 else 0],
            store_timestamp=now, store_host=STORES[number % 17 == 0], reconsume_times=number % 16 if number % 9 == 0 else 0,
            prepared_transaction_offset=number * 1_000_003 if number % 11 == 0 else 0,
        )  # fmt: skip


def _body(chance: random.Random, number: int) -> bytes:
    kind, size = number % 5, int(1200 * chance.random() ** 3)
    if kind == 0:
        return chance.randbytes(size)
    if kind == 1:
        return json.dumps(
            {"id": number, "text": WORDS[number % len(WORDS)], "amount": chance.random()}
        ).encode()
    if kind == 2:
        return (WORDS[size % len(WORDS)] * (size // 4)).encode()
    return b"%d " % number * (size // 8)


def _properties(chance: random.Random, number: int, body: bytes) -> dict[str, str]:
    found = {PLAIN: str(zlib.crc32(body))}
    if number % 10:
        found["UNIQ_KEY"] = f"{chance.getrandbits(64):016X}{number:016X}"
    if number % 3 == 0:
        found["KEYS"] = " ".join(f"k{chance.randrange(10_000)}" for _ in range(number % 4)) or " spaced  out "
    tag = TAGS[int(len(TAGS) * chance.random())]
    if tag is not None:
        found["TAGS"] = tag
    for extra in range(number % 8 // 2):
        found[f"p{extra} {WORDS[extra]}"] = WORDS[int(len(WORDS) * chance.random())]
    return found


def write(store: Path, count: int, seed: int = 0, file_bytes: int = FILE_BYTES) -> int:
    """The commitlog of a store, as a broker leaves it; its end."""
    directory = store / "commitlog"
    directory.mkdir(parents=True)
    at, pending = 0, bytearray()

    def flush() -> None:
        base = (at - len(pending)) // file_bytes * file_bytes
        with (directory / f"{base:020d}").open("ab") as file:
            file.write(pending)
        pending.clear()

    for message in messages(count, seed):
        record = bytearray(encode_message(message))
        left = file_bytes - at % file_bytes
        if len(record) + 8 > left:
            pending += (left.to_bytes(4, "big") + BLANK.to_bytes(4, "big")).ljust(left, b"\0")
            at += left
            flush()
        record[28:36] = at.to_bytes(8, "big")
        pending += record
        at += len(record)
        if len(pending) > 1 << 22:
            flush()
    pending += bytes(-at % file_bytes)
    end, at = at, at + -at % file_bytes
    flush()
    return end
