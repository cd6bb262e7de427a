"""``tiered query``: find messages by key, by message id, or an offset by time."""

from __future__ import annotations

from typing import Annotated

import typer

from tiered.archive.read.lookup import KeyLookup, Located
from tiered.archive.state.scope import EVERYTHING, Scope
from tiered.cli.absent import absent_queue, absent_topic
from tiered.cli.access import messages
from tiered.cli.messages import message_record
from tiered.cli.options import ArchiveUrl, AsOf, ConfigFile, JsonFlag, SetValues, output
from tiered.codec.format.aliases import LITE_QUEUE_ID
from tiered.codec.record.hosts import decode_message_id
from tiered.codec.record.lite import is_lite
from tiered.errors import Invalid, NotFound
from tiered.store import MessageStore
from tiered.text.human import Kind
from tiered.text.output import Column
from tiered.text.values import moment_ms

COLUMNS = (
    Column("topic", less=1),
    Column("queue_id", "queue", Kind.COUNT),
    Column("queue_offset", "offset", Kind.COUNT),
    Column("store_timestamp", "stored", Kind.TIME),
    Column("tags", less=3),
    Column("keys", less=2),
    Column("unique_key", "unique key", less=5),
    Column("msg_id", "message id"),
    Column("body_size", "size", Kind.SIZE, less=4),
)


def command(
    topic: Annotated[
        str | None,
        typer.Option(
            "--topic",
            help="Topic, or a lite queue by its whole name, with --key, --unique-key or --time; with --msg-id only its "
            "messages are looked at.",
        ),
    ] = None,
    key: Annotated[str | None, typer.Option("--key", help="One of a message's KEYS.")] = None,
    unique_key: Annotated[
        str | None, typer.Option("--unique-key", help="A client's message id (UNIQ_KEY).")
    ] = None,
    msg_id: Annotated[
        str | None,
        typer.Option(
            "--msg-id", help="A broker's message id (store host and offset), as `tiered read` shows it."
        ),
    ] = None,
    queue: Annotated[int | None, typer.Option("--queue", min=0, help="Queue id, with --time.")] = None,
    time: Annotated[
        str | None,
        typer.Option(
            "--time",
            metavar="TIME",
            help="Store time, ms since 1970 or ISO 8601: the first offset at or after it.",
        ),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="At most this many messages.")] = 64,
    config: ConfigFile = None,
    archive: ArchiveUrl = None,
    as_of: AsOf = None,
    sets: SetValues = None,
    json: JsonFlag = False,
) -> int:
    """Find messages by key, unique key or message id; or the offset of a store time. Exit code 5 when nothing is found."""
    asked = [name for name, given in (("--key", key), ("--unique-key", unique_key), ("--msg-id", msg_id), ("--time", time))
             if given is not None]  # fmt: skip
    if len(asked) != 1:
        raise Invalid(
            "query needs exactly one of --key, --unique-key, --msg-id, --time", found=" ".join(asked) or "none",
            hint="for example: tiered query --topic Orders --key order-17",
        )  # fmt: skip
    time_ms = None if time is None else moment_ms("--time", time)
    name = "" if msg_id is not None else _needed(topic, "--topic")
    if time_ms is not None and queue is None:
        raise Invalid("--queue is needed with --time", hint="tiered queues lists them")
    place = None if msg_id is None else decode_message_id(msg_id)
    out = output(json)
    scope = (
        EVERYTHING if topic is None else Scope.topic(topic) if queue is None else Scope.queue(topic, queue)
    )
    with messages(out, config, archive, sets, as_of=as_of, scope=scope) as store:
        if time_ms is not None and queue is not None:
            out.record(_by_time(store, name, queue, time_ms), kinds={"store_time": Kind.TIME})
            return 0
        if place is not None:
            found = [_by_message_id(store, str(msg_id), *place, topic)]
        else:
            wanted = key if key is not None else unique_key
            lookup = KeyLookup(name, str(wanted), limit, unique=unique_key is not None, oldest=True)
            found = store.query(lookup)
            found.sort(key=lambda m: (m.queue, m.queue_offset))
        if not found:
            if not _is_known(store, name):
                raise absent_topic(name, store.topics(system=True))
            raise NotFound(
                "no archived message has this key",
                topic=topic,
                key=key or unique_key,
                hint="keys must match exactly",
            )
        rows = [message_record(m.queue_offset, m.record) for m in found]
        if json:
            out.table(
                [*rows[0]] if len(rows) == 1 else _all_names(rows),
                [[r.get(n) for n in _all_names(rows)] for r in rows],
            )
        else:
            out.table(COLUMNS, [[r[c.name] for c in COLUMNS] for r in rows])
    return 0


def _all_names(rows: list[dict[str, object]]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))


def _needed(value: str | None, flag: str) -> str:
    if value is None:
        raise Invalid(f"{flag} is needed here", hint="tiered query --help")
    return value


def _is_known(store: MessageStore, topic: str) -> bool:
    """Whether a topic, or a lite queue, is archived."""
    if is_lite(topic) and store.max_offset(topic, LITE_QUEUE_ID) is not None:
        return True
    return next(iter(store.queues(topic)), None) is not None


def _by_time(store: MessageStore, topic: str, queue: int, store_time_ms: int) -> dict[str, object]:
    found = store.offset_by_time(topic, queue, store_time_ms)
    if found is None:
        raise absent_queue(topic, queue, store.queues(topic), lambda: store.topics(system=True))
    return {
        "topic": topic,
        "queue_id": queue,
        "store_time": store_time_ms,
        "queue_offset": found,
        "at_end": found == store.max_offset(topic, queue),
    }


def _by_message_id(
    store: MessageStore, message_id: str, host: str, offset: int, topic: str | None
) -> Located:
    """The record at the id's physical offset, in a lineage whose record also has the id's store host; newest first."""
    found = store.locate(offset, store_host=host, topic=topic)
    if found is not None:
        return found
    if topic is not None and not _is_known(store, topic):
        raise absent_topic(topic, store.topics(system=True))
    raise NotFound(
        "no archived message has this id",
        hint="see tiered status for what is archived",
        msg_id=message_id,
        offset=offset,
        **({} if topic is None else {"topic": topic}),
    )
