"""Damage at levels 1 and 2, in every kind of place: found, named with key and position, never served (S7)."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from tests.kit.aged import Stage, age
from tests.kit.assemble import KEYS
from tests.kit.fetchscene import SETTLED_SECONDS, Scene, scene
from tests.kit.merging import QUEUES
from tests.kit.pipeline import PREPARED
from tiered.archive.read.lookup import KeyLookup, query_key
from tiered.archive.read.reader import ArchiveReader
from tiered.archive.read.verify import Verifier
from tiered.archive.read.view import View
from tiered.archive.state.values import ObjectState
from tiered.codec.arrow.assemble import ASSEMBLED_FROM
from tiered.codec.format.object import FOOTER_BYTES
from tiered.codec.format.sections import SectionKind
from tiered.errors import Corrupt, NotFound
from tiered.fetch.base import ReaderId
from tiered.metadata.memory import MemoryStore
from tiered.model import OFF_QUEUE_TOPIC, MessageQueue
from tiered.settings import MIB

pytestmark = pytest.mark.depends_only_on_imports

FLIPS_A_KIND = 6
READER = ReaderId("readers")


@dataclass
class Aged:
    """A sound archive in memory, its objects' bytes, and what is in its queues."""

    scene: Scene
    stored: dict[str, bytes]
    wanted: dict[MessageQueue, list[bytes]]
    fold: MemoryStore = field(default_factory=MemoryStore)
    """Of the commits, which stay sound."""

    def objects(self) -> list[ObjectState]:
        return [item for item in self.scene.state.objects() if item.references]

    def key(self, item: ObjectState) -> str:
        return self.scene.daemon.objects.key_of(item)

    def put(self, key: str, data: bytes | None) -> None:
        if data is None:
            self.scene.provider.delete(key)
        else:
            self.scene.provider.put(key, [data], create_only=False)

    def view(self) -> View:
        return ArchiveReader(self.scene.provider, KEYS, self.fold, table_cache_bytes=MIB).at()


@pytest.fixture(scope="module", params=[Stage.MERGED, Stage.SEALED], ids=lambda s: s.value)
def aged(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aged]:
    with scene(tmp_path_factory.mktemp("damage")) as made:
        age(made, request.param)
        made.daemon.settle(SETTLED_SECONDS)
        stored = {item.key: bytes(made.provider.get(item.key).data) for item in made.provider.list("")}
        sent = made.broker.sent
        wanted = {
            q: [
                raw for m, raw in sent if MessageQueue(m.topic, m.queue_id) == q and not m.sys_flag & PREPARED
            ]
            for q in QUEUES
        }
        wanted[MessageQueue(OFF_QUEUE_TOPIC, 0)] = [raw for m, raw in sent if m.sys_flag & PREPARED]
        yield Aged(made, stored, wanted)


def places(aged: Aged) -> dict[str, list[tuple[str, int, int]]]:
    """Ranges [start, end) of stored bytes by what they are: (key, start, end)."""
    found: dict[str, list[tuple[str, int, int]]] = defaultdict(list)
    for item in aged.objects():
        key = aged.key(item)
        if SectionKind.SEGMENT_FOOTER not in item.sections:
            for number, (position, length, _) in item.sections.items():
                found[f"section {SectionKind(number).name}"].append((key, position, position + length))
            first = min(position for position, _, _ in item.sections.values())
            found["blocks"].append((key, 0, first))
            found["footer"].append((key, item.length - FOOTER_BYTES, item.length))
            continue
        segment = aged.scene.daemon.objects.sealed(item).segment
        directory = aged.stored[key].index(b"tiered.directory")
        found["segment: magic"].append((key, 0, 4))
        found["segment: filters and page index"].append(
            (key, segment.index_range.start, segment.index_range.end)
        )
        found["segment: metadata"].append((key, segment.footer_position, directory))
        found["segment: directory"].append((key, directory, item.length - 8))
        found["segment: length and magic"].append((key, item.length - 8, item.length))
        for number in range(len(segment.directory.groups)):
            row = segment.metadata.row_group(number)
            for column in (row.column(n) for n in range(row.num_columns)):
                start = column.dictionary_page_offset or column.data_page_offset
                end = start + column.total_compressed_size
                name = column.path_in_schema.split(".")[0]
                kind = "page" if name in ASSEMBLED_FROM else "page of a derived column"
                found[f"segment: {kind} header"].append((key, start, start + 12))
                found[f"segment: {kind}"].append((key, start + 12, end))
    return found


