"""Orders on the way in that nothing else would show: what is looked at first, what is put first, what is linked again."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.kit.assemble import Assembly, Counting, assemble, memory, open_log, progress_of, put
from tests.kit.histories import History
from tests.kit.pipeline import Crafted
from tiered.archive.checkpoint import store as checkpoint
from tiered.archive.checkpoint.store import load_checkpoint, write_checkpoint
from tiered.archive.keys import ArchiveKeys
from tiered.archive.log.marks import progress_edit
from tiered.archive.log.writer import Claim, CommitLog
from tiered.archive.state.view import ArchiveState
from tiered.clock import ManualClock
from tiered.codec.checksum import crc32c
from tiered.errors import Unavailable
from tiered.metadata.memory import MemoryStore
from tiered.model import MessageQueue, PhysicalOffset
from tiered.provider.memory import MemoryProvider
from tiered.write.preparer import _Copy
from tiered.write.router import queue_ends

ORDERS = MessageQueue("Orders", 0)
Make = Callable[..., Assembly]


@pytest.fixture
def broker(tmp_path: Path) -> Crafted:
    return Crafted(tmp_path / "store", file_bytes=4096)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_700_000_060_000)


@pytest.fixture
def daemon(broker: Crafted, clock: ManualClock) -> Iterator[Make]:
    made: list[Assembly] = []
    store = memory(clock)

    def make(**options: Any) -> Assembly:
        made.append(assemble(broker.store, store, clock, seed=len(made) + 1, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()


def fill(broker: Crafted, up_to: int, text: str = "number") -> None:
    """Messages until the log reaches a position."""
    while broker.position < up_to:
        broker.send(body=f"{text}-{len(broker.sent)}".encode())


def live(one: Assembly) -> list[bytes]:
    return [raw for _, _, raw in one.rows()[ORDERS]]


def test_files_above_a_rewind_are_linked_again(broker: Crafted, daemon: Make, clock: ManualClock) -> None:
    """What was released below the lost tail's end has new bytes now, which the broker may delete before they are archived."""
    broker.mark_started(clock.now_ms() - 50_000)
    fill(broker, 3 * 4096 + 100)
    one = daemon()
    one.settle()
    cut = next(m.physical_offset for m, _ in broker.sent if m.physical_offset > 4096 + 500)
    broker.crash(cut)
    for path in (broker.path(8192), broker.path(12288)):
        path.unlink(missing_ok=True)
    fill(broker, 3 * 4096 + 100, "rewritten")
    broker.mark_started(clock.now_ms())
    clock.advance(1.1)
    one.dispatcher.step()
    assert [m for m, _ in one.said if m == "rewound"] == ["rewound"]
    one.source.hold()
    broker.path(8192).unlink()  # the broker, before the daemon got there
    one.settle()
    assert one.gaps == []
    assert live(one) == [raw for _, raw in broker.sent][: len(live(one))]
    assert progress_of(one) == broker.position


def test_a_restart_during_the_comparison_is_compared_again(
    broker: Crafted, daemon: Make, clock: ManualClock
) -> None:
    """The broker's mark is taken before its bytes are: a restart in between must not pass for the one that was compared."""
    broker.mark_started(clock.now_ms() - 50_000)
    fill(broker, 3000)
    restarts: list[Callable[[], None]] = []

    def say(message: str) -> None:
        if message.startswith("compared") and restarts:
            restarts.pop()()

    one = daemon(on_say=say)
    one.settle()

    def lose_the_tail() -> None:
        broker.crash(broker.sent[-5][0].physical_offset)
        fill(broker, 3300, "rewritten")
        broker.mark_started(clock.now_ms() + 1)

    restarts.append(lose_the_tail)
    broker.mark_started(clock.now_ms())
    one.settle()
    assert not restarts
    assert live(one) == [raw for _, raw in broker.sent]
    assert sum(p.end - p.start for p in one.state.closed_parts()) == 5


def test_the_mark_at_a_files_end_covers_the_blanks_header_and_not_its_filler(
    broker: Crafted, daemon: Make
) -> None:
    fill(broker, 4096 + 100)
    one = daemon()
    one.settle()
    records = b"".join(raw for m, raw in broker.sent if m.physical_offset < 4096)
    blank = broker.path(0).read_bytes()[len(records) : len(records) + 8]
    assert int.from_bytes(blank[:4], "big") == 4096 - len(records)
    found = {m.physical_offset: (m.mark_crc, m.crc_from) for m in one.state.marks(1)}
    assert found[PhysicalOffset(4096)] == (crc32c(records + blank), 0)


def test_a_gap_stands_behind_what_was_buffered_before_it(broker: Crafted, daemon: Make) -> None:
    """Its ``Progress`` would cover records that are only buffered: they would be skipped, or the archive would be refused."""
    fill(broker, 3000)
    bad = broker.sent[7][0].physical_offset
    broker.write(bad + 4, b"no magic")
    one = daemon(dispatch={"group_commit_interval_ms": 3_600_000}, source={"corrupt_wait_ms": 1000})
    for _ in range(500):
        one.clock.advance(max(one.step(), 0.01))
        if one.gaps:
            break
    one.commit_all()
    end = bad + len(broker.records[bad])
    assert [(g.start, g.end) for g in one.state.phys_gaps()] == [(bad, end)]
    assert live(one) == [raw for _, raw in broker.sent[:7]], "proven with the gap, not an hour after it"


