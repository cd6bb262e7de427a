"""What one stored record says of itself, without numpy: for filters, which look at one record at a time."""

from __future__ import annotations

from struct import Struct, error

from tiered.codec.record.header import MAGIC_V1, MAGIC_V2, SYS_BORN_V6, SYS_STORE_V6
from tiered.codec.record.message import decode_properties
from tiered.codec.types import Buffer
from tiered.errors import Corrupt

_MAGIC = Struct(">4xI")
_SYS_FLAG = Struct(">36xi")
_LENGTH_4 = Struct(">i")
_LENGTH_2 = Struct(">h")
_BODY_LENGTH_AT_V4 = 84  # with two IPv4 hosts of 8 bytes
_V6_MORE = 12


def record_properties(record: Buffer) -> dict[str, str]:
    """The properties of the one record that ``record`` is, as a broker sees them. ``Corrupt`` if its lengths do not add up.

    The layout is that of ``tiered.codec.record.header``; the body's CRC is not looked at.
    """
    view = memoryview(record)
    try:
        (magic,) = _MAGIC.unpack_from(view)
        (sys_flag,) = _SYS_FLAG.unpack_from(view)
        body_at = _BODY_LENGTH_AT_V4 + _V6_MORE * (
            bool(sys_flag & SYS_BORN_V6) + bool(sys_flag & SYS_STORE_V6)
        )
        (body_length,) = _LENGTH_4.unpack_from(view, body_at)
        topic_at = body_at + 4 + body_length
        if body_length < 0 or magic not in (MAGIC_V1, MAGIC_V2):
            raise Corrupt("not a RocketMQ record", found=f"magic {magic:#x}, body length {body_length}")
        if magic == MAGIC_V1:
            at = topic_at + 1 + view[topic_at]
        else:
            (topic_length,) = _LENGTH_2.unpack_from(view, topic_at)
            at = topic_at + 2 + max(topic_length, 0)
        (length,) = _LENGTH_2.unpack_from(view, at)
    except (error, IndexError) as cause:
        raise Corrupt("a record is shorter than its lengths say", found=f"{len(view)} bytes") from cause
    area = view[at + 2 : at + 2 + max(length, 0)]
    if len(area) != length:
        raise Corrupt("a record is shorter than its lengths say", expected=length, found=len(area))
    return decode_properties(area)
