"""Which addresses the key-value view has, and their parameters: declared once, for checks and description."""

from __future__ import annotations

from tiered.http.routes import PageRoute, Parameter, ParameterKind
from tiered.keyvalue import MAX_TTL_MS, MOST_KEYS
from tiered.settings import MIB

MOST_KEYS_BYTES = 8 * MIB
"""Largest list of keys: a thousand of the longest in base64."""
UTF8, BASE64URL = "utf-8", "base64url"

_NAMESPACE = Parameter("namespace", ParameterKind.TEXT, "name of the namespace", in_path=True, required=True)
_KEY = Parameter("key", ParameterKind.TEXT, "the key, percent-encoded: / is %2F", in_path=True, required=True)
_ENCODING = Parameter(
    "key_encoding",
    ParameterKind.TEXT,
    "how keys are written, in the address, in parameters and in JSON: base64url is for those that are not text",
    default=UTF8,
    choices=(UTF8, BASE64URL),
)
_LATEST = Parameter(
    "latest",
    ParameterKind.FLAG,
    "see every write that anybody was answered for before; absent: what the view has",
    default=False,
)
_STALE = Parameter(
    "max_stale_ms",
    ParameterKind.WHOLE,
    "fail if the view has not been at the log's end since so long; absent: however old",
)
_READING = (_ENCODING, _LATEST, _STALE)
_IF_VALUE = Parameter(
    "if_value_sha256",
    ParameterKind.TEXT,
    "takes effect only if the SHA-256 of the value is this one, 64 hex digits",
)
_TTL = Parameter(
    "ttl_ms",
    ParameterKind.WHOLE,
    "the entry ends so many ms after it was stored; absent: never",
    low=1,
    high=MAX_TTL_MS,
)
_CONDITIONS = (
    ("If-Match", 'takes effect only if the entry has this version, as in "42"'),
    ("If-None-Match", "*: takes effect only if there is no entry"),
)


def key_value_routes(max_value_bytes: int) -> tuple[PageRoute, ...]:
    """All of them, where a value has at most ``max_value_bytes``."""
    return (
        PageRoute("openapi", "/openapi.json", "This description."),
        PageRoute("namespaces", "/v1/kv", "Namespaces that the view knows, ascending."),
        PageRoute(
            "page",
            "/v1/kv/{namespace}",
            "Entries in the order of their keys' bytes.",
            (
                _NAMESPACE,
                Parameter("prefix", ParameterKind.TEXT, "only keys that begin with this"),
                Parameter("after", ParameterKind.TEXT, "only what follows: the after of the page before"),
                Parameter("count", ParameterKind.WHOLE, "most entries", default=100, low=1, high=MOST_KEYS),
                Parameter("keys_only", ParameterKind.FLAG, "without values", default=False),
                *_READING,
            ),
        ),
        PageRoute(
            "get_many",
            "/v1/kv/{namespace}",
            "Entries of several keys, the list keys of a JSON object, in its order, as of one moment; null for none.",
            (_NAMESPACE, *_READING),
            method="POST",
            body="application/json",
            most_body_bytes=MOST_KEYS_BYTES,
        ),
        PageRoute(
            "create",
            "/v1/kv/{namespace}",
            "Make the namespace, unless it is there.",
            (_NAMESPACE,),
            method="PUT",
        ),
        PageRoute(
            "get",
            "/v1/kv/{namespace}/{key}",
            "A value, as it was put. Its version is the entity tag.",
            (_NAMESPACE, _KEY, *_READING),
            headers=(("If-None-Match", "entity tags; 304 if the entry has one of them"),),
        ),
        PageRoute(
            "put",
            "/v1/kv/{namespace}/{key}",
            "Put a value. Answered when the view has it; its outcome is unknown where a failure says so.",
            (_NAMESPACE, _KEY, _ENCODING, _IF_VALUE, _TTL),
            method="PUT",
            headers=_CONDITIONS,
            body="application/octet-stream",
            most_body_bytes=max_value_bytes,
        ),
        PageRoute(
            "delete",
            "/v1/kv/{namespace}/{key}",
            "Delete an entry. One that is not there is no failure, unless something is asked of it.",
            (_NAMESPACE, _KEY, _ENCODING, _IF_VALUE),
            method="DELETE",
            headers=_CONDITIONS,
        ),
    )
