"""What a segment holds: its row groups, their bands and pages and, in each band, the parts of runs (FORMAT.md, "Segment")."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tiered.codec.format.intpack import narrow, pack_table, unpack_table
from tiered.codec.format.sections import unwrap, wrap
from tiered.codec.format.wire import pack, unpack
from tiered.codec.segment.footer import MAGIC
from tiered.codec.segment.pages import PAGE_DTYPE
from tiered.codec.types import Ints
from tiered.errors import Corrupt

GROUP_DTYPE = np.dtype(
    [
        ("rows", "<i8"),
        ("bytes", "<i8"),  # of the records
        ("stored_length", "<i8"),
        ("crc32c", "<u4"),  # of the stored bytes
        ("band_rows", "<i8"),  # of each of its bands but the last
        ("position", "<i8"),  # the rest follows from the lines before
        ("first_row", "<i8"),
        ("first_band", "<i8"),
        ("first_page", "<i8"),  # of the table of pages, where it has any there
    ]
)

BAND_DTYPE = np.dtype(
    [
        ("row_group", "<i4"),
        ("rows", "<i8"),
        ("bytes", "<i8"),  # of the records
        ("first_row", "<i8"),
        ("position", "<i8"),  # of its page of the last column; of a group of one band, that of the group
        ("stored_length", "<i8"),  # of the same
        ("crc32c", "<u4"),
    ]
)
"""Rows of a row group whose pages can be had by themselves. All of it follows from the stored tables."""

PIECE_DTYPE = np.dtype([("row_group", "<i4"), ("band", "<i4"), ("position", "<i8"), ("stored_length", "<i8")])
"""What is fetched together: a band's bytes, or, with -1 for its number, the head of a row group."""

PART_DTYPE = np.dtype(
    [
        ("run", "<i4"),  # parts of one run follow each other
        ("band", "<i4"),
        ("rows", "<i8"),  # records
        ("queue_id", "<i4"),
        ("generation", "<i4"),
        ("first_queue_offset", "<i8"),
        ("queue_offsets", "<i8"),  # owned
        ("first_flat_offset", "<i8"),
        ("bytes", "<i8"),  # of the records
        ("min_store_time", "<i8"),
        ("max_store_time", "<i8"),
        ("physical_start", "<i8"),  # of the first record, as it says itself
        ("physical_end", "<i8"),  # of the last
        ("crc32c", "<u4"),  # of the run's records up to the end of this part
        ("first_row", "<i8"),  # in its band; follows from the parts before
    ]
)

RUN_DTYPE = np.dtype(
    [
        ("queue_id", "<i4"),
        ("generation", "<i4"),
        ("first_queue_offset", "<i8"),
        ("rows", "<i8"),
        ("queue_offsets", "<i8"),
        ("first_flat_offset", "<i8"),
        ("bytes", "<i8"),
        ("min_store_time", "<i8"),
        ("max_store_time", "<i8"),
        ("first_row", "<i8"),  # in the file
        ("first_block", "<i8"),  # blocks are parts
        ("block_count", "<i8"),
        ("physical_start", "<i8"),
        ("physical_end", "<i8"),
        ("crc32c", "<u4"),  # of all its records, one behind the other
    ]
)
"""A run of a segment, with the columns of ``AppendRun`` that are the run's own."""

_STORED_GROUP = ("rows", "bytes", "stored_length", "crc32c", "band_rows")
_STORED_PART = tuple(name for name in PART_DTYPE.names or () if name != "first_row")
_STORED_PAGE = ("stored_length", "crc32c")
_MOST, _MOST_ROWS = 1 << 40, 1 << 22

