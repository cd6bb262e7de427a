"""Wrappers of the provider port, each a provider again: retrying, throttled, metered.

``open.py`` stacks them as ``Retrying(Metered(Throttled(driver)))``: every try waits its turn and is counted, retries too, for a
store that pushes back must not be asked more often than one that answers. Every wrapper shows what it wraps as ``inner``.
"""

from __future__ import annotations

import random  # noqa: TID251 - the type of the chance that is passed in
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Protocol, TypeVar

from tiered.backoff import Backoff
from tiered.clock import Clock
from tiered.codec.types import Buffer
from tiered.errors import Conflict, Denied, Invalid, NotFound, TieredError, Unavailable, passes_soon
from tiered.provider.base import Capabilities, Fetched, Provider, Stored
from tiered.provider.body import body_length

PAGE_KEYS = 1000
"""Listed keys that count as one request."""

Result = TypeVar("Result")


class RequestObserver(Protocol):
    """Hears of every request to the store; the metrics are one."""

    def request(self, verb: str, outcome: str, bytes_sent: int, bytes_received: int, seconds: float) -> None:
        """``verb``: put, get, head, list, delete. ``outcome``: ok, not_found, conflict, denied, unavailable, invalid, error.
        Each try is a request. ``seconds`` include waiting for the throttle; bytes are body bytes."""
        ...


def system_random() -> random.Random:
    """Chance for production: seeded by the operating system. Tests pass their own."""
    return random.Random()


class Wrapped:
    """A provider that passes every verb on to the wrapped one, each inside ``around``: wrappers override what they change."""

    def __init__(self, inner: Provider) -> None:
        self.inner = inner

    @property
    def url(self) -> str:
        """The wrapped provider's."""
        return self.inner.url

    @property
    def capabilities(self) -> Capabilities:
        """The wrapped provider's."""
        return self.inner.capabilities

    def around(self) -> AbstractContextManager[None]:
        """What stands around each request that is passed on; by default nothing."""
        return nullcontext()

    def put(self, key: str, parts: Sequence[Buffer], *, create_only: bool = True) -> Stored:
        with self.around():
            return self.inner.put(key, parts, create_only=create_only)

    def get(self, key: str, start: int | None = None, length: int | None = None) -> Fetched:
        with self.around():
            return self.inner.get(key, start, length)

    def head(self, key: str) -> Stored:
        with self.around():
            return self.inner.head(key)

    def list(
        self, prefix: str, *, start_after: str | None = None, limit: int | None = None
    ) -> Iterator[Stored]:
        with self.around():
            yield from self.inner.list(prefix, start_after=start_after, limit=limit)

    def delete(self, key: str) -> None:
        with self.around():
            self.inner.delete(key)

    def delete_many(self, keys: Sequence[str]) -> Mapping[str, TieredError]:
        with self.around():
            return self.inner.delete_many(keys)

    def close(self) -> None:
        """Close the wrapped provider."""
        self.inner.close()


