"""The verbs of ``KeyValues`` over a view's HTTP pages, by ``http.client`` alone: nothing here is the product's own client.

A connection a thread, kept. What became of a write whose call failed is told as the pages tell it; where nobody answered, it
failed only if there was no connection at all.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
from base64 import b64decode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from tiered.errors import NotFound, TieredError, Unavailable
from tiered.keyvalue import ALWAYS, AT_ONCE, Condition, Entry, Freshness, KeyPage, ReadRule, WriteOutcome

ENCODED = {"key_encoding": "base64url"}
NOT_DONE, UNKNOWN = "not done", "unknown"
Answer = tuple[int, Mapping[str, str], bytes]


class HttpValues:
    """One view, at ``host:port``. For any thread; ``seconds``: the longest that a call may take."""

    def __init__(self, address: str, seconds: float = 30.0) -> None:
        self._address = address
        self._seconds = seconds
        self._own = threading.local()
        self._all: list[http.client.HTTPConnection] = []

    # ---- verbs

    def get(self, namespace: str, key: bytes, rule: ReadRule = AT_ONCE) -> Entry | None:
        """See ``KeyValues``."""
        status, headers, body = self._ask("GET", _path(namespace, key), _ruled(rule))
        if status == 404 and json.loads(body)["type"].endswith(":no-entry"):
            return None
        _good(status, body)
        expires = headers.get("kv-expires-ms")
        version, stored = int(headers["etag"].strip('"')), int(headers["kv-stored-ms"])
        return Entry(key, body, version, stored, None if expires is None else int(expires))

    def get_many(self, namespace: str, keys: Sequence[bytes], rule: ReadRule = AT_ONCE) -> list[Entry | None]:
        """See ``KeyValues``."""
        asked = json.dumps({"keys": [_text(key) for key in keys]}).encode()
        headers = {"Content-Type": "application/json"}
        status, _, body = self._ask("POST", _path(namespace), _ruled(rule), asked, headers)
        _good(status, body)
        return [None if told is None else _entry(told) for told in json.loads(body)["entries"]]

    def page(
        self, namespace: str, prefix: bytes, *, after: bytes | None, count: int, rule: ReadRule = AT_ONCE
    ) -> KeyPage:
        """See ``KeyValues``."""
        asked = _ruled(rule) | {"count": str(count)}
        asked |= {"prefix": _text(prefix)} if prefix else {}
        asked |= {"after": _text(after)} if after is not None else {}
        status, _, body = self._ask("GET", _path(namespace), asked)
        _good(status, body)
        told = json.loads(body)
        end = None if told["after"] is None else _bytes(told["after"])
        return KeyPage(tuple(map(_entry, told["entries"])), end, told["applied"])

    def put(
        self,
        namespace: str,
        key: bytes,
        value: bytes,
        *,
        condition: Condition = ALWAYS,
        ttl_ms: int | None = None,
    ) -> WriteOutcome:
        """See ``KeyValues``."""
        asked = {} if ttl_ms is None else {"ttl_ms": str(ttl_ms)}
        return self._write("PUT", namespace, key, condition, asked, value)

    def delete(self, namespace: str, key: bytes, *, condition: Condition = ALWAYS) -> WriteOutcome:
        """See ``KeyValues``."""
        return self._write("DELETE", namespace, key, condition, {}, None)

    def create(self, namespace: str) -> bool:
        """See ``KeyValues``."""
        status, _, body = self._ask("PUT", _path(namespace), {})
        _good(status, body)
        return bool(json.loads(body)["created"])

    def namespaces(self) -> list[str]:
        """See ``KeyValues``."""
        status, _, body = self._ask("GET", "/v1/kv", {})
        _good(status, body)
        return list(json.loads(body)["namespaces"])

    # ---- requests

    def _write(
        self,
        method: str,
        namespace: str,
        key: bytes,
        condition: Condition,
        asked: dict[str, str],
        value: bytes | None,
    ) -> WriteOutcome:
        headers = {"If-None-Match": "*"} if condition.absent else {}
        if condition.version is not None:
            headers["If-Match"] = f'"{condition.version}"'
        if condition.value_sha256 is not None:
            asked = asked | {"if_value_sha256": condition.value_sha256.hex()}
        status, _, body = self._ask(method, _path(namespace, key), asked | ENCODED, value, headers)
        if status != 412:
            _good(status, body)
        told = json.loads(body)
        return WriteOutcome(told["applied"], told["version"], told.get("current"))

    def _ask(
        self,
        method: str,
        path: str,
        asked: Mapping[str, str],
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        try:
            connection = self._connected()
        except OSError as error:
            raise Unavailable(f"no connection: {error}", outcome=NOT_DONE) from error
        try:
            connection.request(method, f"{path}?{urlencode(asked)}", body, dict(headers or {}))
            answer = connection.getresponse()
            found = (
                answer.status,
                {name.lower(): value for name, value in answer.headers.items()},
                answer.read(),
            )
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise Unavailable(f"no answer: {type(error).__name__}", outcome=UNKNOWN) from error
        if answer.will_close:
            self.close()
        return found

    def _connected(self) -> http.client.HTTPConnection:
        connection: http.client.HTTPConnection | None = getattr(self._own, "connection", None)
        if connection is None:
            host, _, port = self._address.partition(":")
            connection = http.client.HTTPConnection(host, int(port), timeout=self._seconds)
            try:
                connection.connect()
            except OSError:
                connection.close()
                raise
            self._own.connection = connection
            self._all.append(connection)
        return connection

    def close(self) -> None:
        """End this thread's connection."""
        connection, self._own.connection = getattr(self._own, "connection", None), None
        if connection is not None:
            self._all.remove(connection)
            with contextlib.suppress(OSError):
                connection.close()

    def close_all(self) -> None:
        """End the connections of all threads, none of which may ask any more."""
        while self._all:
            self._all.pop().close()


def _good(status: int, body: bytes) -> None:
    """Raise what a page that is none says. A failed write without a word about it is unknown."""
    if status < 300:
        return
    try:
        told: dict[str, Any] = json.loads(body)
    except ValueError:
        told = {}
    outcome = told.get("outcome", UNKNOWN if status >= 500 else NOT_DONE)
    kind: type[TieredError] = NotFound if status == 404 else Unavailable if status >= 500 else TieredError
    raise kind(f"{status} {told.get('detail', body[:200])}", outcome=outcome)


def _path(namespace: str, key: bytes | None = None) -> str:
    return f"/v1/kv/{namespace}" + ("" if key is None else f"/{_text(key)}")


def _ruled(rule: ReadRule) -> dict[str, str]:
    asked = dict(ENCODED)
    if rule.freshness is Freshness.LATEST:
        asked["latest"] = "true"
    if rule.max_stale_ms is not None:
        asked["max_stale_ms"] = str(rule.max_stale_ms)
    return asked


def _entry(told: Mapping[str, Any]) -> Entry:
    value = b64decode(told["value_base64"])
    return Entry(_bytes(told["key"]), value, told["version"], told["stored_ms"], told["expires_ms"])


def _text(key: bytes) -> str:
    return urlsafe_b64encode(key).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))
