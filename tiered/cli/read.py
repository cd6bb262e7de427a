"""``tiered read``: messages of one queue, or of a topic between two times."""

from __future__ import annotations

import contextlib
import errno
import sys
from collections.abc import Callable, Iterator
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Annotated, BinaryIO, NamedTuple

import typer

from tiered.archive.state.scope import Scope
from tiered.cli.absent import absent_queue, absent_topic
from tiered.cli.access import messages
from tiered.cli.messages import message_record
from tiered.cli.options import ArchiveUrl, AsOf, ConfigFile, JsonFlag, SetValues, output
from tiered.codec.record.message import decode_message
from tiered.errors import Invalid, Unavailable
from tiered.fetch.base import ReaderId
from tiered.fetch.pull import Pull
from tiered.model import GetMessageStatus, MessageQueue, QueueOffset
from tiered.settings import MIB
from tiered.store import MessageStore
from tiered.text.human import Kind, human
from tiered.text.output import Advance, Column, Output
from tiered.text.values import moment_ms

COLUMNS = (
    Column("queue_offset", "offset", Kind.COUNT),
    Column("store_timestamp", "stored", Kind.TIME),
    Column("tags"),
    Column("keys"),
    Column("body_bytes", "size", Kind.SIZE, less=1),
    Column("unique_key", "unique key", less=2),
    Column("msg_id", "message id", less=3),
    Column("body", flexible=True),
)

BODY_PREVIEW_BYTES = 60
Records = Iterator[tuple[int, memoryview | bytes]]
"""Records with their (first) queue offsets."""
Bar = Callable[[str, int], contextlib.AbstractContextManager[Advance]]

OF_QUEUE = Column("queue_id", "queue", Kind.COUNT)


class Times(NamedTuple):
    """Store times, ms since 1970: from the first on, before the end; ``None``: not bounded."""

    first_ms: int | None
    end_ms: int | None


NO_TIMES = Times(None, None)

READER = ReaderId("tiered-read")
BATCH_MESSAGES = 4096
BATCH_BYTES = 8 * MIB
NOT_THERE = (GetMessageStatus.OFFSET_TOO_SMALL, GetMessageStatus.OFFSET_FOUND_NULL)
MOST_HOLES = 20
"""Each of which is told in a line of its own."""


class Format(StrEnum):
    """How messages are shown."""

    TABLE = "table"
    JSON = "json"
    RAW = "raw"


def command(
    topic: Annotated[str, typer.Option("--topic", help="Topic.")],
    queue: Annotated[
        int | None,
        typer.Option(
            "--queue",
            min=0,
            help="Queue id; with --from-time or --to-time default: every queue of the topic.",
        ),
    ] = None,
    offset: Annotated[
        int | None, typer.Option("--offset", min=0, help="First queue offset; default: the minimum.")
    ] = None,
    from_time: Annotated[
        str | None,
        typer.Option(
            "--from-time",
            metavar="TIME",
            help="Begin at the first offset stored at or after this time (ms since 1970 or ISO 8601), as query --time.",
        ),
    ] = None,
    to_time: Annotated[
        str | None,
        typer.Option(
            "--to-time", metavar="TIME", help="End before the first offset stored at or after this time."
        ),
    ] = None,
    count: Annotated[int, typer.Option("--count", min=0, help="At most this many messages; 0: all.")] = 32,
    format: Annotated[
        Format, typer.Option("--format", help="raw: the broker's records back to back.")
    ] = Format.TABLE,
    out_file: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="Write raw bytes here, not to stdout.")
    ] = None,
    config: ConfigFile = None,
    archive: ArchiveUrl = None,
    as_of: AsOf = None,
    compacted: Annotated[
        bool,
        typer.Option(
            "--compacted",
            help="Only the newest message of each key (all of KEYS), as a compaction topic keeps it.",
        ),
    ] = False,
    sets: SetValues = None,
    json: JsonFlag = False,
) -> None:
    """Messages of a queue in order. ``raw`` gives the broker's own records, byte for byte, physical offsets included; JSON is a
    line for each message.

    --compacted reads the whole queue first. It leaves out keys whose newest message has no body, and messages without a key.

    Store times within a queue may go back. Both times are turned into offsets, so a message stored between them that lies
    behind a later one is not shown, and one stored outside that lies between is.
    """
    if out_file is not None and format is not Format.RAW:
        raise Invalid("--out goes with --format raw", hint="add --format raw, or redirect standard output")
    if out_file is not None and not out_file.absolute().parent.is_dir():
        raise Invalid(
            "cannot write the output file: its directory is not there",
            path=out_file,
            hint="choose another --out",
        )
    times = Times(
        None if from_time is None else moment_ms("--from-time", from_time),
        None if to_time is None else moment_ms("--to-time", to_time),
    )
    _check_asked(times, queue, offset, compacted)
    out = output(json or format is Format.JSON)
    scope = Scope.topic(topic) if queue is None else Scope.queue(topic, queue)
    with contextlib.ExitStack() as stack:
        # A bar for people, unless the messages themselves move.
        bar = output(json).progress if out_file is not None or not sys.stdout.isatty() else None
        store = stack.enter_context(messages(out, config, archive, sets, as_of=as_of, scope=scope))
        holes = _Holes(out)
        if queue is None:
            records = _topic(store, topic, times, count, holes)
        elif compacted:
            records = _compacted(store, MessageQueue(topic, queue), offset, count or None, out, bar, stack)
        else:
            records = _all(store, topic, queue, offset, times, count, bar, stack, holes)
        if format is Format.RAW:
            with _sink(out_file) as sink:
                sink.writelines(record for _, record in records)
            return
        if json or format is Format.JSON:
            _write_json(records)
            return
        if queue is None:
            out.table((OF_QUEUE, *COLUMNS), (_row_of_topic(o, bytes(record)) for o, record in records))
            return
        out.table(COLUMNS, (_row(o, bytes(record)) for o, record in records))