def test_a_fork_of_equal_length_does_not_pass_for_the_cached_fold(clock: ManualClock) -> None:
    """Commit numbers agree, commit ids do not: the bucket was restored from a copy that somebody else had gone on with."""
    provider = memory(clock)
    first = written(open_log(provider, clock), clock, 100, 200)
    fork = copied(provider, clock, below=1)
    written(open_log(fork, clock, writer=b"B" * 16, seed=2), clock, 150)  # an epoch and one more
    mine, theirs = open_log(provider, clock).tip, open_log(fork, clock).tip
    assert mine is not None
    assert theirs is not None
    assert mine.seq == theirs.seq
    again = open_log(fork, clock, store=first.store)
    assert again.tip == theirs
    assert list(ArchiveState(first.store).marks(1))[-1].physical_offset == 150


def written(log: CommitLog, clock: ManualClock, *offsets: int) -> CommitLog:
    """Claim an epoch and prove a ``Progress`` for each offset."""
    head = log.claim(Claim(lineage=1, host="h"), clock.now_ms(), before_try=lambda head: None)
    for offset in offsets:
        at = PhysicalOffset(offset)
        put(log, progress_edit(head.lineage, [(at, 0, at)]))
    return log


def copied(provider: Counting, clock: ManualClock, *, below: int) -> Counting:
    """The bucket as it was before commit ``below``."""
    copy = memory(clock)
    for stored in provider.list(""):
        name = stored.key.rpartition("/")[2]
        if "/commit/" not in stored.key or int(name) < below:
            copy.put(stored.key, [provider.get(stored.key).data])
    return copy


def test_a_checkpoint_whose_loading_is_cut_short_is_no_fold(monkeypatch: pytest.MonkeyPatch) -> None:
    """The head goes in last: a store that stopped taking bytes half way must not look like an archive with fewer queues."""

    class Cut(MemoryStore):
        puts, most = 0, 1 << 30

        def put_many(self, *args: Any, **options: Any) -> None:
            self.puts += 1
            if self.puts > self.most:
                raise Unavailable("no space left")
            super().put_many(*args, **options)

    monkeypatch.setattr(checkpoint, "_LOAD_PAIRS", 10)
    history = History(random.Random(5), topics=20)
    for _ in range(30):
        history.step()
    provider, keys = MemoryProvider("checkpoints", ManualClock()), ArchiveKeys("c", "b")
    ids = iter(range(1, 10_000))
    manifest = write_checkpoint(
        provider, keys, history.store.snapshot(), None, lambda: keys.shard(1, next(ids).to_bytes(16, "big")),
        shard_bytes=2048,
    )  # fmt: skip
    whole, store = Cut(), Cut()
    load_checkpoint(provider, manifest, whole)
    store.most = whole.puts - 1
    with pytest.raises(Unavailable):
        load_checkpoint(provider, manifest, store)
    assert (ArchiveState(store).head(), store.applied()) == (None, None)
    assert next(iter(store.iterate(b"")), None) is not None, "or nothing was cut short"


def test_a_mark_sums_from_its_own_files_first_byte(broker: Crafted, daemon: Make) -> None:
    """Of the file before nothing may be left by the time that the mark is looked at."""
    fill(broker, 4096 + 100)
    one = daemon()
    one.settle()
    records = b"".join(raw for m, raw in broker.sent if m.physical_offset >= 4096)
    newest = next(iter(one.state.marks(1)))
    assert newest.physical_offset == broker.position
    assert (newest.mark_crc, newest.crc_from) == (crc32c(records), 4096)


def test_queues_of_another_lineage_are_begun_anew(broker: Crafted, daemon: Make) -> None:
    """Even if the new broker's offsets go on just where the old one's ended."""
    fill(broker, 500)
    one = daemon()
    one.settle()
    routed: Any = SimpleNamespace(topics=("Orders",), queue_ids=np.zeros(1, np.int64))
    mine, other = (queue_ends(one.state, routed, lineage) for lineage in (1, 2))
    assert (mine.present.tolist(), other.present.tolist()) == ([True], [False])
    assert mine.highest_generation.tolist() == other.highest_generation.tolist() == [1]


def test_memory_is_not_used_again_while_a_draft_looks_at_it() -> None:
    copy, drafted = _Copy(memoryview(bytearray(8))), Future[Any]()
    copy.drafts.append(drafted)
    with ThreadPoolExecutor(1) as pool:
        freed = pool.submit(copy.free, 8, 8)
        with pytest.raises(TimeoutError):
            freed.result(0.05)
        drafted.set_result(None)
        assert len(freed.result(5)) == 8


def test_every_step_links_new_files_before_it_reads(
    broker: Crafted, daemon: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is read is planned as archived soon: the broker must not delete it before it was copied."""
    one, order = daemon(), list[str]()
    hold, read = one.source.hold, one.source.read
    monkeypatch.setattr(one.source, "hold", lambda: order.append("hold") or hold())
    monkeypatch.setattr(one.source, "read", lambda *a, **k: order.append("read") or read(*a, **k))
    one.dispatcher.step()
    assert order == ["hold", "read"]
