"""Deleting many keys: what each answer says of which key, and the loop of drivers whose stores delete one at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tiered.errors import Invalid, NotFound, TieredError, Unavailable
from tiered.provider.s3errors import Context, from_response

BATCH_KEYS = 1000
"""Most keys that S3 deletes in one request."""

_UNKNOWN_REQUEST = ("NotImplemented", "MethodNotAllowed", "MalformedPOSTRequest")


def delete_each(delete: Callable[[str], None], keys: Sequence[str]) -> dict[str, TieredError]:
    """Delete one key after the other; those that are not known to be gone, and why."""
    failed: dict[str, TieredError] = {}
    for key in keys:
        try:
            delete(key)
        except TieredError as error:
            failed[key] = error
    return failed


def not_deleted(
    answer: Mapping[str, Any], names: Mapping[str, str], context: Context
) -> dict[str, TieredError]:
    """What an answer to DeleteObjects says of each name: keys (the values of ``names``) that it does not say are gone."""
    failed: dict[str, TieredError] = {}
    gone = {str(entry.get("Key")) for entry in answer.get("Deleted", ())}
    for entry in answer.get("Errors", ()):
        name = str(entry.get("Key"))
        if name in names:
            where = Context("delete", names[name], context.url, context.secrets)
            error = from_response({"Error": entry}, where)
            if not isinstance(error, NotFound):
                failed[names[name]] = error
                gone.discard(name)
            else:
                gone.add(name)
    for name, key in names.items():
        if name not in gone and key not in failed:
            failed[key] = Unavailable(
                "the store did not say whether it deleted an object", key=key, url=context.url
            )
    return failed


def deletes_one_by_one(error: Invalid) -> bool:
    """Whether a store answered that it knows no DeleteObjects."""
    found = str(error.fields.get("found"))
    return any(code in found for code in _UNKNOWN_REQUEST)
