"""What lies around a damaged commit and may tell what it held: the commits behind it, later folds, and data objects that
nothing names."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet

from tiered.archive.checkpoint.store import checkpoint_keys, load_checkpoint, read_manifest
from tiered.archive.keys import ArchiveKeys
from tiered.archive.log.identity import ArchiveIdentity
from tiered.archive.log.word import Word
from tiered.archive.read.strays import Stray, inline_stray, read_stray, strangers
from tiered.archive.state.view import ArchiveState
from tiered.codec.format.commit import COMMIT_FOOTER_BYTES, decode_commit_footer
from tiered.codec.format.edits import Commit, EditKind
from tiered.errors import Corrupt, NotFound, Refused
from tiered.metadata.base import MetadataStore
from tiered.metadata.memory import MemoryStore
from tiered.provider.base import Provider
from tiered.repair.later import Later, Planned, told_id

FOLLOWING = 64
"""Commits behind a damaged one that are looked at to tell what it held."""


class Surroundings:
    """Of every commit of one archive, read as the log will be. ``local``: the daemon's own fold, if it is of this archive."""

    def __init__(
        self,
        provider: Provider,
        keys: ArchiveKeys,
        identity: ArchiveIdentity,
        reader: Planned,
        local: Later | None,
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self.word: Word | None = None
        """What the last writer said of the newest commits, if they are lost."""
        self._provider = provider
        self._keys = keys
        self._identity = identity
        self._reader = reader
        self._local = local
        self._random_bytes = random_bytes

    def later(self, seq: int) -> Later | None:
        """The nearest fold at or above a commit: a checkpoint's, or the local one if the bucket does not contradict it."""
        nearest: Later | None = None
        for key in reversed(list(checkpoint_keys(self._provider, self._keys))):
            if key < self._keys.checkpoint(seq):
                continue
            with contextlib.suppress(Corrupt):
                store = MemoryStore()
                head = load_checkpoint(self._provider, read_manifest(self._provider, key), store)
                nearest = Later(f"checkpoint {head.seq}", ArchiveState(store), head)
                break
        local = self._local
        if (
            local is None
            or local.head.seq < seq
            or (nearest is not None and nearest.head.seq <= local.head.seq)
        ):
            return nearest
        with contextlib.suppress(Corrupt):
            found = self._reader.read(local.head.seq)
            if found is not None and found.commit.commit_id != local.head.commit_id:
                return nearest
        return local

    def following(self, seq: int) -> Iterator[Commit]:
        """Commits behind one, as far as they can be read; damaged ones among them are left out."""
        for number in range(seq + 1, seq + 1 + FOLLOWING):
            with contextlib.suppress(Corrupt):
                found = self._reader.read(number)
                if found is not None:
                    yield found.commit
        yield from self._said(seq, seq + FOLLOWING)

    def _said(self, seq: int, last: int) -> Iterator[Commit]:
        """The writer's word of commit ``seq`` or later ones, up to ``last``."""
        if self.word is not None and seq <= self.word.seq <= last:
            yield self.word.following(self._identity.archive_id)

    def behind(self, seq: int, last: int, damaged: AbstractSet[int]) -> Iterator[Commit]:
        """All commits behind one up to ``last`` that can be read; ``damaged`` ones among them are left out."""
        unread = damaged - self._reader.planned.keys()
        for number in range(seq + 1, last + 1):
            found = None if number in unread else self._reader.read(number)
            if found is not None:
                yield found.commit
        yield from self._said(seq, last)

    def end(self, seq: int) -> int:
        """The last commit behind ``seq`` that can be read without a hole."""
        while True:
            try:
                if self._reader.read(seq + 1) is None:
                    return seq
            except Corrupt:
                return seq
            seq += 1

    def strays(self, base: MetadataStore, seq: int, following: Sequence[Commit]) -> Iterator[Stray]:
        """The inline data of the damaged commit, and data objects that neither the fold before it nor later commits name."""
        key = self._keys.commit(seq)
        with contextlib.suppress(NotFound, Corrupt):  # encrypted bytes cannot be read where they are damaged
            found = inline_stray(bytes(self._provider.get(key).data), key, self._identity.archive_id)
            if found is not None:
                yield found
        named = {
            path
            for commit in following
            for edit in commit.edits
            if edit.kind is EditKind.ADD_OBJECT
            for path in edit.columns["key"]
        }
        for stored in strangers(self._provider, self._keys, ArchiveState(base)):
            if self._keys.path(stored.key) not in named:
                with contextlib.suppress(Corrupt, Refused, NotFound):
                    yield read_stray(self._provider, self._keys, stored, self._identity.archive_id)

    def commit_id(
        self, seq: int, following: Sequence[Commit], strays: Sequence[Stray], later: Later | None
    ) -> bytes:
        """The damaged commit's own id where anything still tells it, a new one where nothing does (and nothing names it)."""
        told = told_id(seq, following, later)
        if told is not None:
            return told
        with contextlib.suppress(Corrupt, Refused, NotFound):
            key = self._keys.commit(seq)
            footer = decode_commit_footer(self._provider.get(key, -COMMIT_FOOTER_BYTES).data, key=key)
            if (footer.seq, footer.archive_id) == (seq, self._identity.archive_id):
                return footer.commit_id
        inline = next((s for s in strays if not s.path), None)
        return self._random_bytes(16) if inline is None else inline.footer.object_id
