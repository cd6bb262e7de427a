"""The read facade: what a read is answered, from a view that is only as old as it may be."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.kit.aged import READABLE, Stage, aged_cold
from tests.kit.assemble import KEYS, AtOnce
from tests.kit.pipeline import INNER_BATCH
from tests.kit.readstore import READER, Cold, cold, with_fetch
from tiered.archive.read.lookup import KeyLookup
from tiered.clock import ManualClock
from tiered.codec.record.message import Message, decode_message
from tiered.errors import Corrupt, Invalid, NotFound, TieredError, Unavailable
from tiered.fetch.base import ReaderId
from tiered.fetch.pull import Pull
from tiered.metadata.memory import MemoryStore
from tiered.metadata.open import open_metadata
from tiered.metrics import Metrics
from tiered.model import GetMessageResult, GetMessageStatus, QueueOffset
from tiered.provider.memory import named_objects
from tiered.settings import Archive, Settings, Source
from tiered.store import MessageStore
from tiered.store.answer import decide
from tiered.store.localfold import PREFIX, local_fold

S = GetMessageStatus


def two_flushes(made: Cold) -> Cold:
    """Forty messages in two queues, archived in two flushes, and a reader."""
    for flush in range(2):
        for number in range(20):
            made.broker.time_ms += 10
            made.broker.send(
                queue_id=number % 2, body=b"%d" % (20 * flush + number),
                properties={"KEYS": f"k{number % 4}", "UNIQ_KEY": f"U{20 * flush + number}"},
            )  # fmt: skip
        made.archive()
    made.open()
    return made


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Cold]:
    """As it was archived."""
    with cold(tmp_path, open_now=False) as made:
        yield two_flushes(made)


@pytest.fixture(params=READABLE, ids=lambda stage: stage.value)
def stage(request: pytest.FixtureRequest) -> Stage:
    """How old the archive is: whether merged, sealed or fresh must not show."""
    found: Stage = request.param
    return found


@pytest.fixture
def aged(tmp_path: Path, stage: Stage) -> Iterator[Cold]:
    """At every stage of ageing."""
    with aged_cold(tmp_path, stage, open_now=False) as made:
        yield two_flushes(made)


def looks(scene: Cold) -> int:
    """Looks at the log so far: each asks once for the listing of checkpoints."""
    return sum(call == ("list", KEYS.checkpoint_prefix) for call in scene.provider.calls)


def place(result: GetMessageResult) -> tuple[S, int, int]:
    return result.status, result.next_begin_offset, len(result.records)


def both(
    scene: Cold, topic: str, queue: int, offset: int, count: int = 32, **options: object
) -> GetMessageResult:
    """The answer; waiting and not waiting must agree."""
    found = scene.get(topic, queue, offset, count, **options)
    future = scene.store.get_message_async(Pull(READER, topic, queue, offset, count, **options))  # type: ignore[arg-type]
    assert future.result(timeout=10) == found
    return found


# ---- answers


def test_records_come_verbatim_with_their_offsets(aged: Cold) -> None:
    found = both(aged, "Orders", 1, 3, 5)
    assert place(found) == (S.FOUND, 8, 5)
    assert [bytes(r) for r in found.records] == aged.raws("Orders", 1)[3:8]
    assert found.queue_offsets == (3, 4, 5, 6, 7)
    assert (found.min_offset, found.max_offset) == (0, 20)
    whole = both(aged, "Orders", 0, 0, 1000)
    assert [bytes(r) for r in whole.records] == aged.raws("Orders", 0), "over runs of several commits"


@pytest.mark.parametrize(
    ("topic", "queue", "offset", "count", "status", "following"),
    [
        ("Nope", 0, 7, 32, S.NO_MATCHED_LOGIC_QUEUE, 7),
        ("Orders", 9, 7, 32, S.NO_MATCHED_LOGIC_QUEUE, 7),
        ("Orders", -1, 7, 32, S.NO_MATCHED_LOGIC_QUEUE, 7),
        ("Orders", 1 << 40, 7, 32, S.NO_MATCHED_LOGIC_QUEUE, 7),
        ("", 0, 0, 32, S.NO_MATCHED_LOGIC_QUEUE, 0),
        ("Ord\0ers", 0, 0, 32, S.NO_MATCHED_LOGIC_QUEUE, 0),
        ("\ud800", 0, 0, 32, S.NO_MATCHED_LOGIC_QUEUE, 0),
        ("Orders", 0, -1, 32, S.OFFSET_TOO_SMALL, 0),
        ("Orders", 0, -(1 << 63), 32, S.OFFSET_TOO_SMALL, 0),
        ("Orders", 0, 20, 32, S.OFFSET_OVERFLOW_ONE, 20),
        ("Orders", 0, 21, 32, S.OFFSET_OVERFLOW_BADLY, 20),
        ("Orders", 0, (1 << 63) - 1, 32, S.OFFSET_OVERFLOW_BADLY, 20),
        ("Orders", 0, 3, 0, S.OFFSET_FOUND_NULL, 3),
        ("Orders", 0, 3, -5, S.OFFSET_FOUND_NULL, 3),
        ("Orders", 0, 19, 1 << 40, S.FOUND, 20),
    ],
)
def test_bad_and_border_input(
    scene: Cold, topic: str, queue: int, offset: int, count: int, status: S, following: int
) -> None:
    found = both(scene, topic, queue, offset, count)
    assert (found.status, found.next_begin_offset) == (status, following)


def test_at_least_one_record_then_what_fits(aged: Cold) -> None:
    sizes = [len(raw) for raw in aged.raws("Orders", 0)]
    assert len(both(aged, "Orders", 0, 0, 32, max_bytes=0).records) == 1
    assert len(both(aged, "Orders", 0, 0, 32, max_bytes=-9).records) == 1
    assert len(both(aged, "Orders", 0, 0, 32, max_bytes=sum(sizes[:3])).records) == 3
    assert len(both(aged, "Orders", 0, 0, 32, max_bytes=sum(sizes[:3]) + sizes[3] - 1).records) == 3


def test_a_hole_is_said_and_never_stepped_over(tmp_path: Path, stage: Stage) -> None:
    with aged_cold(tmp_path, stage, open_now=False) as scene:
        for offset in (5, 6, 20, 21):
            scene.broker.send("Jumpy", 0, b"%d" % offset, queue_offset=offset)
        scene.archive()
        scene.open()
        assert place(both(scene, "Jumpy", 0, 0)) == (S.OFFSET_TOO_SMALL, 5, 0)
        assert place(both(scene, "Jumpy", 0, 5)) == (S.FOUND, 7, 2), "the answer ends where the hole begins"
        for inside in (7, 12, 19):
            assert place(both(scene, "Jumpy", 0, inside)) == (S.OFFSET_FOUND_NULL, 20, 0)
        assert both(scene, "Jumpy", 0, 20).queue_offsets == (20, 21)
        assert scene.store.message_time("Jumpy", 0, 12) is None


def test_inner_batches_come_whole(tmp_path: Path, stage: Stage) -> None:
    with aged_cold(tmp_path, stage, open_now=False) as scene:
        scene.broker.send("B", 0, b"first")
        scene.broker.send("B", 0, b"inner", sys_flag=INNER_BATCH, properties={"INNER_NUM": "5"})
        scene.broker.time_ms += 1000
        scene.broker.send("B", 0, b"after")
        scene.archive()
        scene.open()
        for offset in range(1, 6):
            found = both(scene, "B", 0, offset, 1)
            assert (found.status, found.queue_offsets, found.next_begin_offset) == (S.FOUND, (1,), 6)
            assert scene.store.message_time("B", 0, offset) == scene.broker.time_ms - 1000
        assert both(scene, "B", 0, 6).queue_offsets == (6,)
        assert scene.store.message_time("B", 0, 6) == scene.broker.time_ms


class Only:
    """A filter that wants certain bodies, and knows nothing from columns."""

    columns: tuple[str, ...] = ()

    def __init__(self, *bodies: bytes) -> None:
        self._bodies = bodies

    def may_match(self, rows: object, tags: object) -> object:
        raise AssertionError("it has no columns")

    def accepts(self, record: memoryview) -> bool:
        return decode_message(record).body in self._bodies


def test_filters(aged: Cold) -> None:
    found = both(aged, "Orders", 0, 2, 32, row_filter=Only(b"8", b"22"))
    assert (found.status, found.queue_offsets, found.next_begin_offset) == (S.FOUND, (4, 11), 20)
    assert place(both(aged, "Orders", 0, 2, 32, row_filter=Only())) == (S.NO_MATCHED_MESSAGE, 20, 0)


def test_a_filter_does_not_step_over_a_hole(tmp_path: Path, stage: Stage) -> None:
    with aged_cold(tmp_path, stage, open_now=False) as scene:
        for offset in (0, 1, 9):
            scene.broker.send("Jumpy", 0, b"%d" % offset, queue_offset=offset)
        scene.archive()
        scene.open()
        assert place(both(scene, "Jumpy", 0, 0, row_filter=Only(b"9"))) == (S.NO_MATCHED_MESSAGE, 2, 0)
        assert place(both(scene, "Jumpy", 0, 2, row_filter=Only(b"9"))) == (S.OFFSET_FOUND_NULL, 9, 0)
        assert both(scene, "Jumpy", 0, 9, row_filter=Only(b"9")).queue_offsets == (9,)


def test_a_new_generation_is_what_is_served(aged: Cold) -> None:
    aged.broker.send("Orders", 0, b"born again", queue_offset=0)
    aged.archive()
    assert len(aged.get("Orders", 0, 0, 1000).records) == 20, (
        "a view that is asked for what it has stays as it is"
    )
    aged.fresh()
    assert place(aged.get("Orders", 0, 20)) == (S.OFFSET_OVERFLOW_BADLY, 1, 0)
    found = aged.get("Orders", 0, 0, 1000)
    assert [bytes(r) for r in found.records] == [aged.broker.sent[-1][1]]
    assert aged.store.view_message(aged.broker.sent[0][0].physical_offset) is not None, (
        "the broker has it by id, too"
    )


def test_a_queue_emptied_by_a_rewind(tmp_path: Path, stage: Stage) -> None:
    with aged_cold(tmp_path, stage, open_now=False) as scene:
        scene.broker.send("Orders", 0, b"kept")
        scene.archive()
        lost = scene.broker.send("Lost", 0, b"lost")
        scene.archive()
        scene.open()
        assert scene.get("Lost", 0, 0).status is S.FOUND
        scene.broker.crash(lost.physical_offset)
        scene.broker.send("Orders", 0, b"after")
        scene.restart()
        scene.archive()
        scene.fresh()
        scene.get("Nope", 0, 0)  # a look
        assert place(both(scene, "Lost", 0, 3)) == (S.NO_MESSAGE_IN_QUEUE, 3, 0)
        assert scene.store.min_offset("Lost", 0) is None
        assert scene.store.earliest_message_time("Lost", 0) is None
        assert [q.queue.topic for q in scene.store.queues("Lost")] == ["Lost"]


def test_answers_are_counted(scene: Cold) -> None:
    scene.get("Orders", 0, 0, 2)
    scene.get("Orders", 0, 99)
    value = scene.metrics.value
    assert value("tiered_reads_total", status="FOUND") == 1
    assert value("tiered_reads_total", status="OFFSET_OVERFLOW_BADLY") == 1
    assert value("tiered_read_messages_total") == 2
    assert value("tiered_read_bytes_total") == sum(map(len, scene.raws("Orders", 0)[:2]))


# ---- following


def test_a_look_only_when_something_is_not_there(scene: Cold) -> None:
    scene.fresh()
    before = looks(scene)
    for offset in range(20):
        assert scene.get("Orders", 0, offset).status is S.FOUND
    assert scene.store.min_offset("Orders", 0) == 0
    assert looks(scene) == before
    scene.get("Orders", 0, 20)
    assert looks(scene) == before + 1


def test_looks_are_rare_and_shared(scene: Cold) -> None:
    scene.fresh()
    before = looks(scene)
    for _ in range(10):
        scene.get("Orders", 0, 20)
        scene.get("Nope", 0, 0)
        scene.get("Orders", 0, -1)
    assert looks(scene) == before + 1
    scene.clock.advance(0.999)
    scene.get("Orders", 0, 20)
    assert looks(scene) == before + 1
    scene.clock.advance(0.001)
    scene.get("Orders", 0, 20)
    assert looks(scene) == before + 2


def test_a_look_costs_two_requests_and_nothing_is_read_again(scene: Cold) -> None:
    scene.fresh()
    scene.provider.calls.clear()
    scene.get("Orders", 0, 20)
    assert [verb for verb, _ in scene.provider.calls] == ["get", "list"], (
        "the next commit, then no checkpoint above"
    )


def test_new_commits_are_found(scene: Cold) -> None:
    scene.broker.send("Orders", 0, b"late")
    scene.broker.send("Fresh", 3, b"topic")
    scene.archive()
    scene.fresh()
    assert place(scene.get("Orders", 0, 20)) == (S.FOUND, 21, 1)
    assert scene.get("Fresh", 3, 0).status is S.FOUND, "the same look brought it"
    assert scene.store.max_offset("Orders", 0) == 21


@pytest.mark.parametrize(
    "ask",
    [
        lambda s, m: s.min_offset("Fresh", 3),
        lambda s, m: s.max_offset("Fresh", 3),
        lambda s, m: s.earliest_message_time("Fresh", 3),
        lambda s, m: s.message_time("Fresh", 3, 0),
        lambda s, m: s.offset_by_time("Fresh", 3, 0),
        lambda s, m: s.query_message(KeyLookup("Fresh", "new", 1, 0, 1 << 60)),
        lambda s, m: s.query_message(KeyLookup("Fresh", "N", 1, 0, 1 << 60, unique=True)),
        lambda s, m: s.view_message(m.physical_offset),
    ],
    ids=["min", "max", "earliest", "time", "by time", "key", "unique key", "view"],
)
def test_every_question_about_the_unknown_looks(
    scene: Cold, ask: Callable[[MessageStore, Message], object]
) -> None:
    scene.broker.send("Fresh", 3, b"topic", properties={"KEYS": "new", "UNIQ_KEY": "N"})
    message = scene.broker.sent[-1][0]
    scene.store.follow()
    asked = scene.clock.monotonic()
    assert ask(scene.store, message) in (None, [])
    scene.archive()
    assert scene.clock.monotonic() > asked + 1
    assert ask(scene.store, message) not in (None, [])


def test_while_the_store_is_away_old_data_is_readable_and_the_rest_unavailable(scene: Cold) -> None:
    scene.fresh()
    away = _Away(scene)
    with away:
        assert len(scene.get("Orders", 0, 0).records) == 20
        for offset in (20, 21, -1):
            with pytest.raises(Unavailable):
                scene.get("Orders", 0, offset)
            with pytest.raises(Unavailable):
                scene.store.get_message_async(Pull(READER, "Orders", 0, offset, 1)).result(timeout=10)
        with pytest.raises(Unavailable):
            scene.get("Nope", 0, 0)
        assert away.asked == 1, "the last look counts, its error too"
        assert scene.store.max_offset("Orders", 0) == 20
        assert scene.metrics.value("tiered_reads_total", status="Unavailable") == 7
    scene.clock.advance(0.5)
    with pytest.raises(Unavailable):
        scene.get("Orders", 0, 20)
    scene.clock.advance(0.5)
    assert scene.get("Orders", 0, 20).status is S.OFFSET_OVERFLOW_ONE


class _Away:
    """The log cannot be asked; blocks can."""

    def __init__(self, scene: Cold) -> None:
        self._scene = scene
        self.asked = 0

    def __enter__(self) -> None:
        provider = self._scene.provider
        self._get = provider.get

        def get(key: str, start: int | None = None, length: int | None = None) -> object:
            head = self._scene.daemon.state.head()
            assert head is not None
            if key == KEYS.commit(head.seq + 1):
                self.asked += 1
                raise Unavailable("the store is away")
            return self._get(key, start, length)

        provider.get = get  # type: ignore[method-assign,assignment]

    def __exit__(self, *exc: object) -> None:
        del self._scene.provider.get


def test_concurrent_askers_share_one_look(scene: Cold) -> None:
    entered, go = threading.Event(), threading.Event()
    inner = scene.provider.list

    def slow(prefix: str, *, start_after: str | None = None, limit: int | None = None) -> object:
        entered.set()
        assert go.wait(20)
        return inner(prefix, start_after=start_after, limit=limit)

    scene.broker.send("Orders", 0, b"late")
    scene.archive()
    scene.fresh()
    before = looks(scene)
    scene.provider.list = slow  # type: ignore[method-assign,assignment]
    try:
        with ThreadPoolExecutor(8) as pool:
            first = pool.submit(scene.get, "Orders", 0, 20)
            assert entered.wait(20)
            waiting = [pool.submit(scene.get, "Orders", 0, 20) for _ in range(6)]
            unblocked = [scene.store.get_message_async(Pull(READER, "Orders", 0, 20, 1)) for _ in range(20)]
            assert len(scene.get("Orders", 0, 0).records) == 20, "who asks for old data does not wait"
            assert not first.done()
            assert not any(f.done() for f in (*waiting, *unblocked))
            go.set()
            assert {f.result(20).status for f in (first, *waiting, *unblocked)} == {S.FOUND}
    finally:
        del scene.provider.list
    assert looks(scene) == before + 1


def test_a_view_does_not_change_while_the_fold_goes_on(scene: Cold) -> None:
    view = scene.store.view
    scene.broker.send("Orders", 0, b"late")
    scene.archive()
    scene.fresh()
    assert scene.store.follow() is True
    assert scene.store.follow() is False
    found = decide(view.state, Pull(READER, "Orders", 0, 20, 1))
    assert isinstance(found, GetMessageResult)
    assert found.status is S.OFFSET_OVERFLOW_ONE
    assert scene.store.view.head != view.head


def test_an_hour_later_the_fold_is_compared_with_the_bucket_again(scene: Cold) -> None:
    scene.clock.advance(3601)
    scene.provider.calls.clear()
    scene.store.follow()
    head = scene.daemon.state.head()
    assert head is not None
    gets = [key for verb, key in scene.provider.calls if verb == "get"]
    assert gets == [KEYS.commit(head.seq), KEYS.commit(head.seq + 1)]


@contextmanager
def _with_a_deleted_object(tmp_path: Path) -> Iterator[Cold]:
    """The store's view names an object that is not there any more."""
    with cold(tmp_path, open_now=False, dispatch={"inline_bytes": 0}) as scene:
        scene.broker.send("Orders", 0, b"one")
        scene.archive()
        scene.open()
        item = next(iter(scene.daemon.state.objects()))
        scene.provider.delete(scene.store.view.objects.key_of(item))
        yield scene


