"""The key-value view as a read node has it: made from the archive, for reading what is there.

A node follows the archive, which is behind the broker's log by what is not committed yet. So it never answers a read of the
latest, nor takes a write: whoever asks for either is told where to go.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Sequence
from dataclasses import replace

from tiered.errors import Refused
from tiered.keyvalue import (
    ALWAYS,
    AT_ONCE,
    NOT_DONE,
    READ_ONLY,
    Condition,
    Entry,
    Freshness,
    KeyPage,
    KeyValues,
    ReadRule,
    WriteOutcome,
)

_LOOK = "a view beside the broker (tiered kv serve, at its kv.http_listen, or a gateway with gateway.kv_url)"


class ArchiveValues:
    """``KeyValues`` of a view that follows the archive. ``view``: it, or ``Unavailable`` while it is not open. ``writer``: the
    URL where writes and reads of the latest go; empty: those who ask are told what to look for."""

    def __init__(self, view: Callable[[], KeyValues], writer: str) -> None:
        self._view = view
        self._there = writer or _LOOK

    def get(self, namespace: str, key: bytes, rule: ReadRule = AT_ONCE) -> Entry | None:
        """See ``KeyValues``."""
        return self._readable(rule).get(namespace, key, rule)

    def get_many(self, namespace: str, keys: Sequence[bytes], rule: ReadRule = AT_ONCE) -> list[Entry | None]:
        """See ``KeyValues``."""
        return self._readable(rule).get_many(namespace, keys, rule)

    def page(
        self, namespace: str, prefix: bytes, *, after: bytes | None, count: int, rule: ReadRule = AT_ONCE
    ) -> KeyPage:
        """See ``KeyValues``."""
        return self._readable(rule).page(namespace, prefix, after=after, count=count, rule=rule)

    def namespaces(self) -> list[str]:
        """See ``KeyValues``."""
        return self._view().namespaces()

    def put(
        self,
        namespace: str,
        key: bytes,
        value: bytes,
        *,
        condition: Condition = ALWAYS,
        ttl_ms: int | None = None,
    ) -> WriteOutcome:
        """``Refused``."""
        raise self._no_write()

    def delete(self, namespace: str, key: bytes, *, condition: Condition = ALWAYS) -> WriteOutcome:
        """``Refused``."""
        raise self._no_write()

    def create(self, namespace: str) -> bool:
        """``Refused``."""
        raise self._no_write()

    def _readable(self, rule: ReadRule) -> KeyValues:
        if rule.freshness is Freshness.LATEST:
            raise Refused(
                "a read node does not answer reads of the latest: it follows the archive, and does not see the log's end",
                hint=f"ask {self._there}, or here for what the archive has, with max_stale_ms for a bound",
                problem=READ_ONLY,
            )
        return self._view()

    def _no_write(self) -> Refused:
        return Refused(
            "a read node takes no writes: nothing was written", outcome=NOT_DONE, problem=READ_ONLY,
            hint=f"write to {self._there}",
        )  # fmt: skip


class LocalCalls:
    """``ViewCalls`` of values in this process. ``wanted``: the token that must be shown; empty: none."""

    def __init__(self, values: ArchiveValues, wanted: str, shown: str) -> None:
        self._values = values
        self._good = not wanted or hmac.compare_digest(wanted.encode(), shown.encode())

    def get(self, namespace: str, key: bytes, rule: ReadRule) -> Entry | None:
        """See ``KeyValues``; like all of them ``Refused`` without the token."""
        return self._allowed().get(namespace, key, rule)

    def get_many(self, namespace: str, keys: Sequence[bytes], rule: ReadRule) -> list[Entry | None]:
        """See ``KeyValues``."""
        return self._allowed().get_many(namespace, keys, rule)

    def page(
        self,
        namespace: str,
        prefix: bytes,
        *,
        after: bytes | None,
        count: int,
        rule: ReadRule,
        keys_only: bool,
    ) -> KeyPage:
        """See ``KeyValues``. ``keys_only``: values are left out."""
        found = self._allowed().page(namespace, prefix, after=after, count=count, rule=rule)
        if keys_only:
            return replace(found, entries=tuple(replace(entry, value=b"") for entry in found.entries))
        return found

    def put(
        self, namespace: str, key: bytes, value: bytes, *, condition: Condition, ttl_ms: int | None
    ) -> int:
        """``Refused``."""
        return self._allowed().put(namespace, key, value, condition=condition, ttl_ms=ttl_ms).version

    def delete(self, namespace: str, key: bytes, *, condition: Condition) -> int:
        """``Refused``."""
        return self._allowed().delete(namespace, key, condition=condition).version

    def create(self, namespace: str) -> bool:
        """``Refused``."""
        return self._allowed().create(namespace)

    def close(self) -> None:
        """There is no connection."""

    def _allowed(self) -> ArchiveValues:
        if not self._good:
            raise Refused(
                "the token is not kv.http_token", outcome=NOT_DONE, hint="give it in the field token"
            )
        return self._values
