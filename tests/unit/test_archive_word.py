"""The newest commits are lost: nothing names them but their writer's word, and no log is then taken for a shorter one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit.assemble import KEYS, Counting, Heard, assemble, live_rows, open_log, put
from tests.kit.pipeline import Crafted
from tiered.archive.checkpoint.store import write_checkpoint
from tiered.archive.keys import BEAT_PREFIX
from tiered.archive.log.beat import Beats
from tiered.archive.log.marks import progress_edit
from tiered.archive.log.word import word_behind
from tiered.archive.log.writer import Claim, CommitLog
from tiered.archive.read.find import find_identity
from tiered.archive.read.reader import ArchiveReader
from tiered.archive.read.verify import Verifier
from tiered.archive.state.values import Head
from tiered.clock import ManualClock
from tiered.codec.summedline import decode_line, encode_line
from tiered.errors import Corrupt, NotFound, Refused
from tiered.metadata.memory import MemoryStore
from tiered.provider.base import Stored
from tiered.repair.mend import Mender
from tiered.settings import MIB


def claim(log: CommitLog) -> Head:
    return log.claim(Claim(lineage=1, host="h"), log.resending.clock.now_ms(), before_try=lambda head: None)


def more(log: CommitLog, commits: int) -> None:
    head = log.tip
    assert head is not None
    at = head.progress[1].physical_offset if 1 in head.progress else 0
    for number in range(commits):
        put(log, progress_edit(1, [(at + 100 * (number + 1), 7, 0)]))


def goodbye(log: CommitLog, clock: ManualClock) -> str:
    Beats(log, clock, 20).goodbye()
    return [stored.key for stored in log.reader.provider.list(KEYS.key(BEAT_PREFIX))][-1]


def ended(store: Counting, clock: ManualClock, commits: int = 4, seed: int = 1) -> CommitLog:
    """A log of one epoch, commits 0 to ``commits``, whose writer has ended."""
    log = open_log(store, clock, seed=seed)
    claim(log)
    more(log, commits)
    goodbye(log, clock)
    return log


def opened(store: Counting) -> Head | None:
    return ArchiveReader(store, KEYS, MemoryStore(), table_cache_bytes=1 << 20).at().head


@pytest.mark.parametrize(
    ("lost", "expected"), [((4,), "commit 4"), ((3, 4), "commits 3 to 4"), (range(5), "commits 0 to 4")]
)
def test_the_newest_commits_are_never_lost_in_silence(
    store: Counting, clock: ManualClock, lost: tuple[int, ...], expected: str
) -> None:
    ended(store, clock)
    for seq in lost:
        store.delete(KEYS.commit(seq))
    with pytest.raises(
        Corrupt, match=f"commits are missing from the log.*expected={expected}, found=nothing"
    ):
        opened(store)
    with pytest.raises(Corrupt, match="missing from the log"):
        open_log(store, clock)


def test_a_beat_says_so_too_and_only_of_what_was_acknowledged(store: Counting, clock: ManualClock) -> None:
    log = open_log(store, clock)
    claim(log)
    more(log, 2)
    beats = Beats(log, clock, 20)
    clock.advance(20)
    beats.step()
    clock.advance(20)
    beats.step()
    word = word_behind(log.reader, -1)
    assert word is not None
    head = log.tip
    assert head is not None
    assert (word.seq, word.commit_id, word.progress) == (2, head.commit_id, head.progress[1])
    more(log, 1)
    assert opened(store) == log.tip, "a beat that is older than the newest commit says nothing"
    store.delete(KEYS.commit(3))
    head = opened(store)
    assert head is not None
    assert head.seq == 2
    store.delete(KEYS.commit(2))
    with pytest.raises(Corrupt, match="expected=commit 2,"):
        opened(store)


@pytest.mark.parametrize(
    "what", ["format 1 without a word", "bad sum", "empty", "huge", "no number", "another archive"]
)
def test_a_beat_that_cannot_be_read_says_nothing(store: Counting, clock: ManualClock, what: str) -> None:
    log = ended(store, clock)
    key = next(stored.key for stored in store.list(KEYS.key(BEAT_PREFIX)))
    fields = decode_line(bytes(store.get(key).data))
    line = {
        "format 1 without a word": encode_line({"format": 1, "host": "h", "written_ms": 5}),
        "bad sum": json.dumps(fields).encode() + b"\n00000000\n",
        "empty": b"",
        "huge": encode_line({**fields, "host": "h" * 10_000}),
        "no number": encode_line({**fields, "seq": -1}),
        "another archive": encode_line({**fields, "archive_id": "00" * 16}),
    }[what]
    store.delete(KEYS.commit(4))
    assert word_behind(log.reader, 3) is not None
    store.put(key, [line], create_only=False)
    head = opened(store)
    assert head is not None
    assert head.seq == 3


def test_a_beat_that_went_while_it_was_looked_at_is_looked_for_again(
    store: Counting, clock: ManualClock
) -> None:
    log = ended(store, clock)
    store.say(NotFound("no such key"))
    assert word_behind(log.reader, 3) is not None
    store.say(NotFound("no such key"), NotFound("no such key"))
    assert word_behind(log.reader, 3) is None


def test_a_word_of_another_history_says_nothing(store: Counting, clock: ManualClock) -> None:
    """An epoch that a bucket lost, with all its commits, has its number used again; so has a later one, in the end."""
    log = ended(store, clock)
    key = next(stored.key for stored in store.list(KEYS.key(BEAT_PREFIX)))
    said = bytes(store.get(key).data)
    for seq in range(5):
        store.delete(KEYS.commit(seq))
    store.delete(key)
    clock.advance(5)
    again = open_log(store, clock, seed=3)
    claim(again)
    more(again, 1)
    store.put(key, [said])
    assert opened(store) == again.tip
    store.delete(key)
    claim(again)
    store.put(key, [said])
    assert opened(store) == again.tip, "nor one of an epoch before"
    assert log.writer_id == again.writer_id


def test_a_word_of_later_epochs_that_were_lost_whole_goes_with_the_next_claim(
    store: Counting, clock: ManualClock
) -> None:
    log = ended(store, clock)
    for _ in range(2):
        claim(log)
        more(log, 1)
    goodbye(log, clock)
    for seq in range(5, 9):
        store.delete(KEYS.commit(seq))
    fresh = open_log(store, clock, follow=False)
    assert fresh.read_back.forget_lost_end(MemoryStore(), lambda end, seen: True)
    fresh.follow()
    assert claim(fresh).epoch == 2
    assert opened(store) == fresh.tip


def test_an_epoch_that_is_lost_with_its_claim(store: Counting, clock: ManualClock) -> None:
    log = ended(store, clock)
    claim(log)
    goodbye(log, clock)
    store.delete(KEYS.commit(5))
    with pytest.raises(Corrupt, match="expected=commit 5,"):
        opened(store)


def test_a_start_archives_again_what_the_word_says_and_the_broker_has(
    store: Counting, clock: ManualClock
) -> None:
    """Without any local state; else it is the local fold that knows."""
    ended(store, clock)
    for seq in (3, 4):
        store.delete(KEYS.commit(seq))
    heard, asked = Heard(), list[tuple[int, int, int]]()
    fresh = open_log(store, clock, events=heard, follow=False, writer=b"B" * 16)
    assert not fresh.read_back.forget_lost_end(
        MemoryStore(),
        lambda end, seen: asked.append((end.seq, seen.seq, seen.progress[1].physical_offset)) or False,
    )
    assert asked == [(2, 4, 400)]
    with pytest.raises(Corrupt, match="expected=commits 3 to 4"):
        fresh.follow()
    assert fresh.read_back.forget_lost_end(MemoryStore(), lambda end, seen: True)
    assert [error.fields["expected"] for error in heard.vanished] == ["commits 3 to 4"]
    head = fresh.follow()
    assert head is not None
    assert head.seq == 2
    assert fresh.foreign_writer(head, 60_000).rest_ms == 0, "it had said goodbye"
    claim(fresh)
    assert opened(store) == fresh.tip
    assert word_behind(fresh.reader, 3) is None, "its word counts no more"


class Scene:
    """A broker and its archive of three flushes, whose writer has ended."""

    def __init__(self, store: Counting, clock: ManualClock, directory: Path, *, inline: bool) -> None:
        self.store, self.clock, self.local = store, clock, MemoryStore()
        self.broker = Crafted(directory, file_bytes=1 << 17)
        self.options = {"block_bytes": 4096, **({} if inline else {"inline_bytes": 0})}
        daemon = self.start(1, self.local)
        for flush in range(3):
            for number in range(6):
                self.broker.send(queue_id=number % 2, body=b"%d-%d" % (flush, number) * 20)
            daemon.settle()
        goodbye(daemon.log, clock)
        daemon.close()
        head = opened(store)
        assert head is not None
        self.last = head.seq
        self.rows = self.read()

    def start(self, seed: int, local: MemoryStore | None = None):  # type: ignore[no-untyped-def]
        return assemble(
            self.broker.store, self.store, self.clock, seed=seed, metadata=local, dispatch=self.options
        )

    def read(self) -> dict[object, list[tuple[int, int, bytes]]]:
        view = ArchiveReader(self.store, KEYS, MemoryStore(), table_cache_bytes=1 << 20).at()
        assert Verifier(view).run(deep=True).damage == []
        return dict(live_rows(view.state, view.objects))

    def mender(self, local: MemoryStore | None = None) -> Mender:
        identity = find_identity(self.store, KEYS)
        return Mender(self.store, KEYS, identity, local, lambda n: b"r" * n, table_cache_bytes=MIB)


@pytest.mark.parametrize("inline", [True, False])
@pytest.mark.parametrize("count", [1, 2])
def test_repair_mends_the_newest_commits_or_says_what_is_lost(
    store: Counting, clock: ManualClock, tmp_path: Path, *, inline: bool, count: int
) -> None:
    scene = Scene(store, clock, tmp_path, inline=inline)
    lost = list(range(scene.last + 1 - count, scene.last + 1))
    for seq in lost:
        store.delete(KEYS.commit(seq))
    mender = scene.mender()
    steps = mender.plan()
    assert [step.seq for step in steps] == lost
    mender.mend(steps)
    head = opened(store)
    assert head is not None
    assert head.seq == scene.last
    if inline:
        (gap,) = [part for step in steps for part in step.lost]
        assert gap.queue is None
        assert {row for rows in scene.read().values() for row in rows} < {
            row for rows in scene.rows.values() for row in rows
        }
    else:
        assert scene.read() == scene.rows, "of its objects"
    scene.broker.send(queue_id=0, body=b"afterwards")
    daemon = scene.start(9)
    daemon.settle()
    daemon.close()
    assert opened(store) is not None
    assert sum(map(len, scene.read().values())) == sum(map(len, scene.rows.values())) + 1 - 6 * count * inline


def test_the_daemon_that_saw_them_folds_the_repaired_log(
    store: Counting, clock: ManualClock, tmp_path: Path
) -> None:
    scene = Scene(store, clock, tmp_path, inline=True)
    store.delete(KEYS.commit(scene.last))
    reader = ArchiveReader(store, KEYS, scene.local, table_cache_bytes=1 << 20)
    with pytest.raises(Refused, match="ends before"):
        reader.at()
    mender = scene.mender()
    mender.mend(mender.plan())
    head = reader.at().head
    assert head is not None
    assert head.seq == scene.last
    assert [gap.reason for gap in reader.view.state.phys_gaps()]


def test_a_word_of_an_opening_that_was_lost_says_nothing_of_the_one_that_has_its_number(
    store: Counting, clock: ManualClock
) -> None:
    """The claim that opened the epoch again has not removed it yet."""
    log = ended(store, clock)
    claim(log)
    more(log, 1)
    key = goodbye(log, clock)
    said = bytes(store.get(key).data)
    for seq in range(3, 7):
        store.delete(KEYS.commit(seq))
    fresh = open_log(store, clock, follow=False, writer=b"B" * 16)
    assert fresh.read_back.forget_lost_end(MemoryStore(), lambda end, seen: True)
    fresh.follow()
    assert claim(fresh).seq == 3
    store.put(key, [said])
    assert opened(store) == fresh.tip


def test_what_is_archived_again_is_all_that_the_word_says(store: Counting, clock: ManualClock) -> None:
    """The local fold is older: its file is saved now and then."""
    log = open_log(store, clock)
    claim(log)
    more(log, 2)
    local = MemoryStore()
    ArchiveReader(store, KEYS, local, table_cache_bytes=1 << 20).at()
    more(log, 2)
    goodbye(log, clock)
    for seq in (2, 3, 4):
        store.delete(KEYS.commit(seq))
    fresh, asked = open_log(store, clock, follow=False), list[tuple[int, int, int]]()
    assert not fresh.read_back.forget_lost_end(
        local, lambda end, seen: asked.append((end.seq, seen.seq, seen.progress[1].physical_offset)) or False
    )
    assert asked == [(1, 4, 400)]


def test_a_later_beat_that_says_the_same_was_answered_too(store: Counting, clock: ManualClock) -> None:
    """Its writer lived on while another one waited."""
    log = ended(store, clock)
    store.delete(KEYS.commit(4))
    fresh = open_log(store, clock, follow=False, writer=b"B" * 16)
    assert fresh.read_back.forget_lost_end(MemoryStore(), lambda end, seen: True)
    beats = Beats(log, clock, 20)
    beats.goodbye()
    beats.goodbye()
    fresh.follow()
    claim(fresh)
    assert opened(store) == fresh.tip


def test_a_look_that_takes_days_takes_nothing_for_lost_that_was_collected(
    store: Counting, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, listing, waited = ended(store, clock), store.list, list[str]()

    def slow(prefix: str, **how: Any) -> Iterator[Stored]:
        if prefix == KEYS.key(BEAT_PREFIX) and not waited:
            waited.append(prefix)
            more(log, 3)
            beats = Beats(log, clock, 20)
            beats.goodbye()
            beats.goodbye()
            write_checkpoint(store, KEYS, log.store.snapshot(), None, lambda: KEYS.shard(1, b"s" * 16))
            for seq in (5, 6):
                store.delete(KEYS.commit(seq))
        return listing(prefix, **how)

    monkeypatch.setattr(store, "list", slow)
    assert opened(store) == log.tip
    assert waited


def test_repair_hears_no_word_about_commits_before_the_lost_one(
    store: Counting, clock: ManualClock, tmp_path: Path
) -> None:
    """The local fold knows of more than the last beat: a writer that ends without a goodbye."""
    scene, local = Scene(store, clock, tmp_path, inline=False), MemoryStore()
    daemon = scene.start(5, local)
    scene.broker.send(body=b"before the beat")
    daemon.settle()
    beats = Beats(daemon.log, clock, 20)
    for _ in range(2):
        clock.advance(20)
        beats.step()
    word = word_behind(daemon.log.reader, -1)
    assert word is not None
    for flush in range(3):
        scene.broker.send(queue_id=flush % 2, body=b"behind it, %d" % flush)
        daemon.settle()
    tip = daemon.log.tip
    daemon.close()
    assert tip is not None
    assert tip.seq > word.seq + 1
    rows = scene.read()
    for seq in range(word.seq, tip.seq + 1):
        store.delete(KEYS.commit(seq))
    mender = scene.mender(local)
    mender.mend(mender.plan())
    head = opened(store)
    assert head is not None
    assert head.seq == tip.seq
    assert scene.read() == rows


@pytest.mark.parametrize("inline", [True, False])
def test_repair_believes_the_local_fold_beside_the_word(
    store: Counting, clock: ManualClock, tmp_path: Path, *, inline: bool
) -> None:
    """The word has the mark of the lost commit itself: to the local fold it says nothing new."""
    scene = Scene(store, clock, tmp_path, inline=inline)
    store.delete(KEYS.commit(scene.last))
    (step,) = scene.mender(scene.local).plan()
    assert (step.source, step.exact, step.fold_again) == (
        (None, False, True) if inline else ("the local state", True, False)
    )
