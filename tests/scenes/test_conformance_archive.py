"""RocketMQ conformance, the archive and its answers: cases C10 to C19 of our notes on its tiered store.

Where a case is about RocketMQ's own tiered files, which this archive does not write, its counterpart is tested and the
docstring says how it maps. C20, a broker of RocketMQ reading this archive, cannot be: the formats differ (``tests/README.md``).
"""

from __future__ import annotations

import struct
from itertools import pairwise
from pathlib import Path

import pytest

from tests.kit import golden
from tests.kit.aged import READABLE, Stage, aged_cold
from tests.kit.assemble import KEYS
from tests.kit.readstore import Cold, cold
from tiered.archive.checkpoint.store import write_checkpoint
from tiered.archive.read.lookup import KeyLookup
from tiered.codec.record.message import decode_message
from tiered.errors import Corrupt
from tiered.model import BoundaryType, MessageQueue
from tiered.model import GetMessageStatus as S

ALWAYS = (0, 1 << 60)


@pytest.fixture(params=READABLE, ids=lambda stage: stage.value)
def stage(request: pytest.FixtureRequest) -> Stage:
    """How old the archive is: whether merged, sealed or fresh must not show."""
    found: Stage = request.param
    return found


def place(scene: Cold, offset: int, count: int = 32, **options: object) -> tuple[S, int, int]:
    """Status, next begin offset and number of records of a read of T/0."""
    found = scene.get("T", 0, offset, count, **options)
    return found.status, found.next_begin_offset, len(found.records)


def read_all(scene: Cold, topic: str, queue: int = 0) -> dict[int, bytes]:
    """A queue by offset, read as a consumer reads it, holes passed as the answers say."""
    offset, found = scene.store.min_offset(topic, queue), dict[int, bytes]()
    assert offset is not None
    while True:
        answer = scene.get(topic, queue, offset)
        if answer.status is S.OFFSET_OVERFLOW_ONE:
            return found
        assert answer.status in (S.FOUND, S.OFFSET_FOUND_NULL)
        found |= {int(o): bytes(r) for o, r in zip(answer.queue_offsets, answer.records, strict=True)}
        assert answer.next_begin_offset > offset
        offset = answer.next_begin_offset


def upstream(root: Path, topic: str, queue: int, kind: str) -> list[tuple[int, bytes]]:
    """(base, bytes) of the segments of RocketMQ's own tiered store."""
    (directory,) = (root / "tiered").glob(f"*/broker-a/{topic}/{queue}/{kind}")
    return sorted((int(path.name[8:]), path.read_bytes()) for path in directory.iterdir())


@pytest.mark.parametrize("block", [4096, 65_536])
def test_c10_rolling(tmp_path: Path, stage: Stage, block: int) -> None:
    """C10: RocketMQ rolls tiered files at 40,000 B and 2,000 B (100 units), never inside a record: bases 0, 39988; 0 to 6000.

    Counterpart: runs and blocks are cut where a flush or ``block_bytes`` says, never inside a record, and the cuts do not show:
    the queue's flat positions are those of one stream, so rolling it at RocketMQ's sizes gives RocketMQ's bases.
    """
    root = golden.unpack("rocketmq-store-a", tmp_path) / "rmqh1"
    with aged_cold(
        tmp_path, stage, store=root / "store", open_now=False, dispatch={"block_bytes": block}
    ) as scene:
        scene.archive()
        scene.open()
        records = read_all(scene, "TopicA")
        commitlog, consume_queue = [0], []
        end = 0
        for number, raw in enumerate(records.values()):
            if end + len(raw) - commitlog[-1] > 40_000:
                commitlog.append(end)
            end += len(raw)
            if number % 100 == 0:
                consume_queue.append(20 * number)
        assert commitlog == [base for base, _ in upstream(root, "TopicA", 0, "COMMIT_LOG")] == [0, 39_988]
        assert (
            consume_queue
            == [base for base, _ in upstream(root, "TopicA", 0, "CONSUME_QUEUE")]
            == [0, 2000, 4000, 6000]
        )
        view = scene.store.view
        runs = list(view.state.runs(MessageQueue("TopicA", 0), 1))
        assert runs[0].first_flat_offset == 0
        assert all(a.flat_end == b.first_flat_offset for a, b in pairwise(runs))
        assert runs[-1].flat_end == end


