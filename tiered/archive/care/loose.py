"""What lies in the bucket beside the objects of the fold: each kind by the checksums that it carries itself."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Container, Iterator

from tiered.archive.checkpoint.format import MAX_MANIFEST_BYTES, Shard, open_shard
from tiered.archive.checkpoint.store import manifest_of, read_manifest
from tiered.archive.encryption.datakeys import read_wrapped_key
from tiered.archive.keys import (
    Area,
    BackfillKey,
    CheckpointKey,
    HoldKey,
    IdentityKey,
    KeyValueKey,
    ObjectKey,
    RepairKey,
    SinkKey,
    TableKey,
)
from tiered.archive.log.identity import read_identity
from tiered.archive.log.reader import LogReader
from tiered.archive.read.content import ContentCheck
from tiered.archive.read.strays import read_stray
from tiered.archive.standing import check_order, kind_of
from tiered.archive.state.values import ObjectState
from tiered.archive.state.view import ArchiveState
from tiered.codec.format.keyvalue import (
    MAX_PIECE_BYTES,
    MAX_SNAPSHOT_MANIFEST_BYTES,
    decode_snapshot,
    open_piece,
)
from tiered.errors import Corrupt
from tiered.model import ObjectRef
from tiered.provider.base import Stored


class LooseChecks:
    """Of one archive. Shards are named by manifests, which are read when the first shard is met: some thousand names; those
    among ``damaged`` paths are passed over."""

    def __init__(
        self,
        reader: LogReader,
        spend: Callable[[int], None],
        damaged: Callable[[], Container[str]] = tuple,
    ) -> None:
        self._reader = reader
        self._keys = reader.keys
        self._spend = spend
        self._damaged = damaged
        self._shards: dict[str, Shard] | None = None
        self._contents = ContentCheck(
            reader.provider, reader.keys, reader.identity.archive_id, records=False, spend=spend
        )

    def knows(self, made: object) -> bool:
        """Whether there is a checksum to compare such a path's bytes with."""
        match made:
            case ObjectKey(area):
                return area is not Area.CONFIG and area is not Area.SEGMENT
            case HoldKey(_, dropped) | TableKey(_, dropped) | SinkKey(_, dropped) | BackfillKey(_, dropped):
                return not dropped
            case _:
                return isinstance(made, IdentityKey | CheckpointKey | RepairKey | KeyValueKey)

    def check(self, made: object, path: str, stored: Stored, fold: ArchiveState) -> None:
        """Read and compare. ``Corrupt``; ``NotFound`` if it is gone meanwhile."""
        match made:
            case ObjectKey(Area.SHARD):
                self._shard(path, stored, fold)
            case ObjectKey(Area.DATAKEY):
                self._data_key(path, stored)
            case ObjectKey():
                self._stray(stored)
            case HoldKey(order_id) | TableKey(order_id) | SinkKey(order_id) | BackfillKey(order_id):
                self._spend(stored.length)
                archive_id = self._reader.identity.archive_id
                check_order(self._reader.provider, self._keys, archive_id, kind_of(made), order_id)
            case KeyValueKey():
                self._key_value(made, stored)
            case IdentityKey():
                self._identity(stored)
            case RepairKey(seq):
                self._spend(stored.length)
                self._reader.read_at(stored.key, seq)
            case CheckpointKey():
                self._checkpoint(stored)

    def shard_paths(self, fold: ArchiveState, end: str | None) -> Iterator[str]:
        """Shards that must be there, ascending; none before ``end`` comes near them."""
        first = f"{Area.SHARD.value}/"
        if end is None or end > first:
            yield from (path for path in sorted(self._named(fold)) if not fold.is_retired(path))

    def _named(self, fold: ArchiveState) -> dict[str, Shard]:
        """What the manifests say of each shard."""
        if self._shards is None:
            self._shards = {}
            for stored in self._reader.provider.list(self._keys.checkpoint_prefix):
                path = str(self._keys.path(stored.key))
                if fold.is_retired(path) or path in self._damaged():
                    continue
                with contextlib.suppress(Corrupt):  # told where the manifest is looked at
                    self._spend(stored.length)
                    manifest = read_manifest(self._reader.provider, stored.key)
                    self._shards.update((shard.path, shard) for shard in manifest.shards)
        return self._shards

    def check_shard(self, path: str, data: bytes, key: str, fold: ArchiveState) -> None:
        """``Corrupt`` unless these bytes are the shard that a manifest names by this path."""
        shard = self._named(fold).get(path)
        if shard is None:
            raise Corrupt("no checkpoint names this shard", key=key)
        open_shard(data, shard, key)

    def _shard(self, path: str, stored: Stored, fold: ArchiveState) -> None:
        if path not in self._named(fold):  # a checkpoint that is being made, or was never completed
            return
        self._spend(stored.length)
        self.check_shard(path, bytes(self._reader.provider.get(stored.key).data), stored.key, fold)

    def _stray(self, stored: Stored) -> None:
        """A data object that no commit names, by its own footer."""
        footer = read_stray(
            self._reader.provider, self._keys, stored, self._reader.identity.archive_id
        ).footer
        sections = {
            int(number): (section.position, section.length, section.crc32c)
            for number, section in footer.sections.items()
        }
        item = ObjectState(
            ObjectRef(0, 0), str(self._keys.path(stored.key)), footer.object_id, footer.level, footer.length,
            sections, 0, None,
        )  # fmt: skip
        for looked in self._contents.steps(item):
            if looked.damage is not None:
                raise looked.damage

    def _checkpoint(self, stored: Stored) -> None:
        self._spend(stored.length)
        data = bytes(self._reader.provider.get(stored.key, 0, MAX_MANIFEST_BYTES + 1).data)
        if manifest_of(data, stored.key).archive_id != self._reader.identity.archive_id:
            raise Corrupt("a checkpoint of another archive", key=stored.key)

    def _key_value(self, made: KeyValueKey, stored: Stored) -> None:
        """A piece by the sum that it begins with, a manifest by that which it ends with."""
        self._spend(stored.length)
        if made.piece is None:
            data = bytes(self._reader.provider.get(stored.key, 0, MAX_SNAPSHOT_MANIFEST_BYTES + 1).data)
            decode_snapshot(data, stored.key)
            return
        data = bytes(self._reader.provider.get(stored.key, 0, MAX_PIECE_BYTES + 1).data)
        open_piece(data, made.snapshot_id, made.piece, stored.key)

    def _data_key(self, path: str, stored: Stored) -> None:
        """A wrapped data key, by its own checksum: what is in it only the wrapping key could tell."""
        self._spend(stored.length)
        found = read_wrapped_key(self._reader.provider, path, stored.key)
        if found.archive_id != self._reader.identity.archive_id:
            raise Corrupt("a data key of another archive", key=stored.key, found=found.archive_id.hex())

    def _identity(self, stored: Stored) -> None:
        found = read_identity(self._reader.provider, self._keys)
        if found.archive_id != self._reader.identity.archive_id:
            raise Corrupt(
                "another archive's identity lies here",
                key=stored.key, expected=self._reader.identity.archive_id.hex(), found=found.archive_id.hex(),
            )  # fmt: skip