def _check_asked(times: Times, queue: int | None, offset: int | None, compacted: bool) -> None:
    """``Invalid`` for flags that do not go together."""
    if queue is None and (times == NO_TIMES or offset is not None or compacted):
        raise Invalid(
            "--queue is needed here",
            hint="tiered queues lists them; a whole topic is read by --from-time or --to-time",
        )
    if times.first_ms is not None and offset is not None:
        raise Invalid("--offset and --from-time both say where to begin", hint="give one of them")
    if compacted and times != NO_TIMES:
        raise Invalid("--compacted goes by offsets alone", hint="tiered query --time says which offset it is")
    if times.first_ms is not None and times.end_ms is not None and times.first_ms > times.end_ms:
        raise Invalid(
            "--from-time is later than --to-time",
            found=f"{human(times.first_ms, Kind.TIME)} > {human(times.end_ms, Kind.TIME)}",
            hint="swap them",
        )


class _Holes:
    """Says what is not there, so that whoever keeps the records knows that they are not all."""

    def __init__(self, out: Output) -> None:
        self._out = out
        self._told = 0

    def passed(self, queue: MessageQueue, status: GetMessageStatus, start: int, end: int) -> None:
        """A reader who asked for [``start``, ``end``) was sent on."""
        if start >= end:
            return
        self._told += 1
        if self._told > MOST_HOLES:
            if self._told == MOST_HOLES + 1:
                self._out.note("and more of them: tiered queues counts the gaps of each queue")
            return
        why = "trimmed" if status is GetMessageStatus.OFFSET_TOO_SMALL else "a gap, tiered queues shows it"
        self._out.note(f"not archived: offsets {start} to {end - 1} of {queue} ({why})")


def _topic(store: MessageStore, topic: str, times: Times, count: int, holes: _Holes) -> Records:
    """Messages of every queue of a topic between two times, queue after queue."""
    queues = [found.queue.queue_id for found in store.queues(topic) if found.generation is not None]
    if not queues:
        raise absent_topic(topic, store.topics(system=True))

    def records() -> Records:
        for queue in queues:
            span = _span(store, topic, queue, times)
            if span is not None:
                at = MessageQueue(topic, queue)
                yield from _records(store, at, *span, None, lambda done: None, holes)

    return islice(records(), count or None)


def _span(store: MessageStore, topic: str, queue: int, times: Times) -> tuple[int, int] | None:
    """Queue offsets [first, end) between two times; ``None`` for a queue that is not there."""
    low, high = store.min_offset(topic, queue), store.max_offset(topic, queue)
    if low is None or high is None:
        return None
    first, end = int(low), int(high)
    if times.first_ms is not None:
        first = int(store.offset_by_time(topic, queue, times.first_ms) or 0)
    if times.end_ms is not None:
        end = min(end, int(store.offset_by_time(topic, queue, times.end_ms) or 0))
    return first, max(first, end)