def test_c11_orphan_bytes(tmp_path: Path) -> None:
    """C11: bytes that no index refers to, left by a crash between data and index, are never served; every message comes once.

    RocketMQ: its tiered commitlog holds more than its consume queue refers to; read by the queue, 450 messages. Counterpart: an
    object that no commit names lies beside the others.
    """
    root = golden.unpack("rocketmq-store-b", tmp_path) / "rmqh3"
    ((_, stream),) = upstream(root, "TopicA", 0, "COMMIT_LOG")
    ((base, units),) = upstream(root, "TopicA", 0, "CONSUME_QUEUE")
    theirs = {}
    for number in range(len(units) // 20):
        at, size, _ = struct.unpack_from(">qiq", units, 20 * number)
        theirs[base // 20 + number] = stream[at : at + size]
    with cold(tmp_path, store=root / "store", open_now=False, dispatch={"inline_bytes": 0}) as scene:
        scene.archive()
        scene.open()
        item = next(iter(scene.daemon.state.objects()))
        key = scene.store.view.objects.key_of(item)
        orphan = key[:-12] + "0" * 12
        scene.provider.put(orphan, [scene.provider.get(key).data])
        scene.open()
        ours = read_all(scene, "TopicA")
        assert len(ours) == len(theirs) == 450
        assert list(ours) == list(theirs)
        assert all(raw[:28] + raw[36:] == theirs[o][:28] + theirs[o][36:] for o, raw in ours.items())
        assert sum(map(len, ours.values())) == len(stream)


def test_c12_torn_tail(tmp_path: Path) -> None:
    """C12: what a torn write left at the end is not served; only what is proven is.

    RocketMQ: the tail of a tiered segment is cut short, the consume queue covers less. Counterpart: the newest commit is cut
    short (no store that keeps its promise shows one): its error names the key, and everything before it stays readable.
    """
    with cold(tmp_path, open_now=False) as scene:
        for flush in range(2):
            for number in range(10):
                scene.broker.send("T", 0, b"%d-%d" % (flush, number))
            scene.archive()
            if flush == 0:
                scene.open()
        head = scene.daemon.state.head()
        assert head is not None
        last = next(
            seq for seq in range(head.seq, 0, -1) if len(scene.provider.get(KEYS.commit(seq)).data) > 1000
        )
        whole = scene.provider.get(KEYS.commit(last)).data
        scene.provider.put(KEYS.commit(last), [whole[: len(whole) - 40]], create_only=False)
        scene.fresh()
        assert place(scene, 0) == (S.FOUND, 10, 10)
        with pytest.raises(Corrupt) as found:
            scene.get("T", 0, 10)
        assert found.value.fields["key"] == KEYS.commit(last)
        assert place(scene, 9) == (S.FOUND, 10, 1)
        scene.provider.put(KEYS.commit(last), [whole], create_only=False)
        scene.fresh()
        assert place(scene, 10) == (S.FOUND, 20, 10), "repaired from a copy: the reader goes on by itself"


@pytest.mark.parametrize("inline_bytes", [0, None], ids=["objects", "inline"])
def test_c13_key_index(tmp_path: Path, stage: Stage, inline_bytes: int | None) -> None:
    """C13: RocketMQ's index, open and compacted: limit n gives n, or n − 1 from a file that is full; slots by configured count.

    Counterpart: the key index of an object, or of a commit's inline data (not yet in an object): a limit of n gives n. 100
    messages of one key: 32 of limit 32, 100 of limit 120, as RocketMQ's own dispatcher test asks.
    """
    dispatch = {} if inline_bytes is None else {"inline_bytes": inline_bytes}
    with aged_cold(tmp_path, stage, open_now=False, dispatch=dispatch) as scene:
        for number in range(100):
            scene.broker.send(
                "T", number % 3, b"%d" % number, properties={"UNIQ_KEY": "uk", "KEYS": f"uk k{number}"}
            )
            if number % 40 == 39:
                scene.archive()
        scene.archive()
        store = scene.open()
        for unique in (False, True):
            for limit, found in ((1, 1), (20, 20), (32, 32), (100, 100), (120, 100)):
                assert len(store.query_message(KeyLookup("T", "uk", limit, *ALWAYS, unique=unique))) == found
        newest = [decode_message(r).body for r in store.query_message(KeyLookup("T", "uk", 5, *ALWAYS))]
        assert newest == [b"95", b"96", b"97", b"98", b"99"]
        assert [decode_message(r).body for r in store.query_message(KeyLookup("T", "k7", 32, *ALWAYS))] == [
            b"7"
        ]
        assert store.query_message(KeyLookup("Other", "uk", 32, *ALWAYS)) == []


def test_c14_what_is_no_message_between_messages(tmp_path: Path, stage: Stage) -> None:
    """C14: tiered segments of RocketMQ up to 5.2 end in a coda (magic ``cbd43194``) which readers have to step over.

    Counterpart: the broker's own blank records, of the same magic, are at the end of every commitlog file. No queue holds one.
    """
    with aged_cold(tmp_path, stage, open_now=False) as scene:
        for number in range(30):
            scene.broker.send("T", 0, b"%d" % number + bytes(7000))
        assert len(scene.broker.bases()) > 2
        scene.archive()
        scene.open()
        found = read_all(scene, "T")
        assert list(found.values()) == scene.raws("T")
        assert not any(raw[4:8] == bytes.fromhex("cbd43194") for raw in found.values())
        (queue,) = scene.store.queues("T")
        assert queue.flat_end == sum(map(len, found.values()))


def test_c15_the_status_table(tmp_path: Path, stage: Stage) -> None:
    """C15: with [100, 200) stored, every status, boundary offset, size bound and count bound of RocketMQ's fetcher test."""
    with aged_cold(tmp_path, stage, open_now=False) as scene:
        for number in range(100, 200):
            scene.broker.send("T", 0, b"%d" % number, queue_offset=number)
        lost = scene.broker.position
        scene.archive()
        scene.broker.send("Empty", 0, b"lost again", queue_offset=0)
        scene.archive()
        scene.broker.crash(lost)
        scene.broker.send("T", 1, b"after")
        scene.restart()
        scene.archive()
        scene.open()
        assert place(scene, 0) == (S.OFFSET_TOO_SMALL, 100, 0)
        assert place(scene, 99) == (S.OFFSET_TOO_SMALL, 100, 0)
        assert place(scene, 200) == (S.OFFSET_OVERFLOW_ONE, 200, 0)
        assert place(scene, 300) == (S.OFFSET_OVERFLOW_BADLY, 200, 0)
        assert place(scene, 100, 32) == (S.FOUND, 132, 32)
        assert place(scene, 180, 32) == (S.FOUND, 200, 20)
        found = scene.get("T", 0, 100)
        assert (found.min_offset, found.max_offset) == (100, 200)
        size = len(scene.raws("T")[0])
        assert len(scene.get("T", 0, 100, 32, max_bytes=8 * size + 10).records) == 8
        assert len(scene.get("T", 0, 100, 32, max_bytes=1).records) == 1
        assert len(scene.get("T", 0, 100, 8).records) == 8
        unknown = scene.get("T", 7, 42)
        assert (unknown.status, unknown.next_begin_offset) == (S.NO_MATCHED_LOGIC_QUEUE, 42)
        empty = scene.get("Empty", 0, 42)
        assert (empty.status, empty.next_begin_offset) == (S.NO_MESSAGE_IN_QUEUE, 42)
        offset = 100
        for _ in range(25):
            found = scene.get("T", 0, offset, 4)
            assert (found.status, len(found.records)) == (S.FOUND, 4)
            offset = found.next_begin_offset
        assert offset == 200


@pytest.mark.parametrize("flushes", [1, 3, 7])
def test_c16_search_by_time(tmp_path: Path, stage: Stage, flushes: int) -> None:
    """C16: RocketMQ's vector: offsets 10 to 16 with store times 40, 50, 50, 50, 60, 60, 70; however it is cut into runs."""
    with aged_cold(tmp_path, stage, open_now=False) as scene:
        for number, time_ms in enumerate((40, 50, 50, 50, 60, 60, 70)):
            scene.broker.send("T", 0, b"x", queue_offset=10 + number, store_timestamp=time_ms)
            if number % (7 // flushes) == 0:
                scene.archive()
        scene.archive()
        store = scene.open()
        low, up = BoundaryType.LOWER, BoundaryType.UPPER
        for time_ms, boundary, wanted in (
            (35, low, 10), (35, up, 10), (45, low, 11), (45, up, 11), (50, low, 11), (50, up, 13),
            (60, low, 14), (60, up, 15), (70, low, 16), (70, up, 16), (75, low, 17), (75, up, 17),
        ):  # fmt: skip
            assert store.offset_by_time("T", 0, time_ms, boundary) == wanted, (time_ms, boundary)
        assert store.earliest_message_time("T", 0) == 40


def test_c17_store_times_of_ipv6_messages(tmp_path: Path, stage: Stage) -> None:
    """C17: RocketMQ reads the store time at a fixed place; with an IPv6 host that is inside the address, and its retention
    deletes fresh queues. Not reproduced: time bounds of queues, earliest time and search by time are the records' own."""
    host = "[2001:db8::1]:50001"
    with aged_cold(tmp_path, stage, open_now=False) as scene:
        for number in range(10):
            scene.broker.time_ms += 100
            scene.broker.send(
                "T", 0, b"%d" % number, born_host=host, store_host=host if number % 2 else "127.0.0.1:1"
            )
        scene.archive()
        store = scene.open()
        times = [m.store_timestamp for m, _ in scene.broker.sent]
        (queue,) = store.queues("T")
        assert (queue.min_store_time, queue.max_store_time) == (times[0], times[-1])
        assert store.earliest_message_time("T", 0) == times[0]
        assert [store.message_time("T", 0, n) for n in range(10)] == times
        assert [store.offset_by_time("T", 0, t) for t in times] == list(range(10))


def test_c18_a_gap_destroys_nothing(tmp_path: Path, stage: Stage) -> None:
    """C18: the broker deleted messages before they could be archived (the daemon was down).

    RocketMQ destroys the queue's whole tiered history and begins anew; here both sides stay readable, the hole is recorded
    and said.
    """
    with aged_cold(tmp_path, stage, open_now=False) as scene:
        for number in range(100):
            scene.broker.send("T", 0, b"%d" % number + bytes(1000))
        scene.archive()
        scene.daemon.close()
        held_until = (scene.broker.position // scene.broker.file_bytes + 1) * scene.broker.file_bytes
        for number in range(100, 400):
            scene.broker.send("T", 0, b"%d" % number + bytes(1000))
        for _ in range(4):
            scene.broker.delete_oldest()
        kept = [m for m, _ in scene.broker.sent if m.physical_offset >= scene.broker.bases()[0]]
        scene.restart()
        scene.archive()
        store = scene.open()
        back = kept[0].queue_offset
        first_lost = next(m.queue_offset for m, _ in scene.broker.sent if m.physical_offset >= held_until)
        assert 100 < first_lost < back, "of the file that was held when the daemon went down nothing is lost"
        found = read_all(scene, "T")
        assert list(found) == [*range(first_lost), *range(back, 400)]
        assert list(found.values()) == [raw for m, raw in scene.broker.sent if m.queue_offset in found]
        assert scene.get("T", 0, first_lost - 1).next_begin_offset == first_lost
        assert place(scene, first_lost) == (S.OFFSET_FOUND_NULL, back, 0)
        assert [(g.start, g.end) for g in store.view.state.gaps(MessageQueue("T", 0))] == [(first_lost, back)]
        assert store.min_offset("T", 0) == 0


def test_c19_metadata_that_is_damaged_or_missing(tmp_path: Path) -> None:
    """C19: RocketMQ's metadata is a JSON file (integer keys quoted or not) with a ``.bak``; both have to be read.

    This archive has no such file: its metadata is the log and its checkpoints. Counterpart of main file and ``.bak``: when the
    newest checkpoint is damaged, or missing, the one before it and the log after that give the same answers.
    """
    with cold(tmp_path, open_now=False) as scene:
        ids = iter(bytes([n]) * 16 for n in range(1, 200))
        for flush in range(3):
            for number in range(10):
                scene.broker.send("T", 0, b"%d-%d" % (flush, number))
            scene.archive()
            if flush < 2:
                log = scene.daemon.log
                write_checkpoint(
                    log.reader.provider, KEYS, log.store.snapshot(), None, lambda: KEYS.shard(1, next(ids))
                )
        names = [item.key for item in scene.provider.list(KEYS.checkpoint_prefix)]
        assert len(names) == 2
        wanted = dict(enumerate(scene.raws("T")))

        def nothing(key: str) -> None:
            """Both are sound."""

        def damaged(key: str) -> None:
            data = scene.provider.get(key).data
            scene.provider.put(key, [data[: len(data) // 2]], create_only=False)

        for befalls in (nothing, damaged, scene.provider.delete):
            befalls(names[-1])
            scene.stores.insert(0, scene.open())
            scene.stores.pop()
            assert read_all(scene, "T") == wanted
            assert scene.get("T", 0, 30).status is S.OFFSET_OVERFLOW_ONE
