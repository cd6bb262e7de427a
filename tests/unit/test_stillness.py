"""Nothing stands still in silence: the stall law, the lag that goes on, and writes that fail."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.kit.assemble import Assembly, Counting, assemble, memory
from tests.kit.pipeline import Crafted
from tests.kit.storefakes import Scripted
from tiered.archive.log.resending import Resending
from tiered.backoff import Backoff
from tiered.clock import ManualClock, SystemClock
from tiered.daemon.looking import Looker
from tiered.daemon.observer import Observer
from tiered.daemon.outages import LOCAL_STATE, PROBE, FailingWrite, Outages, Watched
from tiered.daemon.status import Names, ProcessTotals, Reporter, first_look
from tiered.daemon.stillness import Stillness
from tiered.daemon.watch import StallWatch
from tiered.errors import Conflict, Invalid, NotFound, Refused, Unavailable
from tiered.metrics import Metrics
from tiered.model import PhysicalOffset
from tiered.provider.memory import MemoryProvider
from tiered.source.base import idle

LIMIT = 60.0
HOUR_MS = 3_600_000


class Scene:
    """A daemon's parts in one thread, and the watch over them; ``pass_time`` is what its services do meanwhile."""

    def __init__(self, broker: Crafted) -> None:
        for _ in range(10):
            broker.send()
        self.clock = ManualClock(broker.time_ms + 5_000)
        self.store: Counting = memory(self.clock)
        self.parts: Assembly = assemble(broker.store, self.store, self.clock)
        self.metrics = Metrics()
        self.stillness = Stillness(self.clock, LIMIT)
        self.outages = Outages(self.clock, 10.0)
        self.watch = StallWatch(self.clock, self.metrics, self.stillness, self.outages, lambda: "the reason")
        names = Names("c", "b", "memory://")
        self.reporter = Reporter(
            self.parts.log, self.parts.source, self.clock, names, ProcessTotals(), self.stillness
        )

    def pass_time(self, seconds: int, *, looking: bool = True) -> None:
        for _ in range(seconds):
            self.clock.advance(1.0)
            if looking:
                self.reporter.look()
            self.watch.step()

    def gauge(self, name: str) -> float | None:
        return self.metrics.value(f"tiered_{name}")


@pytest.fixture
def broker(tmp_path: Path) -> Crafted:
    return Crafted(tmp_path / "store", file_bytes=1 << 20)


@pytest.fixture
def scene(broker: Crafted) -> Iterator[Scene]:
    made = Scene(broker)
    yield made
    made.parts.close()


def stops_reading(scene: Scene, broker: Crafted) -> None:
    """The source never gives another record, and says nothing of damage."""
    scene.parts.settle()
    broker.send()
    scene.parts.source.read = lambda start, **_: idle(start, "the last record is not confirmed yet")  # type: ignore[method-assign]


def stops_committing(scene: Scene, broker: Crafted) -> None:
    """A store that hangs: the flush is in the line, the committer's step does not come back."""
    while not scene.parts.line.pending()[0]:
        scene.clock.advance(max(scene.parts.dispatcher.step(), 0.1))


def stops_dispatching(scene: Scene, broker: Crafted) -> None:
    """The dispatcher's thread is wedged: no step at all."""


@pytest.mark.parametrize("cause", [stops_reading, stops_committing, stops_dispatching])
def test_whatever_the_cause_is_a_stall_is_said_once_and_its_end_once(
    scene: Scene, broker: Crafted, caplog: pytest.LogCaptureFixture, cause: object
) -> None:
    cause(scene, broker)  # type: ignore[operator]
    scene.reporter.look()
    with caplog.at_level(logging.INFO, "tiered.daemon"):
        scene.pass_time(59)
        assert (scene.gauge("stalled"), scene.watch.problem(), caplog.records) == (0, None, [])
        scene.pass_time(30)
        assert scene.gauge("stalled") == 1
        problem = scene.watch.problem()
        assert problem is not None
        assert problem.startswith("archiving stands still: nothing was proven for")
        assert problem.endswith(": the reason")
        vars(scene.parts.source).pop("read", None)
        scene.parts.settle()
        scene.pass_time(2)
    assert (scene.gauge("stalled"), scene.watch.problem()) == (0, None)
    assert [r.getMessage() for r in caplog.records] == ["archiving stands still", "archiving moves again"]
    assert caplog.records[0].why == "the reason"  # type: ignore[attr-defined]


