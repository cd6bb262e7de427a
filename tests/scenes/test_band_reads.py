"""Bands of sealed files through the fetcher: which bytes are asked for, what is kept, and damage on the way."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from tests.kit.assemble import KEYS
from tests.kit.fetchscene import Scene, scene
from tests.kit.merging import merge_all
from tests.kit.sealing import after_midnight, seal_all
from tiered.archive.read.content import ContentCheck, ContentStep
from tiered.codec.segment.reader import BandBytes, BandRecords, Segment
from tiered.errors import Corrupt, NotFound
from tiered.fetch.base import ReaderId
from tiered.fetch.fetcher import Fetcher
from tiered.model import MessageQueue
from tiered.settings import MIB


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The bands of each call that decodes."""
    found, usual = list[tuple[int, int]](), Segment.records

    def records(segment: Segment, bands: tuple[int, int], data: BandBytes) -> BandRecords:
        found.append(bands)
        return usual(segment, bands, data)

    monkeypatch.setattr(Segment, "records", records)
    return found


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """One row group of many bands, each with several queues, or a part of one."""
    with scene(tmp_path_factory.mktemp("bands")) as found:
        for number in range(200):
            found.broker.send("Orders", number % 4, b"%d" % number * 200)
        found.daemon.settle()
        merge_all(found.daemon)
        after_midnight(found)
        seal_all(found.daemon, row_group_bytes=MIB, band_bytes=8000)
        yield found


@pytest.fixture
def s(sealed: Scene) -> Iterator[Scene]:
    yield sealed
    sealed.provider.gate = lambda key, start, length: None
    sealed.provider.spoil = lambda key, start, data: data


def tables(s: Scene) -> Segment:
    (item,) = [item for item in s.state.objects() if 8 in item.sections]
    return s.objects().sealed(item).segment


def gets(s: Scene) -> list[tuple[int, int]]:
    footer = tables(s).footer_position
    return [(start, start + length) for _, start, length in s.provider.gets if start < footer]


def read(s: Scene, fetcher: Fetcher, queue_id: int, offset: int, count: int) -> list[bytes]:
    queue = MessageQueue("Orders", queue_id)
    result = s.read(fetcher, offset, count, reader=ReaderId(f"readers of {queue_id}"), queue=queue)
    return [bytes(r) for r in result.records]


def test_a_first_message_takes_its_band_and_the_head_side_by_side(s: Scene) -> None:
    segment = tables(s)
    head = segment.head_range(0)
    assert head is not None
    fetcher, raws = s.fetcher(read_ahead=False), s.raws(MessageQueue("Orders", 2))
    s.provider.gets.clear()
    assert read(s, fetcher, 2, 0, 1) == raws[:1]
    found = gets(s)
    assert (head.start, head.end) in found
    (body,) = [place for place in found if place != (head.start, head.end)]
    bands = segment.directory.bands
    assert body in [(p, p + n) for p, n in zip(bands["position"], bands["stored_length"], strict=True)]
    s.provider.gets.clear()
    assert read(s, fetcher, 2, 0, 32) == raws[:32]
    assert read(s, fetcher, 2, 32, 32) == raws[32:]
    assert all(start >= head.end for start, _ in gets(s)), "the head is here"


def test_readers_of_everything_fetch_no_byte_twice(s: Scene) -> None:
    fetcher = s.fetcher(read_ahead=False)
    s.provider.gets.clear()
    for queue_id in range(4):
        raws = s.raws(MessageQueue("Orders", queue_id))
        assert [r for at in range(0, 50, 10) for r in read(s, fetcher, queue_id, at, 10)] == raws
    found = sorted(gets(s))
    assert all(before[1] <= after[0] for before, after in pairwise(found))


def test_a_head_that_was_damaged_on_its_way_is_not_kept(s: Scene) -> None:
    head = tables(s).head_range(0)
    assert head is not None
    fetcher, raws = s.fetcher(read_ahead=False), s.raws(MessageQueue("Orders", 0))

    def spoil(key: str, start: int, data: bytes) -> bytes:
        return bytes(len(data)) if start == head.start and len(data) == head.length else data

    s.provider.spoil = spoil
    with pytest.raises(Corrupt, match="damaged"):
        read(s, fetcher, 0, 0, 1)
    s.provider.spoil = lambda key, start, data: data
    assert read(s, fetcher, 0, 0, 1) == raws[:1]


