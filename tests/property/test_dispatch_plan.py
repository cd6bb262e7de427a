"""Plan, apply, read back: random flushes against a dict of lists.

Messages are encoded, decoded, routed, cut, planned, put, folded and read again through objects and flat files; the oracle
appends them to lists. Rows, gaps, generations, keys and times must agree, whatever the sizes at which things are cut.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kit.assemble import AtOnce, Heard, live_rows, memory, open_log
from tests.kit.pipeline import INNER_BATCH, PREPARED, ROLLBACK, Bytes, Oracle, OracleQueue, Row, sizes
from tiered.archive.log.line import CommitLine
from tiered.archive.log.marks import Mark
from tiered.archive.log.writer import Claim
from tiered.archive.read.flatfile import FlatMessageFile
from tiered.archive.read.lookup import KeyLookup, locate_physical, query_key
from tiered.archive.read.objects import ObjectReader
from tiered.archive.read.verify import Verifier
from tiered.archive.read.view import View
from tiered.archive.state.keys import DISPATCH, UNDER_WAY
from tiered.archive.state.view import ArchiveState
from tiered.clock import ManualClock
from tiered.codec.record.message import Message, encode_message
from tiered.model import OFF_QUEUE_TOPIC, BoundaryType, PhysicalOffset
from tiered.settings import MIB
from tiered.write.compression import Compression
from tiered.write.preparer import Preparer

TOPICS = ("a", "Ünïcode-topic", "secret")
KEYS = ("k1", "k2", "k3")
TIME_MS = 1_700_000_000_000


@dataclass(frozen=True)
class Sketch:
    """What chance decides about one message."""

    topic: int
    queue_id: int
    jump: int
    kind: int
    inner: int
    body_bytes: int
    key: int
    tag: bool
    time: int
    v6: bool


sketches = st.builds(
    Sketch,
    topic=st.integers(0, 2),
    queue_id=st.integers(0, 1),
    jump=st.sampled_from((0,) * 12 + (1, 7, -2, -1000)),
    kind=st.sampled_from((0,) * 6 + (PREPARED, ROLLBACK, 0x8, INNER_BATCH)),
    inner=st.integers(1, 4),
    body_bytes=st.sampled_from((0, 1, 30, 200, 900)),
    key=st.integers(0, 7),
    tag=st.booleans(),
    time=st.integers(-50, 50),
    v6=st.booleans(),
)
flushes = st.lists(st.lists(sketches, min_size=1, max_size=25), min_size=1, max_size=4)
cuts = st.builds(
    sizes,
    block_bytes=st.sampled_from((1, 300, 2000, 1 << 20)),
    object_bytes=st.sampled_from((1, 1500, 1 << 20)),
    inline_bytes=st.sampled_from((0, 2000, 1 << 20)),
    max_edit_bytes=st.sampled_from((100, 200, 1 << 20)),
    max_flush_keys=st.sampled_from((5, 20, 1 << 20)),
    dictionary_bytes=st.sampled_from((0, 256)),
)


class Writer:
    """Messages from sketches, numbered as a broker would, and told to the oracle."""

    def __init__(self) -> None:
        self.oracle = Oracle(lambda topic: topic == "secret")
        self.following: dict[tuple[str, int], int] = {}
        self.batch: dict[tuple[str, int], int] = {}  # where a queue's last record is a batch of several
        self.position = 0
        self.number = 0

    def write(self, sketch: Sketch) -> bytes:
        topic = TOPICS[sketch.topic]
        off = sketch.kind in (PREPARED, ROLLBACK)
        key = (topic, sketch.queue_id)
        offset = 0 if off else max(0, self.following.get(key, 0) + sketch.jump)
        if not off and self.batch.get(key) == offset - 1:  # so goes on who numbers no queue by inner messages
            offset -= 1
        properties = {"UNIQ_KEY": f"U{self.number}"}
        if sketch.key:
            properties["KEYS"] = " ".join(k for bit, k in enumerate(KEYS) if sketch.key >> bit & 1)
        if sketch.tag:
            properties["TAGS"] = f"tag{sketch.queue_id}"
        inner = sketch.inner if sketch.kind == INNER_BATCH else 1
        if sketch.kind == INNER_BATCH:
            properties["INNER_NUM"] = str(inner)
        message = Message(
            topic, sketch.queue_id, offset, self.position, bytes([self.number % 251]) * sketch.body_bytes, properties,
            sys_flag=sketch.kind, store_timestamp=TIME_MS + self.number * 10 + sketch.time,
            born_host="[::1]:9" if sketch.v6 else "10.0.0.1:9",
        )  # fmt: skip
        raw = encode_message(message)
        self.oracle.take(message, raw)
        if not off:
            self.following[key] = offset + inner
            self.batch.pop(key, None)
            if inner > 1:
                self.batch[key] = offset
        self.position += len(raw)
        self.number += 1
        return raw


def archive(batches: list[list[Sketch]], cut: Any) -> tuple[View, Oracle]:
    """Every batch as one extent, through preparer and committer."""
    clock = ManualClock()
    store = memory(clock)
    log = open_log(store, clock)
    log.claim(Claim(lineage=1, host="h"), 0, before_try=lambda head: None)
    source, writer = Bytes(), Writer()
    preparer = Preparer(
        source, cut,
        compression=Compression(AtOnce(), 1, 1, cut.dictionary_bytes), excluded=lambda topic: topic == "secret", lineage=1,
    )  # type: ignore[arg-type]  # fmt: skip
    line = CommitLine(log, AtOnce(), depth=1000, release=lambda up_to: None, events=Heard())
    mark = Mark.at(PhysicalOffset(0))
    for number, batch in enumerate(batches):
        extent = source.append([writer.write(sketch) for sketch in batch])
        for draft in preparer.prepare(extent, mark, lambda: True):
            line.submit(draft)
            mark = draft.mark
        while number % 2 and line.step(0):  # every other batch is planned on top of an unproven one
            pass
    while line.step(0):
        pass
    fresh = open_log(
        store, clock, seed=2
    )  # the fold of what lies in the bucket, not what the writer remembers
    assert list(fresh.store.iterate(b"")) == [
        p for p in log.store.iterate(b"") if p[0][:1] not in (DISPATCH, UNDER_WAY)
    ]
    objects = ObjectReader(store, fresh.reader.keys, fresh.reader.identity.archive_id, cache_bytes=MIB)
    state = ArchiveState(fresh.store)
    head = state.head()
    assert head is not None
    assert head.progress[1].physical_offset == writer.position
    return View(head, state, objects, fresh.reader), writer.oracle


@settings(max_examples=25, deadline=None)
@given(flushes, cuts)
def test_what_is_planned_is_what_is_read(batches: list[list[Sketch]], cut: Any) -> None:
    opened, oracle = archive(batches, cut)
    state, objects = opened.state, opened.objects
    wanted = {q: [(r.generation, r.queue_offset, r.raw) for r in v.rows] for q, v in oracle.queues.items()}
    assert live_rows(state, objects) == wanted
    for name, queue in oracle.queues.items():
        check_queue(opened, name, queue)
    check_keys(opened, oracle)
    report = Verifier(opened).run(deep=True)
    assert report.damage == []
    assert report.messages == sum(len(q.rows) for q in oracle.queues.values())


def check_queue(opened: View, name: Any, queue: OracleQueue) -> None:
    state, objects = opened.state, opened.objects
    found = state.queue(name)
    assert found is not None
    current = queue.current()
    assert (found.generation, found.min_offset, found.max_offset) == (
        queue.generation, current[0].queue_offset, queue.end,
    )  # fmt: skip
    assert found.flat_end == found.bytes == sum(len(r.raw) for r in current)
    assert found.messages == sum(r.owned for r in current)
    assert [(g.generation, g.start, g.end) for g in state.gaps(name)] == queue.gaps
    generations = [(g.generation, g.first_offset, g.max_offset) for g in state.generations(name)]
    per = {g: [r for r in queue.rows if r.generation == g] for g in range(1, queue.generation + 1)}
    assert generations == [
        (g, rows[0].queue_offset, rows[-1].queue_offset + rows[-1].owned) for g, rows in per.items()
    ]
    file = FlatMessageFile(state, objects, name)
    for start in {0, file.min_offset, (file.min_offset + file.max_offset) // 2, file.max_offset}:
        wanted = [r.raw for r in current if r.queue_offset + r.owned > start]
        assert [bytes(s.record(i)) for s in file.read(start) for i in range(len(s))] == wanted
        assert [bytes(s.record(i)) for s in file.read(start, 3) for i in range(len(s))] == wanted[:3]
    middle = (file.min_offset + file.max_offset) // 2
    ended = [r.raw for r in current if r.queue_offset < middle]
    assert b"".join(bytes(s.data) for s in file.read(0, end=middle)) == b"".join(ended)
    times = sorted({r.message.store_timestamp for r in current})
    for time_ms in (times[0] - 1, times[len(times) // 2], times[-1], times[-1] + 1):
        late = [r.queue_offset for r in current if r.message.store_timestamp >= time_ms]
        assert file.offset_by_time(time_ms) == (late[0] if late else queue.end)
        assert file.offset_by_time(time_ms, BoundaryType.UPPER) == _upper(current, time_ms, queue.end)
    for row in current[:3]:
        assert file.time_of(row.queue_offset + row.owned - 1) == row.message.store_timestamp
    assert file.time_of(queue.end) is None


def _upper(rows: list[Row], time_ms: int, end: int) -> int:
    """The slow way: the first at or after, then on as long as the time is the same."""
    at = next((i for i, r in enumerate(rows) if r.message.store_timestamp >= time_ms), None)
    if at is None:
        return end
    while (
        at + 1 < len(rows)
        and rows[at].message.store_timestamp == time_ms == rows[at + 1].message.store_timestamp
    ):
        at += 1
    return rows[at].queue_offset


def check_keys(opened: View, oracle: Oracle) -> None:
    state, objects = opened.state, opened.objects
    for topic in TOPICS[:2]:
        of_topic = {q: v for q, v in sorted(oracle.queues.items()) if q.topic == topic}
        for key in (*KEYS, "absent"):
            rows = [(q, r) for q, v in of_topic.items() for r in v.current() if key in r.message.keys]
            rows.sort(key=lambda row: row[1].message.physical_offset)
            wanted = [(q, r.queue_offset) for q, r in rows]
            found = [(m.queue, m.queue_offset) for m in query_key(state, objects, KeyLookup(topic, key))]
            assert found == wanted
            for count in (0, 1, 3):
                some = query_key(state, objects, KeyLookup(topic, key, max_count=count))
                assert [(m.queue, m.queue_offset) for m in some] == wanted[
                    len(wanted) - min(count, len(wanted)) :
                ]
                some = query_key(state, objects, KeyLookup(topic, key, max_count=count, oldest=True))
                assert [(m.queue, m.queue_offset) for m in some] == wanted[:count]
            for _, row in rows[:2]:
                at = row.message.store_timestamp
                inside = [(q, r.queue_offset) for q, r in rows if at <= r.message.store_timestamp <= at + 1]
                some = query_key(state, objects, KeyLookup(topic, key, begin_ms=at, end_ms=at + 1))
                assert [(m.queue, m.queue_offset) for m in some] == inside
    for queue, of_queue in oracle.queues.items():
        row = of_queue.current()[-1]
        assert row.message.unique_key is not None
        if queue.topic != OFF_QUEUE_TOPIC:
            unique = list(
                query_key(state, objects, KeyLookup(queue.topic, row.message.unique_key, unique=True))
            )
            assert [(m.queue, m.record) for m in unique] == [(queue, row.raw)]
            assert not list(query_key(state, objects, KeyLookup(queue.topic, row.message.unique_key)))
        located = locate_physical(state, objects, PhysicalOffset(row.message.physical_offset), 1)
        assert located is not None
        assert (located.queue, located.queue_offset, located.record) == (queue, row.queue_offset, row.raw)
        behind = PhysicalOffset(row.message.physical_offset + 1)
        assert locate_physical(state, objects, behind, 1) is None, "no message begins there"


def test_the_oracle_sees_what_it_should() -> None:
    """The property would hold for an empty oracle: this batch has one of everything."""
    base = Sketch(0, 0, 0, 0, 1, 30, 5, True, 0, False)
    batch = [
        base, base, replace(base, jump=3), replace(base, jump=-2), replace(base, topic=2), replace(base, kind=PREPARED),
        replace(base, kind=INNER_BATCH, inner=3, queue_id=1), replace(base, queue_id=1),
    ]  # fmt: skip
    opened, oracle = archive([batch], sizes(block_bytes=1, object_bytes=1))
    names = {(q.topic, q.queue_id): v for q, v in oracle.queues.items()}
    assert set(names) == {("a", 0), ("a", 1), (OFF_QUEUE_TOPIC, 0)}
    assert names["a", 0].gaps == [(1, 2, 5)]
    assert [r.generation for r in names["a", 0].rows] == [1, 1, 1, 2]
    assert [r.queue_offset for r in names["a", 1].rows] == [0, 3]
    assert len(list(opened.state.objects())) == 7
