"""Every byte counts: damage anywhere in an object or in the log is found, named, and never read as data."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.kit.assemble import KEYS, Assembly, Counting, assemble, live_rows, memory
from tests.kit.pipeline import PREPARED, Crafted
from tiered.archive.checkpoint.format import Manifest
from tiered.archive.checkpoint.store import write_checkpoint
from tiered.archive.read import verify as verify_module
from tiered.archive.read.objects import ObjectReader
from tiered.archive.read.reader import ArchiveReader
from tiered.archive.read.verify import Report, Verifier
from tiered.archive.read.view import View
from tiered.archive.state.view import ArchiveState
from tiered.clock import ManualClock
from tiered.errors import Corrupt, Denied, TieredError
from tiered.metadata.memory import MemoryStore
from tiered.model import MessageQueue, PhysicalOffset
from tiered.provider.base import Fetched, Provider
from tiered.provider.memory import MemoryObjects, MemoryProvider

ORDERS = MessageQueue("Orders", 0)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_700_000_060_000)


@dataclass(frozen=True)
class Life:
    """What a daemon's first life left: the broker's store, the archive's objects, the hour, and how the daemon writes."""

    broker: Path
    objects: MemoryObjects
    now_ms: int
    dispatch: dict[str, int]


@pytest.fixture(scope="module", params=["in objects", "inside commits"])
def first_life(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Life:
    clock, objects = ManualClock(1_700_000_060_000), MemoryObjects()
    broker = Crafted(tmp_path_factory.mktemp("life") / "store", file_bytes=1 << 17)
    dispatch = {"block_bytes": 4096, **({"inline_bytes": 0} if request.param == "in objects" else {})}
    made = assemble(
        broker.store,
        Counting(MemoryProvider("", clock, objects)),
        clock,
        dispatch={**dispatch, "object_bytes": 65_536},
    )
    for flush in range(3):
        for number in range(40):
            broker.send(
                queue_id=number % 3, body=b"%d-%d" % (flush, number) * 20,
                properties={"KEYS": f"k{number}", "TAGS": "t"}, sys_flag=PREPARED if number % 10 == 9 else 0,
            )  # fmt: skip
        made.settle()
    cut = broker.sent[-8][0].physical_offset
    broker.crash(cut)
    broker.send(body=b"after")
    made.close()
    return Life(broker.store, objects, clock.now_ms(), dispatch)


@pytest.fixture
def store(clock: ManualClock, first_life: Life) -> Counting:
    """The archive's objects as the first life left them, this test's own."""
    clock.set_wall(first_life.now_ms)
    objects = MemoryObjects()
    objects.objects, objects.keys = dict(first_life.objects.objects), list(first_life.objects.keys)
    return Counting(MemoryProvider("", clock, objects))


@pytest.fixture
def daemon(store: Counting, clock: ManualClock, first_life: Life) -> Iterator[Assembly]:
    """The daemon in its second life."""
    again = assemble(first_life.broker, store, clock, seed=2, dispatch=first_life.dispatch)
    again.settle()
    yield again
    again.close()


def opened(daemon: Assembly, store: Counting) -> View:
    identity = daemon.log.reader.identity
    objects = ObjectReader(store, KEYS, identity.archive_id, cache_bytes=1 << 20)
    return View(daemon.state.head(), daemon.state, objects, daemon.log.reader)


def verify(daemon: Assembly, store: Counting, *, deep: bool = True, limit: int = 1000) -> Report:
    return Verifier(opened(daemon, store)).run(deep=deep, limit=limit)


def data_keys(daemon: Assembly, store: Counting) -> list[str]:
    objects = opened(daemon, store).objects
    return [objects.key_of(item) for item in daemon.state.objects()]


def overwrite(store: Counting, key: str, data: bytes | bytearray) -> None:
    store.put(key, [data], create_only=False)


def test_a_sound_archive(daemon: Assembly, store: Counting) -> None:
    steps: list[int] = []
    report = Verifier(opened(daemon, store), steps.append).run(deep=True)
    assert report.damage == []
    assert report.sound
    state = daemon.state
    head = state.head()
    assert head is not None
    assert report.commits == head.seq + 1
    assert report.objects == len(list(state.objects())) == steps[-1]
    assert report.runs == len(list(state.runs_all())) + len(list(state.closed_parts()))
    assert list(state.closed_parts()), "closed parts are verified too"
    assert report.messages == 121, "what was cut by the rewind included"
    assert report.bytes > 121 * 100
    assert report.blocks >= report.objects
    shallow = verify(daemon, store, deep=False)
    assert (shallow.sound, shallow.blocks, shallow.messages) == (True, 0, 0)


def test_a_flipped_bit_anywhere_is_found(daemon: Assembly, store: Counting) -> None:
    key = data_keys(daemon, store)[0]
    whole = store.get(key).data
    chance = random.Random(7)
    places = sorted({0, len(whole) - 1, *(chance.randrange(len(whole)) for _ in range(25))})
    for place in places:
        damaged = bytearray(whole)
        damaged[place] ^= 1 << chance.randrange(8)
        overwrite(store, key, damaged)
        report = verify(daemon, store)
        assert not report.sound, f"byte {place} of {len(whole)}"
        assert {d.key for d in report.damage} <= {key, str(ORDERS)}, place
        assert all(d.what for d in report.damage)
    overwrite(store, key, whole)
    assert verify(daemon, store).sound


def test_damage_is_never_read_as_data(daemon: Assembly, store: Counting) -> None:
    """Whatever bit flips, a reader gets the right bytes or Corrupt."""
    good = daemon.rows()
    key = data_keys(daemon, store)[0]
    whole = store.get(key).data
    chance = random.Random(8)
    outcomes = set()
    for _ in range(25):
        damaged = bytearray(whole)
        damaged[chance.randrange(len(whole))] ^= 1 << chance.randrange(8)
        overwrite(store, key, damaged)
        objects = ObjectReader(store, KEYS, daemon.log.reader.identity.archive_id, cache_bytes=1 << 20)
        try:
            assert live_rows(daemon.state, objects) == good
            outcomes.add("unharmed")
        except Corrupt as error:
            outcomes.add(f"corrupt {error.fields['key']}")
    assert f"corrupt {key}" in outcomes
    assert outcomes <= {f"corrupt {key}", "unharmed"}


@pytest.mark.parametrize("length", [0, 1, 100, -1])
def test_a_truncated_object(daemon: Assembly, store: Counting, length: int) -> None:
    key = data_keys(daemon, store)[0]
    overwrite(store, key, store.get(key).data[:length])
    report = verify(daemon, store, deep=False)
    assert not report.sound
    assert {d.key for d in report.damage} == {key}


def test_a_missing_object_and_a_limit(daemon: Assembly, store: Counting) -> None:
    keys = data_keys(daemon, store)
    for key in keys:
        store.delete(key)
    report = verify(daemon, store)
    assert {d.key for d in report.damage} >= set(keys)
    assert len(verify(daemon, store, limit=2).damage) == 2


def test_two_objects_swapped(daemon: Assembly, store: Counting) -> None:
    first, second, *_ = data_keys(daemon, store)
    overwrite(store, first, store.get(second).data)
    report = verify(daemon, store, deep=False)
    assert not report.sound
    assert first in {d.key for d in report.damage}


def test_a_commit_missing_from_the_log(daemon: Assembly, store: Counting) -> None:
    head = daemon.state.head()
    assert head is not None
    store.delete(KEYS.commit(0))
    report = verify(daemon, store)
    assert [(d.what, d.key) for d in report.damage] == [("a commit is missing from the log", KEYS.commit(0))]


def test_a_data_object_that_its_writer_left_behind_is_no_damage(daemon: Assembly, store: Counting) -> None:
    """A writer that ends between its objects and their commit leaves just this. Where it said goodbye behind that commit, the
    commit was there, and is lost."""
    head = daemon.state.head()
    assert head is not None
    mine = [o.path for o in daemon.state.objects() if o.ref.commit_seq == head.seq and o.path]
    store.delete(KEYS.commit(head.seq))
    again = ArchiveReader(store, KEYS, MemoryStore(), table_cache_bytes=1 << 20).at()
    waited: list[float] = []
    report = Verifier(again, wait=waited.append).run(deep=False)
    assert report.sound
    assert [d.key for d in report.notes] == [KEYS.key(path) for path in mine]
    assert all("ended before its commit" in d.detail and "repair" not in d.detail for d in report.notes)
    assert bool(waited) == bool(mine), "a writer at work is given time"
    newest = daemon.log.reader.read(head.seq - 1)
    assert newest is not None
    store.put(KEYS.beat(head.epoch, 1, newest.commit.previous_id), [b"void: another commit landed late"])
    assert Verifier(again).run(deep=False).sound
    store.put(KEYS.beat(head.epoch, 2, head.commit_id), [b"goodbye"])
    report = Verifier(again).run(deep=False)
    assert [d.key for d in report.damage] == [KEYS.key(path) for path in mine]
    assert all("a later commit, which is lost" in d.detail for d in report.damage)


def test_an_orphan_below_the_proven_offset_is_no_damage(daemon: Assembly, store: Counting) -> None:
    """A writer that ended before its commit leaves one; what it held was archived again."""
    for key in [k for k in data_keys(daemon, store) if "/data/" in k][:1]:
        store.put(KEYS.data(1, b"o" * 16), [store.get(key).data])
    assert verify(daemon, store).sound


def test_a_writer_at_work_is_no_damage(daemon: Assembly, store: Counting) -> None:
    head = daemon.state.head()
    assert head is not None
    kept = store.get(KEYS.commit(head.seq)).data
    store.delete(KEYS.commit(head.seq))
    again = ArchiveReader(store, KEYS, MemoryStore(), table_cache_bytes=1 << 20).at()

    def commit(seconds: float) -> None:
        overwrite(store, KEYS.commit(head.seq), kept)

    assert Verifier(again, wait=commit).run(deep=False).damage == []


def test_a_deleted_checkpoint_leaves_shards_that_are_told(daemon: Assembly, store: Counting) -> None:
    ids = iter(range(1, 100))
    shard = lambda: KEYS.shard(1, next(ids).to_bytes(16, "big"))  # noqa: E731
    manifest = write_checkpoint(store, KEYS, daemon.log.store, None, shard)
    assert verify(daemon, store, deep=False).notes == []
    store.delete(manifest.key)
    report = verify(daemon, store, deep=False)
    assert [n.key for n in report.notes] == [KEYS.key(s.path) for s in manifest.shards]
    assert report.sound, "readers lose nothing"


def test_what_was_collected_between_the_listing_and_the_look_is_no_damage(
    daemon: Assembly, store: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = write_checkpoint(store, KEYS, daemon.log.store, None, lambda: KEYS.shard(1, b"\x08" * 16))
    real = verify_module.read_manifest

    def collected_before(provider: Provider, key: str) -> Manifest:
        store.delete(manifest.key)
        return real(provider, key)

    monkeypatch.setattr(verify_module, "read_manifest", collected_before)
    assert Verifier(opened(daemon, store), newer=lambda: daemon.state).run(deep=False).damage == []


def test_what_a_newer_fold_does_not_need_is_no_damage(daemon: Assembly, store: Counting) -> None:
    key = data_keys(daemon, store)[0]
    store.delete(key)
    view, nothing = opened(daemon, store), ArchiveState(MemoryStore())
    assert {d.key for d in Verifier(view, newer=lambda: daemon.state).run(deep=False).damage} == {key}
    assert Verifier(view, newer=lambda: nothing).run(deep=False).damage == []


def test_the_rest_is_verified_as_it_was_before_a_damaged_commit(daemon: Assembly, store: Counting) -> None:
    head = daemon.state.head()
    assert head is not None
    damaged = head.seq - 1
    overwrite(store, KEYS.commit(damaged), store.get(KEYS.commit(damaged)).data[:-1])
    with pytest.raises(Corrupt, match=f"--as-of {damaged - 1} "):
        ArchiveReader(store, KEYS, MemoryStore(), table_cache_bytes=1 << 20).at()
    before = ArchiveReader(store, KEYS, MemoryStore(), table_cache_bytes=1 << 20).at(damaged - 1)
    assert [q.queue for q in before.state.queues()]
    report = Verifier(before).run(deep=True)
    assert [d.key for d in report.damage if "/commit/" in d.key] == [KEYS.commit(damaged)]
    assert report.commits == head.seq + 1, "those behind the damage too"


def test_a_commit_lost_in_the_middle_is_not_the_end(daemon: Assembly, store: Counting) -> None:
    head = daemon.state.head()
    assert head is not None
    store.delete(KEYS.commit(head.seq - 1))
    with pytest.raises(Corrupt, match="missing from the log") as caught:
        ArchiveReader(store, KEYS, MemoryStore(), table_cache_bytes=1 << 20).at()
    assert caught.value.fields["key"] == KEYS.commit(head.seq - 1)


def test_a_commit_replaced_in_the_log(daemon: Assembly, store: Counting) -> None:
    other = store.get(KEYS.commit(1)).data
    overwrite(store, KEYS.commit(2), other)
    assert KEYS.commit(2) in {d.key for d in verify(daemon, store, deep=False).damage}


def test_a_fold_that_lacks_a_run_is_not_contiguous(daemon: Assembly, store: Counting) -> None:
    """What verify is for: a fold that does not add up."""
    from tiered.archive.state.keys import RUN

    run = next(key for key, _ in daemon.log.store.iterate(RUN))
    daemon.log.store.put_many([], [run])
    report = verify(daemon, store, deep=False)
    assert "queue offsets are not contiguous" in {d.what for d in report.damage}
    for key, _ in list(daemon.log.store.iterate(RUN)):
        daemon.log.store.put_many([], [key])
    assert "a queue does not end where its runs do" in {
        d.what for d in verify(daemon, store, deep=False).damage
    }


def test_a_reader_of_an_object_that_the_fold_lost(daemon: Assembly, store: Counting) -> None:
    from tiered.archive.read.lookup import KeyLookup, locate_physical, query_key
    from tiered.archive.state.keys import OBJECT

    for key, _ in list(daemon.log.store.iterate(OBJECT)):
        daemon.log.store.put_many([], [key])
    with pytest.raises(Corrupt, match="does not know"):
        daemon.rows()
    assert list(query_key(daemon.state, daemon.objects, KeyLookup("Orders", "k1"))) == []
    assert locate_physical(daemon.state, daemon.objects, PhysicalOffset(0), 1) is None  # type: ignore[arg-type]


def test_tables_are_cached_within_the_bound(daemon: Assembly, store: Counting) -> None:
    identity = daemon.log.reader.identity
    for cache_bytes, again in ((1 << 20, 0), (1, 1)):
        objects = ObjectReader(store, KEYS, identity.archive_id, cache_bytes=cache_bytes)
        item = next(daemon.state.objects())
        for _ in range(2):
            store.calls.clear()
            objects.block_table(item)
            objects.directory(item)
            objects.key_filter(item)
        assert len(store.calls) == 3 * again


def test_blocks_are_asked_for_within_their_run(daemon: Assembly) -> None:
    run = next(daemon.state.runs_all())
    item = daemon.state.object(run.object)
    assert item is not None
    with pytest.raises(Corrupt, match="outside its run"):
        daemon.objects.blocks(item, run, run.first_block, run.block_count + 1)
    from dataclasses import replace

    longer = replace(run, block_count=10_000)
    with pytest.raises(Corrupt, match="too short"):
        daemon.objects.blocks(item, longer, run.first_block, 10_000)


def test_neighbouring_blocks_come_in_one_request(
    daemon: Assembly, store: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tiered.archive.read import runs as runs_module

    run = max(daemon.state.runs_all(), key=lambda r: r.block_count)
    item = daemon.state.object(run.object)
    assert item is not None
    assert run.block_count >= 1
    daemon.objects.block_table(item)
    store.calls.clear()
    together = daemon.objects.blocks(item, run, run.first_block, run.block_count)
    assert len(store.calls) == 1
    monkeypatch.setattr(runs_module, "COALESCE_BYTES", 1)
    store.calls.clear()
    alone = daemon.objects.blocks(item, run, run.first_block, run.block_count)
    assert len(store.calls) == run.block_count
    assert alone == together


def test_errors_of_the_store_are_not_damage(daemon: Assembly, store: Counting) -> None:
    class Away(TieredError):
        pass

    archive = opened(daemon, store)
    store.say(Away("away"))
    with pytest.raises(Away):
        Verifier(archive).run(deep=True)


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("kind", ["object", "commit", "checkpoint"])
def test_what_the_store_refuses_is_named_and_all_else_is_looked_at(
    daemon: Assembly, store: Counting, monkeypatch: pytest.MonkeyPatch, kind: str, deep: bool
) -> None:
    write_checkpoint(
        store, KEYS, daemon.log.store, None, lambda: KEYS.shard(1, bytes(16)), shard_bytes=1 << 20
    )
    whole, give = verify(daemon, store, deep=deep), store.get
    kinds = {
        "object": data_keys(daemon, store)[1],
        "commit": KEYS.commit(2),
        "checkpoint": next(iter(store.list(KEYS.checkpoint_prefix))).key,
    }
    refused = {kinds[kind]}

    def get(key: str, *place: int) -> Fetched:
        if key in refused:
            raise Denied("the store refuses this", key=key)
        return give(key, *place)

    monkeypatch.setattr(store, "get", get)
    report = verify(daemon, store, deep=deep)
    assert ([found.key for found in report.unseen], report.damage) == ([kinds[kind]], [])
    assert not report.sound
    assert (report.commits, report.objects) == (whole.commits, whole.objects)
    refused.add(KEYS.identity)
    with pytest.raises(Denied):  # where the store gives nothing, nothing was verified
        verify(daemon, store, deep=deep)


def test_an_empty_log(clock: ManualClock) -> None:
    from tests.kit.assemble import open_log

    store = memory(clock)
    log = open_log(store, clock)
    objects = ObjectReader(store, KEYS, log.reader.identity.archive_id, cache_bytes=1000)
    archive = View(None, ArchiveState(log.store), objects, log.reader)
    assert Verifier(archive).run(deep=True) == Report()
