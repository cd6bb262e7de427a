"""The scrub of an encrypted archive: the same damage is found through the key, and without it nothing is called damaged."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.archiveedits import start_again
from tests.kit.assemble import KEYS
from tests.kit.encryption import OTHER_KEY, encrypting
from tests.kit.fetchscene import Scene, scene
from tests.kit.merging import AtOnceTurn, merge_all, spread
from tests.kit.scrubbing import Scrubbing, flip, overwrite, paths, stored_bytes
from tiered.archive.care.look import look
from tiered.archive.care.mend import MEND_AGAIN_SECONDS, Mend
from tiered.archive.checkpoint.store import write_checkpoint
from tiered.archive.encryption.provider import Encrypting
from tiered.archive.keys import Area
from tiered.archive.log.identity import read_identity
from tiered.archive.log.maintenance import OwnKeys
from tiered.archive.log.reader import LogReader
from tiered.archive.rewrite.merge import MergeOptions
from tiered.archive.rewrite.mergeplan import Bounds
from tiered.archive.rewrite.writing import Layout
from tiered.clock import ManualClock
from tiered.errors import Refused
from tiered.provider.base import Provider
from tiered.provider.memory import MemoryProvider


@pytest.fixture(params=["in objects", "inside commits"])
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    """Objects of both levels, commits, a checkpoint with its shards, and the data key."""
    inline = {"inline_bytes": 1 << 20} if request.param == "inside commits" else {}
    with scene(tmp_path, encrypted=True, **inline) as found:
        spread(found, 3)
        merge_all(found.daemon)
        spread(found, 3, seed=2)
        log, ids = found.daemon.log, iter(range(1, 100))
        write_checkpoint(
            found.provider, KEYS, log.store, None, lambda: KEYS.shard(1, next(ids).to_bytes(16, "big")), shard_bytes=2000
        )  # fmt: skip
        yield found


def stored(made: Scene) -> Provider:
    """What lies in the bucket, under the encryption."""
    assert isinstance(made.provider.inner, Encrypting)
    return made.provider.inner.inner


def needed(made: Scene) -> list[str]:
    left = {o.path for o in made.state.objects() if not o.references}
    return [path for path in paths(made.provider) if path not in left]


def test_a_sound_archive(made: Scene) -> None:
    looking = Scrubbing.of(made)
    done = looking.rest()
    assert looking.damaged() == {}
    assert all(one.trouble is None for one in done)
    assert looking.notes.reading.whole_objects == len(paths(made.provider))


def test_every_flipped_bit_is_found_and_named(made: Scene) -> None:
    """Of what is encrypted no bit is without a check: what no run lies in any more is part of a chunk like the rest."""
    chance, looking = random.Random(4), Scrubbing.of(made)
    looking.rest()
    for path in needed(made):
        length = len(stored_bytes(made.provider, path))
        for place in (0, length - 1, chance.randrange(length)):
            sound = flip(made.provider, path, place, chance.randrange(8))
            looking.later()
            assert list(looking.damaged()) == [path], f"byte {place} of {length}"
            overwrite(made.provider, path, sound)
            looking.later(0.3)
            assert looking.damaged() == {}, "and is not listed any more once it is mended"


@pytest.mark.parametrize("made", ["in objects"], indirect=True)
def test_two_swapped_objects_are_both_named(made: Scene) -> None:
    """Each is whole and of the same archive, under the key of the other."""
    objects = [path for path in needed(made) if path.startswith("data/")]
    one, other = objects[:2]
    first, second = stored_bytes(made.provider, one), stored_bytes(made.provider, other)
    overwrite(made.provider, one, second)
    overwrite(made.provider, other, first)
    looking = Scrubbing.of(made)
    looking.rest()
    assert sorted(looking.damaged()) == sorted([one, other])


@pytest.mark.parametrize("text", [OTHER_KEY, None], ids=["another key", "no key"])
def test_without_the_key_nothing_is_called_damaged(made: Scene, text: str | None) -> None:
    below = stored(made)
    provider = below if text is None else encrypting(below, text)
    with pytest.raises(Refused):
        reader = LogReader(provider, KEYS, read_identity(provider, KEYS))
        look(reader, lambda: made.state, made.clock, deep=True)


def test_no_walk_over_the_listing_is_sound_without_a_data_key(made: Scene) -> None:
    """The fold is known, and commits are listed alike: but for the key nothing of them would be read."""
    below = stored(made)
    for prefix in ("checkpoint/", "shard/"):  # which would be asked
        for each in list(below.list(KEYS.key(prefix))):
            below.delete(each.key)
    (key,) = [each.key for each in below.list(KEYS.prefix(Area.DATAKEY))]
    below.put(key, [b"damaged"], create_only=False)
    made.provider.inner = encrypting(below)  # as after a restart
    found = look(made.daemon.log.reader, lambda: made.state, made.clock, deep=False)
    assert list(found.notes.findings) == [KEYS.path(key)]
    below.delete(key)
    made.provider.inner = encrypting(below)
    with pytest.raises(Refused, match="data key of an epoch is gone"):
        look(made.daemon.log.reader, lambda: made.state, made.clock, deep=False)


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("made", ["in objects"], indirect=True)
def test_a_data_key_that_is_gone_is_put_again_from_the_copy(made: Scene, place: int) -> None:
    """Without it nobody lists the bucket, so no walk could say that it is gone."""
    for _ in range(2):
        start_again(made)
        made.send(3)
    below, copied = stored(made), MemoryProvider("", ManualClock())
    for each in below.list(KEYS.root):
        copied.put(each.key, [bytes(below.get(each.key).data)])
    lost = [each.key for each in below.list(KEYS.prefix(Area.DATAKEY))][place]
    whole = bytes(below.get(lost).data)
    below.delete(lost)
    made.provider.inner = encrypting(below)  # as after a restart
    looking = Scrubbing.of(made)
    for _ in range(2):
        with pytest.raises(Refused, match="data key of an epoch is gone"):
            looking.rest()
    options = MergeOptions(1.0, 1000, Bounds(4096, 4096, 2, 1 << 20, 1000), Layout(4096, 1, 1 << 16))
    opened: list[Provider] = []

    def copy() -> Provider:
        opened.append(encrypting(copied))
        return opened[-1]

    def mend() -> Mend:
        return Mend(made.daemon.log, made.clock, options, OwnKeys(), looking.book, copy)

    damaged = bytes([whole[0] ^ 1]) + whole[1:]
    copied.put(lost, [damaged], create_only=False)
    assert not mend().run_once(AtOnceTurn(made.daemon)).more, "what the copy has is not a key"
    copied.put(lost, [whole], create_only=False)
    task = mend()
    assert task.due(made.clock.monotonic())
    assert task.run_once(AtOnceTurn(made.daemon)).figures == {"put_keys": 1}
    assert (below.get(lost).data, len(opened)) == (whole, 2)
    assert not task.run_once(AtOnceTurn(made.daemon)).more
    looking.later()
    assert looking.damaged() == {}
    made.clock.advance(MEND_AGAIN_SECONDS)
    assert task.due(made.clock.monotonic())
    assert not task.run_once(AtOnceTurn(made.daemon)).more
    assert len(opened) == 2, "where none is gone the copy is not asked"
