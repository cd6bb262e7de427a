"""The key-value view for programs: each call waits for its answer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

from tiered.backoff import Backoff
from tiered.client.answers import (
    BASE64URL,
    asking,
    failure,
    is_no_entry,
    key_of,
    listed_entry,
    read_entry,
    reading,
    said,
    stranger,
    target,
    token,
)
from tiered.client.connections import HttpAnswer, HttpConnections
from tiered.clock import Clock, SystemClock
from tiered.errors import BadRequest, Conflict, Invalid, Unavailable
from tiered.keyvalue import (
    ALWAYS,
    AT_ONCE,
    MOST_KEYS,
    Condition,
    Entry,
    Freshness,
    KeyPage,
    ReadRule,
)

READ_TRIES = 3
UPDATE_TRIES = 16
LATEST = ReadRule(Freshness.LATEST)
_PAUSES = Backoff(0.05, 1.0)
_PASSING = (502, 503, 504)


class KeyValueClient:
    """Calls of one key-value server, ``url`` (``http://host:port``). For any thread.

    ``token``: ``kv.http_token``. ``timeout``: seconds for connecting, and for each wait for an answer; a server waits up to
    three times ``kv.timeout_ms`` before it says that it does not know, and whoever waits less knows less.

    Errors: ``Conflict``: the condition of a write did not hold (fields ``current``: the version that is there, ``None`` for no
    entry). ``NotFound``: no such namespace. ``Invalid``, ``Refused`` (also: the token). ``Corrupt``: the view lacks messages.
    ``Unavailable``: of a write its field ``outcome`` is ``not done`` or ``unknown``: then it may have taken effect, or may
    still, and only a read of the latest tells. A write is sent once and never again; a read up to ``READ_TRIES`` times.
    """

    def __init__(
        self, url: str, *, token: str = "", timeout: float = 20.0, clock: Clock | None = None
    ) -> None:
        if token and not (token.isprintable() and token == token.strip()):
            raise BadRequest("the token is not one", hint="give the value of kv.http_token")
        self._clock = clock or SystemClock()
        self._connections = HttpConnections(url, timeout, self._clock)
        self._headers: dict[str, str | bytes] = {"Accept": "*/*"}
        if token:
            self._headers["Authorization"] = b"Bearer " + token.encode()

    def __enter__(self) -> KeyValueClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End its idle connections."""
        self._connections.close()

    # ------------------------------------------------------------------ reads

    def get(self, namespace: str, key: bytes, rule: ReadRule = AT_ONCE) -> Entry | None:
        """The entry; ``None`` if there is none, or it has ended."""
        answer = self._read("GET", target(namespace, key, reading(rule)), None)
        if is_no_entry(answer):
            return None
        return read_entry(key, _good(answer))

    def get_many(self, namespace: str, keys: Sequence[bytes], rule: ReadRule = AT_ONCE) -> list[Entry | None]:
        """The entries of at most ``MOST_KEYS`` keys, in their order, all as of one moment."""
        body = json.dumps({"keys": [token(key) for key in keys]}).encode()
        answer = self._read("POST", target(namespace, query=reading(rule) | BASE64URL), body)
        rows = said(_good(answer))
        try:
            found = [None if row is None else listed_entry(row) for row in rows["entries"]]
        except (KeyError, ValueError, TypeError) as error:
            raise stranger(answer) from error
        if len(found) != len(keys):
            raise stranger(answer)
        return found

    def page(
        self,
        namespace: str,
        prefix: bytes = b"",
        *,
        after: bytes | None = None,
        count: int = MOST_KEYS,
        rule: ReadRule = AT_ONCE,
        keys_only: bool = False,
    ) -> KeyPage:
        """At most ``count`` entries with keys that begin with ``prefix``, behind ``after``. ``keys_only``: no values."""
        query = reading(rule) | {
            "prefix": token(prefix) or None,
            "after": None if after is None else token(after),
            "count": count,
            "keys_only": "true" if keys_only else None,
        }
        answer = self._read("GET", target(namespace, query=query | BASE64URL), None)
        made = said(_good(answer))
        try:
            behind = made["after"]
            return KeyPage(
                tuple(map(listed_entry, made["entries"])),
                None if behind is None else key_of(behind),
                int(made["applied"]),
            )
        except (KeyError, ValueError, TypeError) as error:
            raise stranger(answer) from error

    def entries(
        self,
        namespace: str,
        prefix: bytes = b"",
        *,
        after: bytes | None = None,
        rule: ReadRule = AT_ONCE,
        keys_only: bool = False,
        count: int = MOST_KEYS,
    ) -> Iterator[Entry]:
        """All entries with keys that begin with ``prefix``, ``count`` at a time; each page is as of its own moment."""
        while True:
            found = self.page(namespace, prefix, after=after, count=count, rule=rule, keys_only=keys_only)
            yield from found.entries
            if found.after is None:
                return
            after = found.after

    def namespaces(self) -> list[str]:
        """Namespaces that the view knows."""
        answer = self._read("GET", target(), None)
        return [str(name) for name in _member(answer, "namespaces", list)]

    # ------------------------------------------------------------------ writes

    def put(
        self,
        namespace: str,
        key: bytes,
        value: bytes,
        *,
        condition: Condition = ALWAYS,
        ttl_ms: int | None = None,
    ) -> int:
        """Put a value; its version. ``Conflict`` if the condition does not hold."""
        headers, query = asking(condition)
        return self._write("PUT", target(namespace, key, query | {"ttl_ms": ttl_ms}), value, headers)

    def delete(self, namespace: str, key: bytes, *, condition: Condition = ALWAYS) -> int:
        """Delete an entry, whether there is one or not; the version of the deletion. ``Conflict`` as of ``put``."""
        headers, query = asking(condition)
        return self._write("DELETE", target(namespace, key, query), None, headers)

    def create_if_absent(self, namespace: str, key: bytes, value: bytes, *, ttl_ms: int | None = None) -> int:
        """Put a value where there is no entry; its version, or ``Conflict``."""
        return self.put(namespace, key, value, condition=Condition(absent=True), ttl_ms=ttl_ms)

    def compare_and_set(
        self,
        namespace: str,
        key: bytes,
        value: bytes,
        *,
        version: int | None = None,
        expected: bytes | None = None,
        ttl_ms: int | None = None,
    ) -> int:
        """Put a value where the entry has this ``version``, or the value ``expected``, or both; ``Conflict`` if not."""
        condition = _compared(version, expected, "give version or expected; create_if_absent is for none")
        return self.put(namespace, key, value, condition=condition, ttl_ms=ttl_ms)

    def compare_and_delete(
        self, namespace: str, key: bytes, *, version: int | None = None, expected: bytes | None = None
    ) -> int:
        """Delete an entry that has this ``version``, or the value ``expected``, or both; ``Conflict`` if not."""
        condition = _compared(version, expected, "give version or expected; delete asks nothing")
        return self.delete(namespace, key, condition=condition)

    def update(
        self,
        namespace: str,
        key: bytes,
        function: Callable[[Entry | None], bytes | None],
        *,
        ttl_ms: int | None = None,
        tries: int = UPDATE_TRIES,
    ) -> int | None:
        """Put what ``function`` makes of the entry as it is now, unless somebody else writes it meanwhile: then again, at most
        ``tries`` times, with pauses that grow. The version; ``None`` if ``function`` said ``None``: nothing is written.

        ``Conflict``: others were faster each time. ``Unavailable``: it stops there; where the outcome is ``unknown`` the write
        may have taken effect, so whether to do it again is for the caller to know.
        """
        pauses = _PAUSES.pauses()
        for left in reversed(range(tries)):
            entry = self.get(namespace, key, LATEST)
            value = function(entry)
            if value is None:
                return None
            condition = Condition(absent=True) if entry is None else Condition(version=entry.version)
            try:
                return self.put(namespace, key, value, condition=condition, ttl_ms=ttl_ms)
            except Conflict:
                if not left:
                    raise
            self._clock.wait(next(pauses))
        raise Invalid("an update without a try", found=tries, expected="at least 1", hint="allow some")

    def create(self, namespace: str) -> bool:
        """Make a namespace; whether it was not there before."""
        answer = self._once("PUT", target(namespace), None, {})
        return bool(_member(answer, "created", bool))

    # ------------------------------------------------------------------ the wire

    def _write(self, method: str, where: str, body: bytes | None, headers: Mapping[str, str]) -> int:
        answer = self._once(method, where, body, headers)
        if _member(answer, "applied", bool) is not True:
            raise stranger(answer)
        return int(_member(answer, "version", int))

    def _once(self, method: str, where: str, body: bytes | None, headers: Mapping[str, str]) -> HttpAnswer:
        return self._connections.exchange(method, where, body, self._headers | dict(headers))

    def _read(self, method: str, where: str, body: bytes | None) -> HttpAnswer:
        """An answer to a read, which may be asked again: ``READ_TRIES`` in all."""
        pauses = _PAUSES.pauses()
        for _ in range(READ_TRIES - 1):
            try:
                answer = self._once(method, where, body, {})
            except Unavailable:
                pass
            else:
                if answer.status not in _PASSING:
                    return answer
            self._clock.wait(next(pauses))
        return self._once(method, where, body, {})


def _compared(version: int | None, expected: bytes | None, fix: str) -> Condition:
    digest = None if expected is None else hashlib.sha256(expected).digest()
    condition = Condition(version=version, value_sha256=digest)
    if not condition.given:
        raise Invalid("nothing to compare with", hint=fix)
    return condition


def _good(answer: HttpAnswer) -> HttpAnswer:
    if answer.status == 200:
        return answer
    raise failure(answer) if answer.status >= 400 else stranger(answer)


def _member(answer: HttpAnswer, name: str, kind: type) -> Any:
    """A member of an answer's JSON."""
    if answer.status not in (200, 201):
        _good(answer)
    found = said(answer)
    value = found.get(name) if isinstance(found, dict) else None
    if not isinstance(value, kind):
        raise stranger(answer)
    return value
