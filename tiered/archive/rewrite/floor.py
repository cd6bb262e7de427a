"""The log's floor, and the checkpoints and shards that nobody needs below it (DESIGN.md, "Checkpoints", K1 and K2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from tiered.archive.checkpoint.format import Manifest
from tiered.archive.checkpoint.own import OwnCheckpoints
from tiered.archive.checkpoint.store import (
    checkpoint_keys,
    checkpoint_number,
    read_checkpoint,
    read_manifest,
)
from tiered.archive.keys import Area, CheckpointKey, ObjectKey, parse
from tiered.archive.log.flush import Flush
from tiered.archive.log.maintenance import OwnKeys, Turn, WithoutMessages
from tiered.archive.log.planned import Place
from tiered.archive.log.reader import LogReader
from tiered.archive.log.writer import CommitLog
from tiered.archive.rewrite.storetime import aged_commit
from tiered.archive.state.view import ArchiveState
from tiered.codec.format.edits import EditKind, Rows, batch
from tiered.crashpoint import AgeingPoint, reach
from tiered.errors import Corrupt, Invalid, Refused, Unavailable

STANDING = 2
"""Checkpoints that stand above what the floor gives up, so that one may rot."""
_TRIED = 3
"""Checkpoints that are looked at for a floor: one that does not verify is passed over."""


@dataclass(frozen=True, slots=True)
class NewFloor(WithoutMessages):
    """A floor on its way to its place, and the two checkpoints that stand above what it gives up."""

    floor: int
    standing: tuple[Manifest, ...]
    now: float

    def settle(self, place: Place, fold: ArchiveState) -> Flush | None:
        """The commit; ``None`` if the floor is there already, or a shard was named for deletion meanwhile."""
        head = fold.head()
        retired = any(fold.is_retired(shard.path) for m in self.standing for shard in m.shards)
        if head is None or head.floor >= self.floor or retired:
            return None
        edit = batch(EditKind.RETIRE, keys=Rows([[]]), floor=Rows([self.floor]))
        return Flush((edit,), None, self.now, priority=self.priority)


def next_floor(
    reader: LogReader,
    state: ArchiveState,
    own: OwnCheckpoints,
    snapshot_retention_ms: int,
    now: float,
    spend: Callable[[int], None],
) -> NewFloor | None:
    """The highest floor that K1 allows and that keeps what was the head within ``snapshot_retention_ms`` readable as of then:
    the number of a checkpoint that was read back. ``None``: there is none above the floor of now."""
    head, made = state.head(), own.newest_first()
    if head is None or len(made) < STANDING:
        return None
    highest = min(made[1].seq, aged_commit(reader, head, snapshot_retention_ms))
    if highest <= head.floor:
        return None
    standing: list[Manifest] = []
    for manifest in made:
        retired = any(state.is_retired(shard.path) for shard in manifest.shards)
        if len(standing) < STANDING and not retired and own.verifies(reader.provider, manifest, spend):
            standing.append(manifest)
    if len(standing) < STANDING:
        return None
    highest = min(highest, standing[-1].seq)
    for key in islice(checkpoint_keys(reader.provider, reader.keys, highest), _TRIED):
        number = checkpoint_number(key)
        if number <= head.floor:
            return None
        if number == standing[-1].seq or _verifies(reader, state, key, spend):
            return NewFloor(number, tuple(standing), now)
    return None


def move_floor(
    log: CommitLog, own: OwnCheckpoints, snapshot_retention_ms: int, now: float, turn: Turn
) -> bool:
    """Move the log's floor where it may be moved; whether it was."""
    found = next_floor(log.reader, log.frozen(), own, snapshot_retention_ms, now, turn.spend)
    if found is None:
        return False
    reach(AgeingPoint.BEFORE_FLOOR)
    if turn.commit(found) is None:
        return False
    reach(AgeingPoint.AFTER_FLOOR)
    own.forget_below(found.floor)
    return True


def _verifies(reader: LogReader, state: ArchiveState, key: str, spend: Callable[[int], None]) -> bool:
    try:
        manifest = read_manifest(reader.provider, key)
        if any(state.is_retired(shard.path) for shard in manifest.shards):
            return False
        spend(sum(shard.stored_bytes for shard in manifest.shards))
        for _ in read_checkpoint(reader.provider, manifest):
            pass
    except Refused:
        raise
    except (Corrupt, Unavailable, Invalid):
        return False
    return True


@dataclass(slots=True)
class Shelf:
    """What a walk over manifests and shards met. ``unread``: a manifest at or above the floor that cannot be read: as long as
    it is there, no shard is given up, since nobody knows which it names. ``_named``: shards by manifest, which never change."""

    unread: str | None = None
    _named: dict[str, frozenset[str]] = field(default_factory=dict)

    def unneeded(self, reader: LogReader, state: ArchiveState, own_keys: OwnKeys) -> Iterator[str]:
        """Paths of checkpoints below the floor, and then of shards that none at or above it names (K2)."""
        head = state.head()
        if head is None:
            return
        kept: list[str] = []
        for stored in reader.provider.list(reader.keys.checkpoint_prefix):
            path = str(reader.keys.path(stored.key))
            made = parse(path)
            if not isinstance(made, CheckpointKey):
                continue
            if made.seq >= head.floor:
                kept.append(stored.key)
            elif not state.is_retired(path):
                yield path
        if head.floor and not kept:  # the floor is a checkpoint's: the listing does not have what is there
            self.unread = reader.keys.checkpoint(head.floor)
            return
        named = self._read(reader, kept)
        if named is None:
            return
        for stored in reader.provider.list(reader.keys.prefix(Area.SHARD)):
            path = str(reader.keys.path(stored.key))
            made = parse(path)
            ours = isinstance(made, ObjectKey) and (
                made.epoch < head.epoch or own_keys.checkpoints.made(path)
            )
            if ours and path not in named and not own_keys.in_hand(path) and not state.is_retired(path):
                yield path

    def _read(self, reader: LogReader, manifests: Sequence[str]) -> set[str] | None:
        """Shards that any of these names; ``None`` if one cannot be read."""
        self.unread = None
        known = self._named
        self._named = {}
        for key in manifests:
            try:
                found = known.get(key)
                if found is None:
                    found = frozenset(shard.path for shard in read_manifest(reader.provider, key).shards)
                self._named[key] = found
            except Refused:
                raise
            except (Corrupt, Unavailable, Invalid):
                self.unread = key
        return None if self.unread is not None else set[str]().union(*self._named.values())
