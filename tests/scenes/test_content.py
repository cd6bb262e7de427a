"""One object's bytes against every checksum of them: each byte read once, each damage found and named, at every level."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import pytest

from tests.kit.assemble import KEYS
from tests.kit.fetchscene import Scene, scene
from tests.kit.merging import merge_all, spread
from tests.kit.sealing import after_midnight, seal_all
from tiered.archive.read import content as content_module
from tiered.archive.read import runs as runs_module
from tiered.archive.read.blockwindow import ContentStep
from tiered.archive.read.content import ContentCheck
from tiered.archive.read.objects import ObjectReader
from tiered.archive.read.runs import is_segment
from tiered.archive.state.values import ObjectState, RunState
from tiered.errors import Corrupt, Unavailable


@pytest.fixture(scope="module", params=["level 0", "level 1", "level 2", "inside commits"])
def archive(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    inline = {"inline_bytes": 1 << 20} if request.param == "inside commits" else {}
    with scene(tmp_path_factory.mktemp("content"), **inline) as found:
        spread(found, 5)
        if request.param != "level 0" and not inline:
            merge_all(found.daemon)
        if request.param == "level 2":
            after_midnight(found)
            seal_all(found.daemon)
        yield found


@pytest.fixture
def made(archive: Scene) -> Iterator[Scene]:
    """The same archive for every test: what one does to its objects and to the way there is undone."""
    with archive.provider.put_back():
        yield archive


def largest(made: Scene) -> ObjectState:
    return max((o for o in made.state.objects() if o.references), key=lambda o: o.length)


def runs_of(made: Scene, item: ObjectState) -> list[RunState]:
    return [run for run in made.state.runs_all() if run.object == item.ref]


def look(made: Scene, item: ObjectState, *, records: bool = True, ahead: int = 1) -> list[ContentStep]:
    identity = made.daemon.log.reader.identity
    check = ContentCheck(made.provider, KEYS, identity.archive_id, records=records, ahead=ahead)
    return list(check.steps(item, runs_of(made, item)))


def damage(made: Scene, item: ObjectState, *, records: bool = True) -> list[str]:
    return [str(step.damage) for step in look(made, item, records=records) if step.damage is not None]


def key_of(made: Scene, item: ObjectState) -> str:
    return made.daemon.objects.key_of(item)


def overwrite(made: Scene, key: str, data: bytes | bytearray) -> None:
    made.provider.put(key, [data], create_only=False)


@pytest.mark.parametrize("records", [True, False])
def test_every_flipped_bit_is_found_and_named(made: Scene, records: bool) -> None:
    item = largest(made)
    key, chance = key_of(made, item), random.Random(5)
    whole = bytes(made.provider.get(key).data)
    assert damage(made, item, records=records) == []
    starts = [position for position, _, _ in item.sections.values()]
    for place in {0, item.length - 1, *starts, *(chance.randrange(item.length) for _ in range(40))}:
        damaged = bytearray(whole)
        damaged[place] ^= 1 << chance.randrange(8)
        overwrite(made, key, damaged)
        found = damage(made, item, records=records)
        assert found, f"byte {place} of {item.length}"
        assert all(f"key={key}" in text for text in found)
    overwrite(made, key, whole)
    assert damage(made, item, records=records) == []


def test_each_byte_is_read_once_whatever_the_windows(made: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    item, told = largest(made), []
    for window_bytes in (8 << 20, 6000, 1):
        monkeypatch.setattr(content_module, "WINDOW_BYTES", window_bytes)
        monkeypatch.setattr(runs_module, "COALESCE_BYTES", max(window_bytes, 4096))
        made.provider.gets.clear()
        steps = look(made, item)
        covered = sorted((start, start + length) for _, start, length in made.provider.gets)
        assert (covered[0][0], covered[-1][1]) == (0, item.length)
        assert all(a[1] == b[0] for a, b in pairwise(covered)), "no byte twice, none left out"
        assert sum(step.bytes for step in steps) == item.length
        told.append(
            (sum(s.blocks for s in steps), sum(s.messages for s in steps), sum(s.record_bytes for s in steps))
        )
    assert told[0] == told[1] == told[2]
    assert told[0][1] == sum(run.rows for run in runs_of(made, item))


def test_a_window_is_as_much_as_is_in_memory(made: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    item = largest(made)
    monkeypatch.setattr(content_module, "WINDOW_BYTES", 6000)
    monkeypatch.setattr(runs_module, "COALESCE_BYTES", 6000)
    made.provider.gets.clear()
    look(made, item)
    blocks_end = min(position for position, _, _ in item.sections.values())
    assert max(length for _, start, length in made.provider.gets if start < blocks_end) <= 6000


@pytest.mark.parametrize("archive", ["level 2"], indirect=True)
def test_damage_behind_damage_in_a_segment(made: Scene) -> None:
    """The first bytes, the filters, the last row group: each is told with its place."""
    item = largest(made)
    key = key_of(made, item)
    segment = made.daemon.objects.sealed(item).segment
    wrong = [0, segment.index_range.start, segment.range_of(len(segment.directory.groups) - 1).start]
    for places in (wrong[:1], wrong[1:]):
        damaged = bytearray(made.provider.get(key).data)
        whole = bytes(damaged)
        for place in places:
            damaged[place] ^= 1
        overwrite(made, key, damaged)
        for ahead in (1, 3):
            found = [step.damage for step in look(made, item, ahead=ahead) if step.damage is not None]
            assert [error.fields.get("position") for error in found] == places
        overwrite(made, key, whole)


@pytest.mark.parametrize("archive", ["level 0", "level 1", "inside commits"], indirect=True)
def test_damage_behind_damage_is_named_too(made: Scene) -> None:
    item = largest(made)
    key = key_of(made, item)
    table = made.daemon.objects.block_table(item)
    damaged = bytearray(made.provider.get(key).data)
    for place in (0, int(table["position"][-1])):
        damaged[place] ^= 1
    overwrite(made, key, damaged)
    for ahead in (1, 3):
        found = [step.damage for step in look(made, item, ahead=ahead) if step.damage is not None]
        assert [error.fields.get("position") for error in found] == [0, int(table["position"][-1])]


@pytest.mark.parametrize("length", [0, 1, 600, -1])
def test_a_truncated_object(made: Scene, length: int) -> None:
    item = largest(made)
    whole = bytes(made.provider.get(key_of(made, item)).data)[: item.length]
    overwrite(made, key_of(made, item), whole[:length])
    assert len(damage(made, item, records=False)) == 1


def test_a_missing_and_a_swapped_object(made: Scene) -> None:
    item = largest(made)
    key = key_of(made, item)
    overwrite(made, key, bytes(made.provider.get(key).data))
    other = replace(item, object_id=b"x" * 16)
    assert (
        "another object is stored" in (said := damage(made, other, records=False)[0])
        or "not the object that" in said
    )
    made.provider.delete(key)
    assert "is not there" in damage(made, item, records=False)[0]


def test_a_run_that_the_object_does_not_know(made: Scene) -> None:
    item = largest(made)
    run = replace(runs_of(made, item)[0], first_queue_offset=7_000)
    identity = made.daemon.log.reader.identity
    steps = ContentCheck(made.provider, KEYS, identity.archive_id, records=True).steps(item, [run])
    assert ["disagree on a run" in str(s.damage) for s in steps if s.damage is not None] == [True]


def test_a_store_that_does_not_answer_is_no_damage(made: Scene) -> None:
    def away(key: str, start: int, length: int) -> None:
        raise Unavailable("away")

    made.provider.gate = away
    with pytest.raises(Unavailable):
        look(made, largest(made))


def test_nothing_of_an_object_is_kept_when_it_was_looked_at(made: Scene) -> None:
    item = largest(made)
    key, identity = key_of(made, item), made.daemon.log.reader.identity
    check = ContentCheck(made.provider, KEYS, identity.archive_id, records=False)
    assert [step.damage for step in check.steps(item) if step.damage is not None] == []
    damaged = bytearray(made.provider.get(key).data)
    damaged[0] ^= 1
    overwrite(made, key, damaged)
    assert [step.damage for step in check.steps(item) if step.damage is not None] != []


@pytest.mark.parametrize("threads", [1, 3])
def test_side_by_side_the_same_is_found_in_the_same_order(
    made: Scene, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    """Sound and damaged objects, one that is gone, and keys that their filter denies: as one after the other."""

    def denied(reader: ObjectReader, item: ObjectState) -> int:
        raise Corrupt("the key filter denies a key that is there", key=reader.key_of(item))

    monkeypatch.setattr(content_module, "WINDOW_BYTES", 6000)
    monkeypatch.setattr(runs_module, "COALESCE_BYTES", 4096)
    archive_id = made.daemon.log.reader.identity.archive_id
    objects = [(item, runs_of(made, item)) for item in made.state.objects() if item.references]
    damaged = bytearray(made.provider.get(key_of(made, objects[0][0])).data)
    damaged[0] ^= 1
    for change in (
        lambda: None,
        lambda: overwrite(made, key_of(made, objects[0][0]), damaged),
        lambda: made.provider.delete(key_of(made, objects[-1][0])),
        lambda: monkeypatch.setattr(ObjectReader, "check_keys", denied),
    ):
        change()
        one, several = (
            ContentCheck(made.provider, KEYS, archive_id, records=True, ahead=ahead) for ahead in (1, 3)
        )
        expected: list[tuple[ObjectState, list[str]]] = []
        for item, runs in objects:
            expected += [(item, [str(step)]) for step in one.steps(item, runs)] + [(item, ["end"])]
        found: list[tuple[ObjectState, list[str]]] = []
        several.expect(several.first_range(item) for item, _ in objects)
        for item, steps in several.each(objects, threads):
            found += [(item, [str(step)]) for step in steps] if steps is not None else [(item, ["end"])]
        several.end()
        assert found == expected
        assert several._held._ranges == {}
    assert "is not there" in str(expected)
    assert ("denies a key" in str(expected)) == any(not is_segment(item) for item, _ in objects[:-1])
