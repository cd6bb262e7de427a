"""What may be deleted, and the commits that say so (DESIGN.md, "Retire and delete").

Two steps that are never one: a commit names keys (``NameForDeletion``); after a grace by the store's clock they are deleted,
and a later commit says that they are gone (``SayDeleted``). What is named is looked at once more at the commit's place in the
log. Nothing in here looks at a broker.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tiered.archive.keys import ArchiveKeys, Area, CheckpointKey, ObjectKey, parse
from tiered.archive.log.flush import Flush
from tiered.archive.log.maintenance import OwnKeys, WithoutMessages
from tiered.archive.log.planned import Place
from tiered.archive.read.strays import ahead_of_log
from tiered.archive.state.view import ArchiveState
from tiered.codec.format.edits import EditKind, Rows, batch
from tiered.provider.base import Provider

ORPHAN_AREAS = (Area.DATA, Area.SEGMENT, Area.CONFIG)
"""Where what the fold does not know is an orphan. Of shards the manifests say what is needed, not the fold."""


@dataclass(slots=True)
class Listed:
    """What a walk over the bucket met: objects in all, and ``foreign`` ones, whose keys this program never makes."""

    objects: int = 0
    foreign: int = 0


def orphans(
    provider: Provider, keys: ArchiveKeys, state: ArchiveState, epoch: int, listed: Listed
) -> Iterator[str]:
    """Paths that the fold does not know, of epochs below ``epoch``, the one in force. Listing and fold are both sorted and read
    side by side, so that memory does not grow with either.

    An object with records that are not archived yet is left alone: where its commit was lost, it is all that is left of them.
    """
    for area in ORPHAN_AREAS:
        known = state.known_paths(f"{area.value}/")
        next_known = next(known, None)
        for stored in provider.list(keys.prefix(area)):
            listed.objects += 1
            path = str(keys.path(stored.key))
            while next_known is not None and next_known < path:
                next_known = next(known, None)
            if path == next_known:
                continue
            made = parse(path)
            if not isinstance(made, ObjectKey):
                listed.foreign += 1
            elif made.epoch < epoch and ahead_of_log(provider, keys, state, stored) is None:
                yield path


@dataclass(frozen=True, slots=True)
class NameForDeletion(WithoutMessages):
    """A ``Retire`` on its way to its place. ``own_keys``: what this process makes, made and gave up."""

    paths: Sequence[str]
    own_keys: OwnKeys
    now: float

    def settle(self, place: Place, fold: ArchiveState) -> Flush | None:
        """The commit of what may still be named there; ``None`` if nothing is left."""
        head = fold.head()
        floor = 0 if head is None else head.floor
        needed = self.own_keys.checkpoints.needed(floor)
        kept = [p for p in self.paths if p not in needed and self._may_go(p, place.epoch, floor, fold)]
        edit = batch(EditKind.RETIRE, keys=Rows([kept]), floor=Rows([None]))
        return Flush((edit,), None, self.now, priority=self.priority) if kept else None

    def _may_go(self, path: str, epoch: int, floor: int, fold: ArchiveState) -> bool:
        known = fold.object_at(path)
        if known is not None:
            return known.references == 0 and known.retired_by is None
        if self.own_keys.in_hand(path) or fold.is_retired(path):
            return False
        match parse(path):
            case CheckpointKey(seq):
                return seq < floor
            case ObjectKey(area, made_in):
                own = self.own_keys.checkpoints.made if area is Area.SHARD else self.own_keys.gave_up
                return made_in < epoch or own(path)
        return False


@dataclass(frozen=True, slots=True)
class SayDeleted(WithoutMessages):
    """A ``Deleted`` on its way to its place: ``paths`` whose deletion the store has answered."""

    paths: Sequence[str]
    now: float

    def settle(self, place: Place, fold: ArchiveState) -> Flush | None:
        """The commit of those that the fold still names; ``None`` if it names none."""
        kept = [path for path in self.paths if fold.is_retired(path)]
        edit = batch(EditKind.DELETED, keys=Rows([kept]))
        return Flush((edit,), None, self.now, priority=self.priority) if kept else None
