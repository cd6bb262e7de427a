"""JSON of messages, topics, queues and errors, and the answer that carries it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from tiered.archive.state.values import QueueState
from tiered.codec.record.layout import SYS_COMPRESSED
from tiered.codec.record.message import Message, body_fields, decode_message
from tiered.codec.record.message import message_fields as stored_fields
from tiered.errors import Invalid, NotFound, Refused, TieredError, Unavailable
from tiered.gateway.httphead import HttpRefusal

JSON = "application/json; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Answer:
    """A status, its headers and the pieces of the body. ``length``: of the whole body, where it is known before."""

    status: int
    content_type: str
    pieces: Iterator[bytes]
    length: int | None = None
    headers: tuple[tuple[str, str], ...] = ()
    close: bool = False


def message_fields(queue_offset: int, message: Message) -> dict[str, object]:
    """Every field of a message; the body in base64 as stored, and as text where it is UTF-8. Times in ms since 1970."""
    compressed = {"compressed": bool(message.sys_flag & SYS_COMPRESSED)}
    body = body_fields(message.body, always_base64=True)
    return stored_fields(queue_offset, message) | compressed | body


def error_fields(error: TieredError) -> dict[str, object]:
    """An error as the pages show it: what, where (the fields it carries), and what fixes it."""
    status = status_of(error)
    fields = {name: value if isinstance(value, int) else str(value) for name, value in error.fields.items()}
    return {"status": status, "message": error.message, **fields, "fix": error.hint or "ask again later"}


def status_of(error: TieredError) -> int:
    """The HTTP status of an error."""
    match error:
        case HttpRefusal():
            return error.status
        case Refused():
            return 403
        case Invalid():
            return 400
        case NotFound():
            return 404
        case Unavailable():
            return 503
        case _:
            return 500


def refusal(error: TieredError) -> Answer:
    """The page of an error."""
    headers: tuple[tuple[str, str], ...] = ()
    if isinstance(error, HttpRefusal):
        headers += (("Allow", error.allow),) * bool(error.allow)
        headers += (("WWW-Authenticate", "Bearer"),) * (error.status == 401)
    headers += (("Retry-After", "1"),) * isinstance(error, Unavailable)
    made = whole(status_of(error), JSON, dumped({"error": error_fields(error)}), headers)
    close = isinstance(error, HttpRefusal) and error.close
    return Answer(made.status, made.content_type, made.pieces, made.length, made.headers, close)


def whole(status: int, content_type: str, body: bytes, headers: tuple[tuple[str, str], ...] = ()) -> Answer:
    """An answer that is there at once."""
    return Answer(status, content_type, iter((body,)), len(body), headers)


def listed(
    beginning: str, rows: Iterable[dict[str, object]], end: str, *, at_once: int = 64
) -> Iterator[bytes]:
    """A JSON list in pieces of ``at_once`` rows."""
    piece, divider = [beginning], ""
    for number, row in enumerate(rows, 1):
        piece += (divider, json.dumps(row, ensure_ascii=False))
        divider = ","
        if number % at_once == 0:
            yield "".join(piece).encode("utf-8", "replace")
            piece = []
    yield "".join((*piece, end)).encode("utf-8", "replace")


def message_line(queue_offset: int, record: memoryview) -> bytes:
    """A stored record as one JSON object. ``Corrupt`` if it is none."""
    fields = message_fields(queue_offset, decode_message(record))
    return json.dumps(fields, ensure_ascii=False).encode("utf-8", "replace")


def topic_fields(name: str, queues: Sequence[QueueState]) -> dict[str, object]:
    """What the queues of a topic hold together."""
    oldest = [queue.min_store_time for queue in queues if queue.min_store_time is not None]
    newest = [queue.max_store_time for queue in queues if queue.max_store_time is not None]
    return {
        "topic": name,
        "queues": len(queues),
        "messages": sum(queue.messages for queue in queues),
        "bytes": sum(queue.bytes for queue in queues),
        "oldest": min(oldest, default=None),
        "newest": max(newest, default=None),
    }


def queue_fields(queue: QueueState) -> dict[str, object]:
    """The numbers of one queue."""
    return {
        "queue_id": queue.queue.queue_id,
        "min_offset": queue.min_offset,
        "max_offset": queue.max_offset,
        "messages": queue.messages,
        "bytes": queue.bytes,
        "generation": queue.generation,
        "oldest": queue.min_store_time,
        "newest": queue.max_store_time,
    }


def quoted(value: str) -> str:
    """A JSON string."""
    return json.dumps(value, ensure_ascii=False)


def dumped(value: object) -> bytes:
    """A JSON value and a line end."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
