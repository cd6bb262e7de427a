"""Listing all queues behind a checkpoint, a stretch of topics after the other: the whole answer, and few shards for a page."""

from __future__ import annotations

import random
from functools import partial
from itertools import islice
from operator import methodcaller
from string import ascii_letters

import pytest

from tests.kit.assemble import one_after_another
from tests.kit.litehistories import LiteHistory
from tests.kit.savedhistory import KEYS, SavedHistory
from tiered.archive.checkpoint import pieces, shardview
from tiered.archive.checkpoint.partial import PartialView
from tiered.archive.checkpoint.pieces import in_pieces
from tiered.archive.state.aliases import lite_queues
from tiered.archive.state.keys import LITE_QUEUE, QUEUE, RUN, topic_key
from tiered.archive.state.listing import list_queues, list_topics
from tiered.archive.state.scope import OF_QUEUES, Scope
from tiered.codec.format.edits import EditKind
from tiered.metadata.base import MetadataView
from tiered.model import MessageQueue

HOSTILE = (
    "", "A", "AB", "A\0", "A\0\x01", "A\0\xff", "A\x01", "A\x02", "Ä", "%RETRY%A", "B" * 127, "z", "\U0010ffff",
)  # fmt: skip
PREFIXES = ("", "A", "A\0", "Ä", "%RETRY%", "zz", "none")


@pytest.fixture(scope="module")
def grown() -> SavedHistory:
    """Queues that are trimmed, emptied, forgotten and begun anew before the checkpoint and behind it; and a new topic."""
    names = [MessageQueue(topic, queue_id) for topic in HOSTILE for queue_id in (0, 7, 2**31 - 1)]
    made = SavedHistory(5, (70,), 71, names=names[:-3], forgets=True)
    made.history.names += names[-3:]
    made.grow(50)
    behind = {b.kind for c in made.history.commits[made.manifests[-1].seq + 1 :] for b in c.edits}
    assert behind >= {
        EditKind.NEW_GENERATION, EditKind.APPEND_RUN, EditKind.REWIND, EditKind.TRIM_QUEUE, EditKind.REPLACE_RUNS,
        EditKind.FORGET_QUEUES, EditKind.RETIRE,
    }  # fmt: skip
    return made


@pytest.fixture
def archive(grown: SavedHistory, monkeypatch: pytest.MonkeyPatch) -> SavedHistory:
    one_after_another(monkeypatch)
    monkeypatch.setattr(pieces, "PIECE_BYTES", 1)  # each is a shard
    return grown.copy()


def opened(archive: SavedHistory) -> MetadataView:
    view = archive.open(Scope({})).snapshot()
    archive.loaded()
    return view


@pytest.mark.parametrize("prefix", PREFIXES)
def test_all_pieces_together_are_the_whole_answer(archive: SavedHistory, prefix: str) -> None:
    whole, view = archive.history.store, opened(archive)
    for after in (None, "", "A", "A\0", "B", "\U0010ffff"):
        topics = partial(list_topics, prefix=prefix, after=after)
        assert list(in_pieces(view, topics, prefix=prefix, after=after)) == list(topics(whole))
    for place in (None, MessageQueue("A", 0), MessageQueue("A\0", 7), MessageQueue("B", 1)):
        queues = partial(list_queues, prefix=prefix, after=place)
        after = None if place is None else place.topic
        assert list(in_pieces(view, queues, prefix=prefix, after=after)) == list(queues(whole))


def test_all_pieces_together_are_the_whole_fold(archive: SavedHistory) -> None:
    whole, view = archive.history.store, opened(archive)
    for kind in sorted(OF_QUEUES):
        assert list(in_pieces(view, methodcaller("iterate", kind))) == list(whole.iterate(kind))


def test_a_stretch_is_walked_as_its_queues_are_looked_up(archive: SavedHistory) -> None:
    whole = archive.history.store
    keys = [key[1:] for key, _ in whole.iterate(QUEUE)]
    for first, end in (("", "A\0"), ("A", "B" * 127), ("A\0\xff", None), ("zz", None)):
        scope = Scope.between(topic_key(first), None if end is None else topic_key(end))
        inside = [key for key in keys if scope.has_key(key)]
        assert [key[1:] for key, _ in scope.walk(whole.iterate, QUEUE)] == inside
        assert inside == [key for key in keys if scope.covers(RUN + key)]
        assert 0 < len(inside) < len(keys)
        assert (Scope.queue("B", 1) | scope).everything


