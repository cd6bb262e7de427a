"""Whether an answer is the store's own. A portal, a proxy or a maintenance page answers anything with any status, so that a
status proves nothing: a stored object is proven by what only its store says of it, a listing by its XML, an absence by its
error.

The events of botocore ask here before an answer is parsed (``heard``); what reads ranges itself asks ``judge``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from tiered.provider.naming import slice_range

IDENTITIES = ("x-amz-request-id", "x-amzn-requestid", "x-amz-id-2", "x-guploader-uploadid")
"""Headers that name the request at the store: no page in front of it has them."""

_ROOTS = {
    "ListObjects": "ListBucketResult",
    "ListObjectsV2": "ListBucketResult",
    "ListMultipartUploads": "ListMultipartUploadsResult",
    "CreateMultipartUpload": "InitiateMultipartUploadResult",
    "CompleteMultipartUpload": "CompleteMultipartUploadResult",
    "DeleteObjects": "DeleteResult",
    "GetBucketLifecycleConfiguration": "LifecycleConfiguration",
    "GetObjectLockConfiguration": "ObjectLockConfiguration",
}
_PROVEN = ("PutObject", "UploadPart")
_OBJECT = ("HeadObject", "GetObject")
_BODILESS = ("HeadObject", "HeadBucket")
_ROOT = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*\?>)?\s*(?:<!--.*?-->\s*)*<(?:\w+:)?(\w+)", re.DOTALL)
_MEANT = (401, 403, 407, 408, 429)
_EMPTY = ("DeleteObject", "AbortMultipartUpload", "HeadObject", "HeadBucket")
"""What is answered without a body: by who names the request alone."""
_BUILT_ON = (200, 204, 206, 404)
"""What says that something happened, or is not there."""
MOST_EMPTY = 1000
"""Pages of a listing that may be empty, one after another: a store that passes over what was deleted answers with such."""
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+)")


class ForeignAnswer(ValueError):
    """What answered was not the store: whether anything happened there is unknown. The text says by what it was seen."""


class StoreAnswers:
    """Judges the answers of one store by what its answers showed before. Thread-safe.

    ``counts_all``: whether a read of all of an object was answered with a Content-Range: one without is another's, or cached.
    """

    def __init__(self) -> None:
        self.counts_all = False
        self._named: set[str] = set()

    @property
    def shown(self) -> list[str]:
        """Which answers name their request: another process may ``expect`` so."""
        return sorted(self._named)

    def expect(self, shown: Iterable[str]) -> None:
        """Take it for seen."""
        self._named.update(shown)

    def heard(self, operation_model: Any, response_dict: Mapping[str, Any], **_: Any) -> None:
        """For botocore's event ``before-parse.s3``."""
        body = response_dict["body"]
        text = body if isinstance(body, bytes) else None
        try:
            self.judge(operation_model.name, response_dict["status_code"], response_dict["headers"], text)
        except ForeignAnswer:
            with suppress(AttributeError):
                body.close()
            raise

    def judge(self, operation: str, status: int, headers: Mapping[str, str], body: bytes | None) -> None:
        """``ForeignAnswer`` unless it may be the store's. ``headers``: by any case; ``body``: ``None`` while it is still to
        come."""
        if status >= 500 or status in _MEANT:
            return  # not now, whoever says so: who refuses is told as it is
        if "html" in (headers.get("Content-Type") or "").lower() and not identified(headers):
            raise ForeignAnswer(f"{status} with a page of HTML")
        if status >= 300:
            _require_error(operation, status, headers, body)
        elif operation in _ROOTS:
            root = _root(body)
            if root != _ROOTS[operation]:
                raise ForeignAnswer(f"{status} with {root or 'no XML'}, where {_ROOTS[operation]} is due")
        elif operation in _PROVEN and _root(body) == "Error":
            raise ForeignAnswer(f"{status} with an error in XML")
        elif operation in _PROVEN:
            if not proven(headers) or (operation == "UploadPart" and not headers.get("ETag")):
                raise ForeignAnswer(f"{status} without an ETag, a checksum, a version or a request id")
        elif operation in _OBJECT:
            _require_object(operation, status, headers)
        elif status == 200 and body and not identified(headers):
            raise ForeignAnswer(f"{status} with a body of {len(body)} bytes, where none is due")
        if operation in _EMPTY:
            self._require_name(operation, headers)
        elif status in _BUILT_ON:
            self._require_name(f"{operation} {status}", headers)

    def _require_name(self, answer: str, headers: Mapping[str, str]) -> None:
        if identified(headers):
            self._named.add(answer)
        elif answer in self._named:
            raise ForeignAnswer(
                "no request id, which the store gave before; if it no longer does, delete the file probed under state.directory"
            )


def identified(headers: Mapping[str, str]) -> bool:
    """Whether an answer names its request as S3 does."""
    return any(headers.get(name) for name in IDENTITIES)


def proven(headers: Mapping[str, str]) -> bool:
    """Whether an answer to a put says what only who stored the object can say."""
    if headers.get("ETag") or headers.get("x-amz-version-id") or identified(headers):
        return True
    return any(name.lower().startswith("x-amz-checksum-") for name in headers)


