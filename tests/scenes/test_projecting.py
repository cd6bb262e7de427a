"""Projections by key: made from the one before and what came since, believed only where they hold, and never needed."""

from __future__ import annotations

import random
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from tests.kit.archiveedits import Edits, rewind, start_again
from tests.kit.assemble import KEYS
from tests.kit.collecting import Sweeping
from tests.kit.command import archive_once, tiered
from tests.kit.fetchscene import ORDERS, SETTLED_SECONDS, Scene, scene
from tests.kit.merging import AtOnceTurn, merge_all
from tests.kit.pipeline import INNER_BATCH, Crafted
from tests.kit.projecting import (
    folded,
    project_all,
    projected,
    projecting,
    send_keyed,
    stored_projections,
    view_of,
)
from tiered import crashpoint
from tiered.archive.log.maintenance import OwnKeys
from tiered.archive.read.compaction import CompactedQueue
from tiered.archive.read.projection import newest_projection, read_projection
from tiered.archive.read.view import View
from tiered.archive.rewrite import projectionbuild
from tiered.archive.rewrite.projecting import Projecting
from tiered.codec.checksum import crc32c
from tiered.codec.format import projection as projection_format
from tiered.codec.format.projection import (
    KEY_ENTRY,
    ProjectionHead,
    decode_chunk,
    decode_head,
    encode_chunks,
    encode_head,
)
from tiered.codec.format.sections import Section
from tiered.crashpoint import ProjectionPoint
from tiered.errors import Corrupt, TieredError, Unavailable
from tiered.model import MessageQueue


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Scene]:
    with scene(tmp_path) as made:
        yield made
    crashpoint.install(None)


def figures(made: Scene, task: object) -> dict[str, int]:
    sums: dict[str, int] = {}
    for done in project_all(made, task):  # type: ignore[arg-type]
        assert done.trouble is None
        for name, value in done.figures.items():
            sums[name] = sums.get(name, 0) + int(value or 0)
    return sums


def test_only_what_is_new_is_read_and_the_old_one_given_up(small: Scene) -> None:
    send_keyed(small, random.Random(1), 300, 40)
    own_keys = OwnKeys()
    task = projecting(small, own_keys, messages=10_000)
    assert figures(small, task)["read_messages"] == 300
    (first,) = stored_projections(small)
    send_keyed(small, random.Random(2), 5, 40)
    assert figures(small, task)["read_messages"] == 5
    assert [path for path in stored_projections(small) if path != first]
    assert own_keys.given_up() == [first]
    assert projected(small) == folded(small) != []
    assert figures(small, projecting(small)) == {}, "another process finds it, and has nothing to do"


def test_a_reader_takes_the_projection_and_reads_no_superseded_message(small: Scene) -> None:
    send_keyed(small, random.Random(1), 400, 5)
    merge_all(small.daemon)
    send_keyed(small, random.Random(2), 400, 5)
    merge_all(small.daemon)
    project_all(small, projecting(small, messages=10_000))
    expected = [offset for offset, _ in folded(small)]
    view, asked = view_of(small), []
    for projection in (None, newest_projection(view, ORDERS)):
        small.provider.gets.clear()
        found = CompactedQueue(view, ORDERS, memory_bytes=4096, projection=projection)
        kept = np.concatenate(list(found.offsets()))
        assert kept.tolist() == expected
        asked.append(sum(length for key, _, length in small.provider.gets if "/data/" in key))
    assert asked[0] > 20_000
    assert asked[1] == 0, "which ones they are stands in the projection"
    found = newest_projection(view, ORDERS)
    assert found is not None
    assert found.head.entries == len(folded(small))
    assert (found.head.seq, found.head.commit_id) == (view.head.seq, view.head.commit_id)  # type: ignore[union-attr]


@pytest.mark.parametrize("point", list(ProjectionPoint))
def test_a_crash_around_the_put_leaves_nothing_doubled(small: Scene, point: ProjectionPoint) -> None:
    send_keyed(small, random.Random(1), 80, 10)
    project_all(small, projecting(small))
    send_keyed(small, random.Random(2), 40, 10)

    def die(reached: crashpoint.Point) -> None:
        if reached is point:
            raise KeyboardInterrupt

    crashpoint.install(die)
    with pytest.raises(KeyboardInterrupt):
        project_all(small, projecting(small))
    crashpoint.install(None)
    start_again(small)
    assert projected(small) == folded(small)
    sweeping = Sweeping.of(small)
    project_all(small, projecting(small, sweeping.own_keys))
    assert projected(small) == folded(small)
    sweeping.count(sweeping.gc)
    sweeping.after_grace()
    (left,) = stored_projections(small)
    assert newest_projection(view_of(small), ORDERS).path == left  # type: ignore[union-attr]
    assert projected(small) == folded(small)


