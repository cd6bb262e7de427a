"""Names of people in keys, both directions: a cluster and a broker are each a segment of a key, a topic is a folder."""

from __future__ import annotations

import re
from urllib.parse import quote, unquote_to_bytes

from tiered.codec.checksum import xxh3_64
from tiered.errors import Invalid

MAX_SEGMENT_BYTES = 100
"""Longest part of a key between two slashes: file systems stop at 255, some gateways much earlier."""

MAX_TOPIC_BYTES = 80
"""Longest topic, percent-encoded, that names the folder of its segments; of a longer one its hash does."""

_HASHED = re.compile(r"~[0-9a-f]{16}")


def topic_folder(topic: str) -> str:
    """What stands behind ``topic=`` in the keys of a topic's segments: its name, percent-encoded; where that has more than 80
    bytes, ``~`` and the XXH3-64 of its UTF-8 in hexadecimal digits, which no encoded name looks like."""
    encoded = _percent_encoded(topic)
    return encoded if 1 <= len(encoded) <= MAX_TOPIC_BYTES else f"~{xxh3_64(topic.encode()):016x}"


def is_topic_folder(folder: str) -> bool:
    """Whether ``topic_folder`` can have made it."""
    if _HASHED.fullmatch(folder):
        return True
    try:
        return topic_folder(unquote_to_bytes(folder).decode("utf-8")) == folder
    except (UnicodeError, Invalid):
        return False


def encode_name(name: str) -> str:
    """A cluster or broker name as one key segment: percent-encoded UTF-8.

    Letters, digits, ``-``, ``_`` and ``.`` stay, except a leading dot (dot segments and hidden files).
    ``Invalid`` for an empty name or one that takes more than 100 bytes.
    """
    encoded = _percent_encoded(name)
    if not 1 <= len(encoded) <= MAX_SEGMENT_BYTES:
        raise Invalid(
            "a cluster or broker name does not fit a key",
            hint="set source.cluster and source.broker to shorter names",
            expected=f"1 to {MAX_SEGMENT_BYTES} bytes, percent-encoded",
            found=f"{name[:40]!r}, {len(encoded)} bytes",
        )
    return encoded


def _percent_encoded(name: str) -> str:
    try:
        encoded = quote(name, safe="").replace("~", "%7E")
    except UnicodeEncodeError as error:
        raise Invalid("a name is not valid Unicode", found=repr(name)) from error
    return "%2E" + encoded[1:] if encoded.startswith(".") else encoded


def decode_name(segment: str) -> str | None:
    """The name that ``encode_name`` turned into ``segment``; ``None`` if it never makes that segment."""
    try:
        name = unquote_to_bytes(segment).decode("utf-8")
        return name if encode_name(name) == segment else None
    except (UnicodeError, Invalid):
        return None
