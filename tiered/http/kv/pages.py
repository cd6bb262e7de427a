"""What the addresses answer: each a call of ``KeyValues``. Synchronous; the server calls it in a pool."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

from starlette.datastructures import Headers
from starlette.responses import Response

from tiered.errors import TieredError
from tiered.http.app import page
from tiered.http.kv.conditions import has_already, write_condition
from tiered.http.kv.keys import entry_fields, from_token, key_bytes, listed_keys, token
from tiered.http.kv.problems import etag, failed_condition, said_of_write
from tiered.http.refusals import JSON, HttpRefusal, dumped
from tiered.http.routes import Values
from tiered.keyvalue import (
    EXPIRES_MS,
    NO_ENTRY,
    STORED_MS,
    Entry,
    Freshness,
    KeyValues,
    ReadRule,
    WriteOutcome,
    check_key,
    check_namespace,
)

OCTETS = "application/octet-stream"
_T = TypeVar("_T")


class KeyValuePages:
    """The answers of one view. For any thread."""

    def __init__(self, key_values: KeyValues) -> None:
        self._key_values = key_values

    def answer(self, name: str, values: Values, headers: Headers, body: bytes) -> Response:
        """What the route ``name`` answers. Raises only ``TieredError``s of the view and ``HttpRefusal``."""
        if name == "namespaces":
            return page(200, JSON, dumped({"namespaces": self._key_values.namespaces()}))
        namespace = check_namespace(str(values["namespace"]))
        match name:
            case "page":
                return self._page(namespace, values)
            case "get_many":
                return self._get_many(namespace, values, body)
            case "create":
                return self._create(namespace)
        key = check_key(key_bytes("key", str(values["key"]), values))
        if name == "get":
            return self._get(namespace, key, values, headers)
        condition = write_condition(headers, cast("str | None", values["if_value_sha256"]))
        if name == "delete":
            outcome = _written(lambda: self._key_values.delete(namespace, key, condition=condition))
            return _applied(outcome, {})
        ttl_ms = cast("int | None", values["ttl_ms"])
        outcome = _written(
            lambda: self._key_values.put(namespace, key, body, condition=condition, ttl_ms=ttl_ms)
        )
        return _applied(outcome, {"ETag": etag(outcome.version)})

    def _get(self, namespace: str, key: bytes, values: Values, headers: Headers) -> Response:
        entry = self._key_values.get(namespace, key, _rule(values))
        if entry is None:
            raise HttpRefusal(
                404,
                "there is no entry with this key",
                namespace=namespace,
                problem=NO_ENTRY,
                hint="list keys with /v1/kv/" + namespace,
            )
        told = _told_of(entry)
        if has_already(headers, entry.version):
            return Response(b"", 304, told)
        return page(200, OCTETS, entry.value, told)

    def _page(self, namespace: str, values: Values) -> Response:
        prefix, after = cast("str | None", values["prefix"]), cast("str | None", values["after"])
        found = self._key_values.page(
            namespace,
            b"" if prefix is None else key_bytes("prefix", prefix, values),
            after=None if after is None else check_key(from_token("after", after)),
            count=cast("int", values["count"]),
            rule=_rule(values),
        )
        said = {
            "namespace": namespace,
            "applied": found.applied,
            "entries": [entry_fields(entry, values) for entry in found.entries],
            "after": None if found.after is None else token(found.after),
        }
        return page(200, JSON, dumped(said))

    def _get_many(self, namespace: str, values: Values, body: bytes) -> Response:
        found = self._key_values.get_many(namespace, listed_keys(body, values), _rule(values))
        entries = [None if entry is None else entry_fields(entry, values) for entry in found]
        return page(200, JSON, dumped({"namespace": namespace, "entries": entries}))

    def _create(self, namespace: str) -> Response:
        created = _written(lambda: self._key_values.create(namespace))
        return page(201 if created else 200, JSON, dumped({"namespace": namespace, "created": created}))


def _written(call: Callable[[], _T]) -> _T:
    """What a write returns; its failure says what became of it."""
    try:
        return call()
    except TieredError as error:
        raise said_of_write(error) from error.__cause__


def _applied(outcome: WriteOutcome, headers: dict[str, str]) -> Response:
    if not outcome.applied:
        return failed_condition(outcome)
    return page(200, JSON, dumped({"applied": True, "version": outcome.version}), headers)


def _told_of(entry: Entry) -> dict[str, str]:
    told = {"ETag": etag(entry.version), STORED_MS: str(entry.stored_ms)}
    return told if entry.expires_ms is None else told | {EXPIRES_MS: str(entry.expires_ms)}


def _rule(values: Values) -> ReadRule:
    freshness = Freshness.LATEST if values["latest"] else Freshness.ANY
    return ReadRule(freshness, cast("int | None", values["max_stale_ms"]))