def of_range(first: int, count: int | None, data: bytes, stated: str | int) -> tuple[bytes, int]:
    """The bytes that were asked for, and the object's length. ``stated``: the answer's Content-Range; where it had none, the
    length, by which it is seen whether all came or what was asked for. ``ForeignAnswer`` for other bytes."""
    if isinstance(stated, int):
        begin, end = slice_range(first, count, stated)
        if len(data) == stated:
            return data[begin:end], stated
        came, total = (begin, end), stated
    else:
        said = _CONTENT_RANGE.fullmatch(stated.strip())
        if said is None:
            raise ForeignAnswer(f"a Content-Range that is none: {stated[:100]}")
        came, total = (int(said[1]), int(said[2]) + 1), int(said[3])
        begin, end = slice_range(first, count, total)
    if came != (begin, end) and came != (0, total):
        raise ForeignAnswer(f"bytes {came[0]} to {came[1]}, asked for {begin} to {end} of {total}")
    if len(data) != came[1] - came[0]:
        raise ForeignAnswer(f"{len(data)} bytes, where {came[1] - came[0]} are due")
    return (data if came == (begin, end) else data[begin:end]), total


def require_no_bytes(first: int, count: int | None, total: int | None) -> None:
    """``ForeignAnswer`` for a range that is said not to be there, and is."""
    begin, end = (0, 0) if total is None else slice_range(first, count, total)
    if begin < end:
        raise ForeignAnswer(f"no bytes from {begin} to {end}, of {total}")


def require_object(data: bytes) -> None:
    """``ForeignAnswer`` for an error of S3's that came with the status of a success: a proxy that changes the status."""
    if _root(data[:1024]) == "Error":
        raise ForeignAnswer("an error in XML, where an object is due")


def require_listed(page: Mapping[str, Any], name: str, length: int) -> None:
    """``ForeignAnswer`` unless the listing that begins at ``name`` has it with this length: bytes that nothing else vouches for
    are an object's only if the listing, which is in XML, says so."""
    sizes = [int(entry["Size"]) for entry in page.get("Contents", ()) if entry["Key"] == name]
    if sizes != [length]:
        listed = f"{sizes[0]}" if sizes else "no such object"
        raise ForeignAnswer(f"{length} bytes, where the listing has {listed}")


def require_progress(page: Mapping[str, Any], rows: str, name: str, asked: Mapping[str, Any]) -> str | None:
    """Where the next page of a listing begins (``name`` in its answer); ``None`` behind the last. ``ForeignAnswer`` for keys
    that were not asked for, and where there is more and it is not said where: too little would be listed, or without end."""
    for entry in page.get(rows, ()):
        if not entry["Key"].startswith(asked["Prefix"]):
            raise ForeignAnswer("a listing of other keys than were asked for")
    if not page.get("IsTruncated"):
        return None
    following: str | None = page.get(name)
    if not following or following == asked.get(name.removeprefix("Next")):
        raise ForeignAnswer(f"a page of a listing with more behind it, and no new {name}")
    return following


class Pages:
    """The pages of one listing: ``following`` is where the next one begins, as of ``require_progress``; ``ForeignAnswer`` also
    where they begin again, or are empty for ever, whatever they say of what follows. ``rows``, ``name``: in each page."""

    def __init__(self, rows: str, name: str) -> None:
        self._rows, self._name = rows, name
        self._first: object = None
        self._last, self._empty = "", 0

    def following(self, page: Mapping[str, Any], asked: Mapping[str, Any]) -> str | None:
        found = require_progress(page, self._rows, self._name, asked)
        entries = page.get(self._rows, ())
        self._empty = 0 if entries else self._empty + 1
        if self._empty >= MOST_EMPTY:
            raise ForeignAnswer(f"{MOST_EMPTY} empty pages of a listing, and more behind them")
        if entries:
            first = entries[0]["Key"], entries[0].get("UploadId")
            if first == self._first or first[0] < self._last:
                raise ForeignAnswer("the same page of a listing again, or one before it")
            self._first, self._last = first, entries[-1]["Key"]
        return found


def _root(body: bytes | None) -> str:
    found = _ROOT.match(body or b"")
    return found[1].decode("ascii", "replace") if found else ""


def _require_error(operation: str, status: int, headers: Mapping[str, str], body: bytes | None) -> None:
    if operation in _BODILESS:
        if status < 400 and not identified(headers) and not headers.get("x-amz-bucket-region"):
            raise ForeignAnswer(f"{status}, moved to elsewhere")
    elif status == 416 and headers.get("Content-Range"):
        pass
    elif not _root(body).startswith("Error") and not (status < 400 and headers.get("x-amz-bucket-region")):
        raise ForeignAnswer(f"{status} without an error in XML")


def _require_object(operation: str, status: int, headers: Mapping[str, str]) -> None:
    if status not in (200, 206):
        raise ForeignAnswer(f"{status} for an object")
    if not proven(headers) and not headers.get("Last-Modified"):
        raise ForeignAnswer(f"{status} without an ETag or a time of an object")
    coding = headers.get("Content-Encoding") or "identity"
    if coding not in ("identity", "aws-chunked"):
        raise ForeignAnswer(f"{status} with a body in {coding}, as no object is stored")
    counted = headers.get("Content-Length") is not None
    if not counted and (
        operation == "HeadObject" or "chunked" not in (headers.get("Transfer-Encoding") or "")
    ):
        raise ForeignAnswer(f"{status} without a length")
