"""The composition root: what it waits for, what it refuses, what it tells while it opens, and how ``--once`` ends."""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.kit.assemble import KEYS, assemble, memory, open_log
from tests.kit.command import tiered
from tests.kit.fakebroker import FakeBroker
from tests.kit.pipeline import Crafted
from tiered import crashpoint
from tiered.archive.log.identity import decode_identity
from tiered.archive.log.writer import Claim
from tiered.clock import ManualClock, SystemClock
from tiered.crashpoint import CrashPoint
from tiered.daemon import crashing, sweeping
from tiered.daemon.app import Daemon
from tiered.daemon.config import load
from tiered.daemon.crashing import CRASH_VARIABLE, install_crash
from tiered.daemon.notify import Notifier
from tiered.daemon.once import TORN_SECONDS, PresentEnd
from tiered.daemon.parts import Choices
from tiered.daemon.portfile import WEB_PORT_FILE
from tiered.errors import Corrupt, Denied, Fenced, Invalid, NotFound, TieredError, Unavailable, exit_code
from tiered.metrics import Metrics
from tiered.model import MessageQueue, PhysicalOffset
from tiered.provider.memory import MemoryProvider, named_objects
from tiered.service import DONE
from tiered.settings import Hold, Source
from tiered.settings.writing import Web
from tiered.source.base import Wait
from tiered.source.local import LocalCommitLog


@pytest.fixture
def broker(tmp_path: Path) -> Crafted:
    made = Crafted(tmp_path / "store", file_bytes=1 << 16)
    for number in range(20):
        made.send(queue_id=number % 2)
    return made


def daemon(
    broker: Crafted, url: str, *, clock: Any = None, once: bool = True, sets: dict[str, object] | None = None
) -> Daemon:
    given: dict[str, object] = {
        "source.store_dir": str(broker.store), "archive.url": url, "web.port": -1, "hold.max_disk_percent": 99, **(sets or {}),
    }  # fmt: skip
    return Daemon(
        load(None, {}, given),
        Choices(once=once),
        clock or SystemClock(),
        Metrics(),
        threading.Event(),
        Notifier(None),
    )


def store_of(name: str) -> MemoryProvider:
    return MemoryProvider(name, SystemClock(), named_objects(name))


