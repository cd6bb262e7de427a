"""A broker that fails like one: ``StoreGenerator`` with a model of what it holds, restarts, and tails that get lost."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from tests.kit.oracle import Oracle, scan_log
from tiered.clock import SystemClock
from tiered.source.generator.store import GeneratorOptions, StoreGenerator
from tiered.source.generator.storefiles import numbered

KIB = 1024


class FaultBroker(StoreGenerator):
    """An open broker store. ``oracle`` is its dict of lists; every verb below keeps it true."""

    def __init__(
        self, store: Path, *, topics: Sequence[str] = ("Orders", "Audits"), seed: int = 1, **options: Any
    ) -> None:
        wanted: dict[str, Any] = {
            "queues": 3,
            "body_bytes": 400,
            "file_bytes": 128 * KIB,
            "queue_file_units": 1000,
            "vary_bodies": True,
            **options,
        }
        super().__init__(
            GeneratorOptions(store_dir=store, topics=tuple(topics), seed=seed, **wanted), SystemClock()
        )
        self.oracle = Oracle(store)

    @classmethod
    def started(cls, store: Path, count: int = 0, **options: Any) -> Self:
        """A new broker with ``count`` messages."""
        broker = cls(store, **options)
        broker.open()
        broker.write(count)
        return broker

    def write(self, count: int, *, body_bytes: int | None = None) -> int:
        """Append ``count`` messages, of another body size if wanted; returns the log's end."""
        if body_bytes is not None:
            self.options = replace(self.options, body_bytes=body_bytes)
        begin = self.physical_offset
        end = self.append(count)
        self.oracle.extend(begin, end)
        return end

    def starts(self) -> list[int]:
        """Physical offsets of the records in its files."""
        found = [record.physical_offset for _, record in scan_log(self.log.directory)]
        return [at for at in found if at < self.physical_offset]

    def bases(self) -> list[int]:
        """First bytes of its files."""
        return [base for base, _ in numbered(self.log.directory)]

    def expire(self, files: int = 1) -> None:
        """Delete the oldest files."""
        for _ in range(files):
            self.delete_oldest()

    def restart(self) -> None:
        """Stop uncleanly and start again; nothing is lost."""
        self.crash()
        self.clock.wait(0.02)
        self.open()

    def lose_tail(self, to: int, *, zero: bool = True) -> None:
        """Lose power and come back with a log that ends at the record start ``to``.

        Without ``zero`` whole old records stay behind a first one that is broken: the next append of equal size makes them
        look like its successors.
        """
        self.crash()
        self.truncate_tail(to, zero=zero)
        if not zero:
            descriptor = os.open(self.log.path(self.log.base_of(to)), os.O_RDWR)
            try:
                os.pwrite(descriptor, bytes(8), to % self.options.file_bytes)
            finally:
                os.close(descriptor)
        self.clock.wait(0.02)  # no broker starts in less, and times of files are that coarse
        self.open()
        assert self.physical_offset == to
        self.oracle.look(to)
