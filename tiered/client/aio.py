"""The key-value view for programs on asyncio.

Calls run in a few threads of the client's own, over ``sync``: one place knows what a request is and what an answer means,
Python's library has no HTTP client for asyncio, and a thread that waits for a broker's disk costs nothing beside that wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import TypeVar

from tiered.client.sync import UPDATE_TRIES, KeyValueClient
from tiered.clock import Clock
from tiered.keyvalue import ALWAYS, AT_ONCE, MOST_KEYS, Condition, Entry, KeyPage, ReadRule

_T = TypeVar("_T")


class AsyncKeyValueClient:
    """``KeyValueClient`` for one event loop, or several: the same calls, awaited, ``at_once`` of them at one time.

    Whoever cancels a write does not undo it: it is like one whose outcome is unknown.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str = "",
        timeout: float = 20.0,
        clock: Clock | None = None,
        at_once: int = 8,
    ) -> None:
        self._client = KeyValueClient(url, token=token, timeout=timeout, clock=clock)
        self._pool = ThreadPoolExecutor(at_once, "key-values")

    async def __aenter__(self) -> AsyncKeyValueClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Wait for calls that are under way, and end the connections."""
        await asyncio.to_thread(self._pool.shutdown)
        self._client.close()

    async def get(self, namespace: str, key: bytes, rule: ReadRule = AT_ONCE) -> Entry | None:
        """See ``KeyValueClient.get``."""
        return await self._run(self._client.get, namespace, key, rule)

    async def get_many(
        self, namespace: str, keys: Sequence[bytes], rule: ReadRule = AT_ONCE
    ) -> list[Entry | None]:
        """See ``KeyValueClient.get_many``."""
        return await self._run(self._client.get_many, namespace, keys, rule)

    async def page(
        self,
        namespace: str,
        prefix: bytes = b"",
        *,
        after: bytes | None = None,
        count: int = MOST_KEYS,
        rule: ReadRule = AT_ONCE,
        keys_only: bool = False,
    ) -> KeyPage:
        """See ``KeyValueClient.page``."""
        asked = partial(self._client.page, after=after, count=count, rule=rule, keys_only=keys_only)
        return await self._run(asked, namespace, prefix)

    async def entries(
        self,
        namespace: str,
        prefix: bytes = b"",
        *,
        after: bytes | None = None,
        rule: ReadRule = AT_ONCE,
        keys_only: bool = False,
        count: int = MOST_KEYS,
    ) -> AsyncIterator[Entry]:
        """See ``KeyValueClient.entries``."""
        while True:
            found = await self.page(
                namespace, prefix, after=after, count=count, rule=rule, keys_only=keys_only
            )
            for entry in found.entries:
                yield entry
            if found.after is None:
                return
            after = found.after

    async def namespaces(self) -> list[str]:
        """See ``KeyValueClient.namespaces``."""
        return await self._run(self._client.namespaces)

    async def put(
        self,
        namespace: str,
        key: bytes,
        value: bytes,
        *,
        condition: Condition = ALWAYS,
        ttl_ms: int | None = None,
    ) -> int:
        """See ``KeyValueClient.put``."""
        put = partial(self._client.put, condition=condition, ttl_ms=ttl_ms)
        return await self._run(put, namespace, key, value)

    async def delete(self, namespace: str, key: bytes, *, condition: Condition = ALWAYS) -> int:
        """See ``KeyValueClient.delete``."""
        return await self._run(partial(self._client.delete, condition=condition), namespace, key)

    async def create_if_absent(
        self, namespace: str, key: bytes, value: bytes, *, ttl_ms: int | None = None
    ) -> int:
        """See ``KeyValueClient.create_if_absent``."""
        create = partial(self._client.create_if_absent, ttl_ms=ttl_ms)
        return await self._run(create, namespace, key, value)

    async def compare_and_set(
        self,
        namespace: str,
        key: bytes,
        value: bytes,
        *,
        version: int | None = None,
        expected: bytes | None = None,
        ttl_ms: int | None = None,
    ) -> int:
        """See ``KeyValueClient.compare_and_set``."""
        asked = partial(self._client.compare_and_set, version=version, expected=expected, ttl_ms=ttl_ms)
        return await self._run(asked, namespace, key, value)

    async def compare_and_delete(
        self, namespace: str, key: bytes, *, version: int | None = None, expected: bytes | None = None
    ) -> int:
        """See ``KeyValueClient.compare_and_delete``."""
        asked = partial(self._client.compare_and_delete, version=version, expected=expected)
        return await self._run(asked, namespace, key)

    async def update(
        self,
        namespace: str,
        key: bytes,
        function: Callable[[Entry | None], bytes | None],
        *,
        ttl_ms: int | None = None,
        tries: int = UPDATE_TRIES,
    ) -> int | None:
        """See ``KeyValueClient.update``; ``function`` is called in a thread."""
        asked = partial(self._client.update, ttl_ms=ttl_ms, tries=tries)
        return await self._run(asked, namespace, key, function)

    async def create(self, namespace: str) -> bool:
        """See ``KeyValueClient.create``."""
        return await self._run(self._client.create, namespace)

    async def _run(self, call: Callable[..., _T], *arguments: object) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, partial(call, *arguments))
