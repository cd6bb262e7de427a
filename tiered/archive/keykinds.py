"""What objects of an archive there are, as their keys name them; how a key is written: ``keys``. Values only."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from enum import Enum


class Area(Enum):
    """Where an object with epoch and id lies: the first part of its path."""

    DATA = "data"  # level 0 too big to travel inside a commit, and level 1
    SEGMENT = "segment"  # level 2
    SHARD = "shard"  # checkpoint shards
    CONFIG = "config"  # snapshots of the broker's own config
    DATAKEY = "datakey"  # wrapped keys of an encrypted archive


@dataclass(frozen=True, slots=True)
class IdentityKey:
    """``archive.json``."""


@dataclass(frozen=True, slots=True)
class CommitKey:
    """Commit ``seq`` of the log, from 0."""

    seq: int


@dataclass(frozen=True, slots=True)
class CheckpointKey:
    """The manifest of a fold up to and including commit ``seq``."""

    seq: int


@dataclass(frozen=True, slots=True)
class ObjectKey:
    """An object made in ``epoch``; ``object_id`` is its 16 bytes, shown as a UUID, never used again."""

    area: Area
    epoch: int
    object_id: bytes


@dataclass(frozen=True, slots=True)
class SegmentKey(ObjectKey):
    """A segment. ``folder`` is its topic's (``topic_folder``), ``day`` the UTC day of its messages' store times."""

    folder: str
    day: date


@dataclass(frozen=True, slots=True)
class RepairKey:
    """What stands for commit ``seq``, of this id, where its own key holds no commit any more."""

    seq: int
    commit_id: bytes


@dataclass(frozen=True, slots=True)
class OrderKey:
    """A standing order (16 random bytes), or, beside it, that it is ``dropped``."""

    order_id: bytes
    dropped: bool = False


class HoldKey(OrderKey):
    """A legal hold."""

    __slots__ = ()


class TableKey(OrderKey):
    """A table that is kept up to date."""

    __slots__ = ()


class SinkKey(OrderKey):
    """A destination that the log is replicated to."""

    __slots__ = ()


class BackfillKey(OrderKey):
    """Part of a backfill that a Spark job makes of a sink: its plan, a part of it, or that a part is done."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class ProbeKey:
    """The start-up probe's own; 16 random bytes."""

    probe_id: bytes


@dataclass(frozen=True, slots=True)
class KeyValueKey:
    """Part of a snapshot of a key-value view that was begun at ``created_ms``; ``snapshot_id``: 16 random bytes. ``piece``: its
    number, from 0; ``None``: the manifest."""

    created_ms: int
    snapshot_id: bytes
    piece: int | None = None


@dataclass(frozen=True, slots=True)
class LeaseKey:
    """That the read node of this name is there, for the ``number``-th time; numbers ascend."""

    node: str
    number: int


@dataclass(frozen=True, slots=True)
class PlacementKey:
    """The ``number``-th table of which read node busy queues have."""

    number: int


@dataclass(frozen=True, slots=True)
class BeatKey:
    """That the writer of ``epoch`` lives, said for the ``number``-th time. ``ended_at``: that it has ended instead, right
    behind the commit of this id."""

    epoch: int
    number: int
    ended_at: bytes | None = None


Identity = (
    IdentityKey
    | CommitKey
    | CheckpointKey
    | ObjectKey
    | RepairKey
    | OrderKey
    | ProbeKey
    | KeyValueKey
    | LeaseKey
    | PlacementKey
    | BeatKey
)
