"""Object keys, both directions (DESIGN.md, "Object keys").

Two forms: a *path* is what the fold holds, relative to the broker's root (``data/0000000001-…``); a *key* is
what the provider sees, ``<cluster>/<broker>/<path>``. No topic name is in any of them but those of segments, which stand in
folders by topic and day for people and engines; to this program such a key says no more than any other.

``build`` makes a path from an identity, ``parse`` makes the identity from a path; each is the other's
inverse, and ``parse`` accepts nothing that ``build`` does not make.
"""

from __future__ import annotations

import re
from datetime import date
from uuid import UUID

from tiered.archive.keykinds import (
    Area,
    BackfillKey,
    BeatKey,
    CheckpointKey,
    CommitKey,
    HoldKey,
    Identity,
    IdentityKey,
    KeyValueKey,
    LeaseKey,
    ObjectKey,
    OrderKey,
    PlacementKey,
    ProbeKey,
    RepairKey,
    SegmentKey,
    SinkKey,
    TableKey,
)
from tiered.archive.names import decode_name, encode_name, is_topic_folder, topic_folder
from tiered.errors import Invalid

__all__ = [
    "BACKFILL_PREFIX",
    "BEAT_PREFIX",
    "CHECKPOINT_PREFIX",
    "COMMITS_PER_DIRECTORY",
    "COMMIT_PREFIX",
    "DATAKEY_PREFIX",
    "HOLD_PREFIX",
    "IDENTITY_PATH",
    "KEYVALUE_PREFIX",
    "LEASE_PREFIX",
    "MAX_PIECES",
    "PLACEMENT_PREFIX",
    "REPAIR_PREFIX",
    "SINK_PREFIX",
    "TABLE_PREFIX",
    "ArchiveKeys",
    "Area",
    "BackfillKey",
    "BeatKey",
    "CheckpointKey",
    "CommitKey",
    "HoldKey",
    "Identity",
    "IdentityKey",
    "KeyValueKey",
    "LeaseKey",
    "ObjectKey",
    "OrderKey",
    "PlacementKey",
    "ProbeKey",
    "RepairKey",
    "SegmentKey",
    "SinkKey",
    "TableKey",
    "build",
    "parse",
    "segment_key",
    "split_key",
]

COMMITS_PER_DIRECTORY = 1_000_000

IDENTITY_PATH = "archive.json"
COMMIT_PREFIX = "commit/"
CHECKPOINT_PREFIX = "checkpoint/"
REPAIR_PREFIX = "repair/"
HOLD_PREFIX = "hold/"
TABLE_PREFIX = "table/"
SINK_PREFIX = "sink/"
BACKFILL_PREFIX = "backfill/"
DATAKEY_PREFIX = "datakey/"
KEYVALUE_PREFIX = "keyvalue/"
LEASE_PREFIX = "lease/"
PLACEMENT_PREFIX = "placement/"
BEAT_PREFIX = "beat/"

_MAX_SEQ = 2**63 - 1
_MAX_EPOCH = 10**10 - 1
_MAX_CREATED_MS = 10**15 - 1
MAX_PIECES = 10**6
"""Of a snapshot of a key-value view."""
_COMMIT = re.compile(r"commit/([0-9]{14})/([0-9]{20})")
_CHECKPOINT = re.compile(r"checkpoint/([0-9]{20})")
_UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_OBJECT = re.compile(rf"(data|shard|config|datakey)/([0-9]{{10}})-({_UUID})")
_SEGMENT = re.compile(
    rf"segment/topic=([^/]+)/day=([0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}})/([0-9]{{10}})-({_UUID})\.parquet"
)
_REPAIR = re.compile(rf"repair/([0-9]{{20}})-({_UUID})")
_ORDER = re.compile(rf"(hold|table|sink|backfill)/({_UUID})(-dropped)?")
_PROBE = re.compile(rf"probe/({_UUID})")
_LEASE = re.compile(r"lease/([^/]+)/([0-9]{20})")
_PLACEMENT = re.compile(r"placement/([0-9]{20})")
_BEAT = re.compile(rf"beat/([0-9]{{10}})-([0-9]{{20}})(?:-({_UUID}))?")
_KEYVALUE = re.compile(rf"keyvalue/([0-9]{{15}})-({_UUID})/([0-9]{{6}}|manifest)")


_ORDERS: dict[str, type[HoldKey | TableKey | SinkKey | BackfillKey]] = {
    "hold": HoldKey, "table": TableKey, "sink": SinkKey, "backfill": BackfillKey,
}  # fmt: skip