def test_before_it_was_made_every_message_is_read(small: Scene) -> None:
    send_keyed(small, random.Random(1), 60, 10)
    now, expected = view_of(small), folded(small)
    kept = View(now.head, small.daemon.log.frozen(), now.objects, now.log)
    send_keyed(small, random.Random(2), 60, 10)
    Edits(small).trim(ORDERS, 30)
    project_all(small, projecting(small))
    assert newest_projection(kept, ORDERS) is None
    assert projected(small, kept) == expected
    assert newest_projection(view_of(small), ORDERS) is not None


def test_newer_ones_than_the_view_hide_none_that_it_may_believe(small: Scene) -> None:
    send_keyed(small, random.Random(1), 30, 10)
    task = projecting(small)
    project_all(small, task)
    now = view_of(small)
    before = View(now.head, small.daemon.log.frozen(), now.objects, now.log)
    believed, expected = newest_projection(before, ORDERS), folded(small)
    for seed in range(5):
        send_keyed(small, random.Random(seed), 30, 10)
        project_all(small, task)
    assert newest_projection(before, ORDERS) == believed is not None
    assert projected(small, before) == expected
    assert newest_projection(view_of(small), ORDERS) != believed


def test_what_the_broker_lost_and_wrote_anew_is_not_believed(small: Scene) -> None:
    send_keyed(small, random.Random(1), 120, 10)
    task = projecting(small, messages=10_000)
    project_all(small, task)
    plain = [m for m, _ in small.broker.sent[-20:] if not m.sys_flag]
    rewind(small, plain[0])
    assert newest_projection(view_of(small), ORDERS) is None
    assert projected(small) == folded(small)
    send_keyed(small, random.Random(3), 60, 10)
    assert newest_projection(view_of(small), ORDERS) is None, "though the queue is as long as it was"
    assert projected(small) == folded(small)
    project_all(small, projecting(small))
    assert newest_projection(view_of(small), ORDERS) is not None
    assert projected(small) == folded(small)


def test_a_queue_that_was_cut_and_grows_no_more_is_projected_anew(small: Scene) -> None:
    send_keyed(small, random.Random(1), 120, 10)
    task = projecting(small, min_messages=50)
    project_all(small, task)
    plain = [m for m, _ in small.broker.sent[-20:] if not m.sys_flag]
    rewind(small, plain[0])
    task._log = small.daemon.log  # the same process would have compared with its broker again
    assert figures(small, task)["projections"] >= 1
    assert newest_projection(view_of(small), ORDERS) is not None
    assert projected(small) == folded(small)


def test_a_rewind_while_one_is_being_made(small: Scene) -> None:
    send_keyed(small, random.Random(1), 120, 10_000)
    task = projecting(small, messages=10_000, turn_bytes=15_000)
    for _ in range(2):
        task.run_once(AtOnceTurn(small.daemon))
    build = task._build
    assert build is not None
    assert 40 < build.position < build.target
    plain = [m for m, _ in small.broker.sent if not m.sys_flag and m.queue_offset < build.position]
    rewind(small, plain[-3])
    send_keyed(small, random.Random(2), 120, 10_000)
    task._log = small.daemon.log
    project_all(small, task)
    assert projected(small) == folded(small)
    assert newest_projection(view_of(small), ORDERS) is None, "what was read was dropped"
    small.clock.advance(3600)
    assert task.due(small.clock.monotonic())
    project_all(small, task)
    assert newest_projection(view_of(small), ORDERS) is not None
    assert projected(small) == folded(small)


