"""``tiered sink offsets``: what a group has consumed at the broker, as offsets of Kafka."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Annotated

import typer

from tiered.archive.state.keys import queue_key
from tiered.archive.state.offsetmap import nothing_given
from tiered.archive.state.sinkmaps import sink_maps
from tiered.archive.state.sinks import sink, sink_queues_of
from tiered.cli.access import OpenedArchive, reading
from tiered.cli.groups import look_at_groups
from tiered.cli.options import ArchiveUrl, ConfigFile, DaemonState, JsonFlag, SetValues, StoreDir, output
from tiered.clock import SystemClock
from tiered.daemon.groupbook import GroupBook
from tiered.errors import Conflict, Invalid, NotFound
from tiered.model import MessageQueue
from tiered.sink.book import SinkBook, StoredSink
from tiered.sink.kafka.consumergroup import ConsumerGroup
from tiered.sink.kafka.rereading import RecordReader
from tiered.sink.kafka.settings import KafkaSettings
from tiered.sink.kafka.topics import KafkaTopics
from tiered.sink.kafka.translating import QueueOfGroup, Translated, Translator
from tiered.sink.ownership import Ownership
from tiered.sink.shape import shape_of, without_shape
from tiered.text.human import Kind
from tiered.text.output import Column

_NAMED = 3
"""Queues that a note names."""

COLUMNS = (
    Column("topic"),
    Column("queue_id", "queue", Kind.COUNT),
    Column("committed", "next", Kind.COUNT),
    Column("kafka_topic", "Kafka topic"),
    Column("partition", kind=Kind.COUNT),
    Column("offset", kind=Kind.COUNT),
    Column("start", "begin at", Kind.COUNT),
    Column("again", "come again", Kind.COUNT),
    Column("again_exact", "counted", less=2),
    Column("why", flexible=True),
)


def command(
    sink_name: Annotated[str, typer.Option("--sink", metavar="NAME", help="A sink of kind kafka.")],
    group: Annotated[str, typer.Option("--group", metavar="GROUP", help="The group at the broker.")],
    topic: Annotated[str | None, typer.Option("--topic", metavar="NAME", help="This topic alone.")] = None,
    kafka_group: Annotated[
        str | None,
        typer.Option("--kafka-group", metavar="NAME", help="Kafka's group, where it has another name."),
    ] = None,
    apply: Annotated[
        bool, typer.Option("--apply", help="Give Kafka's group the offsets to begin at.")
    ] = False,
    back: Annotated[
        bool, typer.Option("--back", help="Also where Kafka's group is further already: messages come again.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check all that --apply would; nothing is changed.")
    ] = False,
    config: ConfigFile = None,
    archive: ArchiveUrl = None,
    store: StoreDir = None,
    state: DaemonState = None,
    sets: SetValues = None,
    json: JsonFlag = False,
) -> int:
    """Where a consumer of Kafka goes on with what a group has consumed at the broker.

    For each queue the exact Kafka offset of the first message that the group has not consumed, and where a consumer of the
    partition begins so that nothing is lost: at the smallest of them. "come again" are the messages of the queue that it sees a
    second time then: none where a queue has a partition of its own. Stop the group's consumers first and let the sink reach the
    end; what the group consumed and the sink has not given yet comes again, too. Exit code 1 if a queue cannot be translated.
    """
    if (back or dry_run) and not apply:
        raise Invalid(
            "there is nothing to be changed",
            option="--back" if back else "--dry-run",
            hint="it goes with --apply",
        )
    out = output(json)
    with reading(out, config, archive, sets, store=store, whole=True) as opened:
        view = opened.view
        archive_id, source = view.identity.archive_id, opened.loaded.settings.source
        stored = SinkBook(view.log.provider, view.keys, archive_id).sink(sink_name)
        settings = _settings(stored)
        place = stored.place(archive_id, source.cluster, source.broker)
        with closing(look_at_groups(opened.loaded.settings, state, view.identity.archive_id)) as kept:
            committed = {
                MessageQueue(each.topic, each.queue_id): each.offset
                for each in GroupBook(kept).offsets(group)
                if topic is None or each.topic == topic
            }
        queues = list(_queues(opened, stored, committed))
        if not queues:
            raise NotFound(
                "the group has no offset in a topic that this sink has given", group=group, sink=sink_name,
                topic=topic or "any", hint="tiered groups shows its offsets, tiered sink status how far the sink is",
            )  # fmt: skip
        reader = RecordReader(settings, place.short_id, SystemClock())
        try:
            topics = KafkaTopics(settings, SystemClock())
            told = Translator(reader, topics, Ownership(view.state).belongs).translate(queues)
        finally:
            reader.close()
    out.table(COLUMNS, map(_row, told))
    if (missing := left_out(committed, queues)) is not None:
        out.note(missing)
    wrong = [one for one in told if one.why is not None]
    if apply:
        _apply(settings, kafka_group or group, told, wrong, back=back, dry_run=dry_run)
        out.note(
            "nothing was changed: --dry-run"
            if dry_run
            else f"Kafka's group {kafka_group or group} begins there"
        )
    return 1 if wrong else 0


def _settings(stored: StoredSink) -> KafkaSettings:
    if stored.order.kind != "kafka":
        raise Invalid(
            "only sinks of kind kafka have offsets to translate to", sink=stored.name, found=stored.order.kind,
            hint="tiered sink list",
        )  # fmt: skip
    return KafkaSettings.of(replace(stored.order, options=without_shape(stored.order.options)))


def _queues(
    opened: OpenedArchive, stored: StoredSink, committed: dict[MessageQueue, int]
) -> Iterator[QueueOfGroup]:
    """Queues of the group's topics that the sink takes; of those without an offset the ones that have messages."""
    view, shape = opened.view.state.view, shape_of(stored.order)
    if sink(view, stored.sink_id) is None:
        return
    topics = {queue.topic for queue in committed}
    known = {queue: found for queue, found in sink_maps(view, stored.sink_id) if queue.topic in topics}
    wanted = sorted({*committed, *known})
    reached = sink_queues_of(view, stored.sink_id, list(map(queue_key, wanted)))
    for queue, at in zip(wanted, reached, strict=True):
        if at is None:  # the sink does not take it, or was never given any of it
            continue
        found = known.get(queue)
        told = nothing_given(at.next, at.next) if found is None else found
        if queue in committed or len(told):
            named = MessageQueue(shape.topic(queue.topic), queue.queue_id)
            yield QueueOfGroup(queue, committed.get(queue), told, named)


