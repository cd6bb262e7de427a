"""The marks a lineage keeps: the newest 4,096, and the last one of each of the newest 1,024 commitlog files.

Both are queues of ordinals in the ordered map, so that adding one and forgetting the oldest are two point
writes. A mark belongs to the file that its ``crc_from`` lies in; the fold does not know file sizes, so marks
of one ``crc_from`` count as one file (a file first read in its middle has at most that one too).
"""

from __future__ import annotations

from tiered.archive.fold.context import Fold
from tiered.archive.state.keys import FILE_MARK, LINEAGE, MARK, lineage_key
from tiered.archive.state.layout import MARK_STRUCT, MarkIndex, pack_value, unpack_value
from tiered.model import Progress

KEPT_MARKS = 4096
KEPT_FILES = 1024


def load_index(fold: Fold, lineage: int) -> MarkIndex:
    """Where a lineage's marks are; empty for a new one."""
    value = fold.draft.get(lineage_key(LINEAGE, lineage))
    return MarkIndex() if value is None else MarkIndex(*unpack_value(value))


def store_index(fold: Fold, lineage: int, index: MarkIndex) -> None:
    """Put it back."""
    values = [index.first_mark, index.next_mark, index.first_file, index.next_file]
    fold.draft.put(lineage_key(LINEAGE, lineage), pack_value(values))


def add_mark(fold: Fold, mark: Progress) -> None:
    """Keep a mark. One at the same place and from the same byte takes the place of the last."""
    rule = "a mark's CRC begins at or below it"
    fold.check(
        mark.crc_from <= mark.physical_offset, rule, expected=f"≤ {mark.physical_offset}", found=mark.crc_from
    )
    lineage, index = mark.lineage, load_index(fold, mark.lineage)
    packed = MARK_STRUCT.pack(mark.physical_offset, mark.mark_crc, mark.crc_from)
    last = _get(fold, MARK, lineage, index.next_mark - 1)
    if last is None or (last[0], last[2]) != (mark.physical_offset, mark.crc_from):
        index.next_mark += 1
    fold.draft.put(lineage_key(MARK, lineage, index.next_mark - 1), packed)
    last = _get(fold, FILE_MARK, lineage, index.next_file - 1)
    if last is None or last[2] != mark.crc_from:
        index.next_file += 1
    fold.draft.put(lineage_key(FILE_MARK, lineage, index.next_file - 1), packed)
    while index.next_mark - index.first_mark > KEPT_MARKS:
        fold.draft.put(lineage_key(MARK, lineage, index.first_mark), None)
        index.first_mark += 1
    while index.next_file - index.first_file > KEPT_FILES:
        fold.draft.put(lineage_key(FILE_MARK, lineage, index.first_file), None)
        index.first_file += 1
    store_index(fold, lineage, index)


def cut_marks(fold: Fold, lineage: int, physical_offset: int) -> None:
    """Forget marks above a ``Rewind``; the file it cuts keeps its last mark below."""
    index = load_index(fold, lineage)
    while index.next_mark > index.first_mark:
        last = _get(fold, MARK, lineage, index.next_mark - 1)
        if last is not None and last[0] <= physical_offset:
            break
        index.next_mark -= 1
        fold.draft.put(lineage_key(MARK, lineage, index.next_mark), None)
    while index.next_file > index.first_file:
        number = index.next_file - 1
        last = _get(fold, FILE_MARK, lineage, number)
        if last is not None and last[0] <= physical_offset:
            break
        below = _get(fold, MARK, lineage, index.next_mark - 1)
        if last is not None and below is not None and below[2] == last[2]:
            fold.draft.put(lineage_key(FILE_MARK, lineage, number), MARK_STRUCT.pack(*below))
            break
        fold.draft.put(lineage_key(FILE_MARK, lineage, number), None)
        index.next_file = number
    store_index(fold, lineage, index)


def _get(fold: Fold, prefix: bytes, lineage: int, ordinal: int) -> tuple[int, int, int] | None:
    """Physical offset, CRC, crc_from."""
    value = fold.draft.get(lineage_key(prefix, lineage, ordinal)) if ordinal >= 0 else None
    if value is None:
        return None
    offset, crc, crc_from = MARK_STRUCT.unpack(value)
    return offset, crc, crc_from
