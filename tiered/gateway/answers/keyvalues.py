"""The door to the key-value view on the remoting protocol: requests that the gateway answers itself, by asking the view.

The broker never sees them. Who may do what is the view's to say: a client's token goes on to it as it came. Without
``gateway.kv_url`` no code is taken, and the broker answers as it answers whatever it does not know.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Protocol

from cachetools import LRUCache

from tiered.codec.remoting.codes import ResponseCode
from tiered.codec.remoting.frame import RESPONSE, Command
from tiered.codec.remoting.keyvalue import (
    NO_VERSION,
    KeyValueAnswer,
    KeyValueCode,
    KeyValueFields,
    ListedEntry,
    encoded,
    pack_listed,
    unpack_keys,
)
from tiered.errors import BadRequest, Conflict, Corrupt, NotFound, Refused, TieredError
from tiered.gateway.reply import MAX_REMARK
from tiered.keyvalue import UNKNOWN, Condition, Entry, Freshness, KeyPage, ReadRule
from tiered.metrics import Metrics
from tiered.settings import MIB

log = logging.getLogger("tiered.gateway")

MOST_AT_ONCE = 64
"""Calls of the view under way; one more is told to come again."""
LISTED_BYTES = 4 * MIB
"""At which the body of a list ends, behind the entry that reaches it; what follows is another list."""
_MOST_TOKENS = 64

_TOLD = frozenset({ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND})
"""What says how an entry is."""
_WRITES = frozenset({KeyValueCode.PUT, KeyValueCode.DELETE, KeyValueCode.CREATE})


class ViewCalls(Protocol):
    """What the door asks: ``KeyValueClient``, or who answers in its place."""

    def get(self, namespace: str, key: bytes, rule: ReadRule) -> Entry | None: ...

    def get_many(self, namespace: str, keys: Sequence[bytes], rule: ReadRule) -> list[Entry | None]: ...

    def page(
        self,
        namespace: str,
        prefix: bytes,
        *,
        after: bytes | None,
        count: int,
        rule: ReadRule,
        keys_only: bool,
    ) -> KeyPage: ...

    def put(
        self, namespace: str, key: bytes, value: bytes, *, condition: Condition, ttl_ms: int | None
    ) -> int: ...

    def delete(self, namespace: str, key: bytes, *, condition: Condition) -> int: ...

    def create(self, namespace: str) -> bool: ...

    def close(self) -> None: ...


_Call = Callable[[ViewCalls, KeyValueFields, bytes], Command]


class _Clients(LRUCache[str, ViewCalls]):
    """Clients by their token. One that goes ends its idle connections; a call under way keeps its own."""

    def __delitem__(self, token: str) -> None:
        client = self[token]
        super().__delitem__(token)
        client.close()


class KeyValueDoor:
    """Answers requests of ``codes``. On the event loop only; ``pool`` waits for the view."""

    codes: frozenset[int] = frozenset(map(int, KeyValueCode))

    def __init__(
        self,
        connect: Callable[[str], ViewCalls],
        pool: Executor,
        metrics: Metrics,
        stale_ms: Callable[[], int | None] = lambda: None,
        value_bytes: int = 64 * MIB,
        topic_prefix: str = "",
    ) -> None:
        """``connect`` makes a client of the view that shows a token; ``""``: none. ``stale_ms``: how old an answer to a read
        that is made now may be, as clients are told; ``None``: they are told nothing. ``value_bytes``: of the largest value.
        ``topic_prefix``: a namespace's topic is this and its name."""
        self._value_bytes, self._topic_prefix = value_bytes, topic_prefix
        self._connect = connect
        self._stale_ms = stale_ms
        self._pool = pool
        self._metrics = metrics
        self._clients = _Clients(_MOST_TOKENS)
        self._at_once = 0

    def close(self) -> None:
        """End the connections that nobody uses."""
        for token in list(self._clients):
            del self._clients[token]

    def topic(self, request: Command) -> str:
        """The topic that is read: for whose turn it is."""
        return self._topic_prefix + request.ext.get("namespace", "")

    def most_bytes(self, request: Command) -> int:
        """The most that an answer's body may have."""
        if request.code in _WRITES:
            return 0
        return self._value_bytes + (0 if request.code == KeyValueCode.GET else LISTED_BYTES)

    async def answer(self, request: Command) -> Command:
        """The answer, whatever is asked; its opaque and encoding are the request's."""
        made = await self._made(request)
        kind = KeyValueCode(request.code).name.lower()
        self._metrics.gateway_key_values.labels(kind, str(made.code)).inc()
        made.opaque, made.flag, made.binary = request.opaque, RESPONSE, request.binary
        made.version, made.language = request.version, request.language
        return made

    async def _made(self, request: Command) -> Command:
        if self._at_once >= MOST_AT_ONCE:
            return _said(
                ResponseCode.SYSTEM_BUSY, f"{MOST_AT_ONCE} calls of the key-value view are under way"
            )
        try:
            fields = KeyValueFields.parse(request.ext)
            client = self._client(fields.token)
        except BadRequest as error:
            return _said(ResponseCode.SYSTEM_ERROR, error.told)
        call, body = _CALLS[KeyValueCode(request.code)], bytes(request.body)
        stale_ms = self._stale_ms()  # before it is read: what is read is not older
        self._at_once += 1
        try:
            made = await asyncio.wrap_future(
                self._pool.submit(_called, call, client, fields, body, request.code)
            )
            if stale_ms is not None and request.code not in _WRITES and made.code in _TOLD:
                made.ext["staleMs"] = str(stale_ms)
            return made
        except RuntimeError:  # the pool is closed
            return _said(ResponseCode.SYSTEM_BUSY, "the gateway stops")
        finally:
            self._at_once -= 1

    def _client(self, token: str) -> ViewCalls:
        found = self._clients.get(token)
        if found is None:
            found = self._clients[token] = self._connect(token)
        return found