def build(identity: Identity) -> str:
    """The path of an identity. ``Invalid`` if a number or id is out of range."""
    match identity:
        case IdentityKey():
            return IDENTITY_PATH
        case CommitKey(seq):
            _check_number("commit number", seq, _MAX_SEQ)
            return f"{COMMIT_PREFIX}{seq // COMMITS_PER_DIRECTORY:014d}/{seq:020d}"
        case CheckpointKey(seq):
            _check_number("commit number", seq, _MAX_SEQ)
            return f"{CHECKPOINT_PREFIX}{seq:020d}"
        case SegmentKey(Area.SEGMENT, epoch, object_id, folder, day) if is_topic_folder(folder):
            _check_number("epoch", epoch, _MAX_EPOCH)
            return f"segment/topic={folder}/day={day.isoformat()}/{epoch:010d}-{_uuid(object_id)}.parquet"
        case ObjectKey(area, epoch, object_id) if type(identity) is ObjectKey and area is not Area.SEGMENT:
            _check_number("epoch", epoch, _MAX_EPOCH)
            return f"{area.value}/{epoch:010d}-{_uuid(object_id)}"
        case ObjectKey():
            raise Invalid("a segment, and nothing else, lies below topic and day", found=repr(identity)[:200])
        case RepairKey(seq, commit_id):
            _check_number("commit number", seq, _MAX_SEQ)
            return f"{REPAIR_PREFIX}{seq:020d}-{_uuid(commit_id)}"
        case OrderKey(order_id, dropped):
            name = next(name for name, kind in _ORDERS.items() if isinstance(identity, kind))
            return f"{name}/{_uuid(order_id)}" + ("-dropped" if dropped else "")
        case ProbeKey(probe_id):
            return f"probe/{_uuid(probe_id)}"
        case KeyValueKey() | LeaseKey() | PlacementKey() | BeatKey():
            return _build_beside(identity)


def _build_beside(identity: KeyValueKey | LeaseKey | PlacementKey | BeatKey) -> str:
    """The path of what belongs to no commit."""
    match identity:
        case KeyValueKey(created_ms, snapshot_id, piece):
            _check_number("time of a snapshot", created_ms, _MAX_CREATED_MS)
            _check_number("piece of a snapshot", piece or 0, MAX_PIECES - 1)
            name = "manifest" if piece is None else f"{piece:06d}"
            return f"{KEYVALUE_PREFIX}{created_ms:015d}-{_uuid(snapshot_id)}/{name}"
        case LeaseKey(node, number):
            _check_number("number of a lease", number, _MAX_SEQ)
            return f"{LEASE_PREFIX}{encode_name(node)}/{number:020d}"
        case PlacementKey(number):
            _check_number("number of a table", number, _MAX_SEQ)
            return f"{PLACEMENT_PREFIX}{number:020d}"
        case BeatKey(epoch, number, ended_at):
            _check_number("epoch", epoch, _MAX_EPOCH)
            _check_number("number of a beat", number, _MAX_SEQ)
            return f"{BEAT_PREFIX}{epoch:010d}-{number:020d}" + (
                "" if ended_at is None else f"-{_uuid(ended_at)}"
            )


def parse(path: str) -> Identity | None:
    """What a path names, or ``None`` if no such path is ever built (a foreign or temporary file)."""
    if path == IDENTITY_PATH:
        return IdentityKey()
    if found := _COMMIT.fullmatch(path):
        seq = int(found[2])
        return CommitKey(seq) if seq <= _MAX_SEQ and seq // COMMITS_PER_DIRECTORY == int(found[1]) else None
    if found := _CHECKPOINT.fullmatch(path):
        return CheckpointKey(int(found[1])) if int(found[1]) <= _MAX_SEQ else None
    if found := _OBJECT.fullmatch(path):
        return ObjectKey(Area(found[1]), int(found[2]), UUID(found[3]).bytes)
    if found := _SEGMENT.fullmatch(path):
        return _segment(*found.groups())
    if found := _REPAIR.fullmatch(path):
        seq = int(found[1])
        return RepairKey(seq, UUID(found[2]).bytes) if seq <= _MAX_SEQ else None
    if found := _ORDER.fullmatch(path):
        return _ORDERS[found[1]](UUID(found[2]).bytes, found[3] is not None)
    if found := _PROBE.fullmatch(path):
        return ProbeKey(UUID(found[1]).bytes)
    if found := _KEYVALUE.fullmatch(path):
        piece = None if found[3] == "manifest" else int(found[3])
        return KeyValueKey(int(found[1]), UUID(found[2]).bytes, piece)
    if found := _LEASE.fullmatch(path):
        node = decode_name(found[1])
        return None if node is None or int(found[2]) > _MAX_SEQ else LeaseKey(node, int(found[2]))
    if found := _BEAT.fullmatch(path):
        ended_at = None if found[3] is None else UUID(found[3]).bytes
        return None if int(found[2]) > _MAX_SEQ else BeatKey(int(found[1]), int(found[2]), ended_at)
    if found := _PLACEMENT.fullmatch(path):
        return None if int(found[1]) > _MAX_SEQ else PlacementKey(int(found[1]))
    return None


def segment_key(topic: str, day: date, epoch: int, object_id: bytes) -> SegmentKey:
    """The key of a segment of messages of ``topic`` that were stored on ``day``."""
    return SegmentKey(Area.SEGMENT, epoch, object_id, topic_folder(topic), day)