Table = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class SegmentDirectory:
    """``groups`` (GROUP_DTYPE) in file order; ``bands`` (BAND_DTYPE) and ``parts`` (PART_DTYPE) in row order. ``pages``
    (PAGE_DTYPE): of each row group with several bands the pages of every column. One topic."""

    topic: str
    groups: Table
    parts: Table
    pages: Table
    bands: Table

    def runs(self) -> npt.NDArray[Any]:
        """The runs (RUN_DTYPE), in row order."""
        parts = self.parts
        first = np.flatnonzero(np.diff(parts["run"], prepend=-1))
        last = np.append(first[1:], len(parts)) - 1
        runs = np.zeros(len(first), RUN_DTYPE)
        for name in (
            "queue_id", "generation", "first_queue_offset", "first_flat_offset", "physical_start",
        ):  # fmt: skip
            runs[name] = parts[name][first]
        for name in ("rows", "queue_offsets", "bytes"):
            runs[name] = np.add.reduceat(parts[name], first)
        runs["min_store_time"] = np.minimum.reduceat(parts["min_store_time"], first)
        runs["max_store_time"] = np.maximum.reduceat(parts["max_store_time"], first)
        runs["physical_end"], runs["crc32c"] = parts["physical_end"][last], parts["crc32c"][last]
        runs["first_block"], runs["block_count"] = first, last - first + 1
        runs["first_row"] = self.bands["first_row"][parts["band"][first]] + parts["first_row"][first]
        return runs

    def parts_of(self, band: int) -> Table:
        """The parts of one band."""
        return self.parts_between(band, band + 1)

    def parts_between(self, first_band: int, end_band: int) -> Table:
        """The parts of bands [first, end)."""
        first, end = np.searchsorted(self.parts["band"], (first_band, end_band))
        return self.parts[first:end]

    def crc_before(self, band: int) -> int:
        """What the first part of a band continues the sum of: its run's sum so far, 0 where the run begins there."""
        first = int(np.searchsorted(self.parts["band"], band))
        if first == 0 or self.parts["run"][first - 1] != self.parts["run"][first]:
            return 0
        return int(self.parts["crc32c"][first - 1])

    def is_banded(self, row_group: int) -> bool:
        """Whether a row group has several bands."""
        group = self.groups[row_group]
        return bool(group["rows"] > group["band_rows"])

    def bands_of(self, row_group: int) -> tuple[int, int]:
        """Numbers [first, end) of the bands of a row group."""
        first, end = np.searchsorted(self.bands["row_group"], (row_group, row_group + 1)).tolist()
        return first, end

    def pages_of(self, row_group: int) -> Table:
        """The pages of a row group with several bands: a row for each column, of its dictionary's and one for each band."""
        first, end = self.bands_of(row_group)
        at, wide = int(self.groups["first_page"][row_group]), 1 + end - first
        behind = np.append(self.groups["first_page"][row_group + 1 :], len(self.pages))
        return self.pages[at : int(behind[0])].reshape(-1, wide)

    def pieces(self) -> Table:
        """All that lies in row groups, in the order of the file (PIECE_DTYPE): the head of each that has one, and its bands."""
        bands, groups = self.bands, self.groups
        banded = np.flatnonzero(groups["rows"] > groups["band_rows"])
        found = np.zeros(len(bands) + len(banded), PIECE_DTYPE)
        for name in ("row_group", "position", "stored_length"):
            found[name][: len(bands)] = bands[name]
        found["band"] = np.arange(len(found))
        heads = found[len(bands) :]
        heads["row_group"], heads["band"], heads["position"] = banded, -1, groups["position"][banded]
        heads["stored_length"] = bands["position"][groups["first_band"][banded]] - heads["position"]
        return np.sort(found, order="position")

    @property
    def groups_end(self) -> int:
        """Where the last row group ends in the file."""
        return len(MAGIC) + int(self.groups["stored_length"].sum())


