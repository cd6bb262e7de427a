"""Interned topics: every record's topic as a small number, without a Python string per record."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from tiered.codec.record.ragged import groups_by_length
from tiered.codec.types import Buffer, Ints
from tiered.errors import Corrupt


def intern(
    values: Iterable[bytes], count: int, known: Iterable[bytes] = ()
) -> tuple[npt.NDArray[np.int32], list[bytes]]:
    """Number equal byte strings alike, by first appearance after the ``known`` ones: (index per value,
    distinct values).

    Exact (a dictionary over the bytes, driven from C), unlike grouping by a hash.
    """
    table: defaultdict[bytes, int] = defaultdict()
    table.default_factory = table.__len__
    for value in known:
        table[value]
    index = np.fromiter(map(table.__getitem__, values), np.int32, count)
    return index, list(table)


class TopicTable:
    """The topics at ``positions`` of a buffer, gathered by length; the ranges must lie inside the buffer."""

    def __init__(self, buffer: Buffer, positions: Ints, lengths: Ints) -> None:
        self._lengths = lengths
        self._groups = list(groups_by_length(buffer, positions, lengths))

    def intern(self) -> tuple[npt.NDArray[np.int32], list[bytes]]:
        """(topic number per row, the distinct topics). The empty topic is listed only if a row has it."""
        index = np.zeros(len(self._lengths), np.int32)
        names: list[bytes] = []
        if len(index) and bool((self._lengths == 0).any()):
            names.append(b"")
        for rows, topics in self._groups:
            first = topics[:1].tobytes()
            if topics.tobytes() == first * len(topics):  # as in most buffers: no object for each
                index[rows] = len(names)
                names.append(first)
                continue
            local, distinct = intern(topics.tolist(), len(topics))
            # Topics of different lengths differ, so each length numbers its own.
            index[rows] = local + len(names)
            names.extend(distinct)
        return index, names

    def first_not_utf8(self) -> int | None:
        """The first row whose topic is not UTF-8, or ``None``. Costs one look at the bytes when all are
        ASCII.
        """
        for _, topics in self._groups:
            if bool((topics.view("u1") & 0x80).any()):
                break
        else:
            return None
        index, names = self.intern()
        bad = [number for number, name in enumerate(names) if not _is_utf8(name)]
        wrong = np.isin(index, bad)
        return int(wrong.argmax()) if wrong.any() else None


def _is_utf8(name: bytes) -> bool:
    try:
        name.decode()
    except UnicodeDecodeError:
        return False
    return True


def decode_topics(names: Iterable[bytes]) -> tuple[str, ...]:
    """The topics as text; ``Corrupt`` if one is not UTF-8."""
    decoded = []
    for name in names:
        try:
            decoded.append(name.decode())
        except UnicodeDecodeError as error:
            raise Corrupt(
                "a topic is not UTF-8", found=repr(name), expected="UTF-8", position=error.start
            ) from error
    return tuple(decoded)
