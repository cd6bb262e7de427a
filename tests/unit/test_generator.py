"""The generator writes what a broker writes: judged by the slow reader of the golden stores, not by our own
codec.
"""

from __future__ import annotations

import struct
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import zstandard

from tests.kit import golden
from tiered.clock import ManualClock
from tiered.codec.javahash import java_hash
from tiered.codec.record.frame import Stop, scan, verify
from tiered.codec.record.message import Message, encode_message
from tiered.errors import Invalid, Unavailable
from tiered.source.generator.store import GeneratorOptions, StoreGenerator, topic_names

FILE = 64 * 1024


def options(root: Path, **fields: object) -> GeneratorOptions:
    base = GeneratorOptions(
        root,
        topics=("TopicA", "Other", "T" * 130),
        queues=2,
        body_bytes=300,
        file_bytes=FILE,
        queue_file_units=50,
    )
    return replace(base, **fields)  # type: ignore[arg-type]


def check(root: Path) -> list[golden.SlowRecord]:
    """Consume queues are exactly the projection of the log; offsets are dense; blanks fill their files."""
    records = list(golden.records(root))
    queues: dict[tuple[str, int], dict[int, tuple[int, int, int]]] = defaultdict(dict)
    for r in records:
        if r.sys_flag & 0xC not in (0x4, 0xC):
            code = java_hash(r.properties.get(b"TAGS", b"").decode())
            queues[r.topic, r.queue_id][r.queue_offset] = (r.physical_offset, len(r.raw), code)
    found = {(t, q): golden.consume_queue(d) for t, q, d in golden.queues(root)}
    lowest = records[0].physical_offset if records else 0
    living = {k: {o: u for o, u in v.items() if u[0] >= lowest} for k, v in found.items()}
    assert {k: v for k, v in living.items() if v} == queues
    for units in queues.values():
        assert list(units) == list(range(min(units), min(units) + len(units)))
    return records


@pytest.fixture
def generator(tmp_path: Path) -> Iterator[StoreGenerator]:
    with StoreGenerator(options(tmp_path), ManualClock()) as opened:
        yield opened


def test_store_looks_like_a_brokers(generator: StoreGenerator) -> None:
    root = generator.options.store_dir
    end = generator.append(1000)
    assert (root / "abort").exists()
    assert (root / "lock").read_bytes() == b"lock"
    records = check(root)
    assert len(records) == 1000
    assert end == records[-1].physical_offset + len(records[-1].raw)
    files = golden.commitlog_files(root)
    assert {p.stat().st_size for p in files} == {FILE}
    assert files[-1].read_bytes() == bytes(FILE)  # allocated ahead
    assert {p.stat().st_size for _, _, d in golden.queues(root) for p in d.iterdir()} == {1000}
    assert {r.topic for r in records} == set(generator.options.topics)
    assert {r.version for r in records} == {1, 2}
    assert len({r.properties[b"UNIQ_KEY"] for r in records}) == len({r.body for r in records}) == 1000
    assert {r.properties[b"TAGS"].decode() for r in records} == set(generator.options.tags)
    # Round robin over topics, then queues.
    assert [(r.topic, r.queue_id) for r in records[:4]] == [
        ("TopicA", 0),
        ("Other", 0),
        ("T" * 130, 0),
        ("TopicA", 1),
    ]
    generator.close()
    assert not (root / "abort").exists()
    assert golden.commitlog_files(root) == files[:-1]
    fields = struct.unpack(">5q", (root / "checkpoint").read_bytes()[:40])
    assert fields[3:] == (end, end)


