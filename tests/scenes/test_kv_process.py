"""The key-value view's process: what it opens and tells, how it ends, and what it refuses to begin with."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.kit.command import tiered
from tests.kit.daemonproc import Pages
from tests.kit.fakebroker import FakeBroker, Stored
from tests.kit.kvhttp import HttpValues
from tests.kit.kvproc import ViewProcess
from tests.kit.kvscene import NAMESPACE, KeyValueScene
from tiered.clock import SystemClock
from tiered.codec.record.message import encode_properties
from tiered.daemon.keyvalue import KeyValueProcess, state_directory
from tiered.daemon.notify import Notifier
from tiered.daemon.portfile import KEY_VALUE_PORT_FILE, WEB_PORT_FILE
from tiered.errors import Invalid, NotFound, Refused, Unavailable
from tiered.keyvalue import Freshness, ReadRule
from tiered.metrics import Metrics
from tiered.settings import Settings

LATEST = ReadRule(Freshness.LATEST)
SECONDS = 30.0


@pytest.fixture
def scene(tmp_path: Path) -> KeyValueScene:
    made = KeyValueScene(tmp_path, with_archive=False)
    made.settings = served(made.settings)
    return made


def served(settings: Settings) -> Settings:
    """With doors on ports of their own, and in no hurry to give up."""
    doors = {"http_listen": "127.0.0.1:0", "web_listen": "127.0.0.1:0", "timeout_ms": 5000, "poll_ms": 2}
    return replace(settings, kv=replace(settings.kv, **doors))


@dataclass
class Running(Pages):
    """A process's parts, in a thread of this one. ``code``: once it ended."""

    process: KeyValueProcess
    state: Path
    code: int | None = None
    _values: HttpValues | None = None

    @property
    def port_file(self) -> Path:
        return self.state / WEB_PORT_FILE

    @property
    def values(self) -> HttpValues:
        if self._values is None:
            port = (self.state / KEY_VALUE_PORT_FILE).read_text().strip()
            self._values = HttpValues(f"127.0.0.1:{port}")
        return self._values

    def end(self) -> None:
        """End connections."""
        if self._values is not None:
            self._values.close_all()


@contextmanager
def running(scene: KeyValueScene) -> Iterator[Running]:
    stop = threading.Event()
    with ExitStack() as stack:
        process = KeyValueProcess(scene.settings, SystemClock(), Metrics(), Notifier(None), stop)
        process.open(stack)
        made = Running(process, scene.directory / "kv")

        def run() -> None:
            made.code = process.run()

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield made
        finally:
            made.end()
            stop.set()
            thread.join(SECONDS)
            assert not thread.is_alive()


