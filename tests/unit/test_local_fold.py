"""A commit that is in the bucket enters the local fold, or nothing goes on; and a checkpoint is the fold of the bucket."""

from __future__ import annotations

import contextlib
import errno
import random
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest

from tests.kit.assemble import KEYS, Assembly, Counting, Heard, assemble, live_rows, memory, plan, put
from tests.kit.pipeline import Crafted
from tests.kit.rocks import FullDisk
from tiered.archive.checkpoint.store import newest_checkpoint, read_checkpoint
from tiered.archive.log.localfiles import empty_distrusted, record_distrust
from tiered.archive.log.maintenance import OwnKeys
from tiered.archive.log.shadow import difference
from tiered.archive.read.reader import ArchiveReader
from tiered.clock import ManualClock
from tiered.daemon.checkpointer import Checkpointer
from tiered.errors import Corrupt, TieredError, Unavailable
from tiered.metadata.memory import MemoryStore
from tiered.metadata.rocksdb import RocksDbStore
from tiered.settings import MIB, Archive

LOST = 8


class Failing(MemoryStore):
    """A store whose disk is full for the next ``full`` writes."""

    full = 0

    def put_many(
        self,
        puts: Iterable[tuple[bytes, bytes]],
        deletes: Iterable[bytes] = (),
        *,
        applied: bytes | None = None,
    ) -> None:
        if self.full:
            self.full -= 1
            raise Unavailable("no space left on device")
        super().put_many(puts, deletes, applied=applied)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_700_000_060_000)


@pytest.fixture
def bucket(clock: ManualClock) -> Counting:
    return memory(clock)


@pytest.fixture
def broker(tmp_path: Path) -> Crafted:
    made = Crafted(tmp_path / "store", file_bytes=1 << 20)
    for number in range(40):
        made.send(queue_id=number % 2, body=b"number-%02d" % number)
    return made


@pytest.fixture
def daemon(broker: Crafted, bucket: Counting, clock: ManualClock) -> Iterator[Assembly]:
    made = assemble(broker.store, bucket, clock, metadata=Failing(), dispatch={"group_commit_count": 10})
    made.settle()
    yield made
    made.close()


def full_for(daemon: Assembly, writes: int) -> None:
    store = daemon.log.store
    assert isinstance(store, Failing)
    store.full = writes


def checkpointer(
    daemon: Assembly, shadow: MemoryStore | None = None, told: list[TieredError] | None = None
) -> Checkpointer:
    made = Checkpointer(
        daemon.log, Archive(checkpoint_commits=1), daemon.clock, random.Random(3).randbytes,
        shadow=MemoryStore() if shadow is None else shadow,
        events=Heard() if told is None else Heard(damage=told), own_keys=OwnKeys(),
    )  # fmt: skip
    made.count()
    return made


def truth(bucket: Counting, broker: Crafted) -> None:
    """A reader with nothing local gets what the broker has, no more and no less."""
    opened = ArchiveReader(bucket, KEYS, MemoryStore(), table_cache_bytes=MIB).at()
    found = {q: [raw for _, _, raw in rows] for q, rows in live_rows(opened.state, opened.objects).items()}
    assert found == {q: [r.raw for r in v.rows] for q, v in broker.oracle().queues.items()}


@pytest.mark.parametrize("writes", [1, 3])
def test_a_rewind_that_the_full_disk_refused_enters_the_fold_before_anything_else(
    daemon: Assembly, broker: Crafted, bucket: Counting, writes: int
) -> None:
    broker.crash(broker.sent[-LOST][0].physical_offset)
    broker.send(body=b"the broker goes on")
    broker.mark_started(daemon.clock.now_ms())
    full_for(daemon, writes)
    daemon.clock.advance(60)
    step_patiently(daemon)
    broker.send(body=b"after the loss")
    daemon.settle()
    assert [m for m, _ in daemon.said].count("rewound") == 1
    assert checkpointer(daemon).step()
    assert newest_checkpoint(bucket, KEYS) is not None
    truth(bucket, broker)


