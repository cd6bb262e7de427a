"""A proposal: sealed files that were made elsewhere and what they would replace, one create-only object (DESIGN.md,
"Proposals").

Whoever made the files knows no more than the fold of one commit, and changes nothing: the epoch's writer decides. Bytes:
FORMAT.md, "Proposal".
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tiered.archive.keys import ArchiveKeys, Area, ObjectKey, build
from tiered.archive.log.flush import DataObject
from tiered.archive.rewrite.swap import TARGET_COLUMNS, Replacement
from tiered.archive.rewrite.writing import Target, place_of
from tiered.archive.state.keys import CLOSED, RUN
from tiered.archive.state.layout import RUN_RECORD_DTYPE
from tiered.codec.checksum import crc32c
from tiered.codec.format.directory import Directory
from tiered.codec.format.intpack import narrow, pack_table, unpack_table
from tiered.codec.format.object import EncodedObject
from tiered.codec.format.sections import MAX_SECTION_BYTES, Section, unwrap, wrap
from tiered.codec.format.wire import pack, unpack
from tiered.codec.types import Buffer
from tiered.errors import Corrupt, NotFound, Refused
from tiered.model import MessageQueue
from tiered.provider.base import Provider
from tiered.provider.resolve import put_own

PROPOSAL_FORMAT = 1
"""A reader refuses a higher one."""

_CRC_BYTES = 4
_MOST_BYTES = MAX_SECTION_BYTES + 1024
_WHAT = "a proposal"
_RUNS_DTYPE = np.dtype([(name, "<i8") for name in TARGET_COLUMNS])


@dataclass(frozen=True, slots=True)
class ProposedObject:
    """An object that was put: a segment, or what its sources hold of other days (level 1). ``runs``: its own, with the columns
    of ``ReplaceRuns``; ``targets``: whose they are, one for each."""

    path: str
    object_id: bytes
    level: int
    length: int
    sections: Mapping[int, Section]
    runs: npt.NDArray[Any]
    targets: tuple[Target, ...]

    @classmethod
    def of(cls, made: Replacement) -> ProposedObject:
        """What a proposal says of an object."""
        data, encoded = made.data, made.data.encoded
        runs = np.zeros(len(made.runs), _RUNS_DTYPE)
        for name in TARGET_COLUMNS:
            runs[name] = made.runs[name]
        sections = {int(number): Section(*section) for number, section in encoded.sections.items()}
        return cls(data.path, data.object_id, made.level, encoded.length, sections, runs, tuple(made.targets))

    def replacement(self) -> Replacement:
        """The object as a commit names it; its bytes are not here."""
        encoded = EncodedObject(_NotHere(self.path), self.length, dict(self.sections))
        return Replacement(
            DataObject(self.path, self.object_id, encoded, there=True), self.level, self.runs, self.targets
        )


class _NotHere(list[Buffer]):
    """The bytes of an object that another process put: should it be lost before its commit, nobody here can put it again."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path

    def __len__(self) -> int:
        raise self._gone()

    def __iter__(self) -> Iterator[Buffer]:
        raise self._gone()

    def _gone(self) -> NotFound:
        return NotFound("an object that was made elsewhere is gone", key=self._path)


@dataclass(frozen=True, slots=True)
class Proposal:
    """``objects`` in the place of the runs that the fold of commit ``planned_on`` has under ``keys``, with these ``values``."""

    archive_id: bytes
    planned_on: int
    commit_id: bytes
    keys: tuple[bytes, ...]
    values: tuple[bytes, ...]
    objects: tuple[ProposedObject, ...]


def encode_proposal(made: Proposal) -> bytes:
    """The bytes of a proposal. ``Invalid`` if it names more than one object may hold."""
    objects = [
        [
            o.path, o.object_id, o.level, o.length, {number: list(section) for number, section in o.sections.items()},
            pack_table({name: o.runs[name] for name in TARGET_COLUMNS}),
            [[t.queue.topic, t.queue.queue_id, t.generation, t.closed_by] for t in o.targets],
        ]
        for o in made.objects
    ]  # fmt: skip
    value = [
        PROPOSAL_FORMAT, made.archive_id, made.planned_on, made.commit_id, list(made.keys), b"".join(made.values),
        objects,
    ]  # fmt: skip
    stored = wrap(pack(value))
    return stored + crc32c(stored).to_bytes(_CRC_BYTES, "little")


