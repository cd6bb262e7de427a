"""A broker for replay's tests: speaks remoting on loopback, keeps queues and positions in dictionaries, does as it is told.

::

    with FakeBroker() as broker:
        broker.fill("T", 0, 100)
        broker.committed["T@G"] = {0: 20}
        broker.delete("T", 0, 50)                      # minimum is 50 now
        broker.answers.append((14, "disk full"))       # what the next sends are answered, instead of being stored
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from tiered.codec.remoting.frame import RESPONSE, Command, FrameReader, decode_command, encode_command

V5_5_0 = 513


@dataclass(slots=True)
class Stored:
    """One message that was sent."""

    ext: dict[str, str]
    body: bytes

    @property
    def properties(self) -> dict[str, str]:
        """Its properties."""
        return dict(p.split("\x01", 1) for p in self.ext["properties"].split("\x02") if p)


@dataclass(slots=True)
class FakeQueue:
    """Offsets [minimum, maximum); only what was sent has contents."""

    minimum: int = 0
    maximum: int = 0
    sent: dict[int, Stored] = field(default_factory=dict)


class FakeBroker:
    """One thread accepts, one serves each connection; all end with the ``with`` block."""

    def __init__(self, *, version: int = V5_5_0, **config: str) -> None:
        self.version = version
        self.config = {"brokerName": "broker-a", "brokerClusterName": "DefaultCluster", **config}
        self.queues: dict[str, dict[int, FakeQueue]] = defaultdict(dict)
        self.committed: dict[str, dict[int, int]] = {}
        self.pulled: dict[str, dict[int, int]] = {}
        self.consumers: dict[str, dict[str, Any]] = {}
        self.running: dict[str, bytes] = {}
        self.ordered: set[str] = set()
        self.created: list[str] = []
        self.answers: deque[tuple[int, str] | None] = deque()
        """What the next sends are answered; ``None``: not at all, though stored."""
        self.on_send: Callable[[Stored], None] | None = None
        self.message_id = "x"
        """Of what is sent, as the broker tells it."""
        self.instead: Callable[[Command], Command | None] = lambda _: None
        """What a request is answered instead; ``None``: as always."""
        self.asked: Counter[int] = Counter()
        self.silent = False
        self._lock = threading.RLock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._connections: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    @property
    def address(self) -> str:
        """host:port."""
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def fill(self, topic: str, queue_id: int, maximum: int, minimum: int = 0) -> None:
        """Say that a queue holds [minimum, maximum)."""
        self.queues[topic][queue_id] = FakeQueue(minimum, maximum)

    def delete(self, topic: str, queue_id: int, minimum: int) -> None:
        """Move a queue's minimum."""
        self.queues[topic][queue_id].minimum = minimum

    def sent(self, topic: str) -> list[Stored]:
        """Messages sent to a topic's queue 0, in order."""
        return list(self.queues[topic][0].sent.values()) if topic in self.queues else []

    def cut(self) -> None:
        """Close every connection."""
        with self._lock:
            for connection in self._connections:
                connection.close()
            self._connections.clear()

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()
        for thread in self._threads:
            thread.join(5)

    def _start(self, target: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            self._start(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        frames = FrameReader()
        try:
            while data := connection.recv(1 << 16):
                out = b""
                batch = 0
                for frame in frames.feed(data):
                    command = decode_command(frame)
                    batch += command.code == 10
                    with self._lock:
                        self.asked[command.code] += 1
                        answer = None if self.silent else self._answer(command)
                    if answer is not None:
                        answer.opaque, answer.flag, answer.version = command.opaque, RESPONSE, self.version
                        out += b"".join(bytes(piece) for piece in encode_command(answer))
                connection.sendall(out)
        except OSError:
            return

    def _answer(self, asked: Command) -> Command | None:
        if (instead := self.instead(asked)) is not None:
            return instead
        handler = getattr(self, f"_do_{asked.code}", None)
        return Command(3, remark="not supported") if handler is None else handler(asked)

    def _do_28(self, asked: Command) -> Command:
        return Command(0, body=json.dumps({"table": {"brokerVersionDesc": f"V{self.version}"}}).encode())

    def _do_26(self, asked: Command) -> Command:
        return Command(0, body="".join(f"{k}={v}\n" for k, v in self.config.items()).encode())

    def _do_43(self, asked: Command) -> Command:
        def table(offsets: dict[str, dict[int, int]]) -> str:
            parts = (f'"{k}":{{{",".join(f"{q}:{o}" for q, o in v.items())}}}' for k, v in offsets.items())
            return "{" + ",".join(parts) + "}"

        body = f'{{"offsetTable":{table(self.committed)},"pullOffsetTable":{table(self.pulled)}}}'
        return Command(0, body=body.encode())

    def _do_202(self, asked: Command) -> Command:
        topic = asked.ext["topic"]
        if topic not in self.queues:
            return Command(17, remark="no such topic")
        parts = (
            f'{{"brokerName":"broker-a","queueId":{q},"topic":"{topic}"}}:{{"lastUpdateTimestamp":1,"maxOffset":{b.maximum},'
            f'"minOffset":{b.minimum}}}'
            for q, b in self.queues[topic].items()
        )
        return Command(0, body=('{"offsetTable":{' + ",".join(parts) + '},"topicPutTps":0.0}').encode())

    def _do_203(self, asked: Command) -> Command:
        told = self.consumers.get(asked.ext["consumerGroup"])
        return (
            Command(206, remark="not online") if told is None else Command(0, body=json.dumps(told).encode())
        )

    def _do_307(self, asked: Command) -> Command:
        body = self.running.get(asked.ext["consumerGroup"])
        return Command(1, remark="no answer") if body is None else Command(0, body=body)

    def _do_352(self, asked: Command) -> Command:
        told = {"groupName": asked.ext["group"], "consumeMessageOrderly": asked.ext["group"] in self.ordered}
        return Command(0, body=json.dumps(told).encode())

    def _do_200(self, asked: Command) -> Command:
        self.created.append(json.loads(bytes(asked.body))["groupName"])
        return Command(0)

    def _do_30(self, asked: Command) -> Command:
        return Command(0, ext={"offset": str(self._queue(asked).maximum)})

    def _do_31(self, asked: Command) -> Command:
        return Command(0, ext={"offset": str(self._queue(asked).minimum)})

    def _do_14(self, asked: Command) -> Command:
        key = f"{asked.ext['topic']}@{asked.ext['consumerGroup']}"
        offset = self.committed.get(key, {}).get(int(asked.ext["queueId"]))
        return Command(22, remark="not found") if offset is None else Command(0, ext={"offset": str(offset)})

    def _do_10(self, asked: Command) -> Command | None:
        special = self.answers.popleft() if self.answers else (0, "")
        if special is not None and special[0] not in (0, 10, 11, 12):
            return Command(special[0], remark=special[1])
        queue = self.queues[asked.ext["topic"]].setdefault(int(asked.ext["queueId"]), FakeQueue())
        stored = Stored(dict(asked.ext), bytes(asked.body))
        queue.sent[queue.maximum] = stored
        queue.maximum += 1
        if self.on_send is not None:
            self.on_send(stored)
        if special is None:
            return None
        return Command(
            special[0], ext={"queueOffset": str(queue.maximum - 1), "queueId": "0", "msgId": self.message_id}
        )

    def _queue(self, asked: Command) -> FakeQueue:
        return self.queues.get(asked.ext["topic"], {}).get(int(asked.ext["queueId"]), FakeQueue())