def test_a_deleted_object_is_looked_for_once_more(tmp_path: Path) -> None:
    """An old view names an object that was replaced and deleted; a newer view names another."""
    with _with_a_deleted_object(tmp_path) as scene:
        with pytest.raises(Corrupt, match="missing"):
            scene.get("Orders", 0, 0)
        with pytest.raises(Corrupt, match="missing"):
            scene.store.get_message_async(Pull(READER, "Orders", 0, 0, 1)).result(timeout=10)
        scene.broker.send("Orders", 0, b"restarted", queue_offset=0)
        scene.archive()
        assert [bytes(r) for r in scene.get("Orders", 0, 0).records] == [scene.broker.sent[-1][1]]


def test_a_newer_view_that_another_reader_brought_is_tried_too(tmp_path: Path) -> None:
    """Two readers meet the deleted object; the second one's look finds nothing new, since the first has just looked."""
    with _with_a_deleted_object(tmp_path) as scene:
        scene.broker.send("Orders", 0, b"restarted", queue_offset=0)
        scene.archive()
        follower = scene.store._follower
        look = follower.follow

        def beaten(*, force: bool = False) -> bool:
            look(force=force)
            return look(force=force)

        with patch.object(follower, "follow", beaten):
            assert [bytes(r) for r in scene.get("Orders", 0, 0).records] == [scene.broker.sent[-1][1]]


