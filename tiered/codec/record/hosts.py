"""Hosts as records have them, and RocketMQ's offset message id, which is made of one."""

from __future__ import annotations

import ipaddress
import re
import struct

from tiered.codec.record.layout import V4_HOST_BYTES
from tiered.errors import Invalid

_OCTET = "(0|[1-9][0-9]{0,2})"
_V4 = re.compile(rf"{_OCTET}\.{_OCTET}\.{_OCTET}\.{_OCTET}:(-?[0-9]{{1,10}})", re.ASCII)
_V4_PACKED = struct.Struct(">4Bi")


def encode_message_id(store_host: str, physical_offset: int) -> str:
    """RocketMQ's offset message id: upper-case hex of the store host (8 or 20 bytes) and the physical
    offset.
    """
    try:
        return (encode_host(store_host) + struct.pack(">q", physical_offset)).hex().upper()
    except struct.error as error:
        raise Invalid("not a physical offset", found=physical_offset) from error


def decode_message_id(message_id: str) -> tuple[str, int]:
    """(store host as ip:port, physical offset) of an offset message id; ``Invalid`` if it is not one."""
    try:
        raw = bytes.fromhex(message_id)
    except ValueError:
        raw = b""
    if len(message_id) != 2 * len(raw) or len(raw) not in (16, 28):
        raise Invalid(
            "this is not an offset message id",
            found=message_id,
            expected="32 or 56 hex digits",
            hint="for the id a client shows (UNIQ_KEY) use --unique-key",
        )
    return decode_host(memoryview(raw)[:-8]), int.from_bytes(raw[-8:], "big", signed=True)


def encode_host(host: str) -> bytes:
    """The 8 or 20 bytes of ``ip:port``. ``Invalid`` if it is not one."""
    plain = _V4.fullmatch(host)
    address, _, port = host.rpartition(":")
    try:
        if plain is not None:  # as nearly all are: a tenth of the time of what takes anything
            return _V4_PACKED.pack(*map(int, plain.groups()))
        return ipaddress.ip_address(address.strip("[]")).packed + struct.pack(">i", int(port))
    except (ValueError, struct.error) as error:
        raise Invalid("not a host", found=host, expected="ip:port or [ipv6]:port") from error


def decode_host(packed: memoryview) -> str:
    """``ip:port`` of a host as records have it: 4 or 16 bytes of address, 4 of port."""
    port = int.from_bytes(packed[-4:], "big", signed=True)
    if len(packed) == V4_HOST_BYTES:
        return f"{packed[0]}.{packed[1]}.{packed[2]}.{packed[3]}:{port}"
    return f"[{ipaddress.IPv6Address(bytes(packed[:16]))}]:{port}"