def test_rolls_exactly_as_the_broker_does(tmp_path: Path) -> None:
    body = b"x" * 100
    with StoreGenerator(options(tmp_path, file_bytes=4096), ManualClock()) as generator:
        size = len(encode_message(generator.append_message(Message("T", 0, 0, 0, body))))
        # Fill so that the next record would leave exactly 8 bytes, then 7.
        for left, rolls in ((8, False), (7, True)):
            room = 4096 - generator.physical_offset % 4096
            filler = room - left - size - 92  # 92: a record of topic T without its body
            generator.append_message(Message("T", 0, 0, 0, b"f" * filler))
            last = generator.append_message(Message("T", 0, 0, 0, body))
            assert (last.physical_offset % 4096 == 0) is rolls
            generator.append_message(Message("T", 0, 0, 0, body))
    check(tmp_path)


def test_a_store_is_continued_where_it_ends(tmp_path: Path) -> None:
    for count in (1, 300, 0, 77):
        generator = StoreGenerator(options(tmp_path), ManualClock())
        generator.open()
        generator.append(count)
        generator.crash()
    assert len(check(tmp_path)) == 378
    # A unit that never reached the queue's file is written at the next start, as a broker's reput does.
    newest = list(golden.records(tmp_path))[-1]
    directory = tmp_path / "consumequeue" / newest.topic / str(newest.queue_id)
    path = sorted(directory.iterdir())[-1]
    data = bytearray(path.read_bytes())
    place = newest.queue_offset * 20 - int(path.name)
    data[place : place + 20] = bytes(20)
    path.write_bytes(data)
    with StoreGenerator(options(tmp_path), ManualClock()) as generator:
        check(tmp_path)
        generator.append(10)
        with pytest.raises(Invalid, match="another size"):
            StoreGenerator(options(tmp_path, file_bytes=2 * FILE), ManualClock()).open()
    records = check(tmp_path)
    assert len(records) == len({r.properties[b"UNIQ_KEY"] for r in records}) == 388


def test_kinds_of_messages(generator: StoreGenerator) -> None:
    first = generator.append_message(Message("T", 1, 9, 9, b"", {"TAGS": "中文"}))
    assert (first.queue_offset, first.physical_offset) == (0, 0)
    half = generator.append_message(Message("T", 1, 9, 9, b"half", sys_flag=0x4))
    assert half.queue_offset == 0
    generator.append_message(Message("T", 1, 9, 9, b"commit", sys_flag=0x8, born_host="[::1]:5"))
    generator.append_message(Message("T", 1, 9, 9, b"roll back", sys_flag=0xC))
    generator.append_message(Message("T", 1, 9, 9, b"plain"))
    records = check(generator.options.store_dir)
    assert [r.queue_offset for r in records] == [0, 0, 1, 0, 2]
    assert generator.next_offsets["T", 1] == 3
    generator.append_message(Message("B", 0, 0, 0, b"batch", {"INNER_NUM": "5"}, sys_flag=0x80))
    assert generator.append_message(Message("B", 0, 0, 0, b"batch", sys_flag=0x80)).queue_offset == 5


def test_large_messages_and_limits(tmp_path: Path) -> None:
    size = 4 << 20
    with StoreGenerator(options(tmp_path, file_bytes=8 << 20), ManualClock()) as generator:
        written = generator.append_bodies(3, size)
        assert [len(m.body) for m in written] == [size] * 3
        assert {r.body for r in check(tmp_path)} == {m.body for m in written}
        with pytest.raises(Invalid, match="larger than a commitlog file"):
            generator.append_bodies(1, 8 << 20)
    for wrong in ({"start_physical_offset": 5}, {"topics": ()}, {"tags": ("a", "bb")}, {"queues": 0}):
        with pytest.raises(Invalid):
            options(tmp_path, **wrong)


