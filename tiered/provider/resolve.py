"""Settling a put of unknown outcome for objects that are ours alone (their key holds a fresh uuid).

Commits have rules of their own (``archive/log/writer.py``); a data object only needs to be there, with our bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tiered.codec.types import Buffer
from tiered.errors import Conflict, Denied, NotFound, Unavailable
from tiered.provider.base import Fetched, Provider, Stored
from tiered.provider.body import body_length, views

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
    holds something else, by "exists" and two reads that agree; ``Unavailable`` if ``rounds`` puts did not settle it,
    ``Denied`` at once.
    """
    length = body_length(parts)
    wanted = tail(parts, tail_bytes)
    for _ in range(rounds):
        try:
            return provider.put(key, parts)
        except Denied:
            raise
        except (Conflict, Unavailable) as error:
            failure = error
        unsettled = f"the put was never seen to happen: {failure.message}"
        try:
            found = provider.get(key, -tail_bytes)
            object_length = found.object_length
            if object_length is None:
                object_length = provider.head(key).length
            if object_length == length and (same(found) if same else found.data == wanted):
                modified_ms = found.date_ms if found.last_modified_ms is None else found.last_modified_ms
                return Stored(key, length, found.date_ms, modified_ms)
            unsettled = "what is read back is not what was put, and not the same each time"
            believed = isinstance(failure, Conflict) and _agrees(
                provider, key, found.data, object_length, tail_bytes
            )
        except NotFound:
            continue
        if believed:
            raise Conflict(
                "a key that should be ours alone holds something else",
                key=key,
                url=provider.url,
                expected=f"{length} bytes",
                found=f"{object_length} bytes",
            ) from failure
    raise Unavailable(
        unsettled, hint=failure.hint, **{**failure.fields, "key": key, "url": provider.url, "rounds": rounds}
    ) from failure


def _agrees(provider: Provider, key: str, data: Buffer, length: int, tail_bytes: int) -> bool:
    """Whether ``data`` is the end of the object when it is asked for in another way, too: a proxy that shortens or alters what
    it passes on does not give the same twice."""
    first = length - min(length, tail_bytes)
    if len(data) != length - first or provider.head(key).length != length:
        return False
    return bool(provider.get(key, first, length - first).data == data)


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
    mount = provider.capabilities.mount
    if mount is not None:
        mount.make_durable(key)


def create_root(provider: Provider) -> None:
    """Make the place that archives are made in, where that is more than a name (file systems: the root directory). Whoever
    creates an archive does so; a write never does."""
    root = provider.capabilities.root
    if root is not None:
        root.create_root()


def guard(provider: Provider, key: str, same: Callable[[bytes], bool]) -> None:
    """Have every access below the directory of ``key`` see first that ``key`` is there and that ``same`` says yes to its bytes,
    where a place can go away and leave an empty one under its name (POSIX: a mount point)."""
    mount = provider.capabilities.mount
    if mount is not None:
        mount.guard(key, same)


def bind(provider: Provider, key: str, needs: Sequence[str]) -> list[str]:
    """Have ``key`` put only where ``needs`` are, and return those that are not there now. Stores that cannot become another
    one under the same name need no such thing: they proved each object when they answered its put. A place that is away says so
    at the put."""
    mount = provider.capabilities.mount
    try:
        return [] if mount is None else mount.bind(key, needs)
    except Unavailable:
        return []


def ask_clock(provider: Provider, key: str) -> None:
    """Have the times that the provider answers with come from the store's clock, where no answer tells it (POSIX: the file
    server's, which differs from this host's on a network file system). ``key``: a place that the caller may write to."""
    mount = provider.capabilities.mount
    if mount is not None:
        mount.ask_clock(key)


def tidy(provider: Provider, prefix: str) -> None:
    """Remove what objects below ``prefix`` left behind when they were deleted (POSIX: empty directories, and a root that this
    process made)."""
    mount = provider.capabilities.mount
    if mount is not None:
        mount.tidy(prefix.rstrip("/"))


def sweep(provider: Provider, prefix: str) -> Iterator[int]:
    """Remove what writers that died left unfinished below ``prefix`` (POSIX: temporary files, a day old), a slice at a time;
    how many went. Object stores show no unfinished objects."""
    mount = provider.capabilities.mount
    if mount is not None:
        yield from mount.sweep(prefix.rstrip("/"))
