"""Segments read as objects: the same records, columns, keys and places as before they were sealed, and damage that is found."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from tests.kit.assemble import KEYS, live_rows
from tests.kit.fetchscene import Scene, scene
from tests.kit.merging import QUEUES, commits_of_rows, merge_all, spread
from tests.kit.sealing import after_midnight, seal_all
from tests.kit.segments import made as made_segment
from tests.kit.segments import part
from tests.unit.test_segment_file import record
from tiered.archive.read.flatfile import FlatMessageFile, RunReader
from tiered.archive.read.lookup import KeyLookup, locate_physical, query_key
from tiered.archive.read.reader import ArchiveReader
from tiered.archive.state.values import ObjectState, RunState
from tiered.archive.state.view import ArchiveState
from tiered.codec.record.message import decode_message
from tiered.codec.segment.footer import FOOTER_CRC, UNKNOWN_CRC, sealed_footer
from tiered.codec.segment.keyrows import groups_with_key, rows_with_key
from tiered.codec.segment.reader import BandBytes, open_segment
from tiered.errors import Corrupt, Invalid
from tiered.metadata.memory import MemoryStore
from tiered.model import BoundaryType, MessageQueue, PhysicalOffset
from tiered.settings import MIB

COLUMNS = (
    "size", "tags_code", "queue_offsets", "store_timestamp", "born_timestamp", "physical_offset", "sys_flag",
    "body_crc", "body_length",
)  # fmt: skip


@dataclass
class Both:
    """An archive before and after one of its topics, or both, were sealed."""

    scene: Scene
    fresh: ArchiveState

    @property
    def sealed(self) -> ArchiveState:
        return self.scene.state

    @property
    def archive_id(self) -> bytes:
        return self.scene.daemon.log.reader.identity.archive_id

    def segments(self) -> list[ObjectState]:
        return [item for item in self.sealed.objects() if 8 in item.sections]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    with scene(tmp_path_factory.mktemp("sealed")) as made:
        for hour in range(6):
            made.broker.time_ms += 3_600_000 if hour != 3 else -1
            spread(made, 1, seed=hour, most=60)
        fresh = ArchiveReader(made.provider, KEYS, MemoryStore(), table_cache_bytes=MIB).at().state
        merge_all(made.daemon)
        after_midnight(made, days=2)
        seal_all(made.daemon, row_group_bytes=3000)
        yield Both(made, fresh)


def test_it_holds_what_the_tests_need(both: Both) -> None:
    tables = [both.scene.objects().block_table(item) for item in both.segments()]
    shared = [np.unique(t["position"], return_counts=True)[1] for t in tables]
    assert any(len(counts) >= 3 for counts in shared), "several row groups"
    assert any((counts > 1).any() for counts in shared), "one of them with several parts"
    assert all(
        both.sealed.object(run.object) in both.segments() for q in QUEUES for run in runs(both.sealed, q)
    )


def runs(state: ArchiveState, queue: MessageQueue) -> list[RunState]:
    return list(state.runs(queue, 1))


def test_every_record_is_where_it_was(both: Both) -> None:
    assert live_rows(both.sealed, both.scene.objects()) == live_rows(both.fresh, both.scene.objects())


def columns_of(
    state: ArchiveState, both: Both, queue: MessageQueue, names: tuple[str, ...]
) -> dict[str, list[int]]:
    reader, found = RunReader(state, both.scene.objects()), {name: list[int]() for name in names}
    for run in runs(state, queue):
        for name, values in reader.columns(run, names).items():
            found[name] += values.tolist()
    return found


@pytest.mark.parametrize("queue", QUEUES, ids=str)
def test_columns_are_the_same(both: Both, queue: MessageQueue) -> None:
    assert columns_of(both.sealed, both, queue, COLUMNS) == columns_of(both.fresh, both, queue, COLUMNS)
    for name in COLUMNS:  # each by itself: some are read, some follow from the records
        assert columns_of(both.sealed, both, queue, (name,)) == columns_of(both.fresh, both, queue, (name,))


def test_rows_keep_the_commit_that_archived_them(both: Both) -> None:
    scene_before = Scene(both.scene.broker, both.scene.daemon, both.scene.provider, both.scene.clock)
    live = {key: value for key, value in commits_of_rows(scene_before).items() if key[0] in QUEUES}
    fresh = {
        (queue, 1): [run.id.commit_seq for run in runs(both.fresh, queue) for _ in range(run.rows)]
        for queue in QUEUES
    }
    assert live == fresh


@pytest.mark.parametrize("queue", QUEUES, ids=str)
def test_places_and_times(both: Both, queue: MessageQueue) -> None:
    files = [FlatMessageFile(state, both.scene.objects(), queue) for state in (both.sealed, both.fresh)]
    low, high = files[0].min_offset, files[0].max_offset
    assert (low, high) == (files[1].min_offset, files[1].max_offset)
    for offset in range(low - 1, high + 1):
        assert files[0].time_of(offset) == files[1].time_of(offset)
        assert [bytes(s.data) for s in files[0].read(offset, 1)] == [
            bytes(s.data) for s in files[1].read(offset, 1)
        ]
    times = sorted({files[1].time_of(offset) or 0 for offset in range(low, high)})
    for time in {0, times[-1] + 1, *times, *(t + 1 for t in times)}:
        for boundary in BoundaryType:
            assert files[0].offset_by_time(time, boundary) == files[1].offset_by_time(time, boundary)


def test_keys_and_ids(both: Both) -> None:
    def asked(state: ArchiveState, lookup: KeyLookup) -> list[tuple[object, ...]]:
        found = query_key(state, both.scene.objects(), lookup)
        return [(f.queue, f.queue_offset, f.record) for f in found]

    times = [
        decode_message(r).store_timestamp
        for rows in live_rows(both.fresh, both.scene.objects()).values()
        for _, _, r in rows
    ]
    middle = sorted(times)[len(times) // 2]
    for topic in ("Orders", "Payments"):
        for key, unique in (
            ("k3", False),
            ("only-7", False),
            ("u7", True),
            ("u7", False),
            ("nowhere", False),
        ):
            for bounds in ((None, None), (middle, None), (None, middle), (middle, middle)):
                for oldest in (False, True):
                    lookup = KeyLookup(topic, key, 5, *bounds, unique=unique, oldest=oldest)
                    assert asked(both.sealed, lookup) == asked(both.fresh, lookup)
    assert len(asked(both.sealed, KeyLookup("Orders", "k3"))) > 3
    for queue, rows in live_rows(both.fresh, both.scene.objects()).items():
        if queue in QUEUES:
            for _, _, record in rows[::7]:
                place = PhysicalOffset(decode_message(record).physical_offset)
                found = locate_physical(both.sealed, both.scene.objects(), place, 1)
                assert found is not None
                assert (found.queue, found.record) == (queue, record)
    assert locate_physical(both.sealed, both.scene.objects(), PhysicalOffset(place + 1), 1) is None


def test_filters_hold_every_key_and_few_others() -> None:
    chance = random.Random(3)
    rows = [(n, f"{chance.getrandbits(60):x}", f"{chance.getrandbits(60):x}") for n in range(4000)]
    records = [
        record(0, n, properties=f"KEYS\x01{a} {a}x\x02UNIQ_KEY\x01{b}\x02".encode()) for n, a, b in rows
    ]
    file = made_segment([part(records)], row_group_bytes=200_000)
    segment = file.open()
    index = file.data[segment.index_range.start : segment.index_range.end]
    groups = segment.directory.groups
    assert len(groups) > 3
    for n, a, b in rows[::37]:
        own = int(np.searchsorted(groups["first_row"], n, side="right")) - 1
        for key in (a, f"{a}x", b):
            assert own in groups_with_key(segment, index, key)
            place = segment.range_of(own)
            found = rows_with_key(segment, (own, own + 1), BandBytes(file.data[place.start : place.end]), key)
            assert found.tolist() == [n - int(groups["first_row"][own])]
    denied = sum(len(groups) - len(groups_with_key(segment, index, f"absent {n}")) for n in range(500))
    assert denied > 0.95 * 500 * len(groups)


def test_a_row_group_is_fetched_and_decoded_once_for_all_its_parts(both: Both) -> None:
    objects = both.scene.objects()
    item = both.segments()[0]
    table = objects.block_table(item)
    both.scene.provider.gets.clear()
    for number in range(len(table)):
        assert sum(map(len, objects.block_bytes(item, number, number + 1))) == table["raw_length"][number]
    assert len(both.scene.provider.gets) == len(np.unique(table["position"]))
    both.scene.provider.gets.clear()
    fresh = both.scene.objects()
    fresh.block_table(item)
    assert len(fresh.block_bytes(item, 0, len(table))) == len(table)
    assert len(both.scene.provider.gets) == 2, "the footer, and all row groups in one request"


def test_key_indexes_of_our_own_format_are_refused_not_empty(both: Both) -> None:
    objects, item = both.scene.objects(), both.segments()[0]
    for ask in (
        lambda: objects.key_filter(item),
        lambda: objects.all_keys(item),
        lambda: objects.key_entries(item, 1),
    ):
        with pytest.raises(Invalid):
            ask()


def test_a_changed_footer_is_found(both: Both) -> None:
    item = both.segments()[0]
    position, length, _ = item.sections[8]

    def spoil(key: str, start: int, data: bytes) -> bytes:
        at = position + length - 9
        if start <= at < start + len(data):
            data = data[: at - start] + bytes([data[at - start] ^ 1]) + data[at - start + 1 :]
        return data

    both.scene.provider.spoil = spoil
    try:
        with pytest.raises(Corrupt) as found:
            both.scene.objects().block_table(item)
    finally:
        both.scene.provider.spoil = lambda key, start, data: data
    assert found.value.fields["position"] == position


def test_a_segment_of_the_same_object_that_was_written_again(both: Both) -> None:
    """Another program changed a file: sound in itself, of the same ids, and not the one that was committed."""
    item = both.segments()[0]
    objects = both.scene.objects()
    key, whole = objects.key_of(item), bytes(both.scene.provider.inner.get(objects.key_of(item)).data)
    position = item.sections[8][0]
    blank = bytearray(whole[position:])
    at = blank.rindex(FOOTER_CRC.encode()) + len(FOOTER_CRC) + 2
    blank[at : at + 8] = UNKNOWN_CRC.encode()
    footer = sealed_footer(bytes(blank), 0x1234)
    both.scene.provider.put(key, [whole[:position], footer], create_only=False)
    try:
        open_segment(
            footer, object_length=item.length, archive_id=both.archive_id, object_id=item.object_id, key=key
        )
        with pytest.raises(Corrupt) as found:
            objects.block_table(item)
    finally:
        both.scene.provider.put(key, [whole], create_only=False)
    assert (found.value.fields["key"], found.value.fields["position"]) == (key, position)


def test_without_pyarrow_one_sentence_says_what_to_install(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    segments = ("tiered.archive.read.segments", "tiered.codec.segment", "tiered.codec.arrow")
    for name in [name for name in sys.modules if name.startswith(segments)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    objects, item = both.scene.objects(), both.segments()[0]
    for ask in (objects.block_table, objects.directory, objects.check_footer):
        with pytest.raises(Invalid, match="requires the package pyarrow, which is not installed") as found:
            ask(item)
        assert "rocketmq-tiered[parquet]" in str(found.value.hint)


def test_arrow_takes_its_memory_where_the_process_does(both: Both) -> None:
    import pyarrow as pa

    pa.set_memory_pool(pa.mimalloc_memory_pool())
    both.scene.objects().segments()
    assert pa.default_memory_pool().backend_name == "system"