class Retrying(Wrapped):
    """Tries again after ``Unavailable``: ``attempts`` in all, pauses doubling from ``base_ms`` to ``max_ms`` with full jitter.
    Not after ``Denied``: who asks is the same a moment later, and whoever waits is to hear why soon.

    A create-only put of unknown outcome that then meets an existing object may have met itself. It raises ``Conflict`` with
    ``after_unknown=True`` (a field and an attribute): only reading back can tell, which is the caller's part. A read that
    was refused first says so in ``Fetched.refused``: a store that slows its clients down would otherwise not be noticed.
    """

    def __init__(
        self,
        inner: Provider,
        clock: Clock,
        chance: random.Random,
        *,
        attempts: int,
        base_ms: int,
        max_ms: int,
        stop: threading.Event | None = None,
    ) -> None:
        super().__init__(inner)
        self._clock = clock
        self._chance = chance
        self._attempts = attempts
        self._backoff = Backoff(base_ms / 1000, max_ms / 1000)
        self._stop = stop

    def put(self, key: str, parts: Sequence[Buffer], *, create_only: bool = True) -> Stored:
        """See ``Provider.put``, and the class for ``Conflict``."""
        failures = 0

        def attempt() -> Stored:
            nonlocal failures
            try:
                return self.inner.put(key, parts, create_only=create_only)
            except Unavailable as error:
                failures += passes_soon(error)
                raise
            except Conflict as conflict:
                if failures:
                    mark_after_unknown(conflict)
                raise

        return self._retry(attempt)

    def get(self, key: str, start: int | None = None, length: int | None = None) -> Fetched:
        """See ``Provider.get``, and the class for ``refused``."""
        refused = -1

        def attempt() -> Fetched:
            nonlocal refused
            refused += 1
            return self.inner.get(key, start, length)

        fetched = self._retry(attempt)
        return replace(fetched, refused=refused) if refused else fetched

    def head(self, key: str) -> Stored:
        return self._retry(lambda: self.inner.head(key))

    def list(
        self, prefix: str, *, start_after: str | None = None, limit: int | None = None
    ) -> Iterator[Stored]:
        """See ``Provider.list``; a listing that breaks goes on after the last key it gave."""
        after, remaining, tries = start_after, limit, 0
        while remaining is None or remaining > 0:
            try:
                for stored in self.inner.list(prefix, start_after=after, limit=remaining):
                    yield stored
                    if after is None or stored.key > after:  # else it does not get on
                        after, tries = stored.key, 0
                    remaining = None if remaining is None else remaining - 1
                return
            except Unavailable as error:
                tries += 1
                self._pause(tries, error)

    def delete(self, key: str) -> None:
        self._retry(lambda: self.inner.delete(key))

    def delete_many(self, keys: Sequence[str]) -> Mapping[str, TieredError]:
        """See ``Provider.delete_many``; only what failed and may pass is asked for again. Nothing is raised."""
        failed: dict[str, TieredError] = {}
        left, tries = list(keys), 0
        while left:
            try:
                answers = self.inner.delete_many(left)
            except TieredError as error:
                answers = dict.fromkeys(left, error)
            failed.update(answers)
            passing = [(key, error) for key, error in answers.items() if passes_soon(error)]
            left = [key for key, _ in passing]
            tries += 1
            try:
                if left:
                    self._pause(tries, passing[0][1])
            except Unavailable:
                return failed
            for key in left:
                del failed[key]
        return failed

    def _retry(self, attempt: Callable[[], Result]) -> Result:
        tries = 0
        while True:
            try:
                return attempt()
            except Unavailable as error:
                tries += 1
                self._pause(tries, error)

    def _pause(self, tries: int, error: TieredError) -> None:
        """Wait before the next try, or raise the error when there is none."""
        if not passes_soon(error):
            raise error
        if tries >= self._attempts:
            error.fields["attempts"] = tries
            raise error
        if self._clock.wait(self._chance.uniform(0, self._backoff.seconds(tries)), self._stop):
            error.fields["attempts"] = tries
            raise error


def mark_after_unknown(conflict: Conflict) -> None:
    """Say on a conflict that it may be our own earlier try."""
    conflict.fields["after_unknown"] = True
    vars(conflict)["after_unknown"] = True


def is_after_unknown(conflict: Conflict) -> bool:
    """True if the conflict may be our own earlier try."""
    return bool(conflict.fields.get("after_unknown"))


class TokenBucket:
    """Paces to ``rate`` units a second with a burst of one second's worth. Requests larger than that pass and leave a debt."""

    def __init__(self, rate: float, clock: Clock) -> None:
        self._rate = rate
        self._clock = clock
        self._tokens = rate
        self._refilled = clock.monotonic()
        self._lock = threading.Lock()

    def take(self, units: int) -> float:
        """Take units; the seconds to wait before going on (0 while there are enough)."""
        with self._lock:
            now = self._clock.monotonic()
            self._tokens = min(self._rate, self._tokens + (now - self._refilled) * self._rate)
            self._refilled = now
            # A caller that takes into the debt waits until it is worked off, so that callers go one after another.
            self._tokens -= units
            return max(0.0, -self._tokens / self._rate)