def test_a_look_that_hangs_is_a_stall_too(scene: Scene) -> None:
    """The disk under the commitlog or the state hangs: nobody knows of any lag, and that is said."""
    scene.parts.settle()
    scene.pass_time(1)
    scene.pass_time(59, looking=False)
    assert scene.watch.problem() is None
    scene.pass_time(1, looking=False)
    assert scene.gauge("stalled") == 1
    assert "a look at the commitlog has not come back for 60 s" in str(scene.watch.problem())


def test_progress_and_idleness_are_no_stall(scene: Scene, broker: Crafted) -> None:
    scene.parts.settle()
    scene.pass_time(300)
    assert scene.watch.problem() is None
    for _ in range(5):  # always some lag, and it moves
        broker.send()
        scene.pass_time(40)
        scene.parts.settle(1.0)
        broker.send()
        scene.reporter.look()
    assert scene.gauge("stalled") == 0


def test_an_archive_that_does_not_open_is_a_stall(scene: Scene) -> None:
    view = first_look(scene.parts.source, scene.stillness)
    assert view.lag_document() == {"bytes": None, "messages": None, "seconds": 0.0}
    scene.clock.advance(61)
    assert first_look(scene.parts.source, scene.stillness).seconds == 61
    scene.watch.step()
    assert scene.gauge("stalled") == 1
    empty = Stillness(scene.clock, LIMIT)
    empty.saw(0, None)
    scene.clock.advance(100)
    empty.saw(0, None)
    assert empty.stall() is None, "an empty log has nothing to archive"


