"""A projection by key in the making: one queue's messages read in bounded steps, on top of what an earlier projection says."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tiered.archive.log.localfiles import ensure_directory
from tiered.archive.log.maintenance import Turn
from tiered.archive.read.compaction import (
    KeyEntries,
    entries_left,
    key_entries,
    newest_with_body,
    straddling_offset,
)
from tiered.archive.read.flatfile import RunReader
from tiered.archive.read.projection import Projection, archived_by
from tiered.archive.read.view import View
from tiered.archive.rewrite.spool import Spool
from tiered.archive.state.values import Head, RunState
from tiered.codec.checksum import crc32c
from tiered.codec.format.projection import CHUNK_ENTRIES, ProjectionHead, encode_chunks, encode_head
from tiered.codec.format.sections import Section
from tiered.errors import Corrupt, NotFound
from tiered.model import MessageQueue
from tiered.settings import MIB

log = logging.getLogger("tiered.archive")


@dataclass(frozen=True, slots=True)
class BuildBounds:
    """``memory_bytes``: what keys take in memory; ``directory``: where more of them lie, emptied when a build begins (``None``:
    where the system keeps temporary files); ``turn_bytes``: records read at once; ``messages``: read before a projection is
    put, or as many as the one before has keys, so that no more than those are lost with the process."""

    memory_bytes: int
    directory: str | None = None
    turn_bytes: int = 64 * MIB
    messages: int = 1 << 24


@dataclass(slots=True)
class ProjectionBuild:
    """Records of ``queue`` below ``position`` are in ``entries``, those up to ``target`` will be; the last of them came with
    commit ``last_commit``. It was begun at commit ``since``. Of one thread; ``close`` ends it."""

    queue: MessageQueue
    generation: int
    bounds: BuildBounds
    position: int
    target: int
    entries: KeyEntries
    since: int
    last_commit: int | None = None
    without_key: int = 0
    stack: ExitStack = field(default_factory=ExitStack)

    @classmethod
    def begin(
        cls, view: View, queue: MessageQueue, base: Projection | None, bounds: BuildBounds, turn: Turn
    ) -> ProjectionBuild | None:
        """Begin with what ``base`` says, which holds at the view's commit, or at the queue's first message; ``None`` if there
        is none. A base that is damaged counts as absent."""
        found = view.known(queue)
        if view.head is None or found is None or found.generation is None or not found.messages:
            return None
        stack = ExitStack()
        directory = _emptied(bounds.directory, stack)
        first = next(view.state.runs(queue, found.generation))
        entries = KeyEntries(stack, bounds.memory_bytes, found.messages, directory)
        most = bounds.messages if base is None else max(bounds.messages, base.head.entries)
        end = found.max_offset
        made = cls(
            queue, found.generation, bounds, first.start, min(end, first.start + most), entries, view.head.seq, stack=stack
        )  # fmt: skip
        if base is not None:
            try:
                straddling = straddling_offset(_runs(view), first)
                for some in base.entries():
                    turn.spend(some.nbytes)
                    entries.add(entries_left(some, first.start, straddling))
            except (Corrupt, NotFound):
                log.warning("a projection is damaged, and made anew", extra={"path": base.path})
                made.close()  # what it said of messages behind the target may no longer be so when that is put
                return cls.begin(view, queue, None, bounds, turn)
            made.position, made.target = base.head.end, min(end, base.head.end + most)
            made.last_commit, made.without_key = base.head.last_commit, base.head.without_key
        return made

    @property
    def complete(self) -> bool:
        """Whether everything was read."""
        return self.position >= self.target

    def close(self) -> None:
        """Give back memory and local files."""
        self.stack.close()

    def stands(self, view: View) -> bool:
        """Whether what was read is still what the queue holds."""
        known = view.known(self.queue)
        if known is None or known.generation != self.generation or known.min_offset >= self.target:
            return False
        # After an error entries speak of messages behind the position, too.
        if view.state.lost_its_end(self.queue, self.generation, self.since):
            return False
        if self.last_commit is None or self.position <= known.min_offset:  # nothing of it is left
            return known.messages > 0
        return archived_by(view, self.queue, self.generation, self.position) == self.last_commit

    def read(self, view: View, turn: Turn) -> int:
        """Read on, as much as a turn may; how many messages. ``Corrupt`` or ``NotFound`` where one cannot be read: it may be
        the newest of any key."""
        reader, position, count, without_key = _runs(view), self.position, 0, 0
        left = self.bounds.turn_bytes
        last: RunState | None = None
        for run in view.state.runs(self.queue, self.generation, from_offset=self.position):
            low, high = max(run.start, self.position), min(run.end, self.target)
            if low >= high:
                break
            for stretch in reader.stretches(run, low, high):
                turn.spend(len(stretch.data))
                found = key_entries(stretch, run.start)
                self.entries.add(found)  # after an error once more, which changes nothing
                without_key += len(stretch) - len(found)
                position, last = int(stretch.next_offset), run
                count, left = count + len(stretch), left - len(stretch.data)
                if left <= 0:
                    break
            if left <= 0:
                break
        if last is None:  # nothing is left below the target
            self.target = self.position
            return 0
        last_commit = reader.commit_of(last, position - 1)
        self.position, self.last_commit = position, last_commit
        self.without_key += without_key
        return count

    def write(self, view: View, head: Head, spool: Spool) -> ProjectionHead:
        """Write the projection, as of the view's commit; what it says of itself."""
        assert self.last_commit is not None  # a queue with messages was read
        chunks: list[Section] = []
        entries = 0
        for some in _evenly(self._kept(view)):
            entries += len(some)
            for piece in encode_chunks(some):
                chunks.append(Section(spool.length, len(piece), crc32c(piece)))
                spool.write(piece)
        made = ProjectionHead(
            head.archive_id, head.seq, head.commit_id, self.queue, self.generation, self.position, self.last_commit,
            self.without_key, entries, tuple(chunks),
        )  # fmt: skip
        spool.write(encode_head(made, spool.length))
        return made

    def _kept(self, view: View) -> Iterator[npt.NDArray[np.void]]:
        """What the projection holds, by hash."""
        first = next(view.state.runs(self.queue, self.generation))
        straddling = straddling_offset(_runs(view), first)
        for part in self.entries.parts():
            yield entries_left(newest_with_body(part), first.start, straddling)


def _runs(view: View) -> RunReader:
    return RunReader(view.state, view.objects)


def _emptied(directory: str | None, stack: ExitStack) -> str | None:
    """That local directory, without what a process that ended has left there."""
    if directory is not None:
        shutil.rmtree(directory, ignore_errors=True)
        ensure_directory(Path(directory), "state.directory")
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
    return directory


def _evenly(pieces: Iterator[npt.NDArray[np.void]]) -> Iterator[npt.NDArray[np.void]]:
    """The same entries, at least ``CHUNK_ENTRIES`` at a time but for the last."""
    waiting: list[npt.NDArray[np.void]] = []
    for piece in pieces:
        waiting.append(piece)
        if sum(map(len, waiting)) >= CHUNK_ENTRIES:
            yield np.concatenate(waiting)
            waiting = []
    if any(map(len, waiting)):
        yield np.concatenate(waiting)
