"""Writes: a message sent to the broker, and the redo waited for."""

from __future__ import annotations

import queue
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tiered.broker.client import RemotingClient
from tiered.broker.questions import Broker
from tiered.broker.send import NEW_MESSAGE, STORED, Sending, properties_text
from tiered.clock import Clock
from tiered.codec.remoting.codes import ResponseCode, number_field
from tiered.codec.remoting.frame import Command
from tiered.errors import BadRequest, Corrupt, NotFound, Refused, TieredError, Unavailable
from tiered.keyvalue import MAX_TTL_MS, Condition, WriteOutcome, check_key, check_namespace
from tiered.view.operation import DELETE, NO_VALUE, PUT, properties_of
from tiered.view.progress import Undecided, ViewProgress
from tiered.view.redo import QUEUE_ID

GROUP = "TIERED_KV"
"""Producer group of all writes."""
_ID_BYTES = 16
_MESSAGE_ID = re.compile(r"(?:[0-9A-Fa-f]{32}|[0-9A-Fa-f]{56})")
"""Of an IPv4 or an IPv6 broker."""
UNKNOWN, NOT_DONE = "unknown", "not done"


@dataclass(frozen=True, slots=True)
class PutLimits:
    """``timeout_seconds``: for the broker, and again for the redo. ``max_value_bytes``: of one value."""

    timeout_seconds: float
    max_value_bytes: int


class Connections:
    """Connections to the master, at most ``most``, each for one request at a time. ``find`` tells its address, and is asked
    again after each trouble and for each new connection: brokers take turns at being the master. For any thread."""

    def __init__(
        self, make: Callable[[str], RemotingClient], find: Callable[[], str], most: int, seconds: float
    ) -> None:
        self._make = make
        self._find = find
        self._most = most
        self._seconds = seconds
        self._free: queue.LifoQueue[RemotingClient | None] = queue.LifoQueue()
        self._all: set[RemotingClient] = set()
        self._asking = threading.Lock()
        self._address: str | None = None
        for _ in range(most):
            self._free.put(None)

    @contextmanager
    def one(self) -> Iterator[RemotingClient]:
        """One of them. ``Unavailable`` if none is free in time, or nobody knows the master."""
        try:
            client = self._free.get(timeout=self._seconds)
        except queue.Empty:
            raise Unavailable(
                "too many writes at one time", limit=self._most, outcome=NOT_DONE,
                hint="ask again, or raise kv.connections",
            ) from None  # fmt: skip
        try:
            client = self._to_master(client)
            yield client
        finally:
            self._free.put(client)

    def doubt(self) -> None:
        """Ask for the master again before the next request."""
        self._address = None

    def close(self) -> None:
        """Close all of them; nobody may use one."""
        for client in self._all:
            client.close()

    @contextmanager
    def asking(self) -> Iterator[RemotingClient]:
        """``one``, for a question; who does not answer it may be the master no longer."""
        try:
            with self.one() as client:
                yield client
        except Unavailable:
            self.doubt()
            raise

    def _to_master(self, client: RemotingClient | None) -> RemotingClient:
        try:
            with self._asking:
                if self._address is None or client is None or not client.connected:
                    self._address = self._find()
                address = self._address
        except TieredError as error:
            error.fields["outcome"] = NOT_DONE
            raise
        if client is not None and client.address == address:
            return client
        if client is not None:
            client.close()
            self._all.discard(client)
        made = self._make(address)
        self._all.add(made)
        return made


