"""The scrub finds every kind of damage, goes on where it was, keeps to its bytes, and is never silent."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path

import pytest

from tests.kit.archiveedits import start_again
from tests.kit.assemble import KEYS
from tests.kit.collecting import Sweeping
from tests.kit.fetchscene import Scene, scene
from tests.kit.merging import AtOnceTurn, merge_all, merging, spread
from tests.kit.scrubbing import HOUR_MS, Lagging, LookingTurn, Scrubbing, flip, overwrite, paths, stored_bytes
from tests.kit.sealing import after_midnight, seal_all
from tiered.archive.care import notes as notes_module
from tiered.archive.care import walk as walk_module
from tiered.archive.care.look import look
from tiered.archive.care.notes import NOTES_FILE, DamagedKey, read_notes
from tiered.archive.care.quarantine import Quarantine
from tiered.archive.checkpoint.store import write_checkpoint
from tiered.archive.keys import Area, CommitKey, ObjectKey, RepairKey, build, parse
from tiered.archive.log.maintenance import OwnKeys, Stopped
from tiered.archive.rewrite.collection import Collection
from tiered.archive.rewrite.holds import add_hold
from tiered.archive.rewrite.policy import LegalHold
from tiered.codec.format.commit import encode_stand_in
from tiered.errors import Invalid, Refused, TieredError, Unavailable
from tiered.provider.base import Provider
from tiered.settings import ONE_DAY_MS, Gc, Scrub
from tiered.table.orders import EMBEDDED, KeptTables, add_tables

KINDS = ("in objects", "inside commits", "sealed")


@contextmanager
def archive_of(kind: str, directory: Path) -> Iterator[Scene]:
    """Objects of both levels, commits, a checkpoint, a hold, what stands for a commit, and what no commit names."""
    inline = {"inline_bytes": 1 << 20} if kind == "inside commits" else {}
    with scene(directory, **inline) as found:
        spread(found, 3)
        merge_all(found.daemon)
        if kind == "sealed":
            after_midnight(found)
            seal_all(found.daemon)
        spread(found, 3, seed=2)
        log, ids = found.daemon.log, iter(range(1, 100))
        write_checkpoint(
            found.provider, KEYS, log.store, None, lambda: KEYS.shard(1, next(ids).to_bytes(16, "big")), shard_bytes=2000
        )  # fmt: skip
        hold = LegalHold("case", "Orders", 0, 10)
        add_hold(
            found.provider, KEYS, log.reader.identity.archive_id, hold, "", 1, random.Random(1).randbytes
        )
        kept = KeptTables(EMBEDDED, {}, "queues")
        add_tables(found.provider, KEYS, log.reader.identity.archive_id, kept, 1, random.Random(2).randbytes)
        read = log.reader.read(1)
        assert read is not None
        repair = KEYS.key(build(RepairKey(1, read.commit.commit_id)))
        found.provider.put(repair, encode_stand_in(read.commit))
        stray = max(o.path for o in found.state.objects() if o.path.startswith("data/"))
        found.provider.put(KEYS.data(1, b"stray-of-sixteen"), [found.provider.get(KEYS.key(stray)).data])
        yield found


@pytest.fixture(scope="module", params=KINDS)
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with archive_of(request.param, tmp_path_factory.mktemp("scrub")) as found:
        yield found


@pytest.fixture
def made(shared: Scene) -> Iterator[Scene]:
    """The same archive for every test: whatever one damages is sound again for the next."""
    with shared.put_back() as found:
        yield found


@pytest.fixture(params=KINDS)
def own(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Scene]:
    """For who archives on."""
    with archive_of(request.param, tmp_path) as found:
        yield found


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Scene]:
    with scene(tmp_path) as found:
        yield found


def needed(made: Scene) -> list[str]:
    """Paths that the fold needs, and what is compared without it: all but what a merge left."""
    left = {o.path for o in made.state.objects() if not o.references}
    return [path for path in paths(made.provider) if path not in left]


def unneeded_bytes(made: Scene, path: str) -> int:
    """Bytes at a commit's beginning that no run lies in any more: nobody misses them."""
    found = parse(path)
    inline = made.state.objects_of(found.seq) if isinstance(found, CommitKey) else ()
    return max((o.length for o in inline if not o.path and not o.references), default=0)