def test_a_trim_inside_an_inner_batch_counts_from_there(small: Scene) -> None:
    for number in range(4):
        small.broker.send("Orders", 0, b"one %d" % number, properties={"KEYS": f"k{number}"})
    inner = {"KEYS": "batch", "INNER_NUM": "4"}
    small.broker.send("Orders", 0, b"many", sys_flag=INNER_BATCH, properties=inner)
    small.broker.send("Orders", 0, b"last", properties={"KEYS": "last"})
    small.daemon.settle(SETTLED_SECONDS)
    task = projecting(small)
    project_all(small, task)
    Edits(small).trim(ORDERS, 6)
    assert [raw for _, raw in projected(small)] == [raw for _, raw in folded(small)]
    assert len(projected(small)) == 2
    small.broker.send("Orders", 0, b"more", properties={"KEYS": "more"})
    small.daemon.settle(SETTLED_SECONDS)
    project_all(small, projecting(small))
    Edits(small).trim(ORDERS, 7)
    assert len(projected(small)) == 3
    assert projected(small) == folded(small)


def test_a_damaged_one_is_not_believed_and_made_anew(small: Scene) -> None:
    send_keyed(small, random.Random(1), 200, 100)
    project_all(small, projecting(small, messages=10_000))
    (path,) = stored_projections(small)
    data = bytearray(small.provider.get(KEYS.key(path)).data)
    for at in (30, len(data) - 60):
        spoilt = bytearray(data)
        spoilt[at] ^= 4
        small.provider.delete(KEYS.key(path))
        small.provider.put(KEYS.key(path), [bytes(spoilt)])
        assert projected(small) == folded(small)
        send_keyed(small, random.Random(at), 3, 100)
        with pytest.raises(Corrupt):
            for _ in read_projection(small.provider, KEYS.key(path), path).entries():
                pass
    task = projecting(small, messages=10_000, damaged=lambda: {path}, min_messages=100)
    assert figures(small, task)["read_messages"] > 200
    found = newest_projection(view_of(small), ORDERS)
    assert found is not None
    assert found.path != path
    assert projected(small) == folded(small)


def end_as_the_log(small: Scene, task: Projecting | None) -> None:
    """What a task began before the daemon started again is ended; the newest projection says what the log says."""
    if task is not None:
        task._log = small.daemon.log
        project_all(small, task)
        project_all(small, projecting(small))
    assert newest_projection(view_of(small), ORDERS) is not None
    assert projected(small) == folded(small)


@pytest.mark.parametrize("put", [False, True])
def test_what_is_left_of_a_damaged_one_counts_for_nothing(
    small: Scene, monkeypatch: pytest.MonkeyPatch, put: bool
) -> None:
    """It speaks of messages that are read anew later, or not for this projection, and that the broker may lose before."""
    for module in (projectionbuild, projection_format):
        monkeypatch.setattr(module, "CHUNK_ENTRIES", 16)
    send_keyed(small, random.Random(1), 200, 60)
    project_all(small, projecting(small, messages=10_000))
    (path,) = stored_projections(small)
    found = read_projection(small.provider, KEYS.key(path), path)
    assert len(found.head.chunks) > 2
    spoilt = bytearray(small.provider.get(KEYS.key(path)).data)
    spoilt[found.head.chunks[-1].position + 30] ^= 4
    small.provider.delete(KEYS.key(path))
    small.provider.put(KEYS.key(path), [bytes(spoilt)])
    send_keyed(small, random.Random(2), 3, 60)
    task = projecting(small, messages=100)
    for _ in range(100):
        task.run_once(AtOnceTurn(small.daemon))
        if len(stored_projections(small)) == 2 if put else task._build is not None:
            break
    plain = [m for m, _ in small.broker.sent[-60:-40] if not m.sys_flag]
    rewind(small, plain[0])
    send_keyed(small, random.Random(3), 60, 10)
    end_as_the_log(small, None if put else task)


def test_what_was_read_before_an_error_counts_for_nothing_once_it_is_lost(small: Scene) -> None:
    send_keyed(small, random.Random(1), 200, 60)
    merge_all(small.daemon)
    send_keyed(small, random.Random(2), 40, 60)
    task = projecting(small, messages=10_000, turn_bytes=1 << 20)
    task.run_once(AtOnceTurn(small.daemon))

    class Ending(AtOnceTurn):
        def spend(self, byte_count: int) -> None:
            super().spend(byte_count)
            if sum(self.spent) > 15_000:
                raise Unavailable("the store is away")

    with pytest.raises(Unavailable):
        task.run_once(Ending(small.daemon))
    build = task._build
    assert build is not None
    plain = [m for m, _ in small.broker.sent[30:50] if not m.sys_flag]
    rewind(small, plain[0])
    send_keyed(small, random.Random(3), 210, 10)
    end_as_the_log(small, task)


