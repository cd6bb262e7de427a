"""A view over a commitlog written by hand, and its archive: everything in this process, on a clock that is moved."""

from __future__ import annotations

import shutil
import threading
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from tests.kit.brokerlog import BrokerLog
from tests.kit.command import archive_once
from tiered.clock import ManualClock
from tiered.codec.record.message import encode_properties
from tiered.daemon.keyvalue import OpenedView, open_view
from tiered.daemon.lock import StateLock
from tiered.keyvalue import ALWAYS, Condition
from tiered.metrics import Metrics
from tiered.settings import Settings
from tiered.view.layout import split_entry_key
from tiered.view.operation import DELETE, NO_VALUE, PUT, properties_of
from tiered.view.view import KeyValueView

NAMESPACE = "orders"
_MOST_STEPS = 10_000


class KeyValueScene:
    """``log`` is the broker's, archived by ``archive``; ``values`` what a view must have of each namespace, in the end."""

    def __init__(self, directory: Path, *, file_bytes: int = 4096, with_archive: bool = True) -> None:
        self.directory = directory
        self.log = BrokerLog(directory / "store", file_bytes=file_bytes)
        self.clock = ManualClock()
        self.values: dict[str, dict[bytes, tuple[bytes, int]]] = {}
        self.next: dict[str, int] = {}
        kv = {"state_directory": str(directory / "kv"), "batch_bytes": 64 * 1024, "timeout_ms": 100}
        base = Settings()
        self.settings = replace(
            base,
            source=replace(base.source, store_dir=str(self.log.store)),
            archive=replace(base.archive, url=f"file://{directory}/archive" if with_archive else ""),
            kv=replace(base.kv, **kv),
        )
        (directory / "kv").mkdir(parents=True)
        self.opened: OpenedView

    def put(
        self,
        namespace: str,
        key: bytes,
        value: bytes | None,
        condition: Condition = ALWAYS,
        ttl_ms: int | None = None,
    ) -> int:
        """A write that takes effect, appended to the log; its version."""
        version = self.next.get(namespace, 0)
        kind = DELETE if value is None else PUT
        properties = properties_of(kind, key, f"ID{version}", condition, ttl_ms, empty=value == b"")
        self.log.append(
            value or NO_VALUE, topic=f"KV_{namespace}".encode(), queue_offset=version, properties=encode_properties(properties)
        )  # fmt: skip
        self.next[namespace] = version + 1
        mine = self.values.setdefault(namespace, {})
        if value is None:
            mine.pop(key, None)
        else:
            mine[key] = value, version
        return version

    def puts(self, count: int, first: int = 0, *, keys: int = 7) -> None:
        """Writes to two namespaces, with messages of others between them."""
        for number in range(first, first + count):
            self.put(NAMESPACE, b"key-%d" % (number % keys), b"value-%d" % number)
            self.log.append(b"not ours", topic=b"Orders", queue_offset=number)
            if number % 3 == 0:
                self.put("second", b"k%d" % number, b"")

    def begin_topic_anew(self, namespace: str) -> None:
        """The topic is deleted and made again: its offsets begin again."""
        self.next[namespace], self.values[namespace] = 0, {}

    def archive(self, *sets: str) -> None:
        """Everything that the log has. ``sets``: settings of the one who archives."""
        done = archive_once(self.log.store, self.directory / "archive", "source.confirm_reread_ms=1", *sets)
        assert done.code == 0, done.error

    def what_is_there(self) -> tuple[int, dict[str, dict[bytes, tuple[bytes, int]]], dict[str, int]]:
        """The end of the log, and what holds there, for ``lose_tail``."""
        return self.log.position, {n: dict(v) for n, v in self.values.items()}, dict(self.next)

    def lose_tail(self, left: tuple[int, dict[str, dict[bytes, tuple[bytes, int]]], dict[str, int]]) -> None:
        """The broker loses what came behind ``what_is_there``."""
        self.log.cut(left[0])
        _, self.values, self.next = left

    def expire(self, files: int) -> None:
        """The broker deletes its oldest files."""
        for _ in range(files):
            self.log.delete_oldest()

    def view(self, stack: ExitStack, *, with_log: bool = True) -> KeyValueView:
        """A view, opened; nothing is applied yet. Without the log it is one of the archive."""
        settings = self.settings
        if not with_log:
            settings = replace(settings, source=replace(settings.source, store_dir=""))
        self.opened = open_view(
            stack, settings, self.clock, Metrics(), self.directory / "kv", threading.Event()
        )
        return self.opened.view

    def lose_store(self) -> None:
        """The view's directory is deleted."""
        shutil.rmtree(self.directory / "kv")
        (self.directory / "kv").mkdir()

    def lock(self, stack: ExitStack) -> None:
        """As a view has it that runs."""
        stack.enter_context(StateLock(self.directory / "kv"))

    def snapshot(self, view: KeyValueView) -> None:
        """Take one now."""
        assert self.opened.keeper is not None
        assert self.opened.keeper.take() is not None

    def stored_keys(self, view: KeyValueView) -> list[bytes]:
        """Keys in the store, expired or not."""
        return [split_entry_key(key)[1] for key, _ in view.frozen().iterate(b"e")]

    def follow(self, view: KeyValueView) -> str | None:
        """Step until there is nothing to do; what is waited for, if anything."""
        idle = 0
        for _ in range(_MOST_STEPS):
            if view.step().wait_seconds == 0:
                idle = 0
                continue
            idle += 1
            if idle > 3:
                return view.waiting
            self.clock.advance(0.1)
        raise AssertionError("the view does not come to rest")

    def check(self, view: KeyValueView) -> None:
        """The view has what the log says, and nothing else."""
        for namespace, wanted in self.values.items():
            page = view.page(namespace, b"", after=None, count=1000)
            assert {entry.key: (entry.value, entry.version) for entry in page.entries} == wanted
            assert page.applied == self.next[namespace]
