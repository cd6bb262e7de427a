"""One request for blocks, before it is made: which blocks, for whom, on whose account."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tiered.archive.read.runs import BlockKey, BlockRef
from tiered.errors import TieredError
from tiered.fetch.allowance import Account
from tiered.fetch.block import LoadedBlock
from tiered.fetch.cache import Owner
from tiered.fetch.disk import DiskTier

Loaded = Mapping[BlockKey, LoadedBlock | TieredError]
"""What a flight of blocks brought: each block, or why it could not be had."""


class Backer(Owner, Protocol):
    """An owner that also hears how the store took its loads."""

    def pushed_back(self, stamp: int) -> None:
        """The store refused a load made under ``stamp``, if only at first."""
        ...


@dataclass(frozen=True, slots=True)
class BlockLoad:
    """One request: neighbouring blocks of one object."""

    refs: tuple[BlockRef, ...]
    account: Account
    owner: Backer | None
    stamp: int
    charge: int

    @property
    def stored_bytes(self) -> int:
        """What it asks the store for."""
        return self.refs[-1].end_position - self.refs[0].position

    @property
    def for_later(self) -> bool:
        """Whether somebody's read-ahead asked for it."""
        return self.owner is not None


def name_on_disk(ref: BlockRef) -> str:
    """Of a block in the disk tier. A band is named by its first block."""
    return DiskTier.name_of(ref.item.object_id, ref.key.block if ref.group is None else ref.group.first)


def neighbours(refs: Sequence[BlockRef]) -> list[list[BlockRef]]:
    """Blocks grouped into ranges without a hole."""
    groups: list[list[BlockRef]] = []
    for ref in refs:
        if groups and ref.follows(groups[-1][-1]):
            groups[-1].append(ref)
        else:
            groups.append([ref])
    return groups