def _all(
    store: MessageStore,
    topic: str,
    queue: int,
    offset: int | None,
    times: Times,
    count: int,
    bar: Bar | None,
    stack: contextlib.ExitStack,
    holes: _Holes,
) -> Records:
    """Every message from an offset or a time on."""
    span = _span(store, topic, queue, times)
    low, high = store.min_offset(topic, queue), store.max_offset(topic, queue)
    if span is None or low is None or high is None:
        raise absent_queue(topic, queue, store.queues(topic), lambda: store.topics(system=True))
    start = span[0] if offset is None else offset
    _check_start(start, low, high)
    high = QueueOffset(max(start, span[1]))
    advance = _advance(bar, min(count, high - start) if count else high - start, stack)
    return _records(store, MessageQueue(topic, queue), start, high, count or None, advance, holes)


def _compacted(
    store: MessageStore,
    queue: MessageQueue,
    offset: int | None,
    count: int | None,
    out: Output,
    bar: Bar | None,
    stack: contextlib.ExitStack,
) -> Records:
    """The newest message of each key, from an offset on."""
    known = store.loaded(queue)
    if known is None:
        raise absent_queue(
            queue.topic,
            queue.queue_id,
            store.queues(queue.topic),
            lambda: store.topics(system=True),
        )
    start = known.min_offset if offset is None else offset
    _check_start(start, known.min_offset, known.max_offset)
    advance = _advance(bar, known.max_offset - known.min_offset, stack)
    found = store.compacted(queue.topic, queue.queue_id, advance)

    def records() -> Records:
        yield from found.records(start)
        for some, why in ((found.without_key, "without a key"), (found.went, "trimmed while they were read")):
            if some:
                out.note(f"left out: {some} message{'s'[: some > 1]} {why}")

    return islice(records(), count)


def _check_start(start: int, low: int, high: int) -> None:
    if start > high:
        raise Invalid(
            "the offset is beyond the queue's end", hint=f"readable offsets are [{low}, {high})", offset=start
        )


def _advance(bar: Bar | None, total: int, stack: contextlib.ExitStack) -> Advance:
    return (lambda done: None) if bar is None else stack.enter_context(bar("reading", total))


def _records(
    store: MessageStore,
    queue: MessageQueue,
    offset: int,
    end: int,
    left: int | None,
    advance: Advance,
    holes: _Holes,
) -> Records:
    """Messages from ``offset`` up to ``end``, at most ``left``, each with its queue offset; what is not there is stepped over,
    and ``holes`` hears of it. ``advance`` hears how many offsets are behind them.
    """
    start = offset
    while offset < end and left != 0:
        count = BATCH_MESSAGES if left is None else min(left, BATCH_MESSAGES)
        found = store.get_message(Pull(READER, queue.topic, queue.queue_id, offset, count, BATCH_BYTES))
        taken = sum(1 for o in found.queue_offsets if o < end)
        yield from zip(found.queue_offsets[:taken], found.records[:taken], strict=True)
        if found.next_begin_offset <= offset:
            return
        if found.status in NOT_THERE:
            holes.passed(queue, found.status, offset, min(end, found.next_begin_offset))
        offset = found.next_begin_offset
        advance(offset - start)
        left = None if left is None else left - taken


@contextlib.contextmanager
def _sink(path: Path | None) -> Iterator[BinaryIO]:
    if path is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    try:
        with path.open("wb") as file:
            yield file
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        kind, hint = (
            (Unavailable, "make room, or choose another --out") if full else (Invalid, "choose another --out")
        )
        raise kind(f"cannot write the output file: {error.strerror}", path=str(path), hint=hint) from error


def _write_json(records: Records) -> None:
    import json as json_module

    for queue_offset, record in records:
        line = json_module.dumps(message_record(queue_offset, bytes(record)), ensure_ascii=False)
        sys.stdout.buffer.write(line.encode() + b"\n")
    sys.stdout.buffer.flush()


def _row_of_topic(queue_offset: int, record: bytes) -> tuple[object, ...]:
    return (decode_message(record).queue_id, *_row(queue_offset, record))


def _row(queue_offset: int, record: bytes) -> tuple[object, ...]:
    message = decode_message(record)
    body = message.body[:BODY_PREVIEW_BYTES].decode("utf-8", "backslashreplace")
    return (
        queue_offset,
        message.store_timestamp,
        message.tags,
        " ".join(message.keys),
        len(message.body),
        message.unique_key,
        message.message_id,
        body + ("…" if len(message.body) > BODY_PREVIEW_BYTES else ""),
    )
