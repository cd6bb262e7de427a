"""A small object or file of our own: a line of JSON, then its CRC-32C as eight hexadecimal digits and a newline."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tiered.codec.checksum import crc32c


def encode_line(fields: Mapping[str, Any]) -> bytes:
    """The line, its keys sorted, and its sum."""
    line = json.dumps(fields, sort_keys=True).encode() + b"\n"
    return line + _sum(line)


def decode_line(data: bytes) -> dict[str, Any]:
    """The fields; ``ValueError`` that says what stands where the sum should, or that the line is not an object in JSON."""
    end = data.find(b"\n") + 1
    line, found = data[:end], data[end:]
    if found != _sum(line):
        raise ValueError(f"expected the sum {_sum(line)!r}, found {found[:20]!r}")
    fields = json.loads(line)
    if not isinstance(fields, dict):
        raise ValueError(f"expected an object in JSON, found {line[:80]!r}")
    return fields


def _sum(line: bytes) -> bytes:
    return f"{crc32c(line):08x}\n".encode()