def test_a_head_is_kept_on_disk_and_believed_no_more_than_blocks(s: Scene, tmp_path: Path) -> None:
    def fresh() -> Fetcher:
        return s.fetcher(read_ahead=False, disk_directory=str(tmp_path), disk_bytes=16 * MIB)

    raws = s.raws(MessageQueue("Orders", 1))
    assert read(s, fresh(), 1, 0, 32) == raws[:32]
    s.provider.gets.clear()
    assert read(s, fresh(), 1, 0, 32) == raws[:32]
    assert not gets(s), "the second time all of it came from disk"
    (head,) = tmp_path.rglob("*-head")
    head.write_bytes(b"\0" + head.read_bytes()[1:])
    s.provider.gets.clear()
    assert read(s, fresh(), 1, 0, 32) == raws[:32]
    assert [end - start for start, end in gets(s)] == [head.stat().st_size], "the head alone is fetched again"


def test_a_head_that_cannot_be_had_is_said(s: Scene) -> None:
    head = tables(s).head_range(0)
    assert head is not None

    def gone(key: str, start: int, length: int) -> None:
        if start == head.start:
            raise NotFound("no such key", key=key)

    fetcher = s.fetcher(read_ahead=False)
    s.provider.gate = gone
    with pytest.raises(NotFound):
        read(s, fetcher, 3, 0, 1)


def test_a_head_on_its_way_is_charged(s: Scene) -> None:
    head, seen = tables(s).head_range(0), list[int]()
    assert head is not None
    fetcher = s.fetcher(read_ahead=False)
    read(s, fetcher, 0, 0, 1)
    other = s.fetcher(read_ahead=False)
    s.provider.gate = lambda key, start, length: seen.append(other.budget.used_bytes)
    read(s, other, 0, 0, 1)
    assert max(seen) > head.length
    assert other.budget.used_bytes == other.cache.used_bytes


def test_bands_of_one_request_are_decoded_together_up_to_damage(
    s: Scene, decoded: list[tuple[int, int]]
) -> None:
    (item,) = [item for item in s.state.objects() if 8 in item.sections]
    sound = s.objects().block_bytes(item, 0, len(s.objects().block_table(item)))
    segment = tables(s)
    first, end = segment.directory.bands_of(0)
    assert decoded == [(first, end)]
    damaged = segment.range_of_bands(first + 2, first + 3)

    def spoil(key: str, start: int, data: bytes) -> bytes:
        at = damaged.start - start
        return data if not 0 <= at < len(data) else data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]

    s.provider.spoil = spoil
    objects, band_of = s.objects(), segment.directory.parts["band"].tolist()
    got = []
    with pytest.raises(Corrupt) as caught:
        for data in objects.segments().block_bytes(objects.sealed(item), 0, len(band_of), MIB):
            got.append(bytes(data))
    assert caught.value.fields["position"] == damaged.start
    assert got == [bytes(data) for data in sound[: band_of.index(first + 2)]]
    behind = band_of.index(first + 3)
    rest = objects.block_bytes(item, behind, len(band_of))
    assert [bytes(data) for data in rest] == [bytes(data) for data in sound[behind:]]


def test_a_check_names_each_damaged_band(s: Scene, decoded: list[tuple[int, int]]) -> None:
    """And the head of none; all others are looked at, and counted."""
    (item,) = [item for item in s.state.objects() if 8 in item.sections]
    segment = tables(s)
    first, end = segment.directory.bands_of(0)
    wrong = [segment.range_of_bands(band, band + 1).start for band in (first, first + 2)]

    def looked(*, records: bool) -> list[ContentStep]:
        archive_id = s.daemon.log.reader.identity.archive_id
        return list(ContentCheck(s.provider, KEYS, archive_id, records=records).steps(item))

    sound = looked(records=True)
    assert decoded == [(first, end)]

    def spoil(key: str, start: int, data: bytes) -> bytes:
        changed = bytearray(data)
        for at in (place - start for place in wrong):
            if 0 <= at < len(data):
                changed[at] ^= 1
        return bytes(changed)

    s.provider.spoil = spoil
    for records in (True, False):
        found = looked(records=records)
        assert [step.damage.fields["position"] for step in found if step.damage is not None] == wrong
        for name in ("blocks", "messages", "bytes"):
            assert sum(getattr(step, name) for step in found) == sum(getattr(step, name) for step in sound)


def test_many_readers_at_once_get_the_same(s: Scene) -> None:
    fetcher = s.fetcher(read_ahead=False)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda n: read(s, fetcher, n % 4, n // 4 * 10, 10), range(20)))
    for n, records in enumerate(found):
        assert records == s.raws(MessageQueue("Orders", n % 4))[n // 4 * 10 : n // 4 * 10 + 10]
    assert np.unique([start for start, _ in gets(s)]).size >= 3