def test_a_sound_archive(made: Scene, tmp_path: Path) -> None:
    looking = Scrubbing.of(made, tmp_path)
    turn = LookingTurn()
    done = looking.rest(turn)
    assert looking.damaged() == {}
    notes = looking.notes
    assert notes.listing.whole_objects == notes.reading.whole_objects == len(paths(made.provider))
    total = sum(stored.length for stored in made.provider.list(KEYS.root))
    assert notes.listing.whole_bytes == notes.reading.whole_bytes == total
    wanted = sum(made.provider.head(KEYS.key(path)).length for path in needed(made))
    assert wanted * 0.95 < sum(turn.spent) < wanted * 1.6, "manifests are read again where shards are"
    assert all(one.trouble is None for one in done)
    assert looking.rest() == [], "and then it rests"
    assert 0 < notes.unchecked_seconds(made.clock.now_ms(), 0) < 2 * HOUR_MS


def test_every_flipped_bit_is_found_by_the_walk_over_bytes(made: Scene) -> None:
    chance = random.Random(3)
    looking = Scrubbing.of(made)
    looking.rest()
    for path in needed(made):
        length = made.provider.head(KEYS.key(path)).length
        place = chance.randrange(unneeded_bytes(made, path), length)
        sound = flip(made.provider, path, place, chance.randrange(8))
        looking.later()
        repaired = path == build(CommitKey(1))
        assert list(looking.damaged()) == ([] if repaired else [path])
        assert all(found.what and found.first_seen_ms for found in looking.notes.findings.values())
        overwrite(made.provider, path, sound)
        looking.later(0.3)
        assert looking.damaged() == {}, "and is not listed any more once it is mended"


def test_bytes_that_no_run_needs_are_no_damage(made: Scene) -> None:
    looking = Scrubbing.of(made)
    for path in needed(made):
        if unneeded_bytes(made, path):
            flip(made.provider, path, 0)
    looking.rest()
    assert looking.damaged() == {}


def test_what_is_missing_or_cut_is_found_by_the_walk_over_the_listing(made: Scene) -> None:
    looking = Scrubbing.of(made)
    looking.rest()
    needing = [p for p in needed(made) if p.startswith(("commit/", "data/", "shard/")) and "stray" not in p]
    for path in needing:
        key = KEYS.key(path)
        whole = bytes(made.provider.get(key).data)
        stands_for = path == build(CommitKey(1))
        unknown = path.startswith("data/") and made.state.object_at(path) is None
        made.provider.delete(key)
        looking.later(0.3)
        assert list(looking.damaged()) == ([] if stands_for or unknown else [path])
        assert (
            stands_for
            or unknown
            or "not there" in looking.damaged()[path]
            or "missing" in looking.damaged()[path]
        )
        made.provider.put(key, [whole])
        looking.later(0.3)
        assert looking.damaged() == {}
        if path.startswith("data/") and not unknown:
            overwrite(made.provider, path, whole[:-1])
            looking.later(0.3)
            assert list(looking.damaged()) == [path]
            overwrite(made.provider, path, whole)
            looking.later(0.3)


def test_two_swapped(made: Scene) -> None:
    looking = Scrubbing.of(made)
    looking.rest()
    for area in ("commit/", "data/"):
        among = [p for p in needed(made) if p.startswith(area) and p != build(CommitKey(1))]
        among = [p for p in among if area == "commit/" or made.state.object_at(p) is not None]
        if len(among) < 2:
            continue
        one, two = among[:2]
        first, second = (bytes(made.provider.get(KEYS.key(p)).data) for p in (one, two))
        overwrite(made.provider, one, second)
        overwrite(made.provider, two, first)
        looking.later()
        assert set(looking.damaged()) == {one, two}, area
        overwrite(made.provider, one, first)
        overwrite(made.provider, two, second)
        looking.later(0.3)


