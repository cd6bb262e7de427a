"""The HTTP pages on a real socket over a store in memory: the server's event loop runs in a thread of its own."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

import uvloop

from tiered.archive.read.lookup import KeyLookup, Located
from tiered.archive.state.listing import TopicState
from tiered.archive.state.sinklisting import ListedSink
from tiered.archive.state.values import QueueState
from tiered.clock import SystemClock
from tiered.codec.record.message import Message, decode_message, encode_message
from tiered.fetch.pull import Pull
from tiered.http.archive.pages import ArchivePages
from tiered.http.archive.server import ArchiveServer
from tiered.http.kv.server import LIMITS, KeyValueServer
from tiered.http.limits import HttpLimits
from tiered.keyvalue import KeyValues
from tiered.metrics import Metrics
from tiered.model import GetMessageResult, GetMessageStatus, MessageQueue, QueueOffset, Records
from tiered.settings import Kv
from tiered.text.addresses import split_address

_Server = TypeVar("_Server", ArchiveServer, KeyValueServer)


@dataclass
class FakeStore:
    """Queues as lists of records; ``first`` is the offset of each list's first. ``trouble`` is called before every read."""

    queues_held: dict[MessageQueue, list[bytes]] = field(default_factory=dict)
    first: int = 0
    examined_at_once: int = 1000
    trouble: Callable[[str], None] = lambda verb: None
    reads: int = 0
    sinks_known: Sequence[ListedSink] = ()

    def add(self, topic: str, queue_id: int, messages: Sequence[Message]) -> None:
        """Append messages to a queue."""
        held = self.queues_held.setdefault(MessageQueue(topic, queue_id), [])
        held += map(encode_message, messages)

    def get_message(self, pull: Pull) -> GetMessageResult:
        offset, row_filter = pull.offset, pull.row_filter
        self.reads += 1
        self.trouble("get_message")
        held = self.queues_held.get(MessageQueue(pull.topic, pull.queue_id))
        asked, low = QueueOffset(offset), QueueOffset(self.first)
        if held is None:
            return GetMessageResult(
                GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, asked, QueueOffset(0), QueueOffset(0)
            )
        high = QueueOffset(self.first + len(held))
        if offset < low:
            return GetMessageResult(GetMessageStatus.OFFSET_TOO_SMALL, low, low, high)
        if offset == high:
            return GetMessageResult(GetMessageStatus.OFFSET_OVERFLOW_ONE, high, low, high)
        if offset > high:
            return GetMessageResult(GetMessageStatus.OFFSET_OVERFLOW_BADLY, high, low, high)
        records: list[memoryview] = []
        offsets: list[QueueOffset] = []
        at, room = offset, pull.max_bytes
        while at < high and len(records) < pull.max_count and at - offset < self.examined_at_once:
            record = memoryview(held[at - low])
            room -= len(record)
            if records and room < 0:
                break
            if row_filter is None or row_filter.accepts(record):
                records.append(record)
                offsets.append(QueueOffset(at))
            at += 1
        status = GetMessageStatus.FOUND if records else GetMessageStatus.NO_MATCHED_MESSAGE
        return GetMessageResult(status, QueueOffset(at), low, high, Records.of(records), tuple(offsets))

    def min_offset(self, topic: str, queue_id: int) -> QueueOffset | None:
        self.trouble("min_offset")
        return QueueOffset(self.first) if MessageQueue(topic, queue_id) in self.queues_held else None

    def offset_by_time(self, topic: str, queue_id: int, time_ms: int) -> QueueOffset | None:
        held = self.queues_held.get(MessageQueue(topic, queue_id))
        if held is None:
            return None
        times = [decode_message(record).store_timestamp for record in held]
        return QueueOffset(self.first + sum(1 for time in times if time < time_ms))

    def query(self, lookup: KeyLookup) -> list[Located]:
        self.trouble("query")
        found = []
        for queue, held in self.queues_held.items():
            for at, record in enumerate(held, self.first):
                message = decode_message(record)
                keys = (message.unique_key,) if lookup.unique else message.keys
                late = lookup.begin_ms is None or message.store_timestamp >= lookup.begin_ms
                early = lookup.end_ms is None or message.store_timestamp <= lookup.end_ms
                if queue.topic == lookup.topic and lookup.key in keys and late and early:
                    found.append(Located(queue, QueueOffset(at), 1, record, message))
        assert lookup.max_count
        return found[-lookup.max_count :]

    def list_topics(
        self, *, prefix: str = "", after: str | None = None, system: bool = False
    ) -> Iterator[TopicState]:
        self.trouble("topics")
        named = {q.topic for q in self.queues_held if system or not q.topic.startswith("SYS")}
        for topic in sorted(name for name in named if name.startswith(prefix) and name > (after or "")):
            queues = list(self.queues(topic))
            times = [q.min_store_time for q in queues], [q.max_store_time for q in queues]
            oldest, newest = ([t for t in some if t is not None] for some in times)
            messages, size = sum(q.messages for q in queues), sum(q.bytes for q in queues)
            first, last = min(oldest, default=None), max(newest, default=None)
            yield TopicState(topic, len(queues), messages, size, first, last, 0)

    def queues(self, topic: str | None = None, *, after: MessageQueue | None = None) -> Iterator[QueueState]:
        for queue, held in sorted(self.queues_held.items()):
            if topic in (None, queue.topic) and (after is None or queue > after):
                end = self.first + len(held)
                times = (1000, 2000) if held else (None, None)
                size = sum(map(len, held))
                yield QueueState(queue, 1, 1, 1, self.first, end, size, 0, *times, len(held), size, 1)

    def sinks(self) -> Iterator[ListedSink]:
        return iter(self.sinks_known)

    def follow(self) -> bool:
        self.trouble("follow")
        return False