class Throttled(Wrapped):
    """Limits bytes a second (both directions together) and requests a second; 0 is no limit.

    An upload, and a range of known length, wait before they start; bytes whose number only the answer tells are a debt that
    the next caller waits for. A listing counts as one request per 1,000 keys.
    """

    def __init__(
        self,
        inner: Provider,
        clock: Clock,
        *,
        bytes_per_second: int,
        requests_per_second: int,
        stop: threading.Event | None = None,
    ) -> None:
        super().__init__(inner)
        self._clock = clock
        self._stop = stop
        self._bytes = TokenBucket(bytes_per_second, clock) if bytes_per_second else None
        self._requests = TokenBucket(requests_per_second, clock) if requests_per_second else None

    def put(self, key: str, parts: Sequence[Buffer], *, create_only: bool = True) -> Stored:
        self._enter(body_length(parts) if self._bytes else 0)
        return self.inner.put(key, parts, create_only=create_only)

    def get(self, key: str, start: int | None = None, length: int | None = None) -> Fetched:
        asked = length if length is not None else -start if start is not None and start < 0 else 0
        self._enter(asked)
        fetched = self.inner.get(key, start, length)
        if self._bytes and len(fetched.data) > asked:
            self._bytes.take(len(fetched.data) - asked)
        return fetched

    def head(self, key: str) -> Stored:
        self._enter(0)
        return self.inner.head(key)

    def list(
        self, prefix: str, *, start_after: str | None = None, limit: int | None = None
    ) -> Iterator[Stored]:
        for count, stored in enumerate(self.inner.list(prefix, start_after=start_after, limit=limit)):
            if count % PAGE_KEYS == 0:
                self._enter(0)
            yield stored

    def delete(self, key: str) -> None:
        self._enter(0)
        self.inner.delete(key)

    def delete_many(self, keys: Sequence[str]) -> Mapping[str, TieredError]:
        for _ in range(-(-len(keys) // self.capabilities.delete_keys)):
            self._enter(0)
        return self.inner.delete_many(keys)

    def _enter(self, body_bytes: int) -> None:
        seconds = 0.0
        if self._requests:
            seconds = self._requests.take(1)
        if self._bytes and body_bytes:
            seconds = max(seconds, self._bytes.take(body_bytes))
        if seconds > 0 and self._clock.wait(seconds, self._stop):
            raise Unavailable("stopped while waiting for the throttle; this try was not sent", url=self.url)


class Metered(Wrapped):
    """Tells an observer of every request: verb, outcome, body bytes, seconds."""

    def __init__(self, inner: Provider, observer: RequestObserver, clock: Clock) -> None:
        super().__init__(inner)
        self._observer = observer
        self._clock = clock

    def put(self, key: str, parts: Sequence[Buffer], *, create_only: bool = True) -> Stored:
        sent = body_length(parts)
        return self._measure("put", lambda: self.inner.put(key, parts, create_only=create_only), sent)

    def get(self, key: str, start: int | None = None, length: int | None = None) -> Fetched:
        return self._measure("get", lambda: self.inner.get(key, start, length))

    def head(self, key: str) -> Stored:
        return self._measure("head", lambda: self.inner.head(key))

    def list(
        self, prefix: str, *, start_after: str | None = None, limit: int | None = None
    ) -> Iterator[Stored]:
        """See ``Provider.list``; counted when it ends or is left, with the time its consumer took."""
        began = self._clock.monotonic()
        outcome = "ok"
        try:
            yield from self.inner.list(prefix, start_after=start_after, limit=limit)
        except TieredError as error:
            outcome = outcome_of(error)
            raise
        finally:
            self._observer.request("list", outcome, 0, 0, self._clock.monotonic() - began)

    def delete(self, key: str) -> None:
        self._measure("delete", lambda: self.inner.delete(key))

    def delete_many(self, keys: Sequence[str]) -> Mapping[str, TieredError]:
        """See ``Provider.delete_many``; counted as one request, of the outcome of the first key that is not gone."""
        began = self._clock.monotonic()
        outcome = "error"
        try:
            failed = self.inner.delete_many(keys)
            outcome = next((outcome_of(error) for error in failed.values()), "ok")
            return failed
        except TieredError as error:
            outcome = outcome_of(error)
            raise
        finally:
            self._observer.request("delete", outcome, 0, 0, self._clock.monotonic() - began)

    def _measure(self, verb: str, request: Callable[[], Result], bytes_sent: int = 0) -> Result:
        began = self._clock.monotonic()
        outcome, received = "error", 0
        try:
            result = request()
            outcome = "ok"
            if isinstance(result, Fetched):
                received = len(result.data)
            return result
        except TieredError as error:
            outcome = outcome_of(error)
            raise
        finally:
            self._observer.request(verb, outcome, bytes_sent, received, self._clock.monotonic() - began)


def outcome_of(error: TieredError) -> str:
    """The metrics label of an error."""
    kinds = (
        (NotFound, "not_found"),
        (Conflict, "conflict"),
        (Denied, "denied"),
        (Unavailable, "unavailable"),
        (Invalid, "invalid"),
    )
    return next((label for kind, label in kinds if isinstance(error, kind)), "error")
