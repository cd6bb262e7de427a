"""Commits are seen in the bucket before the hold lets go; what is not there is put again, the very same."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pytest

from tests.kit.assemble import KEYS, Counting, Heard, memory, open_log, put
from tiered.archive.log import readback
from tiered.archive.log.marks import progress_edit
from tiered.archive.log.planned import PlannedCommit
from tiered.archive.log.readback import READ_BACK_BYTES, READ_BACK_COMMITS, READ_BACK_SECONDS, CommitReadBack
from tiered.archive.log.writer import Claim, CommitLog
from tiered.clock import ManualClock
from tiered.codec.types import Buffer
from tiered.errors import Corrupt, Fenced, Refused
from tiered.metadata.memory import MemoryStore
from tiered.model import PhysicalOffset
from tiered.provider.base import Provider, Stored
from tiered.provider.wrap import Wrapped


class Portal(Wrapped):
    """Answers the puts of these commits as a store does, and keeps nothing; each so many times."""

    def __init__(self, inner: Provider) -> None:
        super().__init__(inner)
        self.lies: dict[str, int] = {}

    def lie(self, seqs: Iterable[int], times: int = 1) -> None:
        self.lies.update({KEYS.commit(seq): times for seq in seqs})

    def put(self, key: str, parts: Sequence[Buffer], *, create_only: bool = True) -> Stored:
        left = self.lies.get(key, 0)
        if left:
            self.lies[key] = left - 1
            now = 1_700_000_000_000
            return Stored(key, sum(len(part) for part in parts), now, now)
        return super().put(key, parts, create_only=create_only)


class Scene:
    """A writer behind a portal, and what its hold let go."""

    def __init__(self) -> None:
        self.clock, self.heard = ManualClock(), Heard()
        self.bucket: Counting = memory(self.clock)
        self.portal = Portal(self.bucket)
        self.log = open_log(self.portal, self.clock, events=self.heard)
        self.released: list[int] = []
        self.log.claim(Claim(lineage=1, host="h"), 0, before_try=lambda head: None)
        self.made: list[PlannedCommit] = []

    def commit(self, count: int = 1) -> None:
        for _ in range(count):
            at = 100 * (len(self.made) + 1)
            self.made.append(put(self.log, progress_edit(1, [(at, at, 0)])))
            self.log.read_back.release(self.let_go, PhysicalOffset(at))

    def let_go(self, up_to: PhysicalOffset) -> None:
        self.released.append(up_to)

    def stored(self, seq: int) -> bytes:
        return bytes(self.bucket.inner.get(KEYS.commit(seq)).data)

    def reader(self) -> CommitLog:
        return open_log(self.bucket.inner, self.clock)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_the_hold_lets_go_of_what_was_seen_in_one_listing(scene: Scene) -> None:
    scene.commit(3)
    assert scene.released == []
    scene.bucket.calls.clear()
    scene.log.read_back.step_if_due()
    assert scene.bucket.calls == []
    scene.clock.advance(READ_BACK_SECONDS)
    scene.log.read_back.step_if_due()
    assert scene.bucket.calls == [("list", KEYS.commit_prefix)]
    assert scene.released == [300]
    scene.log.read_back.step()
    assert len(scene.bucket.calls) == 1, "nothing is looked for twice"


@pytest.mark.parametrize("lost", [(2,), (2, 3), (3, 4), (4,)])
def test_what_was_answered_for_and_is_not_there_is_put_again(scene: Scene, lost: tuple[int, ...]) -> None:
    """The end of the log or its middle: the same bytes under the same numbers."""
    scene.portal.lie(lost)
    scene.commit(4)
    scene.log.read_back.step()
    assert [seq for seq in lost if scene.stored(seq) != b"".join(scene.made[seq - 1].parts)] == []
    assert [error.fields["key"] for error in scene.heard.vanished] == [KEYS.commit(seq) for seq in lost]
    assert scene.released == [400]
    assert scene.reader().tip == scene.log.tip


def test_commits_behind_the_logs_floor_are_not_looked_for(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Collection has removed them, if the host slept for days: a writer that sought them would never go on."""
    scene.portal.lie([1, 2], times=99)
    monkeypatch.setattr(scene.log.read_back, "_floor", lambda: 3)
    scene.commit(4)
    scene.log.read_back.step()
    assert (scene.released, scene.heard.vanished) == ([400], [])


def test_as_long_as_the_store_lies_nothing_goes_on(scene: Scene) -> None:
    scene.portal.lie([2], times=4)
    scene.heard.on_resend = lambda error: scene.released.append(-1)
    scene.commit(2)
    scene.log.read_back.step()
    assert scene.released == [-1, -1, -1, 200]
    assert scene.reader().tip == scene.log.tip