# ---- opening and closing


def settings(name: str, **source: str) -> Settings:
    return Settings(archive=Archive(url=f"memory://{name}"), source=Source(**source))


def test_opening_what_is_not_there(tmp_path: Path) -> None:
    clock, metrics = ManualClock(), Metrics()
    with ExitStack() as stack, pytest.raises(Invalid, match="no archive is named"):
        MessageStore.open(Settings(), clock, metrics, stack=stack)
    with ExitStack() as stack, pytest.raises(Invalid):
        MessageStore.open(Settings(archive=Archive(url="ftp://x/y")), clock, metrics, stack=stack)
    with (
        ExitStack() as stack,
        pytest.raises(NotFound, match="there is no archive of this broker here") as found,
    ):
        MessageStore.open(settings("store-nothing"), clock, metrics, stack=stack)
    assert found.value.fields["found"] == "nothing"


def test_opening_the_wrong_broker_says_which_are_there(tmp_path: Path) -> None:
    from tests.kit.assemble import assemble
    from tests.kit.pipeline import Crafted
    from tiered.provider.memory import MemoryProvider

    clock = ManualClock()
    broker = Crafted(tmp_path / "store", file_bytes=1 << 16)
    broker.send()
    daemon = assemble(broker.store, MemoryProvider("store-one", clock, named_objects("store-one")), clock)
    daemon.settle()
    daemon.close()
    with ExitStack() as stack, pytest.raises(NotFound) as found:
        MessageStore.open(settings("store-one", broker="broker-z"), clock, Metrics(), stack=stack)
    assert found.value.fields["found"] == "DefaultCluster/broker-a"
    assert "source.broker" in str(found.value)
    with ExitStack() as stack:
        store = MessageStore.open(settings("store-one"), clock, Metrics(), stack=stack)
        assert store.get_message(Pull(READER, "Orders", 0, 0, 1)).status is S.FOUND
        assert store.get_message_async(Pull(READER, "Orders", 0, 0, 1)).result(10).status is S.FOUND
    with pytest.raises(Unavailable):
        store.get_message(Pull(READER, "Orders", 0, 0, 1))
    with pytest.raises(Unavailable):
        store.get_message_async(Pull(READER, "Orders", 0, 0, 1)).result(10)
    store.close()


