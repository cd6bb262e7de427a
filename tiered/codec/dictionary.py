"""Dictionaries of zstd: what many small blocks have in common, kept once (FORMAT.md, "Dictionary").

A dictionary is read-only and shared by threads. Equal ones are one object: each commit of a writer carries the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakValueDictionary

import zstandard

from tiered.codec.types import Buffer
from tiered.errors import Corrupt

MAX_DICTIONARY_BYTES = 128 * 1024
"""Largest dictionary that is read."""

IDLE = 8
"""Decompressors that wait to be used again, of all dictionaries: each takes some 150 KiB, and is bound to its dictionary."""

_DIGESTED_BYTES = 32 * 1024
"""What a dictionary takes beside its content once it was used: zstd's tables."""

_MAGIC = b"\x37\xa4\x30\xec"  # of a dictionary with tables, little-endian 0xEC30A437
_HEAD_BYTES = 8

_known: WeakValueDictionary[bytes, Dictionary] = WeakValueDictionary()
_idle: list[tuple[Dictionary, zstandard.ZstdDecompressor]] = []


class Dictionary:
    """Made by ``of``. ``content``: its bytes."""

    __slots__ = ("__weakref__", "content", "made")

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.made = zstandard.ZstdCompressionDict(content, dict_type=zstandard.DICT_TYPE_FULLDICT)

    @classmethod
    def of(cls, content: Buffer, *, key: str, position: int | None) -> Dictionary:
        """The dictionary of these bytes, checked by their section's CRC. ``Corrupt`` if they are none."""
        found = bytes(content)
        if not _HEAD_BYTES < len(found) <= MAX_DICTIONARY_BYTES or not found.startswith(_MAGIC):
            raise Corrupt(
                "a section is not a dictionary of zstd",
                key=key,
                position=position,
                expected=f"its magic, {_HEAD_BYTES + 1} to {MAX_DICTIONARY_BYTES} bytes",
                found=f"{found[:4].hex(' ')}, {len(found)} bytes",
            )
        known = _known.get(found)
        return _known.setdefault(found, cls(found)) if known is None else known

    @property
    def nbytes(self) -> int:
        """What it takes in memory, about."""
        return len(self.content) + _DIGESTED_BYTES

    def take(self) -> zstandard.ZstdDecompressor:
        """A decompressor that nobody else uses until it is given back."""
        for _ in range(IDLE):  # each pop and each append is atomic: nobody else has what was taken
            try:
                found = _idle.pop()
            except IndexError:
                break
            if found[0] is self:
                return found[1]
            _idle.insert(0, found)
        return zstandard.ZstdDecompressor(dict_data=self.made)

    def give_back(self, decompressor: zstandard.ZstdDecompressor) -> None:
        """Keep it for the next one; that which waits for longest goes."""
        _idle.append((self, decompressor))
        del _idle[:-IDLE]


def trained(samples: Sequence[Buffer], size: int) -> Dictionary | None:
    """A dictionary of at most ``size`` bytes, of what these have in common; ``None`` where zstd finds nothing. The same
    samples give the same dictionary. Takes about 0.1 s a MiB, without the interpreter lock."""
    try:
        made = zstandard.train_dictionary(size, [bytes(sample) for sample in samples])
    except zstandard.ZstdError:  # too few samples, or all alike
        return None
    return Dictionary.of(made.as_bytes(), key="", position=None)