def test_a_checkpoint_with_anothers_bytes(small: Scene) -> None:
    """They are whole, and of the same archive."""
    ids = iter(range(1, 100))
    for _ in range(2):
        log = small.daemon.log
        write_checkpoint(
            small.provider, KEYS, log.store, None, lambda: KEYS.shard(1, next(ids).to_bytes(16, "big"))
        )
        spread(small, 1, seed=9)
    one, other = [path for path in paths(small.provider) if path.startswith("checkpoint/")]
    overwrite(small.provider, one, stored_bytes(small.provider, other))
    looking = Scrubbing.of(small)
    looking.rest()
    assert looking.damaged() == {one: "a checkpoint is stored under another's key"}


def test_a_store_that_lies_about_nothing_but_its_bytes(made: Scene) -> None:
    """Same length, other bytes, a later time: somebody put it again. The next look at the listing reads it."""
    looking = Scrubbing.of(made)
    looking.rest()
    made.clock.advance(10)
    path = next(o.path or build(CommitKey(o.ref.commit_seq)) for o in made.state.objects() if o.references)
    key = KEYS.key(path)
    whole = bytearray(made.provider.get(key).data)
    whole[0] ^= 1
    made.provider.put(key, [whole], create_only=False)
    looking.later(0.3)
    assert list(looking.damaged()) == [path]


def test_a_listing_that_lags_is_no_damage(made: Scene) -> None:
    looking = Scrubbing.of(made)
    lagging = Lagging(made.daemon.log.reader.provider)
    made.daemon.log.reader.provider = lagging
    lagging.hidden = {KEYS.key(path) for path in needed(made)[::3]}
    looking.rest()
    assert looking.damaged() == {}
    assert looking.notes.listing.notes["late"] > 0


def test_it_goes_on_where_it_was_whatever_ends_it(
    made: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walk_module, "PAGE_KEYS", 4)
    path = [p for p in needed(made) if p.startswith("data/") and made.state.object_at(p) is not None][-1]
    flip(made.provider, path, 0)
    looking = Scrubbing.of(made, tmp_path, max_bytes_per_second=20_000)
    turn = LookingTurn()
    ended = 0
    while looking.notes.reading.whole_began_ms is None:
        for _ in looking.turns(turn):
            break
        looking = looking.again()
        ended += 1
        assert ended < 500
    assert ended > 2
    assert list(looking.damaged()) == [path]
    total = sum(stored.length for stored in made.provider.list(KEYS.root))
    assert sum(turn.spent) < total * 4, "what was looked at is not looked at again"


def test_processes_of_one_turn_each_do_both_walks(made: Scene, tmp_path: Path) -> None:
    """Kept: place, time, and whose turn it was. Else each process would begin with the listing that is due once more."""
    options = {"list_interval_ms": 1000, "max_bytes_per_second": 20_000}
    looking = Scrubbing.of(made, tmp_path, **options)
    kinds = []
    for _ in range(500):
        figures = next(looking.turns()).figures
        kinds.append("reading" if "reading_objects" in figures else "listing")
        looking = looking.again()  # killed: nobody told it to keep anything
        made.clock.advance(2 - 600)  # of(): nor is a walk under way waited for
        if looking.notes.reading.ended_ms is not None:
            break
    assert looking.notes.reading.ended_ms == looking.task.figures()["last_read_end_ms"] != 0
    assert kinds[:4] == ["listing", "reading"] * 2


def test_what_has_waited_over_restarts_does_not_wait_again(made: Scene, tmp_path: Path) -> None:
    """A process that ends within the pause after its start would otherwise never look at anything."""
    clock = made.clock
    looking = Scrubbing.of(made, tmp_path)
    looking.rest()

    def is_due_after(seconds: float) -> bool:
        new = Scrubbing.of(made, tmp_path)
        clock.advance(seconds - 600)  # of(): the time a first turn waits for
        return new.task.due(clock.monotonic())

    assert not is_due_after(HOUR_MS / 1000)
    clock.advance(6 * 3600)
    log = made.daemon.log
    task = type(looking.task)(log.reader, log.proven, clock, Scrub(), looking.book)
    assert task.due(clock.monotonic()), "due for longer than the pause"
    clock.advance(-2 * 3600)
    task = type(looking.task)(log.reader, log.proven, clock, Scrub(), looking.book)
    assert not task.due(clock.monotonic())