@dataclass
class Scene:
    """A server that runs, and the ways to talk to it."""

    host: str
    port: int
    metrics: Metrics

    def connect(self, seconds: float = 10.0) -> socket.socket:
        """A bare connection."""
        return socket.create_connection((self.host, self.port), seconds)

    def raw(self, sent: bytes, *, seconds: float = 10.0) -> bytes:
        """Everything that comes back on one connection for these bytes; the sending side is closed after them."""
        with self.connect(seconds) as connection:
            with contextlib.suppress(OSError):
                connection.sendall(sent)
                connection.shutdown(socket.SHUT_WR)
            received = b""
            with contextlib.suppress(ConnectionError):
                while piece := connection.recv(65536):
                    received += piece
            return received

    def get(
        self, path: str, *, method: str = "GET", headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers (lower case) and body of a page."""
        return self.send(method, path, None, headers)

    def send(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """The same for a request that may have a body."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=10)
        try:
            connection.request(method, path, body, headers=dict(headers or {}))
            answer = connection.getresponse()
            names = {name.lower(): value for name, value in answer.getheaders()}
            return answer.status, names, answer.read()
        finally:
            connection.close()

    def json(self, path: str, *, status: int = 200, headers: dict[str, str] | None = None) -> dict[str, Any]:
        """The JSON of a page that must have this status."""
        found, names, body = self.get(path, headers=headers)
        if found != status or not names["content-type"].startswith("application/json"):
            raise AssertionError(f"{path}: {found} {names} {body[:500]!r}")
        made: dict[str, Any] = json.loads(body)
        return made


@dataclass
class KeyValueScene(Scene):
    """The same with key-value pages."""

    server: KeyValueServer

    @property
    def url(self) -> str:
        """What a client is given."""
        return f"http://{self.host}:{self.port}"


@contextlib.contextmanager
def serving(
    store: FakeStore | Any,
    *,
    listen: str = "127.0.0.1:0",
    token: str = "",
    read_timeout_ms: int = 10_000,
    limits: HttpLimits | None = None,
) -> Iterator[Scene]:
    """Run the pages over ``store`` until the block ends."""
    host, port = split_address(listen, key="gateway.http_listen", listening=True)
    metrics = Metrics()

    def made(pool: ThreadPoolExecutor) -> ArchiveServer:
        return ArchiveServer(
            (host, port),
            ArchivePages(store, SystemClock()),
            pool,
            metrics,
            token=token,
            read_timeout_ms=read_timeout_ms,
            limits=limits or HttpLimits(),
        )

    with _turned(made) as server:
        yield Scene(*server.address, metrics)


@contextlib.contextmanager
def serving_key_values(
    key_values: KeyValues, *, limits: HttpLimits | None = None, threads: int = 8, **settings: Any
) -> Iterator[KeyValueScene]:
    """Run the key-value pages until the block ends; ``settings`` are of the section ``kv``."""
    metrics = Metrics()
    kv = Kv(**{"http_listen": "127.0.0.1:0", **settings})

    def made(pool: ThreadPoolExecutor) -> KeyValueServer:
        return KeyValueServer(key_values, kv, pool, metrics, limits=limits or LIMITS)

    with _turned(made, threads) as server:
        yield KeyValueScene(*server.address, metrics, server)


@contextlib.contextmanager
def _turned(made: Callable[[ThreadPoolExecutor], _Server], threads: int = 4) -> Iterator[_Server]:
    """A server on an event loop of its own: uvloop, as the gateway's; the health pages' tests are on asyncio's own."""
    with ThreadPoolExecutor(threads, "http-pages") as pool:
        server = made(pool)
        loop = uvloop.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, name="http-scene")
        thread.start()
        try:
            asyncio.run_coroutine_threadsafe(server.start(), loop).result(10)
            yield server
        finally:
            asyncio.run_coroutine_threadsafe(server.close(), loop).result(10)
            loop.call_soon_threadsafe(loop.stop)
            thread.join(10)
            loop.close()