def test_pieces_are_many_and_each_topic_lies_in_one(archive: SavedHistory) -> None:
    asked: list[MetadataView] = []
    names: list[list[str]] = []

    def listed(piece: MetadataView) -> list[str]:
        asked.append(piece)
        names.append([topic.topic for topic in list_topics(piece)])
        return names[-1]

    found = list(in_pieces(opened(archive), lambda piece: iter(listed(piece))))
    assert found == [topic.topic for topic in list_topics(archive.history.store)]
    assert len(found) == len(set(found))
    assert len([some for some in names if some]) > 3


def test_a_page_loads_the_shards_of_its_topics_alone(archive: SavedHistory) -> None:
    """Shards of queues behind the page's end stay where they are, though commits changed queues of all of them."""
    view, whole = opened(archive), archive.history.store
    page = list(islice(in_pieces(view, list_topics), 2))
    assert page == list(islice(list_topics(whole), 2))
    touched = archive.loaded()
    behind = topic_key(page[-1].topic)[:-1] + b"\x02"
    of_queues = [shard for shard in archive.manifests[-1].shards if shard.first_key[:1] == QUEUE]
    far = [shard for shard in of_queues if shard.first_key > QUEUE + behind][2:]
    assert len(far) > 3
    assert not touched & {KEYS.key(shard.path) for shard in far}


def test_a_page_begins_in_the_piece_of_its_topic(archive: SavedHistory) -> None:
    view, after = opened(archive), "B" * 127
    topics = partial(list_topics, after=after)
    assert list(in_pieces(view, topics, after=after)) == list(topics(archive.history.store)) != []
    touched = archive.loaded()
    before = [shard for shard in archive.manifests[-1].shards if shard.first_key[:1] == QUEUE]
    before = [shard for shard in before if shard.last_key < QUEUE + topic_key(after)]
    assert len(before) > 3
    assert not touched & {KEYS.key(shard.path) for shard in before}


def test_damage_met_on_the_way_is_gone_around(archive: SavedHistory) -> None:
    view = opened(archive)
    assert isinstance(view, PartialView)
    walk = in_pieces(view, list_topics)
    first = next(walk)
    archive.damage(archive.manifests[-1])
    assert [first, *walk] == list(list_topics(archive.history.store))


def test_what_lies_at_a_checkpoint_is_asked_as_it_is(archive: SavedHistory) -> None:
    archive.save()
    asked: list[MetadataView] = []
    for view in (opened(archive), archive.history.store):
        asked.clear()
        found = list(in_pieces(view, lambda piece: (asked.append(piece), list_topics(piece))[1]))
        assert asked == [view]
        assert found == list(list_topics(archive.history.store))


def test_very_many_keys_are_looked_up_as_a_few(
    archive: SavedHistory, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.save()
    whole = archive.history.store
    there = [key for key, _ in whole.iterate(QUEUE)]
    keys = [*there, *(key + b"\0" for key in there), *(key[:-1] for key in there), QUEUE, QUEUE + b"\xff"]
    for many in (1, len(keys) + 1):
        monkeypatch.setattr(shardview, "MANY", many)
        view = archive.open().snapshot()
        for _ in range(2):  # made, and then kept
            assert view.get_many(keys) == whole.get_many(keys)


def test_pages_of_lite_queues_are_cut_where_theirs_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few shards for a page of them; all of them are found."""
    one_after_another(monkeypatch)
    monkeypatch.setattr(pieces, "PIECE_BYTES", 1)
    archive = SavedHistory(7, (40,), 41, history=LiteHistory(random.Random(7), lites=ascii_letters, topics=6))
    archive.grow(20)
    whole, view = archive.history.store, opened(archive)
    every = list(lite_queues(whole))
    page = list(islice(in_pieces(view, lite_queues, kind=LITE_QUEUE), 2))
    assert page == every[:2]
    of_lite = [s for s in archive.manifests[-1].shards if s.first_key[:1] == LITE_QUEUE]
    touched = archive.loaded()
    assert len(of_lite) > 3
    assert len([s for s in of_lite if KEYS.key(s.path) in touched]) <= 2
    assert list(in_pieces(view, lite_queues, kind=LITE_QUEUE)) == every
    after = every[len(every) // 2].queue
    listed = partial(lite_queues, after=after)
    assert list(in_pieces(view, listed, after=after.topic, kind=LITE_QUEUE)) == list(listed(whole)) != []
