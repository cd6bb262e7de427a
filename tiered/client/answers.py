"""What requests look like, and what their answers mean: keys in addresses, conditions in header fields, problems as errors."""

from __future__ import annotations

import json
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from tiered.client.connections import HttpAnswer
from tiered.errors import BadRequest, Conflict, Corrupt, NotFound, Refused, TieredError, Unavailable
from tiered.keyvalue import (
    CONDITION_FAILED,
    DAMAGE,
    EXPIRES_MS,
    NO_ENTRY,
    PROBLEM,
    STORED_MS,
    UNKNOWN,
    Condition,
    Entry,
    Freshness,
    ReadRule,
    check_key,
    check_namespace,
)

Query = Mapping[str, str | int | None]
_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_OF_PROBLEM = ("type", "title", "status", "detail", "fix")
_PASSING = (408, 429, 500, 502, 503, 504)
BASE64URL = {"key_encoding": "base64url"}


def target(namespace: str | None = None, key: bytes | None = None, query: Query | None = None) -> str:
    """Path and parameters. A key that is not plain is written in base64url: nothing on its way can mistake it for a path."""
    path, asked = "/v1/kv", dict(query or {})
    if namespace is not None:
        path += "/" + check_namespace(namespace)
    if key is not None:
        if _PLAIN.issuperset(check_key(key)) and key not in (b".", b".."):
            path += "/" + key.decode()
        else:
            path += "/" + token(key)
            asked |= BASE64URL
    given = urlencode({name: value for name, value in asked.items() if value is not None})
    return f"{path}?{given}" if given else path


def reading(rule: ReadRule) -> dict[str, str | int | None]:
    """A read's rule as parameters."""
    latest = "true" if rule.freshness is Freshness.LATEST else None
    return {"latest": latest, "max_stale_ms": rule.max_stale_ms}


def asking(condition: Condition) -> tuple[dict[str, str], dict[str, str | int | None]]:
    """A write's condition as header fields and parameters."""
    headers = {"If-None-Match": "*"} if condition.absent else {}
    if condition.version is not None:
        headers["If-Match"] = f'"{condition.version}"'
    digest = condition.value_sha256
    return headers, {"if_value_sha256": None if digest is None else digest.hex()}


def token(key: bytes) -> str:
    """Base64url without padding."""
    return urlsafe_b64encode(key).rstrip(b"=").decode()


def said(answer: HttpAnswer) -> Any:
    """The JSON of an answer; ``Unavailable`` if it is none."""
    try:
        return json.loads(answer.body)
    except (ValueError, RecursionError) as error:
        raise stranger(answer) from error


def read_entry(key: bytes, answer: HttpAnswer) -> Entry:
    """A value with what its header fields say of it."""
    headers = answer.headers
    try:
        ends = headers.get(EXPIRES_MS.lower())
        return Entry(
            key,
            answer.body,
            int(headers["etag"].strip('"')),
            int(headers[STORED_MS.lower()]),
            None if ends is None else int(ends),
        )
    except (KeyError, ValueError) as error:
        raise stranger(answer) from error


def listed_entry(row: Mapping[str, Any]) -> Entry:
    """An entry of a list whose keys are in base64url. ``KeyError``, ``ValueError``, ``TypeError`` of anything else."""
    value = b64decode(row.get("value_base64", ""), validate=True)
    ends = row["expires_ms"]
    return Entry(
        key_of(row["key"]),
        value,
        int(row["version"]),
        int(row["stored_ms"]),
        None if ends is None else int(ends),
    )


def key_of(text: str) -> bytes:
    """The key that ``token`` wrote; ``ValueError`` of anything else."""
    return b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True)


def is_no_entry(answer: HttpAnswer) -> bool:
    """Whether an answer says that the namespace has no such key."""
    return answer.status == 404 and _problem(answer).get("type") == PROBLEM + NO_ENTRY


def failure(answer: HttpAnswer) -> TieredError:
    """The error that an answer is. Of 5xx without a word of its outcome, as of a proxy's, the outcome is unknown."""
    problem = _problem(answer)
    fields = {
        name: value
        for name, value in problem.items()
        if name not in _OF_PROBLEM and isinstance(value, str | int | None)
    }
    kind = str(problem.get("type", "")).removeprefix(PROBLEM)
    message = str(problem.get("detail") or f"the key-value server answered with status {answer.status}")[:500]
    hint = str(problem.get("fix") or "look at the server")[:500]
    if answer.status >= 500:
        fields.setdefault("outcome", UNKNOWN)
    made: type[TieredError]
    match answer.status:
        case 412 if kind == CONDITION_FAILED:
            made = Conflict
        case 409:
            made = Conflict
        case 401 | 403:
            made = Refused
        case 404:
            made = NotFound
        case _ if kind == DAMAGE:
            made = Corrupt
        case status if status in _PASSING:
            made = Unavailable
        case _:
            made = BadRequest
    error = made(message, hint=hint)
    error.fields |= fields or {"status": answer.status}
    return error


def stranger(answer: HttpAnswer) -> Unavailable:
    """An answer that no key-value server gives."""
    return Unavailable(
        "the answer is not a key-value server's",
        status=answer.status,
        found=ascii(answer.body[:60]),
        outcome=UNKNOWN,
        hint="name the address of kv.http_listen",
    )


def _problem(answer: HttpAnswer) -> dict[str, Any]:
    if not answer.headers.get("content-type", "").startswith("application/problem+json"):
        return {}
    try:
        found = json.loads(answer.body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