class Putter:
    """Writes through one broker. ``stored`` is told where in its log the broker stored a write (``None``: it did not say), and
    has the redo look at once. For any thread."""

    def __init__(
        self,
        connections: Connections,
        topic_prefix: str,
        progress: ViewProgress,
        stored: Callable[[int | None], None],
        limits: PutLimits,
        random_bytes: Callable[[int], bytes],
        clock: Clock,
    ) -> None:
        self._connections = connections
        self._prefix = topic_prefix
        self._progress = progress
        self._stored = stored
        self._limits = limits
        self._random_bytes = random_bytes
        self._clock = clock

    def put(
        self, namespace: str, key: bytes, value: bytes, condition: Condition, ttl_ms: int | None
    ) -> WriteOutcome:
        """See ``KeyValues.put``."""
        if len(value) > self._limits.max_value_bytes:
            raise BadRequest(
                "a value is too large", found=f"{len(value)} bytes", expected=f"at most {self._limits.max_value_bytes}",
                hint="raise kv.max_value_bytes and the broker's maxMessageSize, or divide it",
            )  # fmt: skip
        if ttl_ms is not None and not 0 < ttl_ms <= MAX_TTL_MS:
            raise BadRequest(
                "ttl_ms is out of range",
                found=ttl_ms,
                expected=f"1 to {MAX_TTL_MS}",
                hint="leave it out for ever",
            )
        return self._write(namespace, PUT, key, value, condition, ttl_ms)

    def delete(self, namespace: str, key: bytes, condition: Condition) -> WriteOutcome:
        """See ``KeyValues.delete``."""
        return self._write(namespace, DELETE, key, NO_VALUE, condition, None)

    def log_end(self) -> int:
        """Where the broker's log ends now. Asked again over another connection if one broke: it may have been dead for long."""
        try:
            return self._asked_end()
        except Unavailable as error:
            if not isinstance(error.__cause__, ConnectionError):
                raise
        return self._asked_end()

    def _asked_end(self) -> int:
        with self._connections.asking() as client:
            return Broker(client).log_end()

    def next_version(self, namespace: str) -> int | None:
        """The version that the broker gives next; ``None`` if it has no such namespace."""
        with self._connections.asking() as client:
            bounds = Broker(client).bounds(self._prefix + check_namespace(namespace))
        return None if bounds is None else bounds.get(QUEUE_ID, (0, 0))[1]

    def create(self, namespace: str) -> bool:
        """See ``KeyValues.create``."""
        topic = self._prefix + check_namespace(namespace)
        with self._connections.asking() as client:
            broker = Broker(client)
            if broker.bounds(topic) is not None:
                return False
            broker.create_topic(topic, 1)
        return True

    def _write(
        self, namespace: str, kind: str, key: bytes, body: bytes, condition: Condition, ttl_ms: int | None
    ) -> WriteOutcome:
        topic = self._prefix + check_namespace(namespace)
        unique_key = self._random_bytes(_ID_BYTES).hex().upper()
        properties = properties_of(kind, check_key(key), unique_key, condition, ttl_ms, empty=not body)
        text = properties_text(properties, NEW_MESSAGE)
        sending = Sending(
            topic, QUEUE_ID, body or NO_VALUE, text, GROUP, born_ms=self._clock.now_ms(), queues_if_new=1
        )
        with self._progress.writing():
            version, place = self._send(sending)
            with self._progress.expecting():
                self._stored(place)
                applied = self._progress.wait_version(namespace, version, self._limits.timeout_seconds)
            if not applied:
                raise Unavailable(
                    "the write is in the log, and was not applied in time", version=version, outcome=UNKNOWN,
                    hint="read the key until its version is this one or a later one",
                )  # fmt: skip
            found = self._progress.outcome(namespace, version, unique_key.encode())
        if found is None:
            raise Unavailable(
                "the broker stored the write, and another message has its place now: it lost the end of its log, or very"
                " many messages came since", version=version, outcome=UNKNOWN,
                hint="read the key to see whether it took effect",
            )  # fmt: skip
        if isinstance(found, Undecided):
            raise _undecided(found, namespace, version)
        return found

    def _send(self, sending: Sending) -> tuple[int, int | None]:
        """The version that the broker gave it, and where in its log it lies."""
        with self._connections.asking() as client:
            [answer] = _asked(client, sending)
        if answer is None or answer.code not in STORED:
            self._connections.doubt()  # it may be the master no longer
        if answer is None:
            raise Unavailable(
                "the broker did not answer the write in time", broker=client.address, found=client.trouble, outcome=UNKNOWN,
                hint="read the key to see whether it took effect",
            )  # fmt: skip
        if answer.code not in STORED:
            raise _refusal(answer, sending.topic)
        if answer.code != ResponseCode.SUCCESS:
            raise Unavailable(
                "the broker stored the write, but not as safely as it is to", code=answer.code,
                remark=(answer.remark or "")[:200], outcome=UNKNOWN,
                hint="it takes effect unless the broker loses it; read the key to see",
            )  # fmt: skip
        return number_field(answer.ext, "queueOffset"), _place(answer.ext.get("msgId", ""))


def _asked(client: RemotingClient, sending: Sending) -> list[Command | None]:
    reached = client.connections
    try:
        return client.ask_all([sending.request()])
    except Unavailable as error:
        # Without a connection nothing was sent; over one that broke it may have been.
        unsent = not client.connected and client.connections == reached and _refused(error)
        error.fields["outcome"] = NOT_DONE if unsent else UNKNOWN
        raise


def _place(message_id: str) -> int | None:
    """The place in the log of which a broker's message id ends: behind address and port, 16 hex digits."""
    return int(message_id[-16:], 16) if _MESSAGE_ID.fullmatch(message_id) else None


def _refused(error: Unavailable) -> bool:
    """Whether no connection was made at all."""
    return isinstance(error.__cause__, ConnectionRefusedError)


def _undecided(why: Undecided, namespace: str, version: int) -> TieredError:
    """What it means that redo came by one's own message, and decided nothing."""
    if why is Undecided.NO_WRITE:
        return BadRequest(
            "redo does not take the message for a write: it changed nothing", namespace=namespace, version=version,
            outcome=NOT_DONE, hint="ask for less: a smaller value, a condition that can hold",
        )  # fmt: skip
    return Corrupt(
        "the write is in the log, and messages of the namespace before it are missing: this view decides none of it",
        namespace=namespace, version=version, outcome=UNKNOWN,
        hint="name an archive that has them (archive.url), or import a snapshot that covers them, and read the key then",
    )  # fmt: skip


def _refusal(answer: Command, topic: str) -> TieredError:
    """What it means that the broker did not store a write."""
    said = {"code": answer.code, "remark": (answer.remark or "")[:200], "outcome": NOT_DONE}
    match answer.code:
        case ResponseCode.TOPIC_NOT_EXIST:
            return NotFound(
                "there is no such namespace at the broker",
                topic=topic,
                **said,
                hint="tiered kv create makes it",
            )
        case ResponseCode.NO_PERMISSION:
            return Refused(
                "the broker does not allow the write", topic=topic, **said,
                hint="give kv.access_key the right to publish to the topic, or make the topic writable",
            )  # fmt: skip
        case ResponseCode.MESSAGE_ILLEGAL:
            return BadRequest(
                "the broker refuses the message", topic=topic, **said, hint="a smaller value or key may do"
            )
    return Unavailable(
        "the broker did not store the write", topic=topic, **said, hint="ask again; the broker's log says why"
    )
