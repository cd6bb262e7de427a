"""The driver that keeps objects in memory: for tests and demonstrations, gone with the process."""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Mapping, Sequence

from tiered.clock import Clock
from tiered.codec.types import Buffer
from tiered.errors import Conflict, Invalid, NotFound, TieredError
from tiered.provider.base import Capabilities, Fetched, Stored
from tiered.provider.body import joined
from tiered.provider.deleting import delete_each
from tiered.provider.naming import check_key, check_prefix, check_range, slice_range


class MemoryObjects:
    """The objects themselves, shared by every provider opened on them. All access under ``lock``."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.objects: dict[bytes, tuple[bytes, int]] = {}  # UTF-8 key -> (data, last modified ms)
        self.keys: list[bytes] = []  # sorted


_named: dict[str, MemoryObjects] = {}
_named_lock = threading.Lock()


def named_objects(name: str) -> MemoryObjects:
    """The objects behind ``memory://name``: the same for everyone in this process; a new one each time for an empty name."""
    if not name:
        return MemoryObjects()
    with _named_lock:
        return _named.setdefault(name, MemoryObjects())


class MemoryProvider:
    """Objects in memory; the store's clock is ``clock``. Thread-safe, linearisable."""

    def __init__(self, name: str, clock: Clock, objects: MemoryObjects | None = None) -> None:
        self._name = name
        self._clock = clock
        self._shared = MemoryObjects() if objects is None else objects
        self._closed = False

    @property
    def url(self) -> str:
        """``memory://name``."""
        return f"memory://{self._name}"

    @property
    def capabilities(self) -> Capabilities:
        """Everything but multipart uploads."""
        return Capabilities(create_only=True, suffix_range=True, ordered_listing=True, multipart=False)

    def put(self, key: str, parts: Sequence[Buffer], *, create_only: bool = True) -> Stored:
        name = self._check(key)
        data = joined(parts)
        with self._shared.lock:
            now_ms = self._clock.now_ms()
            if name in self._shared.objects:
                if create_only:
                    raise Conflict("the key exists", key=key, url=self.url)
            else:
                self._refuse_nesting(key, name)
                insort(self._shared.keys, name)
            self._shared.objects[name] = (data, now_ms)
        return Stored(key, len(data), now_ms, now_ms)

    def get(self, key: str, start: int | None = None, length: int | None = None) -> Fetched:
        name = self._check(key)
        first, count = check_range(key, start, length)
        with self._shared.lock:
            data, modified_ms = self._find(key, name)
        begin, end = slice_range(first, count, len(data))
        return Fetched(data[begin:end], len(data), self._clock.now_ms(), modified_ms)

    def head(self, key: str) -> Stored:
        name = self._check(key)
        with self._shared.lock:
            data, modified_ms = self._find(key, name)
        return Stored(key, len(data), self._clock.now_ms(), modified_ms)

    def list(
        self, prefix: str, *, start_after: str | None = None, limit: int | None = None
    ) -> Iterator[Stored]:
        """See ``Provider.list``; a view of the moment it is asked for."""
        self._check_open()
        start = check_prefix(prefix).encode()
        with self._shared.lock:
            keys = self._shared.keys
            at = bisect_left(keys, start)
            if start_after is not None:
                at = max(at, bisect_right(keys, start_after.encode()))
            found: list[Stored] = []
            now_ms = self._clock.now_ms()
            while at < len(keys) and keys[at].startswith(start) and (limit is None or len(found) < limit):
                data, modified_ms = self._shared.objects[keys[at]]
                found.append(Stored(keys[at].decode(), len(data), now_ms, modified_ms))
                at += 1
        return iter(found)

    def delete(self, key: str) -> None:
        name = self._check(key)
        with self._shared.lock:
            if self._shared.objects.pop(name, None) is not None:
                del self._shared.keys[bisect_left(self._shared.keys, name)]

    def delete_many(self, keys: Sequence[str]) -> Mapping[str, TieredError]:
        return delete_each(self.delete, keys)

    def close(self) -> None:
        """Further verbs are errors; the objects stay for other providers of the same name."""
        self._closed = True

    def _check(self, key: str) -> bytes:
        self._check_open()
        return check_key(key).encode()

    def _check_open(self) -> None:
        if self._closed:
            raise Invalid("the provider is closed", url=self.url)

    def _find(self, key: str, name: bytes) -> tuple[bytes, int]:
        try:
            return self._shared.objects[name]
        except KeyError:
            raise NotFound("no such object", key=key, url=self.url) from None

    def _refuse_nesting(self, key: str, name: bytes) -> None:
        # Stores that lie on a file system cannot hold a key below another one; being as strict here finds that early.
        segments = name.split(b"/")
        above = (b"/".join(segments[:depth]) for depth in range(1, len(segments)))
        at = bisect_left(self._shared.keys, name + b"/")
        below = at < len(self._shared.keys) and self._shared.keys[at].startswith(name + b"/")
        if below or any(ancestor in self._shared.objects for ancestor in above):
            raise Invalid("a key must not be a directory of another", key=key, url=self.url)