def until(seen: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not seen():
        assert time.monotonic() < deadline, "not seen in time"
        time.sleep(0.01)


def stores(scene: KeyValueScene, broker: FakeBroker) -> None:
    """Have what is sent to the broker appended to the scene's log."""

    def append(stored: Stored) -> None:
        topic = stored.ext["topic"]
        offset = scene.next.get(topic, 0)
        scene.next[topic] = offset + 1
        scene.log.append(
            stored.body, topic=topic.encode(), queue_offset=offset, properties=encode_properties(stored.properties)
        )  # fmt: skip

    broker.on_send = append


def test_a_life(scene: KeyValueScene) -> None:
    """Opened, asked, written to, ended; its ports are told as long as it runs."""
    with FakeBroker() as broker:
        stores(scene, broker)
        scene.settings = replace(scene.settings, kv=replace(scene.settings.kv, broker_address=broker.address))
        with running(scene) as view:
            until(view.ready)
            assert view.ask("/healthz")[0] == 200
            with pytest.raises(NotFound):
                view.values.get("n", b"k", LATEST)
            broker.fill("KV_n", 0, 0)
            assert view.values.put("n", b"k", b"v").version == 0
            entry = view.values.get("n", b"k", LATEST)
            assert entry is not None
            assert entry.value == b"v"
            scene.log.append(b"no write", topic=b"KV_n", queue_offset=1)
            until(lambda: view.metric("tiered_kv_malformed_total") == 1)
            told = view.status()
            assert (told["ready"], told["namespaces"], told["broken"]) == (True, 1, {})
            assert (told["applied"], told["lag_bytes"]) == (scene.log.position, 0)
            with pytest.raises(Refused), ExitStack() as stack:
                KeyValueProcess(
                    scene.settings, SystemClock(), Metrics(), Notifier(None), threading.Event()
                ).open(stack)
        assert view.code == 0
        assert not view.port_file.exists()
        assert not (view.state / KEY_VALUE_PORT_FILE).exists()
        with running(scene) as view:
            until(view.ready)
            assert view.values.get("n", b"k") == entry


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_write_that_the_broker_beside_it_answered_for_is_not_looked_at_twice(
    scene: KeyValueScene, elsewhere: bool
) -> None:
    """But what another broker answered says nothing of the log beside the view."""
    with FakeBroker() as broker:
        stores(scene, broker)
        append = broker.on_send

        def stored(what: Stored) -> None:
            assert append is not None
            place = scene.log.position
            append(what)
            broker.message_id = f"7F00000100002A9F{place:016X}"

        broker.on_send = stored
        kv = replace(
            scene.settings.kv, broker_address=broker.address, confirm_ms=10_000, ask_end=elsewhere,
            timeout_ms=400 if elsewhere else 5000,
        )  # fmt: skip
        scene.settings = replace(scene.settings, kv=kv)
        with running(scene) as view:
            until(view.ready)
            broker.fill("KV_n", 0, 0)
            if elsewhere:
                with pytest.raises(Unavailable, match="not applied in time"):
                    view.values.put("n", b"k", b"v")
            else:
                assert [view.values.put("n", b"k", b"v").version for _ in range(3)] == [0, 1, 2]


def test_a_namespace_that_lacks_messages_is_not_ready_and_says_which(scene: KeyValueScene) -> None:
    scene.puts(3)
    scene.next["second"] += 2
    scene.put("second", b"k", b"v")
    with running(scene) as view:
        until(lambda: b"lack messages" in view.ask("/readyz")[1])
        code, body = view.ask("/readyz")
        assert (code, b"second" in body, NAMESPACE.encode() in body) == (503, True, False)
        assert list(view.status()["broken"]) == ["second"]
        assert view.metric("tiered_kv_broken_namespaces") == 1


def test_the_archive_alone_may_be_followed_and_an_archive_that_is_not_there_is_waited_for(
    tmp_path: Path,
) -> None:
    scene = KeyValueScene(tmp_path)
    scene.settings = served(scene.settings)
    scene.puts(5)
    here = scene.settings
    scene.settings = replace(
        here, source=replace(here.source, store_dir=""), fetch=replace(here.fetch, follow_ms=100)
    )
    with running(scene) as view:
        until(lambda: view.status().get("waiting") is not None)
        code, body = view.ask("/readyz")
        assert (code, b"the view is being made" in body) == (503, True)
        scene.archive()
        until(view.ready)
        assert view.values.get(NAMESPACE, b"key-1") is not None


def test_where_its_state_lies_and_what_there_is_to_follow_must_be_said(
    scene: KeyValueScene, tmp_path: Path
) -> None:
    base = scene.settings
    nowhere = replace(
        base, kv=replace(base.kv, state_directory=""), source=replace(base.source, store_dir="")
    )
    with pytest.raises(Invalid) as caught:
        state_directory(nowhere)
    assert caught.value.fields["key"] == "kv.state_directory"
    assert state_directory(replace(base, kv=replace(base.kv, state_directory=""))).name == "kv"
    words = ("--set", f"kv.state_directory={tmp_path}/state", "--set", "kv.http_listen=127.0.0.1:0")
    done = tiered("kv", "serve", *words)
    assert done.code == 2
    assert "source.store_dir" in done.err


def test_a_program_of_its_own_is_killed_and_goes_on_and_ends_when_it_is_told(scene: KeyValueScene) -> None:
    scene.puts(4)
    broker = FakeBroker()
    with broker:
        view = ViewProcess(scene.directory, _Beside(scene, broker), "one").start()
        try:
            first = view.values().get(NAMESPACE, b"key-1", LATEST)
            view.kill()
            scene.puts(2, 4)
            view.start()
            assert view.values().get(NAMESPACE, b"key-1", LATEST) == first
            assert view.values().get(NAMESPACE, b"key-5", LATEST) is not None
            again = ViewProcess(scene.directory, _Beside(scene, broker), "one")
            again.log = scene.directory / "again.log"
            again.start(ready=False)
            until(lambda: not again.alive)
            assert "another" in again.output()
            assert view.stop() == 0
            assert not view.port_file.exists()
        finally:
            view.end()


@dataclass(frozen=True)
class _Beside:
    """The scene's log, and who takes writes."""

    scene: KeyValueScene
    broker: FakeBroker

    @property
    def store_dir(self) -> Path:
        return self.scene.log.store

    @property
    def address(self) -> str:
        return self.broker.address