def test_waiting_for_an_archive_that_is_not_there_yet(tmp_path: Path) -> None:
    from tests.kit.assemble import assemble
    from tests.kit.pipeline import Crafted
    from tiered.provider.memory import MemoryProvider

    clock = ManualClock()
    chosen = settings("store-later")
    with ExitStack() as stack:
        store = MessageStore.open(chosen, clock, Metrics(), stack=stack, wait_for_archive=True)
        for _ in range(2):
            with pytest.raises(Unavailable, match="cannot be opened yet"):
                store.get_message(Pull(READER, "Orders", 0, 0, 1))
            with pytest.raises(Unavailable, match="cannot be opened yet"):
                store.get_message_async(Pull(READER, "Orders", 0, 0, 1)).result(10)
            with pytest.raises(Unavailable, match="cannot be opened yet"):
                _ = store.view
            with pytest.raises(Unavailable, match="no archive of this broker"):
                store.min_offset("Orders", 0)
            clock.advance(1)
        broker = Crafted(tmp_path / "store", file_bytes=1 << 16)
        broker.send()
        daemon = assemble(
            broker.store, MemoryProvider("store-later", clock, named_objects("store-later")), clock
        )
        daemon.settle()
        daemon.close()
        assert store.get_message(Pull(READER, "Orders", 0, 0, 1)).status is S.FOUND
    with ExitStack() as stack, pytest.raises(Invalid):
        bad = Settings(archive=Archive(url="ftp://x"))
        MessageStore.open(bad, clock, Metrics(), stack=stack, wait_for_archive=True)


