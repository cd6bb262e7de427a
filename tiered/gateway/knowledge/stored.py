"""Stored records in bodies of answers: whether one is whole, where one ends."""

from __future__ import annotations

from tiered.codec.record.frame import Frames, Stop, scan, verify
from tiered.codec.remoting.codes import ResponseCode
from tiered.codec.remoting.frame import Bytes, Command

NOT_FOUND = "can not find"
"""How every broker begins its remark when it has no message at an offset."""


def is_not_found(answer: Command) -> bool:
    """Whether a broker has no message at an offset. It says the same code when it refuses a client that may not ask."""
    return answer.code == ResponseCode.SYSTEM_ERROR and (answer.remark or "").startswith(NOT_FOUND)


def is_record_at(body: Bytes, offset: int) -> bool:
    """Whether ``body`` is exactly one sound record that lies at ``offset``."""
    frames = _frames(body, offset)
    return len(frames) == 1 and frames.stop is Stop.END and frames.end == len(body)


def whole_records(body: Bytes) -> list[memoryview]:
    """The records of a body; none if it is not records from end to end."""
    frames = _frames(body, None)
    if frames.stop is not Stop.END or frames.end != len(body):
        return []
    view = memoryview(body)
    return [view[start : start + size] for start, size in zip(frames.starts.tolist(), frames.sizes.tolist())]


def _frames(body: Bytes, base: int | None) -> Frames:
    return verify(body, scan(body, base=base, max_record_bytes=max(len(body), 1)), base)
