"""Folds that tell what a damaged commit was, and the log as it will be once a repair is put."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tiered.archive.keys import ArchiveKeys
from tiered.archive.log.again import ReadCommit
from tiered.archive.log.identity import ArchiveIdentity
from tiered.archive.log.reader import LogReader
from tiered.archive.state.keys import FILE_MARK, FOLD_PREFIXES, HEAD, LINEAGE, MARK
from tiered.archive.state.values import Head
from tiered.archive.state.view import ArchiveState
from tiered.codec.format.edits import Commit
from tiered.metadata.base import MetadataView
from tiered.provider.base import Provider


@dataclass(frozen=True, slots=True)
class Later:
    """A fold at or above a damaged commit."""

    name: str
    state: ArchiveState
    head: Head


class Planned(LogReader):
    """Reads the log as it will be when everything planned is put."""

    def __init__(self, provider: Provider, keys: ArchiveKeys, identity: ArchiveIdentity) -> None:
        super().__init__(provider, keys, identity)
        self.planned: dict[int, ReadCommit] = {}

    def read(self, seq: int) -> ReadCommit | None:
        return self.planned.get(seq) or super().read(seq)


def same_but_for_marks(one: MetadataView, other: MetadataView) -> bool:
    """Whether two folds say the same of everything but where comparisons with the broker look."""
    left, right = ArchiveState(one).head(), ArchiveState(other).head()
    assert left is not None
    assert right is not None
    offsets = [{n: p.physical_offset for n, p in head.progress.items()} for head in (left, right)]
    prefixes = [p for p in FOLD_PREFIXES if p not in (HEAD, LINEAGE, MARK, FILE_MARK)]
    return offsets[0] == offsets[1] and all(
        list(one.iterate(prefix)) == list(other.iterate(prefix)) for prefix in prefixes
    )


def told_id(seq: int, following: Sequence[Commit], later: Later | None) -> bytes | None:
    """A damaged commit's own id, where what lies behind it tells it; data inside a commit is named by it."""
    if following and following[0].seq == seq + 1:
        return following[0].previous_id
    if later is None:
        return None
    inside = next((item.object_id for item in later.state.objects_of(seq) if not item.path), None)
    return later.head.commit_id if later.head.seq == seq else inside
