"""Which keys and ranges every driver accepts, so that an archive can move from one store to another."""

from __future__ import annotations

from tiered.errors import Invalid

MAX_SEGMENT_BYTES = 100
"""Longest key segment, in UTF-8 bytes (DESIGN.md, "Object keys")."""

TEMP_PREFIX = ".tiered-tmp-"
"""Segments that start so are a driver's unfinished writes: refused as keys, hidden from listings."""


def check_key(key: str) -> str:
    """Return ``key`` if every store can hold it, else raise ``Invalid`` naming the rule it breaks."""
    if not key:
        raise Invalid("a key must not be empty")
    for segment in key.split("/"):
        problem = segment_problem(segment)
        if problem:
            raise Invalid(f"a key segment {problem}", key=key[:300], segment=segment[:120])
    return key


def segment_problem(segment: str) -> str | None:
    """What is wrong with one segment, or ``None``."""
    if not segment:
        return "must not be empty: no leading, trailing or doubled slash"
    if segment in (".", ".."):
        return "must not be a dot segment"
    if segment.startswith(TEMP_PREFIX):
        return f"must not start with {TEMP_PREFIX}, which marks unfinished writes"
    if "\0" in segment:
        return "must not hold a NUL"
    try:
        length = len(segment.encode())
    except UnicodeEncodeError:
        return "must be encodable as UTF-8"
    if length > MAX_SEGMENT_BYTES:
        return f"must not be longer than {MAX_SEGMENT_BYTES} bytes, found {length}"
    return None


def check_prefix(prefix: str) -> str:
    """Return a listing's prefix (part of a key, perhaps ending inside or after a segment), or raise ``Invalid``."""
    if prefix:
        whole, _, rest = prefix.rpartition("/")
        if whole or prefix.startswith("/"):
            check_key(whole)
        if rest and rest not in (".", ".."):
            check_key(rest)
    return prefix


def check_range(key: str, start: int | None, length: int | None) -> tuple[int, int | None]:
    """Normalise the range of a ``get``: (start, length), start negative for a suffix, length ``None`` for "to the end"."""
    begin = 0 if start is None else start
    if (length is not None and length < 0) or (begin < 0 and length is not None):
        raise Invalid(
            "a range is a start and a length ≥ 0, or a negative start alone",
            key=key,
            start=start,
            length=length,
        )
    return begin, length


def slice_range(start: int, length: int | None, object_length: int) -> tuple[int, int]:
    """The half-open byte range of an object of ``object_length`` bytes that a normalised range means."""
    begin = max(0, object_length + start) if start < 0 else min(start, object_length)
    end = object_length if length is None else min(begin + length, object_length)
    return begin, end


def check_root(path: str, *, setting: str = "archive.url") -> str:
    """A root inside a bucket: slashes at both ends dropped, every segment a legal one; ``""`` is the whole bucket."""
    root = path.strip("/")
    if root:
        try:
            check_key(root)
        except Invalid as error:
            raise Invalid(f"the path of {setting} is not usable: {error.message}", path=root[:300]) from None
    return root