def test_a_fold_that_could_not_be_written_is_not_built_upon(daemon: Assembly, broker: Crafted) -> None:
    broker.send()
    full_for(daemon, 1)
    planned = plan(daemon.log)
    daemon.give_up.set()
    with pytest.raises(Unavailable, match="no space"):
        daemon.log.put(planned)
    daemon.give_up.clear()
    for attempt in (lambda: plan(daemon.log), lambda: daemon.log.put(planned)):
        with pytest.raises(TieredError, match="did not enter the local fold") as caught:
            attempt()
        assert not isinstance(caught.value, Unavailable), "a service would try again and go on"
    daemon.log.follow()
    assert daemon.log.proven().head() == planned.changes.head
    put(
        daemon.log,
    )


def test_a_commit_does_not_enter_a_fold_that_lacks_the_one_before_it(daemon: Assembly) -> None:
    one = plan(daemon.log)
    two = plan(daemon.log)
    daemon.log._put_until_known(one)
    with pytest.raises(Corrupt, match="missed a commit"):
        daemon.log.put(two)
    with pytest.raises(TieredError, match="did not enter"):
        plan(daemon.log)


def step_patiently(daemon: Assembly) -> None:
    """The dispatcher's step as its service does it: what is unavailable is tried again."""
    for _ in range(5):
        with contextlib.suppress(Unavailable):
            daemon.settle()
            return
    raise AssertionError("still unavailable")


def spoil(daemon: Assembly) -> bytes:
    """Take one run out of the local fold, as if a batch had been written by half."""
    key = next(iter(daemon.log.store.iterate(b"r")))[0]
    daemon.log.store.put_many([], [key])
    return key


def test_a_local_fold_that_is_not_the_logs_ends_the_process_and_never_reaches_the_bucket(
    daemon: Assembly, broker: Crafted, bucket: Counting, clock: ManualClock, tmp_path: Path
) -> None:
    spoil(daemon)
    distrusted: list[int] = []
    saves = checkpointer(daemon)
    saves._distrust = lambda: distrusted.append(1)
    with pytest.raises(Corrupt, match="local fold is not the fold") as caught:
        saves.step()
    assert "start the daemon again" in str(caught.value)
    assert distrusted == [1]
    assert newest_checkpoint(bucket, KEYS) is not None, "made from the log"
    truth(bucket, broker)
    record_distrust(tmp_path)
    assert empty_distrusted(tmp_path, daemon.log.store.clear)
    assert not empty_distrusted(tmp_path, daemon.log.store.clear), "once"
    daemon.log.follow()
    assert difference(daemon.log.store, saves._shadow.view) is None


def test_a_checkpoint_that_was_wrong_is_replaced_and_told(
    daemon: Assembly, broker: Crafted, bucket: Counting
) -> None:
    """One that a former version wrote without looking: readers that start from it serve less than there is."""
    wrong = MemoryStore()
    wrong.put_many(daemon.log.store.iterate(b""), applied=daemon.log.store.applied())
    wrong.put_many([], [spoiled := next(iter(wrong.iterate(b"r")))[0]])
    told: list[TieredError] = []
    broker.send()
    daemon.settle()
    saves = checkpointer(daemon, wrong, told)
    assert saves.step()
    assert [str(e) for e in told] == [s for s in map(str, told) if "older checkpoint" in s]
    assert len(told) == 1
    manifest = newest_checkpoint(bucket, KEYS)
    assert manifest is not None
    assert spoiled in {k for some in read_checkpoint(bucket, manifest) for k, _ in some}
    truth(bucket, broker)


def test_a_damaged_commit_keeps_checkpoints_away_and_is_told(daemon: Assembly, bucket: Counting) -> None:
    head = daemon.log.tip
    assert head is not None
    sound = bytes(bucket.get(KEYS.commit(2)).data)
    bucket.put(KEYS.commit(2), [sound[:-1]], create_only=False)
    told: list[TieredError] = []
    assert not checkpointer(daemon, told=told).step()
    assert [e.fields.get("key") for e in told] == [KEYS.commit(2)]
    assert newest_checkpoint(bucket, KEYS) is None
    bucket.put(KEYS.commit(2), [sound], create_only=False)
    assert checkpointer(daemon, told=told).step()
    assert len(told) == 1


def test_folds_that_differ_are_told_apart() -> None:
    one, other = MemoryStore(), MemoryStore()
    one.put_many([(b"q1", b"x"), (b"r1", b"y"), (b"d1", b"beside the fold")])
    other.put_many([(b"q1", b"x"), (b"r1", b"y")])
    assert difference(one, other) is None
    other.put_many([(b"r2", b"z")])
    assert difference(one, other) == difference(other, one) == b"r2"
    one.put_many([(b"q1", b"w")])
    assert difference(one, other) == b"q1"