def reading(aged: Aged) -> list[Corrupt | NotFound]:
    """Read every queue and look up some keys; whatever is served must be right. What was met."""
    met: list[Corrupt | NotFound] = []
    try:
        view = aged.view()
    except (Corrupt, NotFound) as error:
        return [error]
    fetcher = aged.scene.fetcher(objects=view.objects, read_ahead=False)
    for queue, wanted in aged.wanted.items():
        try:
            found = aged.scene.read_through(fetcher, queue=queue)
            assert found == wanted
        except (Corrupt, NotFound) as error:
            met.append(error)
    for key in ("k3", "only-10"):
        for topic in ("Orders", "Payments"):
            try:
                records = [item.record for item in query_key(view.state, view.objects, KeyLookup(topic, key))]
                assert records == _with_key(aged, topic, key)
            except (Corrupt, NotFound) as error:
                met.append(error)
    return met


def _with_key(aged: Aged, topic: str, key: str) -> list[bytes]:
    return [
        raw
        for m, raw in aged.scene.broker.sent
        if m.topic == topic and key in m.keys and not m.sys_flag & PREPARED
    ]


def damage(aged: Aged) -> list[tuple[str, str]]:
    try:
        report = Verifier(aged.view()).run(deep=True)
    except (Corrupt, NotFound) as error:
        return [(str(error.fields.get("key")), str(error))]
    return [(d.key, d.detail) for d in report.damage]


def test_the_sound_archive_is_found_sound(aged: Aged) -> None:
    assert reading(aged) == []
    assert damage(aged) == []


@pytest.mark.history
@pytest.mark.parametrize("flip", range(FLIPS_A_KIND))
def test_flipped_bits_in_every_kind_of_place(aged: Aged, flip: int) -> None:
    chance, missed = random.Random(21), list[str]()
    for kind, ranges in sorted(places(aged).items()):
        flips = [
            (key, chance.randrange(start, end), chance.randrange(8))
            for key, start, end in (chance.choice(ranges) for _ in range(FLIPS_A_KIND))
        ]
        key, position, bit = flips[flip]
        spoiled = bytearray(aged.stored[key])
        spoiled[position] ^= 1 << bit
        aged.put(key, bytes(spoiled))
        met, found = reading(aged), damage(aged)
        aged.put(key, aged.stored[key])
        where = f"{kind}: bit {bit} of byte {position} of {key}"
        if not any(named == key and "position=" in text for named, text in found):
            missed.append(f"{where}: verify says {found}")
        if any(error.fields.get("key") != key or "position" not in error.fields for error in met):
            missed.append(f"{where}: readers say {met}")
        if kind in (
            "blocks",
            "segment: page",
            "segment: page header",
            "segment: metadata",
            "segment: directory",
        ):
            assert met or kind == "blocks", where
    assert missed == []


def objects_of_levels_above_0(aged: Aged) -> list[str]:
    return sorted(aged.key(item) for item in aged.objects() if item.level)


@pytest.mark.history
@pytest.mark.parametrize("cut", range(4))
def test_cut_short_anywhere(aged: Aged, cut: int) -> None:
    chance = random.Random(22)
    for key in objects_of_levels_above_0(aged):
        whole = aged.stored[key]
        length = (0, 1, len(whole) - 1, chance.randrange(len(whole)))[cut]
        aged.put(key, whole[:length])
        met, found = reading(aged), damage(aged)
        aged.put(key, whole)
        assert {error.fields.get("key") for error in met} <= {key}, length
        assert met or length > len(whole) // 2, length
        assert key in {named for named, _ in found}, length


def test_something_written_behind_an_object(aged: Aged) -> None:
    """Readers here never ask for it; engines read a Parquet file from its end, and cannot any more."""
    for key in objects_of_levels_above_0(aged):
        aged.put(key, aged.stored[key] + b"more")
        met, found = reading(aged), damage(aged)
        aged.put(key, aged.stored[key])
        assert met == []
        assert [named for named, text in found if "position=" in text] == [key]


def test_missing(aged: Aged) -> None:
    for key in objects_of_levels_above_0(aged):
        aged.put(key, None)
        met, found = reading(aged), damage(aged)
        aged.put(key, aged.stored[key])
        assert {error.fields.get("key") for error in met} == {key}
        assert all(isinstance(error, NotFound) for error in met)
        assert [named for named, _ in found] == [key]


def test_two_swapped(aged: Aged) -> None:
    keys = [aged.key(item) for item in aged.objects() if item.path]
    for one, two in pairwise(keys):
        aged.put(one, aged.stored[two])
        aged.put(two, aged.stored[one])
        met, found = reading(aged), damage(aged)
        aged.put(one, aged.stored[one])
        aged.put(two, aged.stored[two])
        assert {error.fields.get("key") for error in met} <= {one, two}
        assert {named for named, _ in found} == {one, two}
