"""Snapshots taken by themselves, and the one that an empty view begins with."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from tiered.archive.keys import ArchiveKeys
from tiered.clock import Clock
from tiered.codec.format.keyvalue import KeyValueSnapshot
from tiered.errors import Refused, TieredError, Unavailable
from tiered.metadata.base import MetadataView, RedoStore
from tiered.provider.base import Provider
from tiered.service import Next, pause
from tiered.view.snapshot import delete_snapshots, list_snapshots, load_snapshot, write_snapshot

log = logging.getLogger("tiered.view")

ID_BYTES = 16


@dataclass(frozen=True, slots=True)
class SnapshotPlace:
    """Where snapshots of a view are."""

    provider: Provider
    keys: ArchiveKeys


class SnapshotKeeper:
    """Takes one every ``every_seconds`` if anything was applied since, and keeps the ``keep`` newest. ``step`` is the step of a
    service; what fails is told by ``trouble`` and tried again, and never ends the view."""

    def __init__(
        self,
        place: SnapshotPlace,
        frozen: Callable[[], MetadataView],
        clock: Clock,
        random_bytes: Callable[[int], bytes],
        *,
        every_seconds: float,
        keep: int,
    ) -> None:
        self.place = place
        self._frozen = frozen
        self._clock = clock
        self._random_bytes = random_bytes
        self._every_seconds = every_seconds
        self._keep = keep
        self._next = clock.monotonic() + every_seconds
        self._applied: bytes | None = None
        self.taken_ms: int | None = None
        """When the last one was taken by this process; ``None``: none was."""
        self.trouble: str | None = None
        """Why the last one was not taken, or old ones not deleted."""

    def step(self) -> Next:
        """Take one if it is time."""
        left = self._next - self._clock.monotonic()
        if left > 0:
            return pause(left)
        self._next = self._clock.monotonic() + self._every_seconds
        try:
            self.take()
            self.trouble = None
        except Refused:
            pass  # nothing was applied yet
        except TieredError as error:
            self.trouble = str(error)
            log.error("no snapshot of the view was taken: %s", error)
            if isinstance(error, Unavailable):
                self._next = self._clock.monotonic()
                raise
        return pause(self._every_seconds)

    def take(self) -> KeyValueSnapshot | None:
        """Take one now, unless nothing was applied since the last."""
        frozen = self._frozen()
        applied = frozen.applied()
        if applied is not None and applied == self._applied:
            return None
        made = write_snapshot(
            self.place.provider, self.place.keys, frozen, namespace=None, now_ms=self._clock.now_ms(),
            snapshot_id=self._random_bytes(ID_BYTES),
        )  # fmt: skip
        self._applied, self.taken_ms = applied, made.created_ms
        log.info(
            "snapshot of the view",
            extra={"id": made.snapshot_id.hex(), "pairs": made.pairs, "bytes": made.stored_bytes},
        )
        delete_snapshots(self.place.provider, self.place.keys, keep=self._keep, now_ms=self._clock.now_ms())
        return made


def begin_with_snapshot(place: SnapshotPlace, store: RedoStore) -> KeyValueSnapshot | None:
    """Fill an empty store with the newest snapshot that verifies; ``None`` if there is none, or the store is not empty.

    What is wrong with one is logged, and an older one taken. ``Unavailable``.
    """
    if store.applied() is not None or next(store.iterate(b""), None) is not None:
        return None
    for found in list_snapshots(
        place.provider, place.keys, skipped=lambda error: log.error("a snapshot is passed over: %s", error)
    ):
        if found.namespace is not None:
            continue
        try:
            load_snapshot(place.provider, place.keys, store, found, namespace=None)
        except Unavailable:
            raise
        except TieredError as error:
            log.error("a snapshot of the view cannot be used: %s", error)
            continue
        log.info(
            "the view begins with a snapshot", extra={"id": found.snapshot_id.hex(), "pairs": found.pairs}
        )
        return found
    return None
