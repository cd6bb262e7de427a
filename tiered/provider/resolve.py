"""Settling a put of unknown outcome for objects that are ours alone (their key holds a fresh uuid).

Commits have rules of their own (``archive/log.py``); a data object only needs to be there, with our bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tiered.errors import Conflict, NotFound, Unavailable
from tiered.provider.base import Buffer, Fetched, Provider, Stored
from tiered.provider.body import body_length, views
from tiered.provider.posix import PosixProvider
from tiered.provider.wrap import driver_key, driver_of

TAIL_BYTES = 256
"""Bytes read back from the end of an object: more than any footer, which holds an object's id and checksums."""

ROUNDS = 4
"""Puts tried before the outcome is reported unavailable; each is already retried by the provider's wrapper."""


def put_own(
    provider: Provider,
    key: str,
    parts: Sequence[Buffer],
    *,
    same: Callable[[Fetched], bool] | None = None,
    tail_bytes: int = TAIL_BYTES,
    rounds: int = ROUNDS,
) -> Stored:
    """Put bytes under a key that nobody else would use, until they are known to be there.

    After "exists" or an unknown outcome the object's last ``tail_bytes`` are read back: the right length and ``same`` (by
    default: equal to our own last bytes) mean success, an absent object is sent again. Raises ``Conflict`` if the key
    holds something else, ``Unavailable`` if ``rounds`` puts did not settle it.
    """
    length = body_length(parts)
    wanted = tail(parts, tail_bytes)
    for left in range(rounds - 1, -1, -1):
        try:
            return provider.put(key, parts)
        except (Conflict, Unavailable) as error:
            failure = error
        try:
            found = provider.get(key, -tail_bytes)
        except NotFound:
            if left:
                continue
            raise Unavailable(
                "the put was never seen to happen", key=key, url=provider.url, rounds=rounds
            ) from failure
        object_length = found.object_length if found.object_length is not None else provider.head(key).length
        if object_length == length and (same(found) if same else found.data == wanted):
            modified_ms = found.date_ms if found.last_modified_ms is None else found.last_modified_ms
            return Stored(key, length, found.date_ms, modified_ms)
        raise Conflict(
            "a key that should be ours alone holds something else",
            key=key,
            url=provider.url,
            expected=f"{length} bytes",
            found=f"{object_length} bytes",
        ) from failure
    raise ValueError("rounds must be at least 1")


def tail(parts: Sequence[Buffer], count: int) -> bytes:
    """The last ``count`` bytes of the concatenation (all of a shorter one)."""
    pieces: list[memoryview] = []
    for view in reversed(views(parts)):
        if count <= 0:
            break
        pieces.append(view[-count:])
        count -= pieces[-1].nbytes
    return b"".join(reversed(pieces))


def make_durable(provider: Provider, key: str) -> None:
    """Make an existing object survive a power cut of its store, where that is not what success means anyway (POSIX: fsync
    of file and directory). An opener does so with the head before it builds on it."""
    driver = driver_of(provider)
    if isinstance(driver, PosixProvider):
        driver.make_durable(driver_key(provider, key))
