"""Requests that are refused, and errors as pages show them."""

from __future__ import annotations

import json

from starlette.responses import Response

from tiered.errors import BadRequest, Conflict, Invalid, NotFound, Refused, TieredError, Unavailable

JSON = "application/json; charset=utf-8"
TEXT = "text/plain; charset=utf-8"


class HttpRefusal(BadRequest):
    """A request that is answered with an error ``status``. ``close``: the connection cannot be used on."""

    def __init__(
        self, status: int, message: str, *, hint: str, close: bool = False, allow: str = "", **fields: object
    ) -> None:
        super().__init__(message, hint=hint, **fields)
        self.status = status
        self.close = close
        self.allow = allow


def bad_request(message: str, *, hint: str, close: bool = True, **fields: object) -> HttpRefusal:
    """A request that cannot be understood: 400."""
    made = HttpRefusal(400, message, hint=hint, close=close)
    made.fields |= fields
    return made


def refused_parameter(
    parameter: str, value: object, expected: str, fix: str, *, status: int = 400
) -> HttpRefusal:
    """The refusal of one parameter: which, what it was, what it may be, what to do."""
    shown = value[:80] if isinstance(value, str) else value
    return HttpRefusal(
        status,
        f"the parameter {parameter} is {'missing' if value is None else 'not usable'}",
        parameter=parameter,
        value=shown,
        expected=expected,
        hint=fix,
    )


def http_status(error: TieredError) -> int:
    """The HTTP status of an error."""
    match error:
        case HttpRefusal():
            return error.status
        case Refused():
            return 403
        case BadRequest():
            return 400
        case NotFound():
            return 404
        case Conflict():
            return 409
        case Unavailable() | Invalid():
            return 503
        case _:
            return 500


def error_fields(error: TieredError) -> dict[str, object]:
    """An error as JSON shows it: what, where (the fields it carries), and what fixes it."""
    status = http_status(error)
    fields = {name: value if isinstance(value, int) else str(value) for name, value in error.fields.items()}
    if status == 503:  # the operator's: they may name the bucket and its keys
        return {"status": status, "message": error.told, "fix": "ask again later"}
    return {"status": status, "message": error.message, **fields, "fix": error.hint or "ask again later"}


def json_refusal(error: TieredError) -> Response:
    """The JSON page of an error."""
    body = dumped({"error": error_fields(error)})
    made = Response(body, http_status(error), {"Content-Type": JSON} | refusal_headers(error))
    if http_status(error) == 503:
        made.headers["Retry-After"] = "1"
    return made


def text_refusal(error: TieredError) -> Response:
    """One line of text for an error."""
    status = error.status if isinstance(error, HttpRefusal) else 503
    return Response(f"{error}\n", status, {"Content-Type": TEXT} | refusal_headers(error))


def refusal_headers(error: TieredError) -> dict[str, str]:
    """What a refusal says beside its page."""
    if not isinstance(error, HttpRefusal):
        return {}
    made = {"Allow": error.allow} if error.allow else {}
    if error.status == 401:
        made["WWW-Authenticate"] = "Bearer"
    if error.close:
        made["Connection"] = "close"
    return made


def dumped(value: object) -> bytes:
    """A JSON value and a line end."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
