"""S3 Object Lock: what is put is kept by the store itself until a date, whoever asks to delete it.

A bucket with Object Lock keeps versions: a plain DELETE would hide an object that cannot be deleted yet and keep its bytes for
good. So deletion looks first, and once the date is past it removes the version itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from tiered.errors import Refused, TieredError
from tiered.settings import Store

_DERIVED = re.compile(r"(^|/)(probe|checkpoint|shard|beat)/")
"""What is not locked: it is no part of the log, and replaced every few minutes."""
_HINT = (
    "make a bucket with Object Lock (and, with it, versioning) and allow s3:GetBucketObjectLockConfiguration,"
    " s3:PutObjectRetention and s3:DeleteObjectVersion, or set store.object_lock to nothing"
)


def lock_arguments(store: Store, name: str, now_ms: int) -> dict[str, Any]:
    """What a put of this object asks for; nothing without Object Lock, or where the object is derived from others."""
    if not store.object_lock or _DERIVED.search(name):
        return {}
    until = datetime.fromtimestamp((now_ms + store.object_lock_ms) / 1000, UTC)
    return {
        "ObjectLockMode": store.object_lock,
        "ObjectLockRetainUntilDate": until,
        "ChecksumAlgorithm": store.checksum,  # stores ask for the header that names it
    }


def deletable_version(head: Mapping[str, Any], key: str, date_ms: int) -> dict[str, str]:
    """Which version of an object is to be deleted, told from the answer to HEAD; ``Refused`` while it is locked."""
    until = head.get("ObjectLockRetainUntilDate")
    until_ms = 0 if until is None else round(until.timestamp() * 1000)
    held = head.get("ObjectLockLegalHoldStatus") == "ON"
    if held or until_ms > date_ms:
        raise Refused(
            "the store keeps an object by Object Lock", key=key,
            found="a legal hold" if held else f"locked until {until}", until_ms=None if held else until_ms,
            hint="it is tried again after that; a legal hold of the store is taken off there",
        )  # fmt: skip
    version = head.get("VersionId")
    return {"VersionId": version} if version and version != "null" else {}


def require_lock(answer: Mapping[str, Any] | TieredError, url: str) -> None:
    """``Refused`` unless a bucket's Object Lock configuration says that objects can be locked."""
    if isinstance(answer, TieredError):
        found = str(answer.fields.get("found") or answer.message)
    else:
        found = str(answer.get("ObjectLockConfiguration", {}).get("ObjectLockEnabled") or "no Object Lock")
    if found != "Enabled":
        raise Refused(
            "the store does not lock objects, as store.object_lock asks for", url=url, found=found, hint=_HINT
        )
