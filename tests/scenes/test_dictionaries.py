"""An archive whose small blocks are compressed with dictionaries: every reader gives what the broker wrote or names damage."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.kit.assemble import assemble
from tests.kit.fetchscene import SETTLED_SECONDS, Scene, scene
from tests.kit.keyed import view_of
from tests.kit.merging import merge_all
from tests.kit.scrubbing import Scrubbing, flip, overwrite, stored_bytes
from tests.kit.sealing import after_midnight, all_rows, seal_all
from tiered.archive.fold import logedits
from tiered.archive.fold.logedits import DICTIONARIES, ENCRYPTION
from tiered.archive.keys import CommitKey, build
from tiered.archive.read.verify import Verifier
from tiered.archive.state.values import ObjectState
from tiered.codec.format.sections import SectionKind
from tiered.errors import Corrupt, Refused
from tiered.model import MessageQueue

SIZE, QUEUES = 1024, 150


def send(made: Scene, flushes: int = 2) -> None:
    """Flushes of a message in each of many queues."""
    chance = random.Random(flushes)
    for _ in range(flushes):
        for queue_id in range(QUEUES):
            body = b'{"order":%d,"state":"created","amount":%d}' % (
                chance.getrandbits(40),
                chance.getrandbits(20),
            )
            made.broker.send("Orders", queue_id, body, properties={"KEYS": f"k{chance.getrandbits(30)}"})
        made.daemon.settle(SETTLED_SECONDS)


@pytest.fixture(params=["in objects", "inside commits", "merged", "encrypted"])
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    inline = 1 << 20 if request.param == "inside commits" else 0
    encrypted = request.param == "encrypted"
    with scene(tmp_path, encrypted=encrypted, inline_bytes=inline, dictionary_bytes=SIZE) as found:
        send(found)
        if request.param == "merged":
            merge_all(found.daemon, dictionary_bytes=SIZE)
        yield found


def with_dictionary(made: Scene) -> list[ObjectState]:
    return [o for o in made.state.objects() if o.references and SectionKind.DICTIONARY in o.sections]


def path_of(item: ObjectState) -> str:
    return item.path or build(CommitKey(item.ref.commit_seq))


def read_all(made: Scene) -> dict[int, list[bytes]]:
    """Of each queue what a consumer gets, from a reader with nothing in memory."""
    fetcher = made.fetcher()
    return {
        queue_id: made.read_through(fetcher, queue=MessageQueue("Orders", queue_id))
        for queue_id in range(QUEUES)
    }


def test_every_reader_gives_what_the_broker_wrote(made: Scene) -> None:
    assert with_dictionary(made)
    wrote = {queue_id: made.raws(MessageQueue("Orders", queue_id)) for queue_id in range(QUEUES)}
    assert read_all(made) == wrote
    rows = all_rows(made)
    assert {name[0].queue_id: [raw for _, raw, _ in found] for name, found in rows.items()} == wrote
    report = Verifier(view_of(made)).run(deep=True)
    assert report.damage == []
    assert report.messages >= 2 * QUEUES, "what was merged lies in both until it is collected"
    looking = Scrubbing.of(made)
    looking.rest()
    assert looking.damaged() == {}


def test_a_cold_read_asks_no_more_often_than_without_one(made: Scene) -> None:
    """The dictionary lies before the block table, and comes with it."""
    fetcher, queue = made.fetcher(), MessageQueue("Orders", 5)
    assert made.read(fetcher, 0, queue=queue).records
    objects = {key for key, _, _ in made.provider.gets}
    assert len(made.provider.gets) <= 2 * len(objects)


def test_merged_and_sealed_it_is_the_same_and_no_dictionary_is_left(made: Scene) -> None:
    rows, encrypted = all_rows(made), ENCRYPTION in made.state.head().required_features  # type: ignore[union-attr]
    merge_all(made.daemon)
    levels = {o.level for o in with_dictionary(made)}
    assert levels <= {1}, "what is merged without the setting has none; what was merged with it stays"
    assert all_rows(made) == rows
    if not encrypted:
        after_midnight(made)
        seal_all(made.daemon)
        assert {o.level for o in made.state.objects() if o.references} == {2}
        assert all_rows(made) == rows


def test_sealed_from_its_blocks(tmp_path: Path) -> None:
    with scene(tmp_path, dictionary_bytes=SIZE) as made:
        send(made)
        rows = all_rows(made)
        after_midnight(made)
        seal_all(made.daemon)
        assert all_rows(made) == rows


def test_every_bit_of_a_dictionary_is_checked(tmp_path: Path) -> None:
    with scene(tmp_path, dictionary_bytes=SIZE) as made:
        send(made)
        item = with_dictionary(made)[0]
        position, length, _ = item.sections[SectionKind.DICTIONARY]
        for at in range(position, position + length, 37):
            before = flip(made.provider, path_of(item), at, at % 8)
            with pytest.raises(Corrupt, match="the dictionary fails its checksum"):
                made.objects().block_bytes(item, 0, 1)
            overwrite(made.provider, path_of(item), before)
        flip(made.provider, path_of(item), position + length // 2)
        report = Verifier(view_of(made)).run(deep=True)
        assert not report.sound
        assert {damage.key for damage in report.damage} == {made.objects().key_of(item)}
        looking = Scrubbing.of(made)
        looking.rest()
        assert list(looking.damaged()) == [path_of(item)]
        for queue_id in range(QUEUES):
            queue, wrote = MessageQueue("Orders", queue_id), made.raws(MessageQueue("Orders", queue_id))
            got: list[bytes] = []
            with suppress(Corrupt):
                got = made.read_through(made.fetcher(), queue=queue)
            assert got == wrote[: len(got)], "never served wrong"


def test_another_objects_dictionary_is_not_taken_for_its_own(tmp_path: Path) -> None:
    """Both are sound, and of one length: what the fold says of the section tells them apart."""
    with scene(tmp_path, dictionary_bytes=SIZE) as made:
        send(made)
        item = with_dictionary(made)[0]
        position, length, _ = item.sections[SectionKind.DICTIONARY]
        whole = bytearray(stored_bytes(made.provider, path_of(item)))
        whole[position : position + length] = bytes(reversed(whole[position : position + length]))
        overwrite(made.provider, path_of(item), bytes(whole))
        with pytest.raises(Corrupt, match="the dictionary fails its checksum"):
            made.objects().dictionary(item)


def test_from_the_first_dictionary_on_the_archive_requires_the_feature(
    made: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = made.state.head()
    assert head is not None
    assert DICTIONARIES in head.required_features
    made.daemon.close()
    made.daemon = assemble(made.broker.store, made.provider, made.clock, seed=7)  # the setting is off by now
    after = made.state.head()
    assert after is not None
    assert after.epoch == head.epoch + 1
    assert DICTIONARIES in after.required_features
    monkeypatch.setattr(logedits, "SUPPORTED_FEATURES", logedits.SUPPORTED_FEATURES - {DICTIONARIES})
    with pytest.raises(Refused, match="requires unknown features") as caught:
        logedits.refuse_newer(after.seq, after.min_reader, list(after.required_features))
    assert caught.value.fields["found"] == [DICTIONARIES]


def test_an_archive_without_the_setting_has_none(tmp_path: Path) -> None:
    with scene(tmp_path) as made:
        send(made)
        merge_all(made.daemon)
        assert not any(SectionKind.DICTIONARY in o.sections for o in made.state.objects())
        assert DICTIONARIES not in made.state.head().required_features  # type: ignore[union-attr]