def test_bytes_in_hand_are_bounded(scene: Scene) -> None:
    scene.commit(READ_BACK_COMMITS - 1)  # and the epoch's
    assert scene.bucket.calls.count(("list", KEYS.commit_prefix)) == 3, "opened, claimed, and looked for"
    assert scene.released == [100 * (READ_BACK_COMMITS - 2)]
    for number in range(2):
        with scene.log.next_place() as place:
            edit = progress_edit(1, [(10**6 + number, 0, 0)])
            large = scene.log.plan(place, [edit], [bytes(READ_BACK_BYTES // 2)])
        scene.log.put(large)
    assert scene.bucket.calls.count(("list", KEYS.commit_prefix)) == 4


def test_a_broker_that_cut_its_log_is_heard_at_once(scene: Scene) -> None:
    scene.commit(3)
    scene.log.read_back.step()
    scene.log.read_back.release(scene.let_go, PhysicalOffset(200))
    assert scene.released == [300, 200]


def test_a_place_that_another_writer_took_meanwhile_is_a_fence(scene: Scene) -> None:
    scene.portal.lie([3])
    scene.commit(3)
    other = open_log(scene.bucket.inner, scene.clock, writer=b"B" * 16, seed=7, store=MemoryStore())
    other.claim(Claim(lineage=1, host="other"), 0, before_try=lambda head: None)
    with pytest.raises(Fenced, match="another writer"):
        scene.log.read_back.step()
    assert scene.released == []


def test_where_more_is_gone_than_is_in_hand_the_process_ends(scene: Scene) -> None:
    """What is missing before it cannot be put again here: the next start mends that."""
    scene.commit(2)
    scene.log.read_back.step()
    scene.commit(2)
    for seq in (2, 3):
        scene.bucket.inner.delete(KEYS.commit(seq))
    with pytest.raises(Corrupt, match="missing from the log"):
        scene.log.read_back.step()
    assert scene.released == [200]


def test_a_process_that_ends_looks_once_and_waits_for_no_store(scene: Scene) -> None:
    scene.commit(1)
    scene.portal.lie([1], times=2)
    scene.bucket.inner.delete(KEYS.commit(1))
    scene.log.read_back.step_once()
    assert (scene.released, len(scene.heard.vanished), scene.heard.resent) == ([], 1, [])
    scene.log.read_back.step_once()
    scene.log.read_back.step_once()
    assert scene.released == [100]


def started_again(scene: Scene) -> CommitReadBack:
    """A new process with the same local state, which has not folded yet."""
    store = scene.log.store
    return open_log(scene.bucket, scene.clock, store=store, events=scene.heard, follow=False).read_back


def test_a_start_begins_anew_where_the_bucket_ends_if_the_broker_has_the_rest(scene: Scene) -> None:
    scene.commit(4)
    for seq in (3, 4):
        scene.bucket.inner.delete(KEYS.commit(seq))
    again, asked = started_again(scene), list[tuple[int, int]]()
    assert not again.forget_lost_end(
        scene.log.store, lambda end, seen: asked.append((end.seq, seen.seq)) or False
    )
    with pytest.raises(Refused, match="ends before"):
        scene.log.reader.fold(scene.log.store)
    assert (asked, scene.heard.vanished) == ([(2, 4)], [])
    assert again.forget_lost_end(scene.log.store, lambda end, seen: True)
    head = scene.log.reader.fold(scene.log.store)
    assert head is not None
    assert head.seq == 2
    (vanished,) = scene.heard.vanished
    assert vanished.fields["expected"] == "commits 3 to 4"
    assert not again.forget_lost_end(scene.log.store, lambda end, seen: True), "it agrees with the bucket"


def test_more_than_was_ever_unseen_is_a_bucket_that_lost_what_it_had(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.commit(4)
    for seq in (3, 4):
        scene.bucket.inner.delete(KEYS.commit(seq))
    monkeypatch.setattr(readback, "READ_BACK_COMMITS", 1)
    assert not started_again(scene).forget_lost_end(scene.log.store, lambda end, seen: True)


def test_a_start_tells_of_commits_that_are_gone_before_later_ones(scene: Scene) -> None:
    scene.commit(4)
    again, head = started_again(scene), scene.log.tip
    scene.bucket.calls.clear()
    again.look_for_holes(head)
    assert (scene.bucket.calls, scene.heard.vanished) == ([("list", KEYS.commit_prefix)], [])
    scene.bucket.inner.delete(KEYS.commit(2))
    scene.bucket.inner.put(KEYS.commit(3), [b""], create_only=False)
    again.look_for_holes(head)
    (error,) = scene.heard.vanished
    assert (error.fields["expected"], error.hint) == (
        "commits 2 to 3", "run tiered repair while the broker still has their messages",
    )  # fmt: skip
    again.release(scene.let_go, PhysicalOffset(400))
    again.step()
    assert scene.released == [], "the hold may have their messages alone"
    for seq in (2, 3):
        scene.bucket.inner.put(KEYS.commit(seq), scene.made[seq - 1].parts, create_only=False)
    again.step()
    assert scene.released == [400]