def test_rocksdb_goes_on_when_its_full_disk_has_room_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine refuses every write after one that failed: it is opened again, by the next write that can work."""
    store = RocksDbStore(tmp_path / "rocks", MIB, "1")
    store.open()
    store.put_many([(b"k0", b"before")], applied=b"0")
    store._db = FullDisk(store._db)  # type: ignore[assignment]
    with monkeypatch.context() as full:
        full.setattr(
            "os.fsync", lambda descriptor: (_ for _ in ()).throw(OSError(errno.ENOSPC, "No space left"))
        )
        for _ in range(2):
            with pytest.raises(Unavailable, match=r"(disk .* is full|No space left).*free disk space"):
                store.put_many([(b"k1", b"lost")], applied=b"1")
        assert store.get_many([b"k0", b"k1"]) == [b"before", None], "readers go on"
    store.put_many([(b"k1", b"after")], applied=b"2")
    assert store.get_many([b"k0", b"k1"]) == [b"before", b"after"]
    assert store.applied() == b"2"
    assert not list(tmp_path.glob("*.probe"))
    store.close()


def test_rocksdb_that_cannot_be_opened_again_at_once_is_when_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fold reads before it writes: a store that stays closed to readers is never written to again."""
    store = RocksDbStore(tmp_path / "rocks", MIB, "1", b"q")
    store.open()
    store.put_many([(b"k", b"before"), (b"q", b"1")], applied=b"0")

    def held(*_: object, **__: object) -> object:
        raise Exception("IO error: While lock file: LOCK: Resource temporarily unavailable")

    reads: list[Callable[[], bytes | None]] = [
        lambda: store.get_many([b"k"])[0],
        lambda: next(store.iterate(b"k"))[1],
        lambda: store.snapshot().get_many([b"k"])[0],
        lambda: store.applied() and b"before",
    ]
    for read in reads:
        store._failed = Unavailable("the disk is full")
        with monkeypatch.context() as reading:
            reading.setattr("rocksdict.Rdict", held)
            for _ in range(2):
                with pytest.raises(Unavailable, match="another process"):
                    store.put_many([(b"k", b"lost")], applied=b"1")
                with pytest.raises(Unavailable, match="another process"):
                    read()
        assert read() == b"before"
    store.put_many([(b"k", b"after")], applied=b"2")
    assert store.get_many([b"k"]) == [b"after"]
    store.close()
    with pytest.raises(Unavailable, match="closed"):
        store.get_many([b"k"])


def test_all_families_are_closed_though_one_says_that_a_write_failed(tmp_path: Path) -> None:
    class Failing:
        closed: ClassVar[list[str]] = []

        def __init__(self, name: str) -> None:
            self.name = name

        def close(self) -> None:
            self.closed.append(self.name)
            raise Exception(self.name)

    store = RocksDbStore(tmp_path / "rocks", MIB, "1", b"q")
    store.open()
    families = store._families
    store.close()
    assert families is not None
    families.scanned, families.points = cast(Any, Failing("scanned")), cast(Any, Failing("points"))
    with pytest.raises(Exception, match="scanned"):
        families.close()
    assert Failing.closed == ["points", "scanned"]


def test_rocksdb_is_opened_again_though_somebody_is_reading_it(tmp_path: Path) -> None:
    """Whoever reads may be the one that waits for the write."""
    store = RocksDbStore(tmp_path / "rocks", MIB, "1")
    store.open()
    store.put_many([(b"k%04d" % number, b"before") for number in range(2000)])
    walk, frozen = store.iterate(b"k"), store.snapshot()
    of_frozen = frozen.iterate(b"k")
    assert next(walk) == next(of_frozen) == (b"k0000", b"before")
    store._failed = Unavailable("the disk is full")
    store.put_many([(b"k0000", b"after")])
    for left in (walk, of_frozen):
        with pytest.raises(Unavailable, match="anew"):
            list(left)
    with pytest.raises(Unavailable, match="anew"):
        frozen.get_many([b"k0000"])
    assert store.get_many([b"k0000"]) == [b"after"]
    assert len(list(store.snapshot().iterate(b"k"))) == 2000
    store.close()
