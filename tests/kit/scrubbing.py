"""The scrub in one thread, with clocks that a test moves; damage of every kind; a listing that lags."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.kit.assemble import KEYS
from tests.kit.fetchscene import Scene, in_memory
from tests.kit.readstore import Cold
from tiered.archive.care.notes import Notebook, Notes
from tiered.archive.care.scrub import Scrubber
from tiered.archive.log.flush import Proven, Unsettled
from tiered.archive.log.maintenance import Done
from tiered.provider.base import Provider, Stored
from tiered.provider.wrap import Wrapped
from tiered.settings import ONE_DAY_MS, Scrub

HOUR_MS = 3_600_000


@dataclass
class LookingTurn:
    """A turn that commits nothing. ``spent``: what was told of bytes; ``on_spend`` hears of it and may raise."""

    spent: list[int] = field(default_factory=list)
    on_spend: Callable[[int], None] = lambda byte_count: None

    def commit(self, flush: Unsettled) -> Proven | None:
        raise AssertionError("a scrub changes nothing")

    def spend(self, byte_count: int) -> None:
        self.on_spend(byte_count)
        self.spent.append(byte_count)


@dataclass
class Scrubbing:
    """The task of one process over the daemon of a scene; ``again`` is a restart."""

    scene: Scene | Cold
    directory: Path | None
    options: dict[str, Any]
    task: Scrubber
    book: Notebook

    @classmethod
    def of(cls, scene: Scene | Cold, directory: Path | None = None, **options: Any) -> Scrubbing:
        """``options``: of section ``scrub``."""
        settings = Scrub(**{"max_bytes_per_second": 0, **options})
        log = scene.daemon.log
        book = Notebook(directory, log.reader.identity.archive_id)
        task = Scrubber(log.reader, log.proven, scene.clock, settings, book)
        scene.clock.advance(600)
        return cls(scene, directory, options, task, book)

    def again(self) -> Scrubbing:
        """A new process on the same state directory."""
        return Scrubbing.of(self.scene, self.directory, **self.options)

    @property
    def notes(self) -> Notes:
        return self.task.notes

    def turns(self, turn: LookingTurn | None = None) -> Iterator[Done]:
        """Turns while one is due, each when it is; ends when none is for a while."""
        clock, waited = self.scene.clock, 0.0
        for _ in range(100_000):
            if self.task.due(clock.monotonic()):
                waited = 0.0
                yield self.task.run_once(turn or LookingTurn())
            elif waited >= 100:
                return
            else:
                clock.advance(1)
                waited += 1
        raise AssertionError("it never comes to rest")

    def rest(self, turn: LookingTurn | None = None) -> list[Done]:
        """All turns that are due now."""
        return list(self.turns(turn))

    def later(self, days: float = 31) -> list[Done]:
        """Time passes, and what is due then is done."""
        self.scene.clock.advance(days * ONE_DAY_MS / 1000)
        return self.rest()

    def damaged(self) -> dict[str, str]:
        """What is listed: what is wrong, by path."""
        return {path: found.what for path, found in self.notes.findings.items()}


def flip(store: Provider, path: str, position: int, bit: int = 0) -> bytes:
    """Flip a bit of an object's stored bytes; these before. The store says that it was written long ago, as a disk that rots
    would."""
    whole = stored_bytes(store, path)
    damaged = bytearray(whole)
    damaged[position] ^= 1 << bit
    overwrite(store, path, bytes(damaged))
    return whole


def overwrite(store: Provider, path: str, data: bytes) -> None:
    """Other bytes under the same key, without a new time."""
    shared = in_memory(store)._shared
    name = KEYS.key(path).encode()
    shared.objects[name] = (data, shared.objects[name][1])


def stored_bytes(store: Provider, path: str) -> bytes:
    """What lies in the bucket, encrypted or not."""
    return bytes(in_memory(store)._shared.objects[KEYS.key(path).encode()][0])


def paths(store: Provider) -> list[str]:
    """Every path of the archive."""
    return [str(KEYS.path(stored.key)) for stored in store.list(KEYS.root)]


class Lagging(Wrapped):
    """A store whose listing does not show some keys yet, or shows some still."""

    def __init__(self, inner: Provider) -> None:
        super().__init__(inner)
        self.hidden: set[str] = set()

    def list(
        self, prefix: str, *, start_after: str | None = None, limit: int | None = None
    ) -> Iterator[Stored]:
        found = (s for s in self.inner.list(prefix, start_after=start_after) if s.key not in self.hidden)
        for number, stored in enumerate(found):
            if number == limit:
                return
            yield stored
