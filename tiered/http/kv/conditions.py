"""Conditions in header fields (RFC 9110 §13): what a write asks of the entry, and whether a reader has what it would get.

What this server cannot keep is refused, never left out: a write without its condition is another write.
"""

from __future__ import annotations

import re

from starlette.datastructures import Headers

from tiered.http.refusals import HttpRefusal, refused_parameter
from tiered.http.routes import MAX_OFFSET
from tiered.keyvalue import Condition

_TAG = re.compile(r'[ \t]*(?:((?:W/)?)"([\x21\x23-\x7e\x80-\xff]*)"[ \t]*)?(,|\Z)')
_SHA256 = re.compile(r"[0-9A-Fa-f]{64}\Z")
_VERSION = re.compile(r"0\Z|[1-9][0-9]{0,18}\Z")
_ANY = "*"


def write_condition(headers: Headers, value_sha256: str | None) -> Condition:
    """What a write asks for. ``HttpRefusal``: it cannot be understood, or never holds."""
    _none_of(headers, "if-unmodified-since", "use If-Match")
    version = _version(headers)
    absent = _absent(headers)
    digest = None if value_sha256 is None else _digest(value_sha256)
    if absent and (version is not None or digest is not None):
        raise _refused(
            "If-None-Match",
            _ANY,
            "no other condition beside it",
            "an entry that must not be has no version and no value",
        )
    return Condition(absent, version, digest)


def has_already(headers: Headers, version: int) -> bool:
    """Whether ``If-None-Match`` of a reader names this version. ``HttpRefusal``: it cannot be understood."""
    for name in ("if-match", "if-unmodified-since"):
        _none_of(headers, name, "it is for writes; If-None-Match is for reads")
    given = headers.getlist("if-none-match")
    if [text.strip() for text in given] == [_ANY]:
        return True
    return str(version) in [tag for text in given for _, tag in _tags("If-None-Match", text)]


def _version(headers: Headers) -> int | None:
    expected, fix = 'one version in double quotes, as in "42"', "give the ETag that was read"
    given = headers.getlist("if-match")
    if not given:
        return None
    tags = [] if _ANY in given else [tag for text in given for tag in _tags("If-Match", text)]
    if len(tags) != 1 or tags[0][0] or not _VERSION.match(tags[0][1]) or int(tags[0][1]) > MAX_OFFSET:
        raise _refused("If-Match", ", ".join(given), expected, fix)
    return int(tags[0][1])


def _absent(headers: Headers) -> bool:
    given = [text.strip() for text in headers.getlist("if-none-match")]
    if given and given != [_ANY]:
        raise _refused("If-None-Match", ", ".join(given), "* for a write", "leave it out, or use If-Match")
    return bool(given)


def _digest(text: str) -> bytes:
    if not _SHA256.match(text):
        raise refused_parameter("if_value_sha256", text, "64 hex digits", "give the SHA-256 of the value")
    return bytes.fromhex(text)


def _tags(name: str, text: str) -> list[tuple[bool, str]]:
    """The entity tags of a list, each with whether it is weak."""
    found, at = list[tuple[bool, str]](), 0
    while True:
        tag = _TAG.match(text, at)
        if tag is None:
            raise _refused(
                name, text, 'entity tags in double quotes, as in "42"', "give the ETag that was read"
            )
        weak, inside, end = tag.groups()
        if inside is not None:
            found.append((bool(weak), inside))
        if not end:
            return found
        at = tag.end()


def _none_of(headers: Headers, name: str, fix: str) -> None:
    if name in headers:
        raise _refused(name.title(), headers[name], "no such header here", fix)


def _refused(name: str, value: str, expected: str, fix: str) -> HttpRefusal:
    return HttpRefusal(
        400, f"the header {name} is not usable", header=name, value=value[:80], expected=expected, hint=fix
    )
