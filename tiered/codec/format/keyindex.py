"""Which messages carry a key: an object's sorted keys and a filter per run (FORMAT.md, "Keys", "Key filter").

A key's hash is XXH3-64 of topic, 0x00, key; equal hashes of different keys happen, so an answer is a
candidate until the record's properties were looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tiered.codec.format.chunks import ROWS_PER_CHUNK, ChunkedColumn, ChunkedTable, encode_chunks
from tiered.codec.format.intpack import pack_table, unpack_table
from tiered.codec.format.sections import Section, SectionKind, Sections, checked, section_of, unwrap, wrap
from tiered.codec.types import Buffer, Ints
from tiered.errors import Corrupt
from tiered.model import ByteRange

KEY_DTYPE = np.dtype([("hash", "<u8"), ("run", "<i4"), ("queue_offset", "<i8")])

_SCHEMA = {
    "hash": ChunkedColumn(1, np.dtype("<u8")),
    "run": ChunkedColumn(2, np.dtype("<i4")),
    "queue_offset": ChunkedColumn(3, np.dtype("<i8")),
}
_NAMES = tuple(_SCHEMA)
_BITS_PER_KEY = 10
_GRAIN = 16  # a run's filter is a whole number of 16-bit words, so that one key costs two bytes
_PASS_KEYS = (
    1 << 14
)  # put into a filter at once, or looked for: what is made of them stays in the processor's cache
_PROBES = 4  # about one false answer in 80

HashArray = npt.NDArray[np.uint64]


def encode_keys(
    hashes: HashArray, runs: npt.NDArray[Any], queue_offsets: npt.NDArray[Any], run_count: int
) -> tuple[list[bytes], bytes, bytes]:
    """Chunks of the keys section, its index, the key filter. At least one key; entries in any order."""
    order = _by_hash(hashes, runs, queue_offsets)
    columns = {"hash": hashes[order], "run": runs[order], "queue_offset": queue_offsets[order]}
    first = pack_table({"first_hash": columns["hash"][::ROWS_PER_CHUNK]})
    chunks, index = encode_chunks(columns, _SCHEMA, extra=first)
    return chunks, index, _encode_filter(hashes, runs, run_count)


def _by_hash(
    hashes: HashArray, runs: npt.NDArray[Any], queue_offsets: npt.NDArray[Any]
) -> npt.NDArray[np.intp]:
    """The one order by hash, then run, then queue offset. Hashes are nearly always distinct: one fast sort is enough then."""
    order = np.argsort(hashes)
    ordered = hashes[order]
    if (ordered[1:] == ordered[:-1]).any():
        return np.lexsort((queue_offsets, runs, hashes))
    return order


class KeysReader:
    """The index of an object's keys, decoded: which bytes to fetch for a hash, then the entries in them."""

    def __init__(self, index: Buffer, sections: Sections, *, key: str) -> None:
        """``index``: the key index section. ``Corrupt`` if it is damaged."""
        at = section_of(sections, SectionKind.KEY_INDEX, key=key)
        self._table = ChunkedTable(
            index,
            index_section=at,
            section=section_of(sections, SectionKind.KEYS, key=key),
            schema=_SCHEMA,
            what="the keys",
            key=key,
        )
        columns, rest = unpack_table(self._table.rest, ("first_hash",), key=key, position=at.position)
        self._first: HashArray = columns["first_hash"].view(np.uint64)
        if len(rest) or len(self._first) != self._table.groups or (self._first[1:] < self._first[:-1]).any():
            raise Corrupt(
                "the first hashes of the keys make no sense",
                key=key,
                position=at.position,
                expected=f"{self._table.groups}, ascending",
                found=len(self._first),
            )

    @property
    def rows(self) -> int:
        """Entries in the object."""
        return self._table.rows

    def ranges(self, key_hash: int | None = None) -> list[ByteRange]:
        """Bytes of the object with every entry of ``key_hash``; ``None``: of all keys."""
        return self._table.ranges(_NAMES, *self._rows(key_hash))

    def decode(self, pieces: Sequence[Buffer], key_hash: int | None = None) -> npt.NDArray[Any]:
        """Entries (``KEY_DTYPE``) of ``key_hash``, or all, from the bytes of ``ranges(key_hash)``."""
        columns = self.columns(pieces, key_hash)
        entries = np.zeros(len(columns["hash"]), KEY_DTYPE)
        for name in _NAMES:
            entries[name] = columns[name]
        return entries if key_hash is None else entries[entries["hash"] == np.uint64(key_hash)]

    def columns(self, pieces: Sequence[Buffer], key_hash: int | None = None) -> dict[str, npt.NDArray[Any]]:
        """All entries that ``pieces`` hold, those of ``key_hash`` among them, as one array for each field of ``KEY_DTYPE``."""
        return self._table.decode(_NAMES, *self._rows(key_hash), pieces)

    def _rows(self, key_hash: int | None) -> tuple[int, int]:
        """First row and number of rows of the chunks that may hold a hash."""
        if key_hash is None:
            return 0, self._table.rows
        wanted = np.uint64(key_hash)
        last = int(np.searchsorted(self._first, wanted, "right"))
        if not last:
            return 0, 0
        first = max(0, int(np.searchsorted(self._first, wanted, "left")) - 1) * self._table.rows_per_chunk
        return first, min(last * self._table.rows_per_chunk, self._table.rows) - first


