"""What ``tiered status`` counts piece by piece behind a checkpoint is what the whole fold says, references to objects too."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.kit.assemble import one_after_another
from tests.kit.savedhistory import SavedHistory
from tiered.archive.checkpoint import pieces
from tiered.archive.checkpoint.pieces import all_pieces
from tiered.archive.rewrite.merge import MergeOptions
from tiered.archive.rewrite.mergeplan import windows
from tiered.archive.rewrite.seal import SealOptions
from tiered.archive.rewrite.sealplan import sealable
from tiered.archive.rewrite.waiting import Waiting
from tiered.archive.state.forgotten import kept_back
from tiered.archive.state.keys import CLOSED, GAP, HEAD, RUN, object_key, offset_key, queue_key, topic_key
from tiered.archive.state.layout import RUN_RECORD_DTYPE
from tiered.archive.state.listing import list_topics
from tiered.archive.state.scope import Scope
from tiered.archive.state.tallies import count, lite_tally, totals
from tiered.archive.state.values import ObjectState, pack_object
from tiered.archive.state.view import ArchiveState
from tiered.cli.figures import figures
from tiered.metadata.memory import MemoryStore
from tiered.model import MessageQueue, ObjectRef
from tiered.settings import ONE_DAY_MS, Settings

LATE_MS = 40_000 * ONE_DAY_MS
SETTINGS = Settings()


@pytest.fixture(scope="module", params=[3, 11])
def grown(request: pytest.FixtureRequest) -> SavedHistory:
    names = [MessageQueue(f"topic-{number:02}", queue_id) for number in range(12) for queue_id in (0, 3)]
    made = SavedHistory(request.param, (70,), 71, names=names, forgets=True)
    made.grow(60)
    return made


@pytest.fixture
def state(grown: SavedHistory, monkeypatch: pytest.MonkeyPatch) -> ArchiveState:
    one_after_another(monkeypatch)
    monkeypatch.setattr(pieces, "LARGE_PIECE_BYTES", 1)
    return ArchiveState(grown.open(Scope({})).snapshot())


def test_pieces_say_what_the_whole_fold_says(grown: SavedHistory, state: ArchiveState) -> None:
    whole = ArchiveState(grown.history.store)
    topics = list(list_topics(whole.view))
    gone = {topic_key(topic.topic) for topic in topics[::2]}
    assert len(list(all_pieces(state.view))) > 5
    found = figures(state, SETTINGS, LATE_MS, gone=gone, by_topic=True)
    assert (found.queues, found.lite) == (totals(whole.view), lite_tally(whole.view))
    assert (found.gaps, found.closed_parts) == (count(whole.view, GAP), count(whole.view, CLOSED))
    assert found.topics == {topic.topic: topic.messages for topic in topics}
    empty = [queue.queue.topic for queue in whole.queues() if not queue.runs]
    assert (found.empty_queues, found.waiting_queues) == (
        len(empty),
        sum(topic_key(t) in gone for t in empty),
    )
    assert found.kept == dict(kept_back(whole.view))
    assert sum(kept.lost + kept.closed + kept.gaps for kept in found.kept.values()) > 0
    assert found.merging == windows(whole, MergeOptions.of(SETTINGS).bounds) != []
    assert found.sealing == sealable(whole, SealOptions.of(SETTINGS).bounds, LATE_MS) != []
    assert found.objects == list(whole.objects())


def test_both_folds_are_not_alike_in_their_references(grown: SavedHistory, state: ArchiveState) -> None:
    """Or the one before would find nothing."""
    partial, whole = (list(s.objects()) for s in (state, ArchiveState(grown.history.store)))
    assert partial != whole
    assert [o.ref for o in partial if o.path] == [o.ref for o in whole if o.path]


def test_runs_are_counted_where_a_fold_of_some_queues_cannot(grown: SavedHistory) -> None:
    """Inline data below the floor that no run lies in is forgotten; two neighbours of level 1 become one run."""
    head = ArchiveState(grown.history.store).head()
    assert head is not None
    store = MemoryStore()
    items = [
        ObjectState(ObjectRef(seq, 0), path, bytes(16), level, 10, {}, 0, None)
        for seq, path, level in ((3, "", 0), (4, "", 0), (6, "", 0), (7, "data/a", 1), (8, "data/b", 0))
    ]
    runs = np.zeros(3, RUN_RECORD_DTYPE)
    runs["commit_seq"], runs["rows"], runs["flat_end"], runs["closed_by"] = (4, 7, 7), 1, 100, -1
    runs["start"], runs["end"] = (0, 1, 2), (1, 2, 3)
    queue = queue_key(MessageQueue("T", 0))
    store.put_many(
        [
            (HEAD, replace(head, floor=5).pack()),
            *((object_key(item.ref), pack_object(item)) for item in items),
            *((offset_key(RUN, queue, 1, at), run.tobytes()) for at, run in enumerate(runs)),
        ]
    )
    state, bounds = ArchiveState(store), replace(MergeOptions.of(SETTINGS).bounds, growth=2)
    waiting = Waiting(state, bounds, SealOptions.of(SETTINGS).bounds, LATE_MS)
    waiting.add(store)
    assert [(o.ref.commit_seq, o.references) for o in waiting.objects()] == [(4, 1), (6, 0), (7, 2), (8, 0)]
    found = waiting.merging()
    assert [(window.level, window.runs) for window in found] == [(0, 1), (1, 2)]
    assert found == windows(state, bounds)
