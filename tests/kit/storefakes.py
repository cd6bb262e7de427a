"""Stores that misbehave on purpose, as wrappers of a provider.

``Scripted`` loses answers or requests, ``Ignoring`` and ``Racing`` break create-only in the two ways seen in the wild.
What goes wrong on the wire is in ``fakes3``.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from tiered.codec.types import Buffer
from tiered.errors import Conflict, NotFound, TieredError, Unavailable
from tiered.provider.base import Provider, Stored
from tiered.provider.deleting import delete_each
from tiered.provider.wrap import Wrapped


class Scripted(Wrapped):
    """Before each verb the next word of the script decides: ``ok``, ``lost`` (it happens, the answer does not come),
    ``dropped`` (it does not happen), or an error to raise. After the script everything is ``ok``. ``calls`` tells what came."""

    def __init__(self, inner: Provider, script: Sequence[str | TieredError]) -> None:
        super().__init__(inner)
        self._script = deque(script)
        self._lock = threading.Lock()
        self.calls: list[tuple[str, str]] = []

    def _do(self, verb: str, key: str, act: Callable[[], Any]) -> Any:
        with self._lock:
            self.calls.append((verb, key))
            word = self._script.popleft() if self._script else "ok"
        if isinstance(word, TieredError):
            raise word
        if word == "dropped":
            raise Unavailable("dropped", key=key)
        if word == "lost":
            with suppress(TieredError):  # whatever it was, nobody hears of it
                act()
            raise Unavailable("lost", key=key)
        return act()

    def put(self, key: str, parts: Sequence[Buffer], *, create_only: bool = True) -> Stored:
        """By the script."""
        stored: Stored = self._do("put", key, lambda: self.inner.put(key, parts, create_only=create_only))
        return stored

    def get(self, key: str, start: int | None = None, length: int | None = None) -> Any:
        """By the script."""
        return self._do("get", key, lambda: self.inner.get(key, start, length))

    def head(self, key: str) -> Stored:
        """By the script."""
        stored: Stored = self._do("head", key, lambda: self.inner.head(key))
        return stored

    def delete(self, key: str) -> None:
        """By the script."""
        self._do("delete", key, lambda: self.inner.delete(key))

    def delete_many(self, keys: Sequence[str]) -> Mapping[str, TieredError]:
        """Each by the script."""
        return delete_each(self.delete, keys)


class Ignoring(Wrapped):
    """Ignores create-only, as some S3 servers ignore the header: every put wins."""

    def put(self, key: str, parts: Sequence[Buffer], *, create_only: bool = True) -> Stored:
        """Always overwrites."""
        return self.inner.put(key, parts, create_only=False)


class Racing(Wrapped):
    """Honours create-only for puts that come one after another, and lets all of a race win: it looks, then writes.

    The gap is a rendezvous of two racers that looked; a lone one goes on after ``patience`` seconds.
    """

    def __init__(self, inner: Provider, patience: float = 0.05) -> None:
        super().__init__(inner)
        self._patience = patience
        self._waiting: dict[str, threading.Event] = {}
        self._lock = threading.Lock()

    def put(self, key: str, parts: Sequence[Buffer], *, create_only: bool = True) -> Stored:
        """Look, let another one look too, write."""
        if create_only:
            try:
                self.inner.head(key)
            except NotFound:
                self._meet(key)
            else:
                raise Conflict("the key exists", key=key)
        return self.inner.put(key, parts, create_only=False)

    def _meet(self, key: str) -> None:
        with self._lock:
            other = self._waiting.pop(key, None)
            if other is None:
                mine = self._waiting[key] = threading.Event()
        if other is not None:
            other.set()
        else:
            mine.wait(self._patience)
