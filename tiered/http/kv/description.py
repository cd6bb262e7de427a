"""The description of the key-value view's addresses (OpenAPI 3.1, made from the routes)."""

from __future__ import annotations

from tiered.http.describing import Described, described, listing, operation, record, ref
from tiered.http.kv.pages import OCTETS
from tiered.http.kv.problems import PROBLEM_JSON
from tiered.http.kv.table import key_value_routes
from tiered.http.routes import PageRoute
from tiered.keyvalue import EXPIRES_MS, NOT_DONE, STALE_MS, STORED_MS, UNKNOWN


def openapi(max_value_bytes: int) -> Described:
    """The OpenAPI document."""
    return described(
        "Key-value view of a RocketMQ broker's log",
        "A put is a message in the broker's log, and its version the message's queue offset. Every failure is a problem"
        " (RFC 9457) with fix, and of a write with outcome: unknown means that it may have taken effect, or may still."
        " A failure of a write with a status of 500 or more without outcome, or no answer at all, means unknown.",
        ((route, _operation(route)) for route in key_value_routes(max_value_bytes)),
        {"Problem": _PROBLEM, "Entry": _ENTRY, "Write": _WRITE},
    )


def _operation(route: PageRoute) -> Described:
    bad = _answer("what was wrong", PROBLEM_JSON, ref("Problem"))
    if route.name == "get":
        good: Described = {
            "description": route.summary,
            "headers": {name: _header(text) for name, text in _TOLD.items()},
            "content": {OCTETS: {"schema": {}}},
        }
        return operation(route, {"200": good, "304": {"description": "the reader has it"}, "default": bad})
    responses: Described = {"200": _answer(route.summary, "application/json", _RESULTS[route.name])}
    if route.name in ("page", "get_many"):
        responses["200"] |= {"headers": {STALE_MS: _header(_TOLD[STALE_MS])}}  # type: ignore[operator]
    if route.name == "create":
        responses["201"] = _answer("it was made", "application/json", _RESULTS["create"])
    if route.name in ("put", "delete"):
        text = "the condition did not hold; current: the version that the entry has, null if there is none"
        responses["412"] = _answer(text, PROBLEM_JSON, ref("Problem"))
    return operation(route, responses | {"default": bad})


def _answer(text: str, kind: str, schema: Described) -> Described:
    return {"description": text, "content": {kind: {"schema": schema}}}


def _header(text: str) -> Described:
    return {"description": text, "schema": {"type": "string"}}


_WHOLE: Described = {"type": "integer"}
_STRING: Described = {"type": "string"}
_FLAG: Described = {"type": "boolean"}
_MAYBE: Described = {"type": ["integer", "null"]}
_TOLD = {
    "ETag": "the version in double quotes",
    STORED_MS: "when the broker stored it, ms since 1970",
    EXPIRES_MS: "when it ends, ms since 1970; absent: never",
    STALE_MS: "at most so many ms the answer is behind the end of what the view follows, the archive of one on a read node;"
    " absent: it was never there yet, or latest was asked for",
}
_PROBLEM = record(
    "type title status detail fix",
    type=_STRING, title=_STRING, status=_WHOLE, detail=_STRING, fix=_STRING,
    outcome={"type": "string", "enum": [NOT_DONE, UNKNOWN]}, current=_MAYBE, stale_ms=_WHOLE,
)  # fmt: skip
_ENTRY = record(
    "key version stored_ms expires_ms",
    key={"type": ["string", "null"]},
    key_base64url={**_STRING, "description": "a key that is not text, where text was asked for"},
    version=_WHOLE, stored_ms=_WHOLE, expires_ms=_MAYBE, value_base64=_STRING,
)  # fmt: skip
_WRITE = record("applied version", applied=_FLAG, version=_WHOLE)
_RESULTS: dict[str, Described] = {
    "openapi": {"type": "object"},
    "namespaces": record("namespaces", namespaces={"type": "array", "items": _STRING}),
    "page": record(
        "namespace applied entries after",
        namespace=_STRING, entries=listing("Entry"),
        applied={**_WHOLE, "description": "everything below this version was in the view"},
        after={"type": ["string", "null"], "description": "give it as after for what follows; null: nothing does"},
    ),
    "get_many": record(
        "namespace entries",
        namespace=_STRING, entries={"type": "array", "items": {"oneOf": [ref("Entry"), {"type": "null"}]}},
    ),
    "create": record("namespace created", namespace=_STRING, created=_FLAG),
    "put": ref("Write"),
    "delete": ref("Write"),
}  # fmt: skip