def test_a_walk_that_does_not_come_to_its_end_is_said(made: Scene, tmp_path: Path) -> None:
    looking = Scrubbing.of(made, tmp_path, max_bytes_per_second=1000)
    assert looking.task.overdue() is None
    made.clock.advance(61 * ONE_DAY_MS / 1000)
    found = str(looking.task.overdue())
    assert "all bytes is overdue" in found
    assert "scrub.read_interval_ms" in found
    assert looking.task.document()["overdue"] == found
    fast = Scrubbing.of(made, tmp_path, enabled=False)
    assert fast.task.overdue() is None, "nobody is to walk"
    fast = Scrubbing.of(made, tmp_path)
    assert "all bytes is overdue" in str(next(fast.turns()).trouble)
    fast.rest()
    assert fast.task.overdue() is None
    assert fast.task.trouble() is None
    ended = fast.task.figures()
    assert ended["last_read_end_ms"] >= ended["last_read_ms"] > 0
    made.clock.advance(13 * 3600)
    assert "all keys is overdue" in str(fast.again().task.overdue()), "and so it is after a restart"


def test_what_is_stopped_in_the_middle_of_an_object_begins_it_again(made: Scene, tmp_path: Path) -> None:
    looking = Scrubbing.of(made, tmp_path)

    def stop(byte_count: int) -> None:
        raise Stopped

    with pytest.raises(Stopped):
        looking.rest(LookingTurn(on_spend=stop))
    looking.rest()
    assert looking.notes.listing.whole_objects == len(paths(made.provider))
    assert looking.notes.reading.whole_objects == len(paths(made.provider))


def test_bytes_a_second_are_kept(made: Scene) -> None:
    rate = 4000
    looking = Scrubbing.of(made, max_bytes_per_second=rate)
    spent: list[tuple[float, int]] = []
    clock = made.clock
    looking.rest(LookingTurn(on_spend=lambda n: spent.append((clock.monotonic(), n))))
    assert looking.notes.reading.whole_objects
    largest = max(stored.length for stored in made.provider.list(KEYS.root))
    for i, (begin, _) in enumerate(spent):
        for seconds in (1, 10, 100):
            count = sum(n for at, n in spent[i:] if at < begin + seconds)
            assert count <= rate * seconds + 2 * (rate + largest)


def test_an_error_of_the_store_is_raised_and_the_place_kept(made: Scene, tmp_path: Path) -> None:
    looking = Scrubbing.of(made, tmp_path)
    looking.rest()
    made.clock.advance(31 * ONE_DAY_MS / 1000)

    def away(key: str, start: int, length: int) -> None:
        raise Unavailable("away")

    made.provider.gate = away
    with pytest.raises(Unavailable):
        looking.rest()
    made.provider.gate = lambda key, start, length: None
    looking.rest()
    assert looking.damaged() == {}


def tried(made: Scene, looking: Scrubbing, seconds: float = HOUR_MS / 1000) -> set[str]:
    """Turns as the daemon has them, which tries again after an error; what was said."""
    said = set[str]()
    for _ in range(int(seconds / 60)):
        if looking.task.due(made.clock.monotonic()):
            try:
                said.add(looking.task.run_once(LookingTurn()).trouble or "")
            except (Unavailable, Invalid) as error:
                said.add(error.message)
                with suppress(TieredError):
                    looking.task.heard(error)
        made.clock.advance(60)
    return said