def decode_keys(index: Buffer, data: Buffer, sections: Sections, *, key: str) -> npt.NDArray[Any]:
    """All entries (``KEY_DTYPE``), sorted by hash, from the two whole sections. ``Corrupt`` if damaged."""
    reader = KeysReader(index, sections, key=key)
    return reader.decode(_whole(data, sections, key))


def decode_key_columns(
    index: Buffer, data: Buffer, sections: Sections, *, key: str
) -> dict[str, npt.NDArray[Any]]:
    """``decode_keys`` as one array for each field: rows of 20 bytes take as long to make as all of this."""
    return KeysReader(index, sections, key=key).columns(_whole(data, sections, key))


def _whole(data: Buffer, sections: Sections, key: str) -> list[Buffer]:
    return [checked(data, section_of(sections, SectionKind.KEYS, key=key), what="the keys", key=key)]


class KeyFilter:
    """Tells per run that a key is certainly not there; about 1 in 80 absent keys is answered with perhaps."""

    def __init__(self, data: Buffer, section: Section, *, key: str) -> None:
        """``Corrupt`` if the section is damaged."""
        content = unwrap(
            checked(data, section, what="the key filter", key=key), key=key, position=section.position
        )
        columns, field = unpack_table(content, ("keys",), key=key, position=section.position)
        counts = columns["keys"]
        if len(counts) and (counts.min() < 0 or counts.max() > 2**32):
            raise Corrupt(
                "the key filter counts wrongly", key=key, position=section.position, found=counts.max()
            )
        self._bits, self._starts = _geometry(counts)
        if int(self._bits.sum()) != 8 * len(field):
            raise Corrupt(
                "the key filter is not as long as its counts say",
                key=key,
                position=section.position,
                expected=int(self._bits.sum()) // 8,
                found=len(field),
            )
        self._field = np.frombuffer(field, np.uint8)

    def __len__(self) -> int:
        """Number of runs."""
        return len(self._bits)

    def runs(self, key_hash: int) -> Ints:
        """Row numbers of the runs that may hold the key, ascending."""
        runs = np.flatnonzero(self._bits).astype(np.int64)
        hashes = np.full(1, key_hash, np.uint64)
        for probe in range(_PROBES):
            at = self._starts[runs] + _probe(hashes, probe, self._bits[runs])
            runs = runs[(self._field[at >> 3] >> (at & 7).astype(np.uint8)) & 1 == 1]
        return runs

    def first_denied(self, hashes: HashArray, runs: npt.NDArray[Any]) -> int | None:
        """The first of these keys that the filter of its run says is not there; ``None``: of none of them.

        A byte for each bit of the filter meanwhile: 10 for each key that it was made of.
        """
        field = np.unpackbits(self._field, bitorder="little").view(np.bool_)
        for first in range(0, len(hashes), _PASS_KEYS):
            some, of = hashes[first : first + _PASS_KEYS], runs[first : first + _PASS_KEYS].astype(np.int64)
            bits = self._bits[of]
            if not bits.all():
                return first + int(np.argmin(bits != 0))
            starts, held = self._starts[of], np.ones(len(some), np.bool_)
            for probe in _probes(some, bits):
                held &= field[starts + probe]
            if not held.all():
                return first + int(held.argmin())
        return None


def _probe(hashes: HashArray, number: int, bits: Ints) -> Ints:
    """Bit of the ``number``-th probe within a filter of ``bits`` bits."""
    low, high = hashes & np.uint64(0xFFFF_FFFF), (hashes >> np.uint64(32)) | np.uint64(1)
    return ((low + np.uint64(number) * high) % bits.view(np.uint64)).view(np.int64)


def _probes(hashes: HashArray, bits: Ints) -> Iterator[Ints]:
    """``_probe`` of every number, with two divisions for all of them."""
    # Nearly always 32 bits are enough for a sum of two: half the bytes, and divisions that take less.
    kind = np.uint32 if bits.max(initial=0) < 1 << 31 else np.uint64
    size: npt.NDArray[Any] = bits.astype(kind)
    at: npt.NDArray[Any] = hashes.astype(np.uint32).astype(kind, copy=False) % size
    step: npt.NDArray[Any] = ((hashes >> np.uint64(32)) | np.uint64(1)).astype(kind) % size
    yield at.astype(np.int64)
    for _ in range(1, _PROBES):
        at += step
        np.minimum(at, at - size, out=at)  # below the size the difference goes round to a large number
        yield at.astype(np.int64)


def _geometry(counts: Ints) -> tuple[Ints, Ints]:
    """Bits of each run's filter and where it begins."""
    bits = -(-counts * _BITS_PER_KEY // _GRAIN) * _GRAIN
    return bits, np.cumsum(bits) - bits


def _encode_filter(hashes: HashArray, runs: npt.NDArray[Any], run_count: int) -> bytes:
    counts = np.bincount(runs, minlength=run_count).astype(np.int64)
    bits, starts = _geometry(counts)
    field = np.zeros(int(bits.sum()), np.uint8)
    for first in range(0, len(hashes), _PASS_KEYS):
        some, of = hashes[first : first + _PASS_KEYS], runs[first : first + _PASS_KEYS]
        for probe in _probes(some, bits[of]):
            field[starts[of] + probe] = 1
    return wrap(pack_table({"keys": counts}) + np.packbits(field, bitorder="little").tobytes())