def left_out(committed: Collection[MessageQueue], queues: Iterable[QueueOfGroup]) -> str | None:
    """Which queues of the group have no row, because the sink was given nothing of them; ``None``: all have one."""
    without = sorted({*committed} - {one.queue for one in queues})
    if not without:
        return None
    named = ", ".join(map(str, without[:_NAMED])) + (" …" if len(without) > _NAMED else "")
    return (
        f"not translated: {len(without)} of the group's queues, of which this sink was given nothing: {named}"
    )


def _apply(
    settings: KafkaSettings,
    name: str,
    told: list[Translated],
    wrong: list[Translated],
    *,
    back: bool,
    dry_run: bool,
) -> None:
    """All of it or nothing."""
    if wrong:
        raise Conflict(
            "the group cannot move: a queue has no place in Kafka", queue=str(wrong[0].queue), committed=wrong[0].committed,
            found=wrong[0].why, queues=len(wrong),
            hint="--topic leaves others out; tiered sink rewind-to start gives all again",
        )  # fmt: skip
    places = {
        (one.topic, one.partition): one.start
        for one in told
        if one.topic is not None and one.partition is not None and one.start is not None
    }
    group = ConsumerGroup(settings, name)
    group.check(places, back=back)
    if not dry_run:
        group.move(places)


def _row(one: Translated) -> tuple[object, ...]:
    return (
        one.queue.topic, one.queue.queue_id, one.committed, one.topic, one.partition, one.offset, one.start, one.again,
        one.counted if one.again is not None else None, one.why,
    )  # fmt: skip
