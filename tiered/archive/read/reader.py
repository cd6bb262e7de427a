"""An archive opened for reading only: no epoch, no lock. Any number of readers may be open at once."""

from __future__ import annotations

from collections.abc import Callable

from tiered.archive.checkpoint.partial import PartialStore
from tiered.archive.keys import ArchiveKeys
from tiered.archive.log.asof import commit_at, fold_as_of
from tiered.archive.log.reader import LogReader
from tiered.archive.read.find import find_identity
from tiered.archive.read.objects import ObjectReader
from tiered.archive.read.view import View
from tiered.archive.state.values import Head, QueueState
from tiered.archive.state.view import ArchiveState
from tiered.errors import Unavailable
from tiered.metadata.base import MetadataStore
from tiered.model import MessageQueue, Progress
from tiered.provider.base import Provider

FEW_QUEUES = 4
"""Of so many a reader that stays loads what is asked for; of more it takes the whole fold, once, into its copy."""

FEW_PAIRS = 200_000
"""A checkpoint of so many is taken into the copy at once, in well under a second: what is known without waiting is then all."""


class ArchiveReader:
    """One archive, opened at a commit and moved on from there; each ``View`` that it gives stays as it is.

    ``store`` is this reader's own and holds the fold: all of it, or with a ``PartialStore`` only what is asked for. ``copy`` is
    for a reader that stays and begins with a ``PartialStore``: once more than ``FEW_QUEUES`` were asked for, or ``want_all``
    was called, the next look fills it, and it is the store from then on. One with a fold in it is so from the beginning, and
    where a checkpoint has ``FEW_PAIRS`` at most, or there is none, the first look fills it.
    ``whole_bytes``: see ``ObjectReader``. ``progress`` hears the number of each commit folded. No request is made before the
    first ``at``.
    One thread at a time calls ``at`` and ``follow``; everything else, and every view, is for any thread.
    """

    def __init__(
        self,
        provider: Provider,
        keys: ArchiveKeys,
        store: MetadataStore,
        *,
        table_cache_bytes: int,
        whole_bytes: int = 0,
        progress: Callable[[int], None] | None = None,
        copy: MetadataStore | None = None,
    ) -> None:
        self.provider = provider
        self.keys = keys
        self._store = store
        self._copy = copy
        self._all = copy is not None and ArchiveState(copy).head() is not None
        self._table_cache_bytes = table_cache_bytes
        self._whole_bytes = whole_bytes
        self._progress = progress
        self._opened: tuple[LogReader, ObjectReader] | None = None
        self._fixed: int | None = None
        self._view: View | None = None
        self._closed = False

    def at(self, seq: int | None = None, *, time_ms: int | None = None) -> View:
        """The archive as it was after commit ``seq``, or at a time of the store, or else at the head of its log, proven anew.

        ``NotFound`` names the archives that are there, the commits, or the oldest time. ``Refused`` for a newer format, or if
        the log ends before what ``store`` has seen; ``Corrupt``, ``Unavailable``.
        """
        log, _ = self._open()
        if seq is None and time_ms is None and self._fill_copy(log):
            return self._seen(ArchiveState(self._store).head())
        if seq is not None:
            head: Head | None = fold_as_of(log, self._store, seq, self._progress)
        else:
            head = log.fold(self._store, self._progress)
            if time_ms is None and self._fill_copy(log):
                return self._seen(ArchiveState(self._store).head())
            if time_ms is not None and head is not None:
                seq = commit_at(log, head, time_ms)
                head = log.fold_until(self._store, seq, self._progress)
        self._fixed = seq
        return self._seen(head)

    def follow(self) -> View:
        """The archive at the head of its log as it is now, or still at the commit or time that ``at`` was asked for.

        The same view if nothing was committed. Cheaper than ``at``: only what is new is read.
        """
        log, _ = self._open()
        if self._fixed is not None:
            return self._seen(log.fold_until(self._store, self._fixed, self._progress))
        if self._fill_copy(log):
            return self._seen(ArchiveState(self._store).head())
        return self._seen(log.follow(self._store, self._progress))

    def want_all(self) -> bool:
        """Have the next look fill the copy, for a question about all queues; whether there is still one to be filled."""
        self._all = True
        return self._copy is not None and self._fixed is None

    @property
    def outgrown(self) -> bool:
        """Whether the next look fills the copy."""
        if self._copy is None or self._fixed is not None:
            return False
        if self._all or not isinstance(self._store, PartialStore):
            return True
        width, pairs = self._store.wanted.width, self._store.checkpoint_pairs
        return width is None or width > FEW_QUEUES or (pairs is not None and pairs <= FEW_PAIRS)

    @property
    def opened(self) -> View | None:
        """The newest view; ``None`` before the first and after ``close``."""
        return self._view

    @property
    def view(self) -> View:
        """The newest view. No request; ``Unavailable`` before the first and after ``close``."""
        if self._view is None:
            raise Unavailable("the archive is not open", archive=self.provider.url)
        return self._view

    def known(self, queue: MessageQueue) -> QueueState | None:
        """See ``View.known``, of the newest view."""
        return self.view.known(queue)

    def progress(self) -> Progress | None:
        """See ``View.progress``, of the newest view."""
        return self.view.progress()

    def close(self) -> None:
        """Let go of the newest view, so that ``store`` can be closed; no later one is kept."""
        self._closed = True
        self._view = None

    def _open(self) -> tuple[LogReader, ObjectReader]:
        if self._opened is None:
            identity = find_identity(self.provider, self.keys)
            log = LogReader(self.provider, self.keys, identity)
            objects = ObjectReader(
                self.provider,
                self.keys,
                identity.archive_id,
                cache_bytes=self._table_cache_bytes,
                whole_bytes=self._whole_bytes,
            )
            self._opened = log, objects
        return self._opened

    def _fill_copy(self, log: LogReader) -> bool:
        """Go over to the copy, filled up to the end of the log, if it is time; whether that was done now."""
        copy = self._copy
        if copy is None or not self.outgrown:
            return False
        log.fold(copy, self._progress)
        self._store, self._copy = copy, None
        return True

    def _seen(self, head: Head | None) -> View:
        before = self._view
        store = self._store
        partial = before is not None and before.is_partial and not isinstance(store, PartialStore)
        if before is not None and not partial and _position(before.head) == _position(head):
            return before
        log, objects = self._open()
        view = View(head, ArchiveState(store.snapshot()), objects, log)
        if not self._closed:
            self._view = view
        return view


def _position(head: Head | None) -> bytes | None:
    return None if head is None else head.position()