def decode_proposal(data: Buffer, *, key: str) -> Proposal:
    """``Corrupt`` unless it is one, ``Refused`` if a newer program made it."""
    view = memoryview(data)
    stored, crc = view[:-_CRC_BYTES], int.from_bytes(view[-_CRC_BYTES:], "little")
    if len(view) <= _CRC_BYTES or crc32c(stored) != crc:
        raise Corrupt(
            "a proposal fails its checksum", key=key, expected=f"{crc:08x}", found=f"{len(view)} bytes"
        )
    value = unpack(unwrap(stored, key=key, position=0), what=_WHAT, key=key, position=0)
    match value:
        case [int(version), *_] if version > PROPOSAL_FORMAT:
            raise Refused(
                "a proposal was made by a newer program", hint="install that program's version or a later one", key=key,
                expected=f"format ≤ {PROPOSAL_FORMAT}", found=version,
            )  # fmt: skip
        case [1, bytes(archive_id), int(seq), bytes(commit_id), list(keys), bytes(values), list(objects)]:
            pass
        case _:
            raise _malformed(key)
    width = RUN_RECORD_DTYPE.itemsize
    if (
        len(values) != width * len(keys)
        or not keys
        or not objects
        or not all(isinstance(k, bytes) and _is_run(k) for k in keys)
    ):
        raise _malformed(key)
    found = tuple(_object(each, key) for each in objects)
    if len({each.path for each in found}) != len(found):
        raise _malformed(key)
    records = tuple(values[at : at + width] for at in range(0, len(values), width))
    return Proposal(archive_id, seq, commit_id, tuple(keys), records, found)


def _is_run(key: bytes) -> bool:
    """Whether it is what the fold has of a run."""
    try:
        place_of(key)
    except (LookupError, ValueError, struct.error):
        return False
    return key[:1] in (RUN, CLOSED)


def _object(value: Any, key: str) -> ProposedObject:
    match value:
        case [
            str(path),
            bytes(object_id),
            int(level),
            int(length),
            dict(sections),
            bytes(packed),
            list(targets),
        ]:
            columns, rest = unpack_table(packed, TARGET_COLUMNS, key=key, position=0)
            runs = narrow(columns, _RUNS_DTYPE, what=_WHAT, key=key, position=0)
            found = tuple(_target(each, key) for each in targets)
            if len(rest) or len(found) != len(runs) or not len(runs) or not sections:
                raise _malformed(key)
            places = {number: _section(number, section, key) for number, section in sections.items()}
            return ProposedObject(path, object_id, level, length, places, runs, found)
    raise _malformed(key)


def _section(number: object, value: Any, key: str) -> Section:
    match value:
        case [int(position), int(length), int(crc)] if (
            isinstance(number, int) and min(position, length, crc) >= 0
        ):
            return Section(position, length, crc)
    raise _malformed(key)


def _target(value: Any, key: str) -> Target:
    match value:
        case [str(topic), int(queue_id), int(generation), (int() | None) as closed_by]:
            return Target(MessageQueue(topic, queue_id), generation, closed_by)
    raise _malformed(key)


def _malformed(key: str) -> Corrupt:
    return Corrupt("a proposal is malformed", key=key, expected="what FORMAT.md says of one")


def put_proposal(
    provider: Provider, keys: ArchiveKeys, epoch: int, proposal_id: bytes, made: Proposal
) -> str:
    """Leave a proposal for the epoch's writer, after its files; its path."""
    path = build(ObjectKey(Area.PROPOSAL, epoch, proposal_id))
    put_own(provider, keys.key(path), [encode_proposal(made)])
    return path


def read_proposal(provider: Provider, key: str) -> Proposal:
    """The proposal under a key. ``NotFound``; else errors as of ``decode_proposal``."""
    return decode_proposal(provider.get(key, 0, _MOST_BYTES).data, key=key)


def check_runs(item: ProposedObject, directory: Directory) -> None:
    """``Corrupt`` unless an object's own directory says what is proposed of it."""
    runs = directory.runs
    named = [
        (directory.topics[topic], queue_id, generation)
        for topic, queue_id, generation in runs[["topic", "queue_id", "generation"]].tolist()
    ]
    columns = set(TARGET_COLUMNS).intersection(runs.dtype.names or ())
    if (
        named != [(t.queue.topic, t.queue.queue_id, t.generation) for t in item.targets]
        or any((item.runs[name] != runs[name]).any() for name in columns)
    ):  # fmt: skip
        raise Corrupt("an object does not hold the runs that are proposed", key=item.path)