@pytest.mark.parametrize("error", [Unavailable, Invalid])
def test_what_the_store_never_gives_is_listed_and_holds_nothing_else_back(
    made: Scene, error: type[TieredError]
) -> None:
    """A bad sector under one file, or an object that was moved to a class of storage that must be restored first."""
    looking = Scrubbing.of(made)
    looking.rest()
    path = next(p for p in needed(made) if p.startswith(("data/", "segment/")))
    last = needed(made)[-1]
    sound = flip(made.provider, last, made.provider.head(KEYS.key(last)).length - 1)

    def fails(key: str, start: int, length: int) -> None:
        if key == KEYS.key(path):
            raise error("cannot read an object", key=key, found="EIO")

    made.provider.gate = fails
    made.clock.advance(31 * ONE_DAY_MS / 1000)
    assert tried(made, looking, 300) == {"", "cannot read an object"}, "it may pass"
    assert looking.damaged() == {}
    tried(made, looking)
    assert set(looking.damaged()) == {path, last}
    assert looking.damaged()[path] == "an object cannot be read, while the store gives others"
    made.clock.advance(ONE_DAY_MS / 1000)
    assert "cannot read an object" not in tried(made, looking, 300), "it is known"
    assert not looking.notes.listing.under_way
    assert set(looking.damaged()) == {path, last}
    made.provider.gate = lambda key, start, length: None
    overwrite(made.provider, last, sound)
    looking.later(0.3)
    assert looking.damaged() == {}


@pytest.mark.parametrize("days", [31, 1])
def test_a_checkpoint_that_the_store_never_gives_holds_no_walk_up(made: Scene, days: int) -> None:
    """Also where its shards are looked for, which it names: the walk over the listing asks for nothing else of it."""
    looking = Scrubbing.of(made)
    looking.rest()
    path = next(p for p in needed(made) if p.startswith("checkpoint/"))

    def fails(key: str, start: int, length: int) -> None:
        if key == KEYS.key(path):
            raise Unavailable("cannot read an object", key=key, found="EIO")

    made.provider.gate = fails
    made.clock.advance(days * ONE_DAY_MS / 1000)
    tried(made, looking, 2 * HOUR_MS / 1000)
    assert set(looking.damaged()) == {path}
    assert not looking.notes.listing.under_way
    assert not looking.notes.reading.under_way
    reader = made.daemon.log.reader
    for deep in (True, False):
        found = look(reader, lambda: made.state, made.clock, deep=deep)
        assert set(found.notes.findings) == {path}
        assert found.figures["keys"] == len(paths(made.provider))
    made.provider.gate = lambda key, start, length: None
    looking.later(0.3)
    assert looking.damaged() == {}


@pytest.mark.parametrize("error", [Unavailable, Invalid])
def test_a_walk_of_a_verb_lists_what_the_store_does_not_give_and_goes_on(
    made: Scene, error: type[TieredError]
) -> None:
    path, last = next(p for p in needed(made) if p.startswith(("data/", "segment/"))), needed(made)[-1]
    flip(made.provider, last, made.provider.head(KEYS.key(last)).length - 1)
    failing = {KEYS.key(path)}

    def fails(key: str, start: int, length: int) -> None:
        if key in failing:
            raise error("cannot read an object", key=key, found="EIO")

    made.provider.gate = fails
    reader = made.daemon.log.reader
    found = look(reader, lambda: made.state, made.clock, deep=True)
    assert set(found.notes.findings) == {path, last}
    assert found.notes.findings[path].what == "an object cannot be read, while the store gives others"
    failing.add(reader.keys.identity)
    with pytest.raises(error, match="cannot read an object"):
        look(reader, lambda: made.state, made.clock, deep=True)


def test_a_walk_of_a_verb_lists_nothing_that_the_store_gives_a_little_later(made: Scene) -> None:
    """Each object fails once, as where a store is asked for too much."""
    tried = set[str]()
    spoilt = next(p for p in needed(made) if p.startswith(("data/", "segment/")))
    flip(made.provider, spoilt, made.provider.head(KEYS.key(spoilt)).length - 1)

    def fails(key: str, start: int, length: int) -> None:
        if key != KEYS.identity and key not in tried:
            tried.add(key)
            raise Unavailable("slow down", key=key)

    reader, state = made.daemon.log.reader, made.state
    made.provider.gate = fails
    found = look(reader, lambda: state, made.clock, deep=True)
    assert len(tried) > 10
    assert set(found.notes.findings) == {spoilt}
    assert "slow" not in found.notes.findings[spoilt].detail