def test_a_fold_in_a_directory_of_its_own(scene: Cold, tmp_path: Path) -> None:
    directory = tmp_path / "folds"
    for expected in ([0, 1, 2, 3], [3]):
        fold = open_metadata("rocksdb", directory, 8 << 20, stamp="1")
        scene.provider.calls.clear()
        store = scene.open(fold=fold)
        read = sorted({int(k[-20:]) for verb, k in scene.provider.calls if verb == "get" and "/commit/" in k})
        head = scene.daemon.state.head()
        assert head is not None
        assert read[-1] == head.seq + 1
        assert (len(read) > 2) is (len(expected) > 1), "the second time only the last commit is compared"
        assert store.get_message(Pull(READER, "Orders", 0, 0, 1000)).max_offset == 20
        scene.broker.send("Orders", 0, b"late")
        scene.stores.remove(store)
        store.close()
        fold.close()
        scene.broker.sent.pop()
    chosen = with_fetch(fold_directory=str(directory))
    with ExitStack() as stack:
        one = local_fold(chosen, "gateway", stack)
        stack.callback(one.close)
        other = local_fold(chosen, "replay", stack)
        stack.callback(other.close)
        with pytest.raises(Unavailable):
            local_fold(chosen, "gateway", stack)
    assert (directory / "gateway").is_dir()


