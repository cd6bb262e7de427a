"""Lifecycle rules of a bucket that would delete what an archive needs, or put it where it cannot be read at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tiered.errors import Invalid, NotFound

_READABLE = ("GLACIER_IR",)


def must_be_restored(storage_class: str) -> bool:
    """Whether objects of a storage class have to be restored before they can be read. Vendors name theirs alike: GLACIER,
    DEEP_ARCHIVE, COLD_ARCHIVE, DeepColdArchive, COLD."""
    name = storage_class.upper()
    return name not in _READABLE and ("ARCHIVE" in name or name == "COLD" or name.startswith("GLACIER"))


_OURS_TO_LOSE = ("probe/",)
_NONE = ("NoSuchLifecycleConfiguration", "NotImplemented", "MethodNotAllowed")


def no_rules(error: Invalid | NotFound) -> bool:
    """Whether a store answered that it has no lifecycle rules, or knows none."""
    return any(code in str(error.fields.get("found")) for code in _NONE)


def harmful_rules(rules: Sequence[Mapping[str, Any]], root: str) -> list[str]:
    """What enabled rules do to objects below ``root``, a line each. Versions that are not current, and uploads that were not
    completed, are none of the archive's; its objects have no tags."""
    return [
        f"rule {rule.get('ID') or 'without a name'} {done} below {prefix or 'the whole bucket'}"
        for rule in rules
        if rule.get("Status") == "Enabled"
        and (prefix := _prefix(rule)) is not None
        and _concerns(prefix, root)
        for done in _done(rule)
    ]


def _prefix(rule: Mapping[str, Any]) -> str | None:
    """Under which keys a rule works; ``None`` if only on objects with tags."""
    narrowed: Mapping[str, Any] = rule.get("Filter") or {}
    several: Mapping[str, Any] = narrowed.get("And") or {}
    if narrowed.get("Tag") or several.get("Tags"):
        return None
    return str(narrowed.get("Prefix") or several.get("Prefix") or rule.get("Prefix") or "")


def _concerns(prefix: str, root: str) -> bool:
    lost = any(prefix.startswith(root + area) for area in _OURS_TO_LOSE)
    return (root.startswith(prefix) or prefix.startswith(root)) and not lost


def _done(rule: Mapping[str, Any]) -> Iterator[str]:
    expiry: Mapping[str, Any] = rule.get("Expiration") or {}
    if expiry.get("Days") is not None or expiry.get("Date") is not None:
        yield f"deletes objects {_when(expiry)}"
    for moved in rule.get("Transitions") or ():
        if must_be_restored(str(moved.get("StorageClass"))):
            yield f"moves objects to {moved['StorageClass']} {_when(moved)}"


def _when(rule: Mapping[str, Any]) -> str:
    days = rule.get("Days")
    return f"on {rule.get('Date')}" if days is None else f"after {days} days"