def test_start_offsets_and_pre_blank_units(tmp_path: Path) -> None:
    with StoreGenerator(
        options(tmp_path, start_physical_offset=3 * FILE, start_queue_offset=75), ManualClock()
    ) as generator:
        generator.append(60)
    records = check(tmp_path)
    assert (records[0].physical_offset, records[0].queue_offset) == (3 * FILE, 75)
    assert golden.commitlog_files(tmp_path)[0].name == f"{3 * FILE:020d}"
    first = tmp_path / "consumequeue" / "TopicA" / "0" / f"{50 * 20:020d}"
    assert first.read_bytes()[:20].hex() == "0000000000000000" + "7fffffff" + "0000000000000000"
    with StoreGenerator(options(tmp_path), ManualClock()) as generator:
        generator.append(1)
        assert generator.next_offsets["TopicA", 0] == 86
    assert len(check(tmp_path)) == 61


def test_losing_the_tail(generator: StoreGenerator) -> None:
    root = generator.options.store_dir
    generator.append(700)
    before = check(root)
    for cut, zero in ((650, True), (400, True), (390, False), (3, True)):
        to = before[cut].physical_offset
        generator.truncate_tail(to, zero=zero)
        assert generator.physical_offset == to
        if zero:
            assert len(check(root)) == cut
            data = golden.commitlog_files(root)[-1].read_bytes()
            assert not any(data[to % FILE :])
        generator.append(5)
        if zero:
            after = check(root)
            assert [r.raw for r in after[:cut]] == [r.raw for r in before[:cut]]
            assert len(after) == cut + 5
            assert after[cut].physical_offset == to
            assert after[cut].raw != before[cut].raw
    with pytest.raises(Invalid):
        generator.truncate_tail(generator.physical_offset + 1)
    generator.truncate_tail(0)
    assert check(root) == []
    generator.append(10)
    assert len(check(root)) == 10


def test_retention_deletes_the_oldest_file(generator: StoreGenerator) -> None:
    root = generator.options.store_dir
    generator.append(2000)
    first_units = {d: sorted(d.iterdir())[0] for _, _, d in golden.queues(root)}
    while generator.min_offset() < generator.log.base_of(generator.physical_offset):
        minimum = generator.delete_oldest()
        assert check(root)[0].physical_offset == minimum
    assert not any(path.exists() for path in first_units.values())
    with pytest.raises(Invalid):
        generator.delete_oldest()
    generator.append(10)
    generator.close()
    generator.open()
    generator.append(10)
    check(root)


@pytest.mark.parametrize("shuffled", [False, True])
def test_torn_records_are_seen_and_then_whole(generator: StoreGenerator, shuffled: bool) -> None:
    generator.append(1)
    path = golden.commitlog_files(generator.options.store_dir)[0]
    start = generator.physical_offset
    torn = 0
    for place in generator.tear(Message("T", 0, 0, 0, b"b" * 5000), pieces=5, shuffled=shuffled):
        assert place == start
        data = path.read_bytes()
        frames = verify(data, scan(data, base=0, max_record_bytes=1 << 20), 0)
        assert len(frames) == 1
        assert frames.stop in (Stop.CORRUPT, Stop.ZERO)
        torn += 1
    assert torn == 4
    assert len(check(generator.options.store_dir)) == 2


def test_rate_chance_and_kinds_of_bodies(tmp_path: Path) -> None:
    clock = ManualClock()
    seen: list[int] = []
    with StoreGenerator(options(tmp_path / "a", messages=100, rate=50.0), clock) as generator:
        begun = clock.monotonic()
        assert generator.run(progress=seen.append) == 100
        assert clock.monotonic() - begun == pytest.approx(2.0, abs=0.05)
    assert seen[-1] == 100
    assert len(seen) > 50

    def log(name: str, **fields: object) -> bytes:
        root = tmp_path / name
        with StoreGenerator(options(root, file_bytes=1 << 20, **fields), ManualClock()) as generator:
            generator.append(500)
        check(root)
        return golden.commitlog_files(root)[0].read_bytes()

    text, again, other = log("b"), log("c"), log("d", seed=2)
    assert text == again != other
    noise = log("e", compressible=False)
    assert log("f", body_bytes=0) != noise
    log("g", vary_bodies=True)
    varied = {len(r.body) for r in golden.records(tmp_path / "g")}
    assert len(varied) == 8
    assert (min(varied), max(varied)) == (150, 300)

    def ratio(name: str) -> float:
        bodies = b"".join(r.body for r in golden.records(tmp_path / name))
        return len(bodies) / len(zstandard.compress(bodies, 1))

    assert 2 < ratio("b") < 6
    assert ratio("e") < 1.1


