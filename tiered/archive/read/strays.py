"""Objects by their own word: what a data object, or inline data in a commit that cannot be read, says of itself.

The fold names every object that readers need. Where a commit is lost, the objects' own footers and directories are left.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from tiered.archive.keys import ArchiveKeys, Area
from tiered.archive.state.view import ArchiveState
from tiered.codec.format.directory import Directory, decode_directory
from tiered.codec.format.object import FOOTER_BYTES, MAGIC, Footer, decode_footer
from tiered.codec.format.sections import SectionKind
from tiered.errors import Corrupt, NotFound, Refused
from tiered.provider.base import Provider, Stored


@dataclass(frozen=True, slots=True)
class Stray:
    """An object and what it holds. ``path``: under the broker's root, "" for inline data."""

    path: str
    footer: Footer
    directory: Directory

    @property
    def physical_start(self) -> int:
        """Physical offset of its first record."""
        return int(self.directory.runs["physical_start"].min())

    @property
    def physical_end(self) -> int:
        """Where its last record ends."""
        return int(self.directory.runs["physical_end"].max())


def read_stray(provider: Provider, keys: ArchiveKeys, stored: Stored, archive_id: bytes) -> Stray:
    """What an object under ``data/`` says of itself. ``Corrupt`` if footer or directory are damaged or another archive's."""
    key = stored.key
    tail = provider.get(key, -FOOTER_BYTES).data
    footer = decode_footer(tail, object_length=stored.length, key=key)
    if footer.archive_id != archive_id:
        raise Corrupt("an object of another archive", key=key, found=footer.archive_id.hex())
    section = footer.sections[SectionKind.DIRECTORY]
    data = provider.get(key, section.position, section.length).data
    return Stray(str(keys.path(key)), footer, decode_directory(data, section, key=key))


def inline_stray(data: bytes, key: str, archive_id: bytes) -> Stray | None:
    """The inline data at the beginning of a commit's bytes, found by its own footer; ``None`` if none is whole."""
    at = data.find(MAGIC)
    while at >= 0:
        length = at + len(MAGIC)
        with contextlib.suppress(Corrupt, Refused):
            footer = decode_footer(data[:length][-FOOTER_BYTES:], object_length=length, key=key)
            section = footer.sections[SectionKind.DIRECTORY]
            directory = decode_directory(
                data[section.position : section.position + section.length], section, key=key
            )
            return Stray("", footer, directory) if footer.archive_id == archive_id else None
        at = data.find(MAGIC, at + 1)
    return None


def strangers(provider: Provider, keys: ArchiveKeys, state: ArchiveState) -> Iterator[Stored]:
    """Data objects that the fold does not know: of a commit that is lost, or of a writer that ended before its commit."""
    for stored in provider.list(keys.prefix(Area.DATA)):
        if state.object_at(str(keys.path(stored.key))) is None:
            yield stored


def ahead_of_log(provider: Provider, keys: ArchiveKeys, state: ArchiveState, stored: Stored) -> Stray | None:
    """The object if it holds records above the proven offset, which no commit archived; ``None`` for a mere orphan."""
    head = state.head()
    if head is None:
        return None
    with contextlib.suppress(Corrupt, Refused, NotFound):
        found = read_stray(provider, keys, stored, head.archive_id)
        reached = head.progress.get(head.lineage)
        if found.physical_end > (0 if reached is None else reached.physical_offset):
            return found
    return None