def test_a_fold_in_a_temporary_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    killed = tmp_path / f"{PREFIX}gateway-killed"
    killed.mkdir()
    (killed / "owner").touch()
    (tmp_path / f"{PREFIX}just-made").mkdir()
    with ExitStack() as stack:
        one, other = (local_fold(Settings(), "gateway", stack) for _ in range(2))
        for fold in (one, other):
            stack.callback(fold.close)
            fold.put_many([(b"k", b"v")])
        assert not killed.exists(), "what a killed process left is removed"
        assert len(list(tmp_path.iterdir())) == 3, "what a living one has is not"
    assert [path.name for path in tmp_path.iterdir()] == [f"{PREFIX}just-made"]


def test_without_a_temporary_directory_the_fold_is_in_memory_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "absent"))
    with ExitStack() as stack:
        assert isinstance(local_fold(Settings(), "gateway", stack), MemoryStore)
    assert "set fetch.fold_directory" in caplog.text


def test_a_snapshot_of_rocksdb_serves_readers_while_the_fold_goes_on(scene: Cold, tmp_path: Path) -> None:
    fold = open_metadata("rocksdb", tmp_path / "fold", 8 << 20, stamp="1")
    store = scene.open(fold=fold)
    view = store.view
    scene.broker.send("Orders", 0, b"late")
    scene.archive()
    scene.fresh()
    assert store.get_message(Pull(READER, "Orders", 0, 20, 1)).status is S.FOUND
    assert not isinstance(decide(view.state, Pull(READER, "Orders", 0, 19, 1)), GetMessageResult)
    found = decide(view.state, Pull(READER, "Orders", 0, 20, 1))
    assert isinstance(found, GetMessageResult)
    del view, found
    scene.stores.remove(store)
    store.close()
    fold.close()