def with_places(topic: str, groups: Table, parts: Table, pages: Table) -> SegmentDirectory:
    """A directory whose derived columns are filled in. ``ValueError`` if the tables do not fit each other."""
    counts = -(-groups["rows"] // groups["band_rows"])
    groups["position"] = len(MAGIC) + _before(groups["stored_length"])
    groups["first_row"], groups["first_band"] = _before(groups["rows"]), _before(counts)
    bands = np.zeros(int(counts.sum()), BAND_DTYPE)
    bands["row_group"] = np.repeat(np.arange(len(groups)), counts)
    last = groups["first_band"] + counts - 1
    bands["rows"] = groups["band_rows"][bands["row_group"]]
    bands["rows"][last] = groups["rows"] - (counts - 1) * groups["band_rows"]
    bands["first_row"] = _before(bands["rows"])
    sums = np.bincount(parts["band"], weights=parts["bytes"], minlength=len(bands))
    bands["bytes"] = sums[: len(bands)].astype(np.int64)
    for name in ("position", "stored_length", "crc32c"):
        bands[name] = groups[name][bands["row_group"]]
    of_column = np.where(counts > 1, counts + 1, 0)
    columns, rest = divmod(len(pages), max(1, int(of_column.sum())))
    if rest or (of_column.any() and not columns):
        raise ValueError("pages that are not of these row groups")
    groups["first_page"] = _before(of_column * columns)
    parts["first_row"] = _before(parts["rows"]) - bands["first_row"][parts["band"]]
    made = SegmentDirectory(topic, groups, parts, pages, bands)
    for number in np.flatnonzero(counts > 1).tolist():
        table, (first, end) = made.pages_of(number), made.bands_of(number)
        table["position"] = (groups["position"][number] + _before(table["stored_length"].ravel())).reshape(
            table.shape
        )
        for name in ("position", "stored_length", "crc32c"):
            bands[name][first:end] = table[name][-1, 1:]
        if (
            table["stored_length"].sum() != groups["stored_length"][number]
            or not table["stored_length"][:, 1:].all()
        ):
            raise ValueError("pages that do not fill their row group")
    return made


def encode_directory(directory: SegmentDirectory) -> str:
    """The text that stands in the file's metadata."""
    tables = [
        pack_table({name: table[name] for name in names})
        for table, names in (
            (directory.groups, _STORED_GROUP), (directory.parts, _STORED_PART), (directory.pages, _STORED_PAGE),
        )
    ]  # fmt: skip
    return base64.b64encode(wrap(pack([directory.topic, *tables]))).decode()


def decode_directory(text: bytes, *, version: int, key: str, position: int) -> SegmentDirectory:
    """``Corrupt`` unless it is one that makes sense; the footer's checksum must have been compared. ``version``: of the
    segment's format; of the first, every row group is one band."""
    try:
        packed = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise Corrupt("a segment's directory is not base64", key=key, position=position) from error
    content = unwrap(packed, key=key, position=position)
    value = unpack(content, what="a segment's directory", key=key, position=position)
    match value:
        case [str(topic), bytes(group_table), bytes(part_table)] if version == 1:
            stored: tuple[str, ...] = _STORED_GROUP[:-1]
            page_table = pack_table(_no_pages())
        case [str(topic), bytes(group_table), bytes(part_table), bytes(page_table)] if version > 1:
            stored = _STORED_GROUP
        case _:
            raise Corrupt(
                "a segment's directory is malformed",
                key=key,
                position=position,
                expected="topic, row groups, parts, pages",
            )
    tables, rests = [], 0
    for data, names, dtype in (
        (group_table, stored, GROUP_DTYPE),
        (part_table, _STORED_PART, PART_DTYPE),
        (page_table, _STORED_PAGE, PAGE_DTYPE),
    ):
        columns, rest = unpack_table(data, names, key=key, position=position)
        tables.append(narrow(columns, dtype, what="a segment's directory", key=key, position=position))
        rests += len(rest)
    groups, parts, pages = tables
    if version == 1:
        groups["band_rows"] = groups["rows"]
    fault = "bytes behind a table" if rests else _fault(groups, parts, pages)
    if fault is None:
        try:
            made = with_places(topic, groups, parts, pages)
        except (ValueError, IndexError) as error:
            fault = str(error)
        else:
            fault = _fault_of_parts(made)
            if fault is None:
                return made
    raise Corrupt("a segment's directory makes no sense", key=key, position=position, found=fault)


def _no_pages() -> dict[str, Table]:
    return {name: np.zeros(0, PAGE_DTYPE[name]) for name in _STORED_PAGE}


def _before(lengths: Table) -> Ints:
    sums: Ints = np.cumsum(lengths) - lengths
    return sums


def _fault(groups: Table, parts: Table, pages: Table) -> str | None:
    """What is wrong with the tables by themselves, or ``None``."""
    if not len(groups) or not len(parts):
        return "no row group, or no part"
    counts = [t[n] for t in (groups, parts) for n in ("rows", "bytes")]
    counts += [groups["stored_length"], groups["band_rows"]]
    if any(c.min() < 1 or c.max() > _MOST or len(c) > _MOST_ROWS for c in counts):
        return "counts out of bounds"
    if len(pages) and (pages["stored_length"].min() < 0 or pages["stored_length"].max() > _MOST):
        return "pages out of bounds"
    if (-(-groups["rows"] // groups["band_rows"])).sum() > len(parts):
        return "bands without parts"
    steps = np.diff(parts["band"], prepend=-1), np.diff(parts["run"], prepend=-1)
    if any(s.min() < 0 or s.max() > 1 or s[0] != 1 for s in steps):
        return "numbers of bands or runs"
    return None


def _fault_of_parts(directory: SegmentDirectory) -> str | None:
    """Whether parts fill their bands, and bands their row groups."""
    parts, bands, groups = directory.parts, directory.bands, directory.groups
    if parts["band"][-1] != len(bands) - 1:
        return "numbers of bands"
    first = np.flatnonzero(np.diff(parts["band"], prepend=-1))
    if (np.add.reduceat(parts["rows"], first) != bands["rows"]).any():
        return "rows of parts and of their band"
    if (np.add.reduceat(bands["bytes"], groups["first_band"]) != groups["bytes"]).any():
        return "bytes of parts and of their row group"
    return None