def test_topics_ask_by_pattern_or_by_their_attribute(small: Scene) -> None:
    send_keyed(small, random.Random(1), 30, 100)
    assert not projecting(small, patterns=()).due(1e9)
    quiet = projecting(small, patterns=("State*",))
    assert figures(small, quiet) == {}
    asked = projecting(small, patterns=(), asked=lambda: {"Orders"})
    found = small.state.queue(ORDERS)
    assert found is not None
    assert asked.plan().rows[0]["messages"] == found.messages
    assert figures(small, asked)["projections"] == 1

    def away() -> set[str]:
        raise Unavailable("the broker's list of topics cannot be read")

    send_keyed(small, random.Random(1), 30, 100)
    both = projecting(small, asked=away)
    assert "cannot be read" in str(both.plan().trouble)
    done = project_all(small, both)
    assert done[-1].trouble is not None
    assert sum(int(d.figures.get("projections") or 0) for d in done) == 1


def test_it_waits_for_enough_new_messages(small: Scene) -> None:
    send_keyed(small, random.Random(1), 50, 10_000)
    task = projecting(small, min_messages=5, renew_percent=50, messages=10_000)
    found = small.state.queue(ORDERS)
    assert found is not None
    assert figures(small, task)["projections"] == 1
    for count, made in ((4, 0), (2, 0), (25, 1)):
        send_keyed(small, random.Random(count), count, 10_000)
        small.clock.advance(601)
        assert task.due(small.clock.monotonic())
        assert figures(small, task).get("projections", 0) == made, count
    assert projected(small) == folded(small)


def test_projections_of_queues_that_are_gone_are_collected(small: Scene) -> None:
    for queue_id in range(4):
        small.broker.send("Orders", queue_id, b"one", properties={"KEYS": "k"})
    send_keyed(small, random.Random(1), 30, 10)
    project_all(small, projecting(small))
    strange = KEYS.key("projection/00112233445566ff/" + stored_projections(small)[0].rpartition("/")[2])
    small.provider.put(strange, [b"of a queue that nobody knows"])
    start_again(small)
    sweeping = Sweeping.of(small)
    sweeping.count(sweeping.gc)
    sweeping.after_grace()
    assert len(stored_projections(small)) == 4
    assert KEYS.path(strange) not in stored_projections(small)
    assert projected(small) == folded(small)


def test_bytes_and_back() -> None:
    entries = np.zeros(70_000, KEY_ENTRY)
    chance = np.random.default_rng(1)
    entries["high"] = np.sort(chance.integers(0, 1 << 63, 70_000, np.uint64) * 2)
    entries["low"] = chance.integers(0, 1 << 63, 70_000, np.uint64)
    entries["message"] = chance.permutation(70_000) * 2 + 1
    pieces = list(encode_chunks(entries))
    assert len(pieces) == 2
    chunks, at = [], 0
    for piece in pieces:
        chunks.append(Section(at, len(piece), crc32c(piece)))
        at += len(piece)
    queue = MessageQueue("Orders", 3)
    head = ProjectionHead(b"a" * 16, 7, b"c" * 16, queue, 2, 99, 5, 1, 70_000, tuple(chunks))
    tail = encode_head(head, at)
    assert decode_head(b"".join(pieces) + tail, key="k") == head
    back = np.concatenate([decode_chunk(p, c, key="k") for p, c in zip(pieces, chunks, strict=True)])
    assert (back == entries).all()
    assert at < 21 * len(entries)
    for position in range(len(tail)):
        spoilt = bytearray(tail)
        spoilt[position] ^= 1
        with pytest.raises(Corrupt):
            decode_head(bytes(spoilt), key="k")