def test_lag_in_seconds_is_a_number_whatever_the_clock_and_the_bytes_say(
    scene: Scene, broker: Crafted, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.parts.settle()
    broker.send()
    broker.time_ms = scene.clock.now_ms()
    broker.send()
    assert scene.reporter.lag().seconds < 60
    scene.clock.set_wall(scene.clock.now_ms() - HOUR_MS)
    scene.pass_time(90)
    assert scene.reporter.lag().seconds == 90, "the clock went back an hour: by what has not moved"
    scene.clock.set_wall(scene.clock.now_ms() + 2 * HOUR_MS)
    assert scene.reporter.lag().seconds > HOUR_MS / 1000, "by the age of the oldest record"

    def unreadable(start: PhysicalOffset, end: PhysicalOffset) -> bytearray:
        raise NotFound("these bytes are not there")

    monkeypatch.setattr(scene.parts.source, "copy", unreadable)
    assert scene.reporter.lag().seconds == 90
    assert scene.reporter.status()["lag"]["seconds"] == 90  # type: ignore[index]

    def of_any_bytes(start: PhysicalOffset, end: PhysicalOffset) -> bytearray:
        return bytearray(b"\xf3" * (end - start))

    monkeypatch.setattr(scene.parts.source, "copy", of_any_bytes)
    assert scene.reporter.lag().seconds == 90, "damaged bytes say a time before 1970"


def test_before_the_first_position_is_known_lag_is_what_lies_there(scene: Scene, broker: Crafted) -> None:
    scene.parts.log.store.clear()
    assert scene.reporter.lag().bytes == broker.position


# ---- looks


def test_a_page_does_not_wait_for_a_look_that_hangs() -> None:
    go, began = threading.Event(), threading.Event()
    go.set()
    seen = iter(range(100))

    def look() -> int:
        began.set()
        assert go.wait(30)
        return next(seen)

    looker = Looker(look, SystemClock())
    assert looker.fresh() == 0, "nobody else looks before the service runs"
    looker.service.start()
    first = looker.fresh()
    assert first is not None
    assert (looker.fresh(), looker.late) == (first + 1, False), "a look that began after the question"
    go.clear()
    began.clear()
    assert (looker.fresh(0.05), looker.late) == (first + 1, True), "the last one"
    assert began.wait(5)
    go.set()
    looker.service.stop()
    assert looker.service.join(5)


def test_a_look_that_fails_keeps_what_was_seen() -> None:
    answers: list[object] = [7, Unavailable("away"), OSError(5, "Input/output error"), 8]

    def look() -> object:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    looker = Looker(look, ManualClock())
    seen = [(looker.fresh(), looker.trouble) for _ in range(4)]
    assert seen == [(7, None), (7, "away"), (7, "[Errno 5] Input/output error"), (8, None)]


# ---- writes that fail


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


def test_a_write_that_fails_for_long_is_said_once_and_so_is_its_end(
    clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    metrics, outages = Metrics(), Outages(clock, 10.0)
    observer = Observer(metrics, logging.getLogger("tiered.daemon"), clock, ProcessTotals(), outages=outages)
    watch = StallWatch(clock, metrics, Stillness(clock, 1e9), outages, lambda: "")
    inner = Scripted(MemoryProvider("", clock), [Invalid("the store denies access", key="k")] * 12)
    store = Watched(inner, outages, clock, threading.Event())
    first, began = Unavailable("", key="k"), clock.monotonic()
    with caplog.at_level(logging.INFO, "tiered.daemon"):
        for second in range(12):
            with pytest.raises(Invalid) as caught:
                store.put("c/b/commit/00000000000000/00000000000000000007", [b"x"])
            observer.resending(caught.value, first, began)
            watch.step()
            assert metrics.value("tiered_unavailable") == (second >= 10)
            assert (watch.problem() is None) == (second < 10)
            clock.advance(1.0)
        assert watch.problem() == "writes have been failing for 12 s: the store denies access (key=k)"
        store.put("c/b/commit/00000000000000/00000000000000000007", [b"x"])
        observer.sent(first)
        watch.step()
    assert (metrics.value("tiered_unavailable"), watch.problem()) == (0, None)
    lines = [r.getMessage() for r in caplog.records if "sending it again" not in r.getMessage()]
    assert lines == [
        "writes are failing: they are tried until they get through",
        "writes get through again",
    ]
    assert len(caplog.records) == 2 + 10, "once it is said, a further try is no news"


def test_an_object_that_is_put_and_cannot_be_seen_is_a_write_that_fails_until_it_is_seen(
    clock: ManualClock,
) -> None:
    """Each put is answered: as the store's, then as "exists". What fails is the look for it."""
    outages = Outages(clock, 10.0)
    told: list[FailingWrite | None] = []
    observer = Observer(
        Metrics(), logging.getLogger("tiered.daemon"), clock, ProcessTotals(), outages=outages
    )
    store = Watched(MemoryProvider("", clock), outages, clock, threading.Event())

    def put_and_see() -> None:
        with suppress(Conflict):
            store.put("c/b/data/1", [b"x"])
        told.append(outages.worst())
        if len(told) < 6:
            observer.not_kept(away := Unavailable("no length", key="c/b/data/1"))
            raise away

    Resending(clock, Backoff(1.0), threading.Event(), observer).until_done(put_and_see)
    assert [found is not None for found in told] == [False] * 4 + [True] * 2, "1 + 2 + 4 + 8 seconds"
    assert str(told[-1]) == "writes have been failing for 31 s: no length (key=c/b/data/1)"
    assert outages.worst(0.0) is None, "the first that gets through ends it"


def test_a_try_counts_from_its_begin_and_another_key_does_not_end_it(clock: ManualClock) -> None:
    outages = Outages(clock, 10.0)

    class Hangs(Scripted):
        def put(self, key: str, *rest: object, **more: object) -> object:  # type: ignore[override]
            if key == "hangs":
                clock.advance(20.0)
                raise Unavailable("no answer")
            return super().put(key, [b""])

    store = Watched(Hangs(MemoryProvider("", clock), []), outages, clock, threading.Event())
    with pytest.raises(Unavailable):
        store.put("hangs", [b""])
    store.put("other", [b""])
    worst = outages.worst()
    assert worst is not None
    assert (worst.name, worst.seconds, worst.cause) == ("hangs", 20.0, "no answer")


def test_keys_that_are_new_at_every_try_share_a_name_and_a_conflict_ends_a_write(clock: ManualClock) -> None:
    outages = Outages(clock, 0.0)
    inner = Scripted(MemoryProvider("", clock), [Unavailable("full")] * 3)
    store = Watched(inner, outages, clock, threading.Event())
    for key in ("c/b/shard/0000000001-a", "c/b/checkpoint/00000000000000000001", "c/b/probe/x"):
        with pytest.raises(Unavailable):
            store.put(key, [b""])
    store.put("c/b/shard/0000000001-b", [b""])
    store.put("c/b/checkpoint/00000000000000000002", [b""])
    assert (outages.worst() or pytest.fail("the probe's is still there")).name == PROBE
    outages.over(PROBE)
    outages.failed("c/b/data/1", Unavailable("lost"))
    inner.inner.put("c/b/data/1", [b""])
    with pytest.raises(Conflict):
        store.put("c/b/data/1", [b""])
    assert outages.worst() is None


def test_a_local_state_that_fails_is_an_outage_until_a_flush_is_proven(scene: Scene, broker: Crafted) -> None:
    observer = Observer(
        scene.metrics, logging.getLogger("tiered.daemon"), scene.clock, ProcessTotals(), outages=scene.outages
    )
    scene.parts.heard.and_then = observer.proven
    full = Unavailable("the metadata store does not answer", path="/state", found="No space left")
    observer.resending(full, full, scene.clock.monotonic())
    scene.clock.advance(10)
    worst = scene.outages.worst()
    assert worst is not None
    assert (worst.name, "No space left" in worst.cause) == (LOCAL_STATE, True)
    scene.parts.settle()
    assert scene.outages.worst() is None


def test_after_a_stop_no_request_begins(clock: ManualClock) -> None:
    stop = threading.Event()
    inner = Scripted(MemoryProvider("", clock), [])
    store = Watched(inner, Outages(clock, 1.0), clock, stop)
    store.put("a", [b""])
    stop.set()
    for ask in (
        lambda: store.put("b", [b""]), lambda: store.get("a"), lambda: store.head("a"), lambda: store.list(""),
        lambda: store.delete("a"),
    ):  # fmt: skip
        with pytest.raises(Unavailable, match="stopped"):
            list(ask() or ())  # type: ignore[call-overload]
    assert inner.calls == [("put", "a")]


def test_a_refusal_of_a_store_that_worked_may_pass(clock: ManualClock) -> None:
    denied = Invalid("the store denies access", hint="allow it", found="403")
    inner = Scripted(MemoryProvider("", clock), [denied] * 4 + [Refused("a guarantee would be lost")])
    store = Watched(inner, Outages(clock, 1.0), clock, threading.Event())
    with pytest.raises(Invalid):
        store.get("a")
    store.worked = True
    for ask in (lambda: store.get("a"), lambda: store.head("a"), lambda: store.put("a", [b""])):
        with pytest.raises(Unavailable, match="the store denies access") as caught:
            ask()
        assert (caught.value.hint, caught.value.fields["found"]) == ("allow it", "403")
    with pytest.raises(Refused):
        store.get("a")