def test_two_writers_of_one_rng_differ(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    bodies = []
    for name in ("a", "b"):
        with StoreGenerator(options(tmp_path / name), ManualClock(), rng) as generator:
            generator.append(3)
        bodies.append([r.body for r in golden.records(tmp_path / name)])
    assert bodies[0] != bodies[1]
    assert topic_names(11)[10] == "Topic10"
    assert topic_names(2) == ("Topic0", "Topic1")


def test_one_writer_per_store(tmp_path: Path) -> None:
    holder = (
        "import fcntl, sys; f = open(sys.argv[1], 'w+'); fcntl.lockf(f, fcntl.LOCK_EX); print('held', flush=True); "
        "sys.stdin.read()"
    )
    command = [sys.executable, "-c", holder, str(tmp_path / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        generator = StoreGenerator(options(tmp_path), ManualClock())
        with pytest.raises(Unavailable, match="another process writes"):
            generator.open()
        other.communicate("")
    generator.open()
    generator.crash()


def test_an_error_leaves_the_store_as_a_killed_broker_would(tmp_path: Path) -> None:
    with pytest.raises(KeyError), StoreGenerator(options(tmp_path), ManualClock()) as generator:
        generator.append(5)
        raise KeyError
    assert (tmp_path / "abort").exists()
    assert not (tmp_path / "checkpoint").exists()
    assert len(check(tmp_path)) == 5


def ends(root: Path) -> dict[tuple[str, int], int]:
    found: dict[tuple[str, int], int] = {}
    for record in golden.records(root):
        queue = record.topic, record.queue_id
        assert record.queue_offset == found.get(queue, 0), "offsets are dense"
        found[queue] = record.queue_offset + 1
    return found


def test_many_queues_without_their_files_get_skewed_traffic(tmp_path: Path) -> None:
    many = options(tmp_path, queues=40, zipf=1.0, consume_queues=False, file_bytes=4 * FILE)
    with StoreGenerator(many, ManualClock()) as generator:
        generator.append(3 * 40)
        assert set(ends(tmp_path).values()) == {1}, "each queue has one message before any has two"
        generator.append(2000)
    assert not (tmp_path / "consumequeue").exists()
    before = ends(tmp_path)
    (busiest, most), (_, second), *_ = sorted(before.items(), key=lambda pair: -pair[1])
    assert most > 1.4 * second > 2.5 * 2120 / 120
    with StoreGenerator(many, ManualClock()) as generator:
        assert sum(generator.next_offsets.values()) == 2120, "found in every commitlog file"
        generator.append(500)
    after = ends(tmp_path)
    assert sum(after.values()) == 2620
    assert after[busiest] - before[busiest] == max(after[queue] - before[queue] for queue in after)
    with StoreGenerator(replace(many, consume_queues=True), ManualClock()):
        pass
    assert len(check(tmp_path)) == 2620, "units of every file are written where there were none"
    with pytest.raises(Invalid, match="continue it with them"), StoreGenerator(many, ManualClock()):
        pass


def test_a_store_without_consume_queues_loses_no_tail(tmp_path: Path) -> None:
    with StoreGenerator(options(tmp_path, consume_queues=False), ManualClock()) as generator:
        generator.append(10)
        with pytest.raises(Invalid, match="consume queues"):
            generator.truncate_tail(0)
    for wrong in ({"zipf": 0.0}, {"queues": 1 << 23}):
        with pytest.raises(Invalid, match="bounded number of queues"):
            options(tmp_path, **wrong)