def test_maintain_makes_them_and_the_verb_reads_them(tmp_path: Path) -> None:
    broker, archive = Crafted(tmp_path / "store", file_bytes=1 << 16), tmp_path / "archive"
    for body, key in ((b"one", "a"), (b"two", "b"), (b"three", "a"), (b"", "b"), (b"four", "c")):
        broker.send("State", 0, body, properties={"KEYS": key})
    assert archive_once(broker.store, archive, "hold.max_disk_percent=99").code == 0
    words = ("--archive", f"file://{archive}", "--set", f"state.directory={tmp_path / 'other'}")
    sets = ("--set", "compaction.topics=State", "--set", "compaction.min_messages=1", "--take-over")
    made = tiered("maintain", "--once", *words, *sets, "--json")
    assert made.code == 0, made.err
    assert len(list(archive.glob("*/*/projection/*/*"))) == 1
    rows = tiered("read", *words[:2], "--topic", "State", "--queue", 0, "--compacted", "--json").rows
    assert [row["queue_offset"] for row in rows] == [2, 4]
    assert tiered("verify", *words[:2], "--deep").code == 0
    scrubbed = tiered("scrub", "--once", *words, "--json")
    assert scrubbed.code == 0, scrubbed.err


def test_a_store_that_is_away_costs_nothing_that_was_read(small: Scene) -> None:
    send_keyed(small, random.Random(1), 300, 40)
    task = projecting(small, messages=10_000, turn_bytes=8_000)
    task.run_once(AtOnceTurn(small.daemon))
    read = int(task.run_once(AtOnceTurn(small.daemon)).figures["read_messages"] or 0)

    def away(key: str, start: int, length: int) -> None:
        if "/data/" in key:
            raise Unavailable("away")

    merge_all(small.daemon)
    small.provider.gate = away
    for _ in range(3):
        with pytest.raises(Unavailable):
            task.run_once(AtOnceTurn(small.daemon))
    small.provider.gate = lambda key, start, length: None
    assert figures(small, task)["read_messages"] == 300 - read
    found = newest_projection(view_of(small), ORDERS)
    assert found is not None
    without = sum(1 for m, _ in small.broker.sent if not m.properties.get("KEYS", "").strip())
    assert found.head.without_key == without > 0
    assert projected(small) == folded(small)


def test_a_queue_with_an_object_that_is_known_to_be_unreadable_holds_no_other_up(small: Scene) -> None:
    send_keyed(small, random.Random(1), 50, 20)
    before = set(small.state.needed_paths("data/"))
    small.broker.send("Orders", 1, b"x", properties={"KEYS": "k"})
    small.daemon.settle(SETTLED_SECONDS)
    (path,) = set(small.state.needed_paths("data/")) - before

    def fails(key: str, start: int, length: int) -> None:
        if key == KEYS.key(path):
            raise Unavailable("cannot read an object", key=key, found="EIO")

    small.provider.gate = fails
    damaged: set[str] = set()
    task = projecting(small, damaged=lambda: damaged)
    with pytest.raises(Unavailable):
        project_all(small, task)
    damaged.add(path)
    done = project_all(small, task)
    assert any("no projection of Orders queue 1" in (one.trouble or "") for one in done)
    assert newest_projection(view_of(small), ORDERS) is not None


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """No file grows beyond this: what would is cut there, as on a disk that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_disk_that_is_full_for_a_while_leaves_nothing_between_the_keys(
    small: Scene, tmp_path: Path
) -> None:
    send_keyed(small, random.Random(1), 500, 5000)
    task = projecting(small, memory_bytes=6000, directory=str(tmp_path / "compaction"), messages=10_000)
    for size in (250, 500):
        with files_of_at_most(size), pytest.raises(TieredError):
            project_all(small, task)
    assert figures(small, task)["projections"] == 1
    assert projected(small) == folded(small)


def test_more_keys_than_there_is_room_for(small: Scene, tmp_path: Path) -> None:
    directory = tmp_path / "state" / "compaction"
    directory.parent.mkdir()
    directory.mkdir()
    (directory / "left by a process that ended").write_bytes(b"x")
    send_keyed(small, random.Random(1), 500, 5000)
    task = projecting(small, memory_bytes=512, directory=str(directory), messages=10_000)
    task.run_once(AtOnceTurn(small.daemon))
    assert not any(directory.iterdir())
    assert figures(small, task)["projections"] == 1
    assert not directory.exists()
    assert projected(small) == folded(small)
    with open(directory.parent / "compaction", "wb"):
        send_keyed(small, random.Random(2), 5, 10)
        with pytest.raises(TieredError):
            project_all(small, projecting(small, directory=str(directory)))