def _called(call: _Call, client: ViewCalls, fields: KeyValueFields, body: bytes, code: int) -> Command:
    """A call, in the pool: its answer, or what its error is as one."""
    try:
        return call(client, fields, body)
    except TieredError as error:
        return _failed(error, writes=code in _WRITES)
    except Exception as error:
        log.exception("a call of the key-value view failed")
        if code in _WRITES:
            return _unknown(f"the gateway failed: {type(error).__name__}")
        return _said(ResponseCode.SYSTEM_ERROR, f"the gateway failed: {type(error).__name__}")


def _failed(error: TieredError, *, writes: bool) -> Command:
    """An error of the view, as clients of RocketMQ hear it. Of a write that may have taken effect nothing else is said."""
    match error:
        case Conflict():
            made = _said(KeyValueAnswer.CONDITION_FAILED, str(error))
            current = error.fields.get("current")
            if current is not None:
                made.ext["currentVersion"] = str(current)
            return made
        case _ if writes and error.fields.get("outcome") == UNKNOWN:
            return _unknown(error.told)
        case NotFound():
            return _said(ResponseCode.TOPIC_NOT_EXIST, str(error))
        case Refused():
            return _said(ResponseCode.NO_PERMISSION, str(error))
        case BadRequest() | Corrupt():
            return _said(ResponseCode.SYSTEM_ERROR, error.told)
    return _said(ResponseCode.SYSTEM_BUSY, error.told)


def _put(client: ViewCalls, fields: KeyValueFields, body: bytes) -> Command:
    version = client.put(
        fields.namespace, fields.key, body, condition=_condition(fields), ttl_ms=fields.ttl_ms
    )
    return _done(version=version)


def _delete(client: ViewCalls, fields: KeyValueFields, body: bytes) -> Command:
    return _done(version=client.delete(fields.namespace, fields.key, condition=_condition(fields)))


def _get(client: ViewCalls, fields: KeyValueFields, body: bytes) -> Command:
    found = client.get(fields.namespace, fields.key, _rule(fields))
    if found is None:
        return _said(ResponseCode.QUERY_NOT_FOUND, "there is no entry with this key")
    made = _done(version=found.version, storedMs=found.stored_ms)
    if found.expires_ms is not None:
        made.ext["expiresMs"] = str(found.expires_ms)
    made.body = found.value
    return made


def _get_many(client: ViewCalls, fields: KeyValueFields, body: bytes) -> Command:
    keys = unpack_keys(body)
    found = client.get_many(fields.namespace, keys, _rule(fields))
    size = sum(len(key) for key in keys) + sum(len(entry.value) for entry in found if entry is not None)
    if size > LISTED_BYTES and len(keys) > 1:  # a part of them would not be as of one moment with the rest
        raise BadRequest(
            "the entries of these keys are too many bytes for one answer", expected=f"at most {LISTED_BYTES} bytes",
            hint="ask for fewer keys at once",
        )  # fmt: skip
    made = _done(count=len(found))
    made.body = b"".join(pack_listed(map(_row, keys, found)))
    return made


def _row(key: bytes, entry: Entry | None) -> ListedEntry:
    if entry is None:
        return ListedEntry(key, b"", NO_VERSION, 0, None)
    return ListedEntry(key, entry.value, entry.version, entry.stored_ms, entry.expires_ms)


def _list(client: ViewCalls, fields: KeyValueFields, body: bytes) -> Command:
    page = client.page(
        fields.namespace,
        fields.prefix,
        after=fields.after,
        count=fields.count,
        rule=_rule(fields),
        keys_only=fields.keys_only,
    )
    taken = _within(page.entries)
    made = _done(count=len(taken), applied=page.applied)
    after = page.after if len(taken) == len(page.entries) else taken[-1].key
    if after is not None:
        made.ext["after"] = encoded(after)
    made.body = b"".join(pack_listed(_row(one.key, one) for one in taken))
    return made


def _within(entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
    """The first ones, up to that which reaches ``LISTED_BYTES``."""
    size = 0
    for number, entry in enumerate(entries, 1):
        size += len(entry.key) + len(entry.value)
        if size >= LISTED_BYTES:
            return entries[:number]
    return entries


def _create(client: ViewCalls, fields: KeyValueFields, body: bytes) -> Command:
    made = _done()
    made.ext["created"] = str(client.create(fields.namespace)).lower()
    return made


_CALLS: dict[KeyValueCode, _Call] = {
    KeyValueCode.PUT: _put,
    KeyValueCode.GET: _get,
    KeyValueCode.DELETE: _delete,
    KeyValueCode.LIST: _list,
    KeyValueCode.CREATE: _create,
    KeyValueCode.GET_MANY: _get_many,
}


def _condition(fields: KeyValueFields) -> Condition:
    return Condition(absent=fields.absent, version=fields.if_version, value_sha256=fields.if_sha256)


def _rule(fields: KeyValueFields) -> ReadRule:
    return ReadRule(Freshness.LATEST if fields.latest else Freshness.ANY, fields.max_stale_ms)


def _done(**numbers: int) -> Command:
    return Command(ResponseCode.SUCCESS, ext={name: str(value) for name, value in numbers.items()})


def _said(code: int, why: str) -> Command:
    return Command(int(code), remark=f"[kv] {why}"[:MAX_REMARK])


def _unknown(why: str) -> Command:
    return _said(KeyValueAnswer.OUTCOME_UNKNOWN, f"the outcome is unknown: read the key to see it: {why}")
