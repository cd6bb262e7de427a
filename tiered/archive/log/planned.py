"""A commit on its way: the place it was given, then its bytes and its effect, both fixed before anything is sent."""

from __future__ import annotations

from dataclasses import dataclass

from tiered.archive.state.layers import Changes
from tiered.codec.format.commit import CommitFooter, decode_commit_footer
from tiered.codec.format.edits import Commit
from tiered.codec.types import Buffer


@dataclass(frozen=True, slots=True)
class Place:
    """The place a commit will take, drawn before its content is known (inline data carries the commit id)."""

    archive_id: bytes
    seq: int
    epoch: int
    commit_id: bytes
    previous_id: bytes


@dataclass(frozen=True, slots=True)
class PlannedCommit:
    """A commit whose bytes and whose effect on the fold are fixed."""

    commit: Commit
    parts: tuple[Buffer, ...]
    changes: Changes

    @property
    def length(self) -> int:
        """Bytes of the object."""
        return sum(len(p) for p in self.parts)

    @property
    def footer(self) -> CommitFooter:
        """What it says of itself."""
        return decode_commit_footer(self.parts[-1], key="")

    @property
    def edit_bytes(self) -> int:
        """Its edits, decompressed."""
        return self.footer.edits_raw_length