def _segment(folder: str, day: str, epoch: str, object_id: str) -> SegmentKey | None:
    try:
        found = date.fromisoformat(day)
    except ValueError:
        return None
    if not is_topic_folder(folder):
        return None
    return SegmentKey(Area.SEGMENT, int(epoch), UUID(object_id).bytes, folder, found)


def split_key(key: str) -> tuple[str, str, Identity] | None:
    """Cluster, broker and identity of a key under the provider's root; ``None`` if it is not one of ours."""
    parts = key.split("/", 2)
    if len(parts) != 3:
        return None
    cluster, broker, identity = decode_name(parts[0]), decode_name(parts[1]), parse(parts[2])
    return None if cluster is None or broker is None or identity is None else (cluster, broker, identity)


class ArchiveKeys:
    """Keys of one broker's archive. ``cluster`` and ``broker`` are names as people write them."""

    __slots__ = ("broker", "cluster", "root")

    def __init__(self, cluster: str, broker: str) -> None:
        self.cluster = cluster
        self.broker = broker
        self.root = f"{encode_name(cluster)}/{encode_name(broker)}/"

    def key(self, path: str) -> str:
        """The provider's key of a path of the fold."""
        return self.root + path

    def path(self, key: str) -> str | None:
        """The path of a provider's key; ``None`` if it lies outside this archive."""
        return key[len(self.root) :] if key.startswith(self.root) else None

    @property
    def identity(self) -> str:
        """Key of ``archive.json``."""
        return self.key(IDENTITY_PATH)

    @property
    def commit_prefix(self) -> str:
        """Prefix of every commit's key."""
        return self.key(COMMIT_PREFIX)

    @property
    def checkpoint_prefix(self) -> str:
        """Prefix of every checkpoint's key."""
        return self.key(CHECKPOINT_PREFIX)

    def prefix(self, area: Area) -> str:
        """Prefix of the keys of an area."""
        return self.key(area.value + "/")

    def commit(self, seq: int) -> str:
        """Key of commit ``seq``; keys ascend with it."""
        return self.key(build(CommitKey(seq)))

    def checkpoint(self, seq: int) -> str:
        """Key of the checkpoint at commit ``seq``; keys ascend with it."""
        return self.key(build(CheckpointKey(seq)))

    def repair(self, seq: int, commit_id: bytes) -> str:
        """Key of what stands for a damaged commit."""
        return self.key(build(RepairKey(seq, commit_id)))

    def repair_prefix(self, seq: int | None = None) -> str:
        """Prefix of everything that stands for commit ``seq``, or for any."""
        return self.key(REPAIR_PREFIX) + ("" if seq is None else f"{seq:020d}-")

    def object(self, area: Area, epoch: int, object_id: bytes) -> str:
        """Key of an object of an area."""
        return self.key(build(ObjectKey(area, epoch, object_id)))

    def data(self, epoch: int, object_id: bytes) -> str:
        """Key of a level 0 or 1 object."""
        return self.object(Area.DATA, epoch, object_id)

    def segment(self, topic: str, day: date, epoch: int, object_id: bytes) -> str:
        """Key of a level 2 object."""
        return self.key(build(segment_key(topic, day, epoch, object_id)))

    def shard(self, epoch: int, object_id: bytes) -> str:
        """Key of a checkpoint shard."""
        return self.object(Area.SHARD, epoch, object_id)

    def config(self, epoch: int, object_id: bytes) -> str:
        """Key of a snapshot of the broker's config."""
        return self.object(Area.CONFIG, epoch, object_id)

    def keyvalue(self, created_ms: int, snapshot_id: bytes, piece: int | None = None) -> str:
        """Key of a piece of a snapshot of a key-value view, or of its manifest."""
        return self.key(build(KeyValueKey(created_ms, snapshot_id, piece)))

    def lease(self, node: str, number: int) -> str:
        """Key of a lease of a read node; keys of one node ascend with its number."""
        return self.key(build(LeaseKey(node, number)))

    def placement(self, number: int) -> str:
        """Key of a table of placement; keys ascend with the number."""
        return self.key(build(PlacementKey(number)))

    def beat(self, epoch: int, number: int, ended_at: bytes | None = None) -> str:
        """Key of a sign of life of an epoch's writer, or of its goodbye; keys ascend with epoch and number."""
        return self.key(build(BeatKey(epoch, number, ended_at)))

    def probe(self, probe_id: bytes) -> str:
        """Key of an object of the start-up probe."""
        return self.key(build(ProbeKey(probe_id)))


def _check_number(what: str, value: int, largest: int) -> None:
    if not 0 <= value <= largest:
        raise Invalid(f"{what} out of range", expected=f"0 to {largest}", found=value)


def _uuid(value: bytes) -> UUID:
    if len(value) != 16:
        raise Invalid("an id must be 16 bytes", expected=16, found=len(value))
    return UUID(bytes=value)