def test_after_a_fatal_error_the_process_ends_although_closing_hangs(
    broker: Crafted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tiered.daemon.app.FATAL_SECONDS", 0.01)
    one, ended, codes = daemon(broker, "memory://app-fatal"), threading.Event(), list[int]()
    one.hard_exit = lambda code: (codes.append(code), ended.set())[1]
    one._fatal(Unavailable("a worker has not come back"))
    assert ended.wait(10)
    assert codes == [4]
    with ExitStack() as stack:  # closed in time
        assert one.run(stack) == 0
    assert one._closed.is_set()


def test_once_in_this_process(broker: Crafted, caplog: pytest.LogCaptureFixture) -> None:
    one, percents = daemon(broker, "memory://app-once"), list[int]()
    one._choices = Choices(once=True, progress=percents.append)
    caplog.set_level(logging.INFO, "tiered.daemon")
    assert one._is_ready() == (False, "starting")
    assert one._live() == (True, "live")
    with ExitStack() as stack:
        assert one.run(stack) == 0
        text = one._expose().decode()
        status = one._status()
    assert one._is_ready() == (True, "ready")
    (last,) = [r for r in caplog.records if r.getMessage() == "archived everything up to the broker's end"]
    assert (last.messages, last.bytes) == (20, broker.position)  # type: ignore[attr-defined]
    assert percents[-1] == 100
    assert percents == sorted(percents)
    log = open_log(store_of("app-once"), ManualClock())
    assert sum(q.messages for q in log.proven().queues()) == 20
    assert one._metrics.value("tiered_ready") == 1
    assert f"proven_bytes {float(broker.position)}" in text
    assert (status["ready"], status["problem"], status["messages"]) == (True, None, 20)


def test_a_start_links_the_brokers_files_before_anything_else(
    broker: Crafted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the archive is being opened the broker deletes what is old enough."""
    seen: list[str] = []

    def noted(name: str) -> None:
        real = getattr(LocalCommitLog, name)
        monkeypatch.setattr(LocalCommitLog, name, lambda self: seen.append(name) or real(self))

    noted("hold")
    noted("max_offset")
    with ExitStack() as stack:
        assert daemon(broker, "memory://app-hold").run(stack) == 0
    assert seen[0] == "hold"


@pytest.mark.parametrize("name", ["source.broker", "source.cluster"])
def test_a_renamed_broker_with_a_lost_state_is_not_archived_again(
    broker: Crafted, tmp_path: Path, name: str
) -> None:
    url = f"file://{tmp_path}/archive"

    def start(state: str, **sets: object) -> None:
        with ExitStack() as stack:
            assert (
                daemon(broker, url, sets={"state.directory": str(tmp_path / state), **sets}).run(stack) == 0
            )

    start("first")
    broker.send(queue_id=1)
    with pytest.raises(Invalid, match=r"source.cluster to DefaultCluster and source.broker to broker-a"):
        start("second", **{name: "renamed"})
    assert sorted(os.listdir(tmp_path / "archive")) == ["DefaultCluster"]
    assert os.listdir(tmp_path / "archive" / "DefaultCluster") == ["broker-a"]
    start("third")


@pytest.mark.parametrize(
    ("told", "place", "refused"),
    [("broker-x", "", True), ("broker-a", "", False), ("broker-x", "/elsewhere", False)],
)
def test_before_an_archive_is_made_the_broker_is_asked_for_its_name(
    broker: Crafted, tmp_path: Path, told: str, place: str, refused: bool
) -> None:
    place = place or f"{broker.store}/"
    names = {"brokerName": told, "brokerClusterName": "DefaultCluster", "storePathRootDir": place}
    url = f"file://{tmp_path}/archive"
    with FakeBroker(**names) as running, ExitStack() as stack:
        one = daemon(broker, url, sets={"replay.broker_address": running.address})
        if not refused:
            assert one.run(stack) == 0
            return
        with pytest.raises(Invalid, match=r"source.broker to broker-x") as caught:
            one.run(stack)
    assert caught.value.fields["expected"] == "DefaultCluster/broker-x"
    assert not list((tmp_path / "archive").iterdir())


def test_a_start_sweeps_what_dead_writers_left(broker: Crafted, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/archive"
    with ExitStack() as stack:
        assert daemon(broker, url).run(stack) == 0
    left = tmp_path / "archive" / KEYS.root / "commit" / ".tiered-tmp-0"
    left.write_bytes(b"half")
    os.utime(left, (0, 0))
    with ExitStack() as stack:
        assert daemon(broker, url).run(stack) == 0
    assert not left.exists()


def test_a_sweep_that_fails_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> Iterator[int]:
        yield 3
        raise Unavailable("the disk does not answer")

    monkeypatch.setattr(sweeping, "sweep", broken)
    sweeper = sweeping.Sweeper(store_of("app-sweep"), KEYS.root, lambda: False)
    assert sweeper.step() is not DONE
    with caplog.at_level(logging.WARNING):
        assert sweeper.step() is DONE
    assert "not swept" in caplog.text


def test_a_damaged_local_fold_is_made_again_from_the_bucket_and_said_so(
    broker: Crafted, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sets: dict[str, object] = {"state.directory": str(tmp_path / "state")}
    with ExitStack() as stack:
        one = daemon(broker, "memory://app-damaged", sets=sets)
        assert one.run(stack) == 0
        assert one._status()["local_state_made_again"] is None
    for fold in ("metadata", "shadow"):
        manifest = next((tmp_path / "state" / fold / "rocksdb").glob("MANIFEST*"))
        manifest.write_bytes(manifest.read_bytes()[::-1])
    broker.send()
    with ExitStack() as stack:
        one = daemon(broker, "memory://app-damaged", sets=sets)
        assert one.run(stack) == 0
        status = one._status()
    assert "the metadata store is damaged" in str(status["local_state_made_again"])
    assert status["messages"] == 21
    assert [r.getMessage() for r in caplog.records].count("a local store was emptied: it is made again") == 2


def test_a_fence_is_recorded_where_a_restart_finds_it(
    broker: Crafted, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as stack:
        assert daemon(broker, "memory://app-fence").run(stack) == 0
    broker.send()
    one = daemon(broker, "memory://app-fence")
    rival_clock = ManualClock()

    def rival(*_: object) -> None:
        log = open_log(store_of("app-fence"), rival_clock, writer=b"R" * 16)
        log.claim(Claim(lineage=1, host="rival"), 0, before_try=lambda head: None)

    monkeypatch.setattr(one, "_ready", rival)  # right after our epoch was claimed
    with pytest.raises(Fenced) as caught, ExitStack() as stack:
        one.run(stack)
    assert caught.value.fields["host"] == "rival"
    assert str(caught.value.fields["time"]).startswith("20")
    assert str(caught.value).count("→") == 1
    record = Path(f"{broker.store}.tiered") / "fenced"
    said = "another writer took this archive over (by=a daemon, or tiered run, host=rival, time=20"
    assert record.read_text().startswith(said)
    assert one._metrics.value("tiered_fenced") == 1
    with pytest.raises(Fenced, match="--take-over") as caught, ExitStack() as stack:
        daemon(broker, "memory://app-fence").run(stack)
    assert (exit_code(caught.value), str(caught.value).count("→")) == (7, 1)

    def ends(point: object) -> None:
        if point is CrashPoint.BEFORE_OPEN_EPOCH:
            raise Unavailable("ended before the claim was made")

    def take_over() -> int:
        two = daemon(broker, "memory://app-fence")
        two._choices = Choices(once=True, take_over=True)
        with ExitStack() as stack:
            return two.run(stack)

    crashpoint.install(ends)
    try:
        with pytest.raises(Unavailable):
            take_over()
    finally:
        crashpoint.install(None)
    assert record.exists(), "it is forgotten when the claim is proven, not before"
    assert take_over() == 0
    assert not record.exists()


def test_an_error_is_what_readyz_says(broker: Crafted) -> None:
    log = open_log(store_of("app-foreign"), ManualClock())
    log.claim(Claim(lineage=1, host="h"), 0, before_try=lambda head: None)
    store = store_of("app-foreign")
    foreign = replace(decode_identity(store.get(KEYS.identity).data, "k"), broker="broker-z")
    store.put(KEYS.identity, [foreign.encode()], create_only=False)
    one = daemon(broker, "memory://app-foreign")
    with pytest.raises(TieredError, match="another broker's archive"), ExitStack() as stack:
        one.run(stack)


# ---- a store that is away


def opening(one: Daemon, failures: int) -> tuple[list[int], Any]:
    tries: list[int] = []

    def make(stack: ExitStack) -> Any:
        tries.append(1)
        if len(tries) <= failures:
            raise Unavailable("away")
        return "parts"

    with ExitStack() as stack:
        return tries, one._open(stack, make)


def test_an_archive_that_was_open_here_before_is_waited_for(broker: Crafted) -> None:
    (Path(f"{broker.store}.tiered") / "metadata").mkdir(parents=True)
    clock = ManualClock()
    one = daemon(broker, "memory://", clock=clock, once=False)
    tries, parts = opening(one, 7)
    assert (len(tries), parts) == (8, "parts")
    assert clock.monotonic() == 1 + 2 + 4 + 8 + 16 + 30 + 30
    assert one._is_ready() == (False, "away")


def test_an_address_that_was_never_right_is_told_at_once(broker: Crafted) -> None:
    clock = ManualClock()
    with pytest.raises(Unavailable, match="away"):
        opening(daemon(broker, "memory://", clock=clock, once=False), 1)
    (Path(f"{broker.store}.tiered") / "metadata").mkdir(parents=True)
    with pytest.raises(Unavailable, match="away"):
        opening(daemon(broker, "memory://", clock=clock, once=True), 1)
    assert clock.monotonic() == 0


def test_a_store_that_refuses_what_it_allowed_before_is_waited_for(
    broker: Crafted, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: TieredError = Denied("the store refuses access", hint="allow it", found="403 AccessDenied")

    def denied(*_: object, **__: object) -> None:
        raise said

    def once() -> int:
        with ExitStack() as stack:
            return daemon(broker, "memory://app-denied").run(stack)

    allowed = MemoryProvider.get
    monkeypatch.setattr(MemoryProvider, "get", denied)
    with pytest.raises(Denied, match="the store refuses access"):
        once()
    said = Invalid("the bucket is in another region", hint="set store.region")
    with pytest.raises(Invalid, match="another region"):
        once()
    monkeypatch.setattr(MemoryProvider, "get", allowed)
    assert once() == 0
    monkeypatch.setattr(MemoryProvider, "get", denied)
    with pytest.raises(Unavailable, match="another region, as it did not before") as caught:
        once()
    assert (caught.value.hint, caught.value.exit_code) == ("set store.region", 4)


def test_a_checkpoint_that_is_denied_for_a_moment_ends_no_daemon(
    broker: Crafted, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, denied = MemoryProvider.put, list[str]()

    def once_denied(self: MemoryProvider, key: str, *rest: Any, **more: Any) -> Any:
        if "/shard/" in key and not denied:
            denied.append(key)
            raise Invalid("the bucket is in another region", hint="set store.region")
        return put(self, key, *rest, **more)

    monkeypatch.setattr(MemoryProvider, "put", once_denied)
    with ExitStack() as stack:
        one = daemon(broker, "memory://app-checkpoint", sets={"archive.checkpoint_commits": 1})
        assert one.run(stack) == 0
    assert denied
    assert any("/checkpoint/" in stored.key for stored in store_of("app-checkpoint").list(""))


@pytest.mark.parametrize("full_from", [0, 1], ids=["claim", "commit"])
def test_once_does_not_wait_for_a_full_disk_for_ever(
    broker: Crafted, monkeypatch: pytest.MonkeyPatch, full_from: int
) -> None:
    put = MemoryProvider.put

    def full(self: MemoryProvider, key: str, *rest: Any, **more: Any) -> Any:
        if "/commit/" in key and int(key.rpartition("/")[2]) >= full_from:
            raise Unavailable("no space left to write an object", hint="free disk space", key=key)
        return put(self, key, *rest, **more)

    monkeypatch.setattr(MemoryProvider, "put", full)
    one = daemon(broker, f"memory://app-full-{full_from}", sets={"watchdog.stuck_ms": 1000})
    with (
        pytest.raises(Unavailable, match=r"failing for \d+ s: no space left.*free disk space"),
        ExitStack() as stack,
    ):
        one.run(stack)


def test_a_stop_ends_the_waiting(broker: Crafted) -> None:
    (Path(f"{broker.store}.tiered") / "metadata").mkdir(parents=True)

    class Stops(ManualClock):
        def wait(self, seconds: float, event: threading.Event | None = None) -> bool:
            assert event is not None
            event.set()
            return super().wait(seconds, event)

    tries, parts = opening(daemon(broker, "memory://", clock=Stops(), once=False), 100)
    assert (len(tries), parts) == (1, None)


# ---- pages


def test_pages_of_a_daemon(broker: Crafted, monkeypatch: pytest.MonkeyPatch) -> None:
    one = daemon(broker, "memory://app-pages", sets={"web.port": 0})
    seen: dict[str, tuple[int, bytes]] = {}
    ready = one._ready

    def ask() -> None:
        port = int((Path(f"{broker.store}.tiered") / WEB_PORT_FILE).read_text())
        for moment in ("before", "after"):
            for page in ("healthz", "readyz", "metrics", "status", "nope"):
                try:
                    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{page}", timeout=10) as answer:
                        seen[f"{moment} {page}"] = answer.status, answer.read()
                except urllib.error.HTTPError as error:
                    seen[f"{moment} {page}"] = error.code, error.read()
                    error.close()
            if moment == "before":
                ready()

    monkeypatch.setattr(one, "_ready", ask)
    with ExitStack() as stack:
        assert one.run(stack) == 0
    assert seen["before healthz"][0] == seen["after healthz"][0] == 200
    assert (seen["before readyz"][0], seen["after readyz"][0]) == (503, 200)
    assert b"starting" in seen["before readyz"][1]
    assert seen["before nope"][0] == 404
    status = json.loads(seen["after status"][1])
    assert status["ready"] is True
    assert status["local_end"] == broker.position
    assert b"lag_bytes" in seen["after metrics"][1]
    assert not (Path(f"{broker.store}.tiered") / WEB_PORT_FILE).exists()


# ---- crash points


def test_a_crash_point_counts_down(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr(crashing.os, "_exit", ended.append)
    try:
        install_crash({})
        crashpoint.reach(CrashPoint.AFTER_COMMIT)
        install_crash({CRASH_VARIABLE: f"{int(CrashPoint.AFTER_COMMIT)}:3"})
        for point in (CrashPoint.AFTER_COMMIT, CrashPoint.BEFORE_COMMIT, CrashPoint.AFTER_COMMIT):
            crashpoint.reach(point)
        assert ended == []
        crashpoint.reach(CrashPoint.AFTER_COMMIT)
        assert ended == [137]
        install_crash({CRASH_VARIABLE: str(int(CrashPoint.BEFORE_COMMIT))})
        crashpoint.reach(CrashPoint.BEFORE_COMMIT)
        assert ended == [137, 137]
    finally:
        crashpoint.install(None)


# ---- the end of --once


class TestPresentEnd:
    """What lies behind the last record."""

    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    @pytest.fixture
    def end(self, broker: Crafted, clock: ManualClock) -> Any:
        source = LocalCommitLog(Source(store_dir=str(broker.store)), Hold(max_disk_percent=99), clock)
        yield PresentEnd(source, clock, source.max_offset())
        source.close()

    def test_zeros_are_an_end(self, broker: Crafted, end: PresentEnd) -> None:
        last = PhysicalOffset(broker.position)
        assert end.reached(last, "")
        assert end.reached(last, "records of a former run of the broker lie here; waiting")

    def test_zeros_with_records_behind_them_are_no_end(self, broker: Crafted, end: PresentEnd) -> None:
        first, last = broker.sent[10][0].physical_offset, broker.sent[-1][0].physical_offset
        broker.write(first, bytes(last - first))
        assert not end.reached(PhysicalOffset(first), "")

    def test_a_record_that_is_being_written_is_waited_for(self, end: PresentEnd, clock: ManualClock) -> None:
        assert not end.reached(PhysicalOffset(500), "unreadable: half of it")
        clock.advance(TORN_SECONDS - 0.1)
        assert not end.reached(PhysicalOffset(500), "unreadable: half of it")
        assert not end.reached(PhysicalOffset(700), "unreadable: half of the next"), (
            "another place, another wait"
        )
        clock.advance(TORN_SECONDS - 0.1)
        assert not end.reached(PhysicalOffset(700), "unreadable: half of the next")

    def test_leftovers_are_named_once_and_passed(
        self, broker: Crafted, end: PresentEnd, clock: ManualClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        last = PhysicalOffset(broker.position)
        end.reached(last, "unreadable: unknown magic")
        clock.advance(TORN_SECONDS)
        with caplog.at_level(logging.WARNING, "tiered.daemon"):
            assert end.reached(last, "unreadable: unknown magic")
            assert end.reached(last, "unreadable: unknown magic")
        assert [r.found for r in caplog.records] == ["unknown magic"]  # type: ignore[attr-defined]

    def test_bytes_with_records_behind_them_are_no_end(self, end: PresentEnd, clock: ManualClock) -> None:
        for _ in range(3):
            assert not end.reached(PhysicalOffset(500), "unreadable: unknown magic")
            clock.advance(TORN_SECONDS)

    @pytest.mark.parametrize(
        ("at_start", "reason"),
        [(True, "unreadable: unknown magic"), (False, "unreadable: record of 90 bytes, 5 bytes are left")],
    )
    def test_what_no_broker_leaves_is_damage(
        self, broker: Crafted, end: PresentEnd, clock: ManualClock, at_start: bool, reason: str
    ) -> None:
        position = PhysicalOffset(0 if at_start else broker.position)
        with broker.path(0).open("r+b") as file:
            file.write(bytes(broker.position))
        end.reached(position, reason)
        clock.advance(TORN_SECONDS)
        assert end.reached(position, reason)
        verdict = end.verdict()
        assert isinstance(verdict, Corrupt)
        assert verdict.fields["position"] == position
        assert verdict.fields["found"] == reason.removeprefix("unreadable: ")

    def test_it_is_the_end_of_the_start_and_does_not_run_away(self, broker: Crafted, end: PresentEnd) -> None:
        then = PhysicalOffset(broker.position)
        assert not end.done(PhysicalOffset(then - 1), None)
        assert end.done(then, "")
        for _ in range(100):
            broker.send()
        assert not end.done(PhysicalOffset(then - 1), "the last record is not confirmed yet")
        assert not end.done(then, None), "what lies there was not looked at"
        assert end.done(PhysicalOffset(then + 1), None)

    def test_a_log_that_was_cut_below_the_end_of_the_start_has_an_end(
        self, broker: Crafted, end: PresentEnd
    ) -> None:
        broker.crash(broker.sent[10][0].physical_offset)
        broker.mark_started(broker.time_ms)
        broker.write(broker.position, bytes(broker.file_bytes - broker.position))
        assert end.done(PhysicalOffset(broker.position), "")

    def test_it_comes_whatever_is_waited_for(
        self, broker: Crafted, end: PresentEnd, clock: ManualClock
    ) -> None:
        """Nothing is known that could stand still for so long; if something does, it is damage and not an endless run."""
        stuck = broker.sent[5][0].physical_offset
        reason = "the last record is not confirmed yet"
        assert not end.done(PhysicalOffset(stuck), reason)
        clock.advance(end._source.patience_seconds)
        assert not end.done(PhysicalOffset(stuck), reason)
        clock.advance(1)
        assert end.done(PhysicalOffset(stuck), reason)
        verdict = end.verdict()
        assert isinstance(verdict, Corrupt)
        assert (verdict.fields["position"], verdict.fields["found"]) == (stuck, reason)

    def test_an_end_that_was_reached_stays_one_however_long_committing_takes(
        self, broker: Crafted, end: PresentEnd, clock: ManualClock
    ) -> None:
        for _ in range(2):
            assert end.done(PhysicalOffset(broker.position), "")
            clock.advance(10 * end._source.patience_seconds)
        assert end.verdict() is None

    def test_damage_moves_it_behind_what_a_look_from_before_the_damage_saw(
        self, broker: Crafted, end: PresentEnd
    ) -> None:
        last = PhysicalOffset(broker.position)
        start, stop = (broker.sent[n][0].physical_offset for n in (4, 5))
        early = PresentEnd(end._source, end._clock, PhysicalOffset(start))
        assert early.verdict() is None
        early.gap(PhysicalOffset(0), PhysicalOffset(5), "deleted before it could be archived")
        assert early.verdict() is None
        early.gap(PhysicalOffset(start), PhysicalOffset(stop), "corrupt: unknown magic")
        assert not early.done(PhysicalOffset(stop), None)
        assert not early.done(PhysicalOffset(stop), "the last record is not confirmed yet")
        assert not early.done(PhysicalOffset(stop + 100), None)
        assert early.done(last, "")
        verdict = early.verdict()
        assert isinstance(verdict, Corrupt)
        assert verdict.fields == {
            "file": str(broker.path(0)),
            "position": start,
            "length": stop - start,
            "expected": "whole records",
            "found": "unknown magic",
        }

    def test_a_broker_that_went_back_below_the_damage_is_asked_anew(
        self, broker: Crafted, end: PresentEnd
    ) -> None:
        start, stop = (broker.sent[n][0].physical_offset for n in (4, 5))
        end.gap(PhysicalOffset(start), PhysicalOffset(stop), "corrupt: unknown magic")
        assert not end.done(PhysicalOffset(start), None)
        assert end.done(PhysicalOffset(broker.position), "")


def test_exclusions_say_what_a_restore_loses(broker: Crafted, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "tiered.daemon"), ExitStack() as stack:
        one = daemon(broker, "memory://app-excluded", sets={"source.exclude_topics": ["Orders"]})
        assert one.run(stack) == 0
    assert any("restore lacks their messages" in r.getMessage() for r in caplog.records)
    log = open_log(store_of("app-excluded"), ManualClock())
    assert list(log.proven().queues()) == []


def test_metadata_that_is_lost_is_rebuilt(broker: Crafted) -> None:
    for kind in ("rocksdb", "json", "memory"):
        broker.send()
        with ExitStack() as stack:
            assert daemon(broker, "memory://app-meta", sets={"state.metadata": kind}).run(stack) == 0
    clock = ManualClock()
    fold = open_log(store_of("app-meta"), clock).proven()
    assert fold.queue(MessageQueue("Orders", 0)).messages == 13  # type: ignore[union-attr]


def test_run_says_where_a_setting_is_missing() -> None:
    done = tiered("run", "--store", "/nowhere/store", "--state", "/nowhere/state")
    assert (done.code, done.out) == (2, b"")
    assert "archive.url is not set" in done.err


def test_an_archive_kept_by_the_kit_equals_the_daemons(broker: Crafted) -> None:
    """The in-process assembly of the tests and the real composition root archive the same."""
    with ExitStack() as stack:
        assert daemon(broker, "memory://app-same").run(stack) == 0
    clock = ManualClock(broker.time_ms + 1000)
    kit = assemble(broker.store, memory(clock), clock)
    kit.settle()
    real = open_log(store_of("app-same"), ManualClock())
    for queue in (MessageQueue("Orders", 0), MessageQueue("Orders", 1)):
        ours, theirs = kit.state.queue(queue), real.proven().queue(queue)
        assert ours is not None
        assert theirs is not None
        assert (ours.max_offset, ours.bytes, ours.flat_end) == (
            theirs.max_offset,
            theirs.bytes,
            theirs.flat_end,
        )
    kit.close()


def test_once_over_a_store_that_goes_away_archives_what_is_held_and_says_so(
    broker: Crafted, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = daemon(broker, "memory://app-away")
    elsewhere = broker.store.with_name("elsewhere")
    monkeypatch.setattr(one, "_ready", lambda: broker.store.rename(elsewhere))  # nothing is archived yet
    with pytest.raises(NotFound, match="went away") as caught, ExitStack() as stack:
        one.run(stack)
    assert caught.value.fields["path"] == str(broker.directory)
    assert "source.store_dir" in str(caught.value.hint)
    log = open_log(store_of("app-away"), ManualClock())
    assert sum(q.messages for q in log.proven().queues()) == 20
    elsewhere.rename(broker.store)
    with ExitStack() as stack:
        assert daemon(broker, "memory://app-away").run(stack) == 0


def test_a_stall_and_failing_writes_are_no_ready_daemon(broker: Crafted) -> None:
    clock = ManualClock()
    one = daemon(broker, "memory://", clock=clock)
    one._problem = None
    assert one._is_ready() == (True, "ready")
    limit = (60_000 + 1000) / 1000  # the stall, and the time for which a flush waits on purpose
    clock.advance(limit - 1)
    assert one._is_ready() == (True, "ready")
    clock.advance(1)
    ready, why = one._is_ready()
    assert (ready, one._status()["stalled"]) == (False, True)
    assert "the reason is unknown" in why
    assert b"tiered_stalled 1.0" in one._expose()
    one._outages.failed("c/b/commit/1", Unavailable("the store is full"))
    assert one._is_ready()[1].endswith(": the store is full"), "the reason, as soon as there is one"
    clock.advance(10)
    assert one._is_ready() == (False, "writes have been failing for 10 s: the store is full")
    one._problem = "the store does not answer"
    assert one._is_ready() == (False, "the store does not answer")


def test_a_store_that_is_away_is_no_ready_daemon(broker: Crafted, caplog: pytest.LogCaptureFixture) -> None:
    one = daemon(broker, "memory://")
    one._problem = None
    gone = NotFound("the commitlog directory does not exist", path="/store/commitlog")
    with caplog.at_level(logging.WARNING, "tiered.daemon"):
        for away in (None, gone, gone, None, None):
            one._notice(away)
            assert one._is_ready() == ((True, "ready") if away is None else (False, str(gone)))
    assert [r.levelname for r in caplog.records] == ["ERROR", "WARNING"]


def test_a_record_that_waits_for_an_operator_is_no_ready_daemon(
    broker: Crafted, caplog: pytest.LogCaptureFixture
) -> None:
    one = daemon(broker, "memory://")
    one._problem = None
    settling = Wait(PhysicalOffset(5), "the last record is not confirmed yet", 0.0)
    large = Wait(PhysicalOffset(5), "too large", 0.0, Invalid("too large", key="source.max_record_bytes"))
    with caplog.at_level(logging.WARNING, "tiered.daemon"):
        for waiting in (None, settling, large, large, None):
            one._notice_halt(waiting)
            assert one._is_ready() == ((False, str(large.problem)) if waiting is large else (True, "ready"))
    assert [r.levelname for r in caplog.records] == ["ERROR", "WARNING"]


def test_a_hangup_takes_over_retention_and_names_what_waits_for_a_restart(
    broker: Crafted, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = daemon(broker, f"file://{tmp_path}/archive")
    given = {
        "source.store_dir": str(broker.store),
        "archive.url": f"file://{tmp_path}/archive",
        "web.port": -1,
    }
    given |= {"hold.max_disk_percent": 99}
    with caplog.at_level(logging.INFO):
        made.retain.reload(
            lambda: load(None, {}, {**given, "retain.keep_ms": "9d", "retain.topics": "Audit=forever"})
        )
        assert made.retain().keep_ms == 9 * 86_400_000
        assert said(caplog, "retention follows") == {"changed": ["retain.keep_ms", "retain.topics"]}
        assert not [r for r in caplog.records if "wait for a restart" in r.getMessage()]

        def wrong() -> Any:
            raise Invalid("no", key="retain.keep_ms")

        made.retain.reload(wrong)
        assert made.retain().keep_ms == 9 * 86_400_000, "as it was"
        made.retain.reload(lambda: load(None, {}, {**given, "dispatch.block_bytes": "512KiB"}))
        assert made.retain().keep_ms == 0
        assert said(caplog, "wait for a restart") == {"keys": ["dispatch.block_bytes"]}


def said(caplog: pytest.LogCaptureFixture, words: str) -> dict[str, Any]:
    """The fields of the last line with these words."""
    record = [r for r in caplog.records if words in r.getMessage()][-1]
    return {name: getattr(record, name) for name in ("changed", "keys") if hasattr(record, name)}


def test_a_stall_on_a_machine_without_time_says_so(broker: Crafted) -> None:
    clock = ManualClock()
    one = daemon(broker, "memory://", clock=clock)
    one._problem = None
    one._starvation._waits = lambda: {1: 0.9 * clock.monotonic()}
    for _ in range(62):
        clock.advance(1)
        one._watch.step()
    assert "the machine has no time for this process" in one._is_ready()[1]
    one._halted = "a record is too large"
    assert "a record is too large; the machine has no time" in str(one._watch.problem())


def test_what_a_store_never_kept_is_archived_again_by_the_next_start(
    broker: Crafted, caplog: pytest.LogCaptureFixture
) -> None:
    """The process was killed before it looked for its last commits, which something had answered for in the store's place."""

    def once() -> Daemon:
        with ExitStack() as stack:
            one = daemon(broker, "memory://app-unkept")
            assert one.run(stack) == 0
        return one

    once()
    store = store_of("app-unkept")
    kept = {stored.key for stored in store.list("")}
    broker.send()
    once()
    for key in [stored.key for stored in store.list("") if stored.key not in kept]:
        store.delete(key)
    assert once()._metrics.value("tiered_vanished_total") == 1
    assert any("their messages are archived again" in getattr(r, "error", "") for r in caplog.records)
    assert sum(q.messages for q in open_log(store, ManualClock()).proven().queues()) == 21
    assert once()._metrics.value("tiered_vanished_total") == 0


def test_once_opens_no_port_unless_told_to(tmp_path: Path) -> None:
    assert tiered("gen", "--store", tmp_path / "store", "--messages", 20).code == 0
    once = ("run", "--once", "--store", tmp_path / "store", "--archive", f"file://{tmp_path}/archive")
    port = Web().port
    with socket.socket() as taken:
        with suppress(OSError):  # somebody else may have it: that is as good
            taken.bind(("127.0.0.1", port))
            taken.listen()
        assert tiered(*once).code == 0
        told = tiered(*once, "--set", f"web.port={port}")
    assert (told.code, "web.port" in told.err) == (2, True)