# ---- pools


class Held(AtOnce):
    """A pool that runs nothing until it is told to."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Future[object], object]] = []

    def submit(self, fn: object, /, *args: object, **kwargs: object) -> Future[object]:  # type: ignore[override]
        future: Future[object] = Future()
        self.waiting.append((future, lambda: AtOnce.submit(self, fn, *args, **kwargs)))  # type: ignore[arg-type]
        return future

    def run(self) -> None:
        while self.waiting:
            future, work = self.waiting.pop(0)
            done = work()  # type: ignore[operator]
            error = done.exception()
            if error is None:
                future.set_result(done.result())
            else:
                future.set_exception(error)


def test_nothing_is_waited_for(scene: Cold) -> None:
    """``get_message_async`` makes no request in the asker's thread."""
    pool = Held()
    store = scene.open(pool=pool)
    scene.fresh()
    scene.provider.calls.clear()
    there = store.get_message_async(Pull(READER, "Orders", 0, 0, 1))
    absent = [store.get_message_async(Pull(ReaderId(f"g{n}"), "Orders", 0, 20, 1)) for n in range(5)]
    assert scene.provider.calls == []
    assert not there.done()
    assert not any(f.done() for f in absent)
    assert there.cancel() is False, "others may share what is under way"
    pool.run()
    assert there.result(0).status is S.FOUND
    assert [f.result(0).status for f in absent] == [S.OFFSET_OVERFLOW_ONE] * 5
    assert looks(scene) == 1


