"""Failures as RFC 9457 has them: ``application/problem+json``, with members of our own.

``fix``: what to do. ``outcome``, of a write: ``not done`` if it certainly did not take effect and never will, ``unknown`` if
it may have, or may still. The fields of an error are members, too.
"""

from __future__ import annotations

from http import HTTPStatus

from starlette.responses import Response

from tiered.errors import Corrupt, TieredError, Unavailable
from tiered.http.refusals import HttpRefusal, dumped, http_status, refusal_headers
from tiered.keyvalue import CONDITION_FAILED, DAMAGE, NOT_DONE, PROBLEM, UNKNOWN, WriteOutcome

PROBLEM_JSON = "application/problem+json"


def problem(error: TieredError) -> Response:
    """The page of an error."""
    status = http_status(error)
    fields: dict[str, object] = {
        name: value if isinstance(value, int) or value is None else str(value)
        for name, value in error.fields.items()
    }
    if status < 500 or isinstance(error, HttpRefusal):  # of 500 and 504 it is not known how they ended
        fields.setdefault("outcome", NOT_DONE if status < 500 or status == 503 else UNKNOWN)
    kind = DAMAGE if isinstance(error, Corrupt) else str(fields.pop("problem", ""))
    kind = kind or HTTPStatus(status).phrase.lower().replace(" ", "-")
    headers = refusal_headers(error)
    if isinstance(error, Unavailable) and fields.get("outcome") != UNKNOWN:
        headers["Retry-After"] = "1"
    return _page(status, kind, error.message, fields | {"fix": error.hint or "ask again later"}, headers)


def failed_condition(outcome: WriteOutcome) -> Response:
    """The page of a write that did not take effect, because the entry was another."""
    there = outcome.current is not None
    fields: dict[str, object] = {
        "applied": False,
        "version": outcome.version,
        "current": outcome.current,
        "outcome": NOT_DONE,
        "fix": "read the entry, and decide again",
    }
    found = f"the entry has version {outcome.current}" if there else "there is no entry"
    headers = {"ETag": etag(outcome.current)} if outcome.current is not None else {}
    return _page(412, CONDITION_FAILED, f"the condition of the write did not hold: {found}", fields, headers)


def said_of_write(error: TieredError) -> TieredError:
    """``error``, with what is known of the write that it ended."""
    if http_status(error) >= 500:
        error.fields.setdefault("outcome", UNKNOWN)
    return error


def etag(version: int) -> str:
    """A version as an entity tag."""
    return f'"{version}"'


def _page(
    status: int, kind: str, detail: str, fields: dict[str, object], headers: dict[str, str]
) -> Response:
    members = fields | {
        "type": PROBLEM + kind, "title": kind.replace("-", " "), "status": status, "detail": detail,
    }  # fmt: skip
    return Response(dumped(members), status, {"Content-Type": PROBLEM_JSON} | headers)