@pytest.mark.parametrize("inline_bytes", [0, 1 << 20])
def test_a_task_that_an_unreadable_object_holds_up_goes_on_without_it(
    tmp_path: Path, inline_bytes: int
) -> None:
    with scene(tmp_path, inline_bytes=inline_bytes) as small:
        spread(small, 4)
        looking = Scrubbing.of(small)
        looking.rest()
        task = merging(small.daemon, damaged=Quarantine(looking.book).objects)
        item = next(o for o in small.state.objects() if o.references)
        path = item.path or build(CommitKey(item.ref.commit_seq))

        def fails(key: str, start: int, length: int) -> None:
            if key == KEYS.key(path):
                raise Unavailable("cannot read an object", key=key, found="EIO")

        small.provider.gate = fails
        failed, more, before = 0, True, small.state.head()
        while more and failed < 10:
            try:
                more = task.run_once(AtOnceTurn(small.daemon)).more
            except Unavailable as error:
                failed += 1
                looking.task.heard(error)
            small.clock.advance(120)
        assert 6 <= failed <= 7
        assert list(looking.damaged()) == [path]
        assert small.state.head() != before, "all others are merged"
        small.provider.gate = lambda key, start, length: None
        looking.later(0.3)
        assert looking.damaged() == {}


def test_what_fails_now_and_then_or_is_not_needed_is_not_listed(small: Scene) -> None:
    spread(small, 2)
    looking = Scrubbing.of(small)
    path = next(small.state.needed_paths("data/"))
    errors: list[TieredError] = [
        Unavailable("no", key=KEYS.data(7, b"o" * 16)),
        Unavailable("away"),
        Refused("a key"),
    ]
    for hours, error in [(2, Unavailable("no", key=KEYS.key(path))), *((0.1, error) for error in errors)]:
        for _ in range(20):
            looking.task.heard(error)
            small.clock.advance(hours * 3600)
    assert looking.damaged() == {}


def test_what_was_read_between_two_failures_is_not_listed(small: Scene) -> None:
    spread(small, 2)
    looking = Scrubbing.of(small)
    looking.rest()
    path = next(small.state.needed_paths("data/"))
    small.clock.advance(31 * ONE_DAY_MS / 1000)
    looking.task.heard(Unavailable("no", key=KEYS.key(path)))
    looking.rest()
    assert not looking.notes.reading.under_way
    small.clock.advance(1200)
    looking.task.heard(Unavailable("no", key=KEYS.key(path)))
    assert looking.damaged() == {}


def test_while_the_store_gives_nothing_no_key_is_called_damaged(made: Scene) -> None:
    looking = Scrubbing.of(made)
    looking.rest()
    made.clock.advance(31 * ONE_DAY_MS / 1000)

    def away(key: str, start: int, length: int) -> None:
        raise Unavailable("away", key=key)

    made.provider.gate = away
    assert tried(made, looking, 86_400) == {"away"}
    assert looking.damaged() == {}


def test_the_time_in_which_the_store_gave_nothing_counts_for_no_key(small: Scene) -> None:
    """The first answer after an outage comes between a task's last try and the question whether anything is given."""
    spread(small, 2)
    looking = Scrubbing.of(small)
    looking.rest()
    path = next(small.state.needed_paths("data/"))

    def away(key: str, start: int, length: int) -> None:
        raise Unavailable("away", key=key)

    small.provider.gate = away
    for _ in range(20):
        with suppress(Unavailable):
            looking.task.heard(Unavailable("no", key=KEYS.key(path)))
        small.clock.advance(60)
    small.provider.gate = lambda key, start, length: None
    looking.task.heard(Unavailable("no", key=KEYS.key(path)))
    assert looking.damaged() == {}


def test_what_is_no_longer_needed_is_no_damage(own: Scene) -> None:
    path = [p for p in needed(own) if p.startswith("data/") and own.state.object_at(p) is not None][-1]
    flip(own.provider, path, 0)
    looking = Scrubbing.of(own)
    looking.rest()
    assert list(looking.damaged()) == [path]
    Sweeping.of(own).all(Sweeping.of(own).retention)
    own.clock.advance(40 * ONE_DAY_MS / 1000)
    sweeping = Sweeping.of(own)
    sweeping.all(sweeping.retention)
    assert not [o for o in own.state.objects() if o.path == path and o.references]
    looking.later(0.3)
    assert looking.damaged() == {}