def test_a_pool_that_is_gone_is_unavailable(scene: Cold) -> None:
    pool = ThreadPoolExecutor(1)
    store = scene.open(pool=pool)
    scene.fresh()
    pool.shutdown()
    for offset in (0, 20):
        with pytest.raises(TieredError):
            store.get_message_async(Pull(READER, "Orders", 0, offset, 1)).result(10)


def test_offsets_are_offsets(scene: Cold) -> None:
    assert scene.store.min_offset("Orders", 0) == QueueOffset(0)
    assert scene.store.max_offset("Orders", 5) is None
    assert list(scene.store.topics()) == ["Orders"]
    assert [q.queue.queue_id for q in scene.store.queues("Orders")] == [0, 1]


@pytest.mark.parametrize("kind", ["memory", "rocksdb"])
def test_many_readers_while_the_archive_grows(tmp_path: Path, kind: str) -> None:
    """Readers on threads of their own go along with the writer: every message once, in order, at whatever moment."""
    with cold(tmp_path, open_now=False) as scene:
        scene.broker.send("Orders", 0, b"0")
        scene.archive()
        fold = open_metadata(kind, tmp_path / "fold", 8 << 20, stamp="1")
        with ThreadPoolExecutor(4) as pool, ThreadPoolExecutor(4) as readers:
            store = scene.open(fold=fold, pool=pool)
            done = threading.Event()

            def consume(number: int) -> list[bytes]:
                found: list[bytes] = []
                while True:
                    last = done.is_set()
                    if number % 2:
                        answer = store.get_message(Pull(ReaderId(f"g{number}"), "Orders", 0, len(found), 7))
                    else:
                        future = store.get_message_async(
                            Pull(ReaderId(f"g{number}"), "Orders", 0, len(found), 7)
                        )
                        answer = future.result(timeout=60)
                    assert answer.status in (S.FOUND, S.OFFSET_OVERFLOW_ONE)
                    assert answer.next_begin_offset == len(found) + len(answer.records)
                    found.extend(map(bytes, answer.records))
                    if answer.status is S.OFFSET_OVERFLOW_ONE:
                        if last:
                            return found
                        done.wait(0.002)

            consumers = [readers.submit(consume, number) for number in range(4)]
            for flush in range(12):
                for number in range(1 + 3 * flush):
                    scene.broker.send("Orders", 0, b"%d-%d" % (flush, number))
                scene.archive()
            for _ in range(2):  # the first may share a look that began before the last flush
                scene.fresh()
                store.follow()
            done.set()
            assert all(c.result(timeout=60) == scene.raws("Orders") for c in consumers)
        scene.stores.remove(store)
        store.close()
        fold.close()


def test_what_readers_do_elsewhere_reaches_the_cache(scene: Cold) -> None:
    """A committed offset and a heartbeat keep a block for a group that has not come to it yet; a good-bye lets it go."""
    store = scene.store
    slow, fast = ReaderId("slow"), ReaderId("fast")
    store.observe(slow, "Orders", 0, 2)
    scene.clock.advance(1)
    store.observe(slow, "Orders", 0, 4)
    store.alive(slow)
    store.alive(fast)
    expiry = store._expiry
    assert [(r.group, offset) for r, _, offset, _ in expiry.positions()] == [("slow", 4)]
    store.forget(slow)
    assert expiry.positions() == []
