"""What the pages say: JSON made piece by piece from the store. Synchronous; the server calls it in a pool.

The first piece is made before the answer begins, so what goes wrong early has a status of its own. What goes wrong
later ends the JSON properly, with a member ``error`` that a reader must look for.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Protocol, cast

from tiered.archive.read.lookup import KeyLookup, Located
from tiered.archive.state.listing import TopicState
from tiered.archive.state.sinklisting import ListedSink
from tiered.archive.state.values import QueueState
from tiered.clock import Clock
from tiered.errors import BadRequest, Corrupt, Refused, TieredError, Unavailable
from tiered.fetch.base import ReaderId
from tiered.fetch.pull import Pull
from tiered.filter.base import RowFilter
from tiered.filter.tags import sql_filter, tag_filter
from tiered.http.archive.rows import (
    PageOfRows,
    fields_with_body,
    listed,
    message_line,
    queue_fields,
    quoted,
    sink_fields,
    topic_fields,
)
from tiered.http.refusals import HttpRefusal, dumped, error_fields, refused_parameter
from tiered.http.routes import Values
from tiered.model import CompactedPage, GetMessageResult, GetMessageStatus, MessageQueue, QueueOffset
from tiered.settings import MIB

READER = ReaderId("tiered-http")
PAGE_MESSAGES = 256
QUERY_BYTES = 64 * MIB
"""Most bytes of records that one look-up by key holds."""
SEARCH_SECONDS = 10.0
"""A filter that takes little is searched for this long; then the answer ends and says where to go on."""


class BrowsedStore(Protocol):
    """What the pages need of ``tiered.store.MessageStore``."""

    def get_message(self, pull: Pull) -> GetMessageResult: ...

    def compacted_page(self, topic: str, queue_id: int, offset: int | None, count: int) -> CompactedPage: ...

    def min_offset(self, topic: str, queue_id: int) -> QueueOffset | None: ...

    def offset_by_time(self, topic: str, queue_id: int, time_ms: int) -> QueueOffset | None: ...

    def query(self, lookup: KeyLookup) -> list[Located]: ...

    def list_topics(
        self, *, prefix: str = "", after: str | None = None, system: bool = False
    ) -> Iterator[TopicState]: ...

    def queues(
        self, topic: str | None = None, *, after: MessageQueue | None = None
    ) -> Iterator[QueueState]: ...

    def sinks(self) -> Iterator[ListedSink]: ...

    def follow(self) -> bool: ...


class ArchivePages:
    """The pages over one store. For any thread."""

    def __init__(self, store: BrowsedStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def begin(self, name: str, values: Values) -> Iterator[bytes]:
        """The pieces of a page, the first one made. Raises only ``TieredError``s of the store and ``HttpRefusal``."""
        match name:
            case "topics":
                pieces = self._topics(values)
            case "queues":
                pieces = self._queues(values)
            case "sinks":
                pieces = self._sinks()
            case "messages":
                pieces = self._messages(values)
            case "compacted":
                pieces = self._compacted(values)
            case _:
                pieces = self._query(values)
        try:
            return chain((next(pieces, b""),), pieces)
        except Refused as error:  # of the archive: nobody who asks for a page can do anything about it
            raise Unavailable(error.message, hint=error.hint, **error.fields) from error

    def _fresh(self) -> str:
        """Look for new commits; whether what follows is as new as the archive, as the beginning of an object."""
        try:
            self._store.follow()
        except Unavailable:
            return '{"stale":true'
        return '{"stale":false'

    def _topics(self, values: Values) -> Iterator[bytes]:
        beginning = self._fresh()
        after, count = cast("str | None", values["after"]), cast("int | None", values["count"])
        found = self._store.list_topics(
            prefix=str(values["prefix"] or ""), after=after, system=bool(values["system"])
        )
        page = PageOfRows(map(topic_fields, found), count, "topic")
        yield from listed(f'{beginning},"topics":[', page, "]")
        yield page.end()

    def _queues(self, values: Values) -> Iterator[bytes]:
        topic, beginning = str(values["topic"]), self._fresh()
        after, count = cast("int | None", values["after"]), cast("int | None", values["count"])
        rows = map(
            queue_fields,
            self._store.queues(topic, after=None if after is None else MessageQueue(topic, after)),
        )
        first = next(rows, None)
        if first is None and (after is None or next(self._store.queues(topic), None) is None):
            raise _unknown_topic(topic)
        page = PageOfRows(rows if first is None else chain([first], rows), count, "queue_id")
        yield from listed(f'{beginning},"topic":{quoted(topic)},"queues":[', page, "]")
        yield page.end()

    def _sinks(self) -> Iterator[bytes]:
        yield from listed(f'{self._fresh()},"sinks":[', map(sink_fields, self._store.sinks()), "]}\n")

    def _query(self, values: Values) -> Iterator[bytes]:
        topic, key = str(values["topic"]), str(values["key"])
        begin, end = cast("int | None", values["begin"]), cast("int | None", values["end"])
        if begin is not None and end is not None and end < begin:
            raise refused_parameter("end", end, f"at least begin, {begin}", "exchange begin and end")
        count = cast("int", values["count"])
        unique = bool(values["unique"])
        found = self._store.query(
            KeyLookup(topic, key, count, begin, end, unique=unique, max_bytes=QUERY_BYTES)
        )
        if not found and next(self._store.queues(topic), None) is None:
            raise _unknown_topic(topic)
        rows = (fields_with_body(m.queue_offset, m.message) for m in found)
        yield from listed(f'{{"topic":{quoted(topic)},"key":{quoted(key)},"messages":[', rows, "]}\n")

    def _messages(self, values: Values) -> Iterator[bytes]:
        topic, queue_id = str(values["topic"]), cast("int", values["queue"])
        wanted, left = _filter(values), cast("int", values["count"])
        until = self._clock.monotonic() + SEARCH_SECONDS
        offset = self._first_offset(topic, queue_id, values)
        result = self._page(topic, queue_id, offset, left, wanted)
        _check(result, topic, queue_id, offset)
        head = {
            "topic": topic,
            "queue_id": queue_id,
            "min_offset": result.min_offset,
            "max_offset": result.max_offset,
        }
        beginning = dumped(head)[:-2] + b',"messages":['
        failure: TieredError | None = None
        divider = b""
        while True:
            try:
                lines = [
                    message_line(at, record)
                    for at, record in zip(result.queue_offsets, result.records, strict=True)
                ]
            except Corrupt as error:
                if beginning:
                    raise
                failure = error
                break
            yield beginning + divider * bool(lines) + b",".join(lines)
            beginning, divider = b"", divider or b"," * bool(lines)
            left -= len(lines)
            stuck = result.next_begin_offset <= offset
            offset = result.next_begin_offset
            if left <= 0 or stuck or offset >= result.max_offset or self._clock.monotonic() >= until:
                break
            try:
                result = self._page(topic, queue_id, offset, left, wanted)
            except TieredError as error:
                failure = error
                break
        tail: dict[str, object] = {
            "next_offset": offset,
            "end": failure is None and offset >= result.max_offset,
        }
        if failure is not None:
            tail["error"] = error_fields(failure)
        yield b"]," + dumped(tail)[1:]

    def _compacted(self, values: Values) -> Iterator[bytes]:
        topic, queue_id, beginning = str(values["topic"]), cast("int", values["queue"]), self._fresh()
        try:
            page = self._store.compacted_page(
                topic, queue_id, cast("int | None", values["offset"]), cast("int", values["count"])
            )
        except BadRequest as error:
            refusal = HttpRefusal(409, error.message, hint=error.hint or "read it by tiered read --compacted")
            refusal.fields |= error.fields
            raise refusal from error
        head = {
            "topic": topic, "queue_id": queue_id, "commit": page.commit, "min_offset": page.min_offset,
        }  # fmt: skip
        yield f"{beginning},".encode() + dumped(head)[1:-2] + b',"messages":['
        asked, failure, lines, divider = cast("int | None", values["offset"]), None, list[bytes](), b""
        following = page.min_offset if asked is None else asked
        try:
            for following, record in page.records:
                lines.append(message_line(following, memoryview(record)))
                following += 1
                if len(lines) == PAGE_MESSAGES:
                    yield divider + b",".join(lines)
                    lines, divider = [], b","
            following = page.next_offset
        except TieredError as error:
            failure = error
        yield divider * bool(lines) + b",".join(lines)
        tail: dict[str, object] = {"next_offset": following, "end": failure is None and page.last}
        if failure is not None:
            tail["error"] = error_fields(failure)
        yield b"]," + dumped(tail)[1:]

    def _first_offset(self, topic: str, queue_id: int, values: Values) -> int:
        if values["offset"] is not None and values["time"] is not None:
            raise refused_parameter("time", values["time"], "offset or time, not both", "remove one of them")
        if values["offset"] is not None:
            return cast("int", values["offset"])
        if values["time"] is None:
            found = self._store.min_offset(topic, queue_id)
        else:
            found = self._store.offset_by_time(topic, queue_id, cast("int", values["time"]))
        return 0 if found is None else found

    def _page(
        self, topic: str, queue_id: int, offset: int, count: int, wanted: RowFilter | None
    ) -> GetMessageResult:
        most = min(count, PAGE_MESSAGES)
        return self._store.get_message(Pull(READER, topic, queue_id, offset, most, row_filter=wanted))


def _filter(values: Values) -> RowFilter | None:
    tag, sql = values["tag"], values["sql"]
    if tag is not None and sql is not None:
        raise refused_parameter("tag", tag, "tag or sql, not both", "write TAGS = '…' in the sql expression")
    name, given = ("tag", tag) if sql is None else ("sql", sql)
    if given is None:
        return None
    try:
        return tag_filter(str(given)) if name == "tag" else sql_filter(str(given), whole=True)
    except BadRequest as error:
        refusal = HttpRefusal(400, error.message, hint=error.hint or "change the expression")
        refusal.fields |= {"parameter": name, "value": str(given)[:80], **error.fields}
        raise refusal from error


def _check(result: GetMessageResult, topic: str, queue_id: int, offset: int) -> None:
    """Refuse a queue that is not archived, and an offset outside of what is."""
    low, high = result.min_offset, result.max_offset
    match result.status:
        case GetMessageStatus.NO_MATCHED_LOGIC_QUEUE:
            raise HttpRefusal(
                404,
                "this queue is not archived",
                parameter="queue",
                value=f"{topic[:80]}/{queue_id}",
                hint="/v1/topics lists the topics, /v1/topics/{topic}/queues the queues of one",
            )
        case GetMessageStatus.OFFSET_TOO_SMALL:
            raise refused_parameter(
                "offset", offset, f"{low} to {high}", f"begin at offset={low}", status=404
            )
        case GetMessageStatus.OFFSET_OVERFLOW_BADLY:
            raise refused_parameter(
                "offset", offset, f"{low} to {high}", f"wait for new messages at offset={high}", status=404
            )


def _unknown_topic(topic: str) -> HttpRefusal:
    return refused_parameter("topic", topic, "an archived topic", "/v1/topics lists them", status=404)