def test_what_is_gone_by_law_is_no_longer_listed(made: Scene) -> None:
    path = KEYS.path(KEYS.data(1, b"stray-of-sixteen")) or ""
    looking = Scrubbing.of(made)
    looking.rest()
    looking.book.notes = looking.notes.damaged(DamagedKey(path, "a block fails its checksum", "", 0, 1, 1))
    made.provider.delete(KEYS.key(path))
    looking.later(0.3)
    assert looking.damaged() == {}


def test_it_says_what_is_wrong_and_that_it_is_slow(made: Scene) -> None:
    looking = Scrubbing.of(
        made, max_bytes_per_second=1000, read_interval_ms=20_000, list_interval_ms=ONE_DAY_MS
    )
    troubles = [done.trouble for done in islice(looking.turns(), 100)]
    assert any("scrub.max_bytes_per_second" in str(trouble) for trouble in troubles)
    path = next(p for p in needed(made) if p.startswith("shard/"))
    flip(made.provider, path, 0)
    looking = Scrubbing.of(made)
    looking.rest()
    trouble = str(looking.task.trouble())
    assert KEYS.key(path) in trouble
    assert "tiered scrub lists all" in trouble
    assert looking.task.plan().figures["damaged_keys"] == 1


def test_findings_are_bounded_and_counted(
    made: Scene, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(notes_module, "MOST_FINDINGS", 2)
    known = [p for p in needed(made) if p.startswith("commit/") and p != build(CommitKey(1))]
    for path in known:
        flip(made.provider, path, made.provider.head(KEYS.key(path)).length - 1)
    looking = Scrubbing.of(made, tmp_path)
    looking.rest()
    assert len(looking.notes.findings) == 2
    assert looking.task.figures()["damaged_keys"] >= len(known)
    assert looking.again().notes == looking.notes


def test_what_there_was_no_room_for_is_told_until_it_is_listed_or_sound(
    made: Scene, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(notes_module, "MOST_FINDINGS", 2)
    known = [p for p in needed(made) if p.startswith("commit/") and p != build(CommitKey(1))][:5]
    sound = {path: flip(made.provider, path, made.provider.head(KEYS.key(path)).length - 1) for path in known}
    looking = Scrubbing.of(made, tmp_path)
    looking.rest()
    while sound:
        assert looking.task.figures()["damaged_keys"] >= len(sound)
        assert looking.task.trouble()
        listed = list(looking.damaged())
        assert len(listed) == min(2, len(sound))
        for path in listed:
            overwrite(made.provider, path, sound.pop(path))
        looking.later(0.3)
        looking = looking.again()
        looking.rest()
    assert looking.task.figures()["damaged_keys"] == 0
    assert looking.task.trouble() is None


def test_missing_keys_are_told_though_more_than_can_be_listed(
    own: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By each walk over the listing, and none of them twice."""
    monkeypatch.setattr(notes_module, "MOST_FINDINGS", 2)
    looking = Scrubbing.of(own)
    looking.rest()
    gone = [p for p in needed(own) if p.startswith("commit/") and p != build(CommitKey(1))][:5]
    for path in gone:
        own.provider.delete(KEYS.key(path))
    for days in (0.3, 0.3, 31, 0.3, 31):
        looking.later(days)
        assert looking.task.figures()["damaged_keys"] == len(gone)


def test_notes_that_are_damaged_or_anothers_are_begun_anew(made: Scene, tmp_path: Path) -> None:
    looking = Scrubbing.of(made, tmp_path)
    looking.rest()
    archive_id = made.daemon.log.reader.identity.archive_id
    kept = read_notes(tmp_path, archive_id)
    assert kept == looking.notes
    assert read_notes(tmp_path, b"x" * 16) is None
    file = tmp_path / NOTES_FILE
    data = file.read_bytes()
    for spoiled in (b"", data[:-3], data.replace(b"1", b"2", 1), b"\n", b"{}\n00000000\n"):
        file.write_bytes(spoiled)
        assert read_notes(tmp_path, archive_id) is None
        assert looking.again().notes.listing.number == 0


def test_what_there_is_nothing_to_compare_with_is_counted_and_no_damage(small: Scene) -> None:
    """A place of the layout that holds nothing yet, and keys of somebody else."""
    small.send(3)
    config = build(ObjectKey(Area.CONFIG, 1, b"config-of-broker"))
    for path in (config, "notes-of-somebody.txt"):
        small.provider.put(KEYS.key(path), [b"anything"])
    looking = Scrubbing.of(small)
    looking.rest()
    flip(small.provider, config, 2)
    looking.later()
    assert looking.damaged() == {}
    for notes in (looking.notes.listing.notes, looking.notes.reading.notes):
        assert (notes["skipped"], notes["foreign"]) == (1, 1)


def test_it_can_be_switched_off(made: Scene) -> None:
    looking = Scrubbing.of(made, enabled=False)
    assert looking.rest() == []
    assert looking.task.plan().jobs == 0


def test_an_empty_archive(made: Scene) -> None:
    provider: Provider = made.provider
    for path in paths(provider):
        if not path.startswith("archive"):
            provider.delete(KEYS.key(path))
    looking = Scrubbing.of(made)
    looking.rest()
    assert len(looking.damaged()) == len(list(made.state.needed_paths(""))) + made_commits(made)


def made_commits(made: Scene) -> int:
    head = made.state.head()
    assert head is not None
    return head.seq + 1


def test_what_is_damaged_is_left_alone_until_it_is_mended(small: Scene) -> None:
    """No job of a merge takes it, so that it is not read again and again; all else is merged."""
    spread(small, 6)
    looking = Scrubbing.of(small)
    damaged = next(o for o in small.state.objects() if o.references)
    sound = flip(small.provider, damaged.path, 0)
    looking.rest()
    quarantine = Quarantine(looking.book)
    assert quarantine.objects(small.state) == {damaged.ref}
    done = merge_all(small.daemon, damaged=quarantine.objects)
    assert [one.trouble for one in done if one.trouble is not None] == [], "it was not even tried"
    left = {o.ref for o in small.state.objects() if o.references and not o.level}
    assert left == {damaged.ref}
    overwrite(small.provider, damaged.path, sound)
    looking.later(0.3)
    merge_all(small.daemon, damaged=quarantine.objects)
    assert not [o for o in small.state.objects() if o.references and not o.level]


def test_inline_data_is_left_alone_by_its_commit(tmp_path: Path) -> None:
    with scene(tmp_path, inline_bytes=1 << 20) as made:
        spread(made, 2)
        item = next(o for o in made.state.objects() if o.references)
        flip(made.provider, build(CommitKey(item.ref.commit_seq)), 0)
        looking = Scrubbing.of(made)
        looking.rest()
        assert Quarantine(looking.book).objects(made.state) == {item.ref}


def test_a_damaged_object_that_no_commit_names_is_not_deleted(small: Scene) -> None:
    """What it holds may be all that is left of a lost commit, and nobody can say so."""
    small.send(3)
    stray = KEYS.path(KEYS.data(1, b"stray-of-sixteen")) or ""
    whole = bytes(small.provider.get(KEYS.key(next(small.state.needed_paths("data/")))).data)
    small.provider.put(KEYS.key(stray), [whole[:-1] + b"x"])
    looking = Scrubbing.of(small)
    looking.rest()
    assert list(looking.damaged()) == [stray]
    start_again(small)
    quarantine = Quarantine(looking.book)
    for damaged, named in ((quarantine.paths, 0), (tuple, 1)):
        gc = Collection(small.daemon.log, small.clock, Gc(enabled="true"), OwnKeys(), damaged=damaged)
        assert gc.plan().jobs == named
        done = gc.run_once(AtOnceTurn(small.daemon))
        assert done.figures.get("named_keys", 0) == named


def test_what_is_archived_while_a_page_is_looked_at_need_not_be_listed(small: Scene) -> None:
    spread(small, 4)
    looking = Scrubbing.of(small)

    def archive(byte_count: int) -> None:
        turn.on_spend = lambda byte_count: None
        spread(small, 4, seed=9)

    turn = LookingTurn(on_spend=archive)
    looking.rest(turn)
    assert looking.damaged() == {}
    assert "late" not in {**looking.notes.listing.notes, **looking.notes.reading.notes}
