"""Retrying, throttling, metering: each alone and in their order, on a clock that does not sleep."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence

import pytest

from tests.kit.storefakes import Scripted
from tiered.clock import ManualClock
from tiered.errors import Conflict, Denied, Invalid, NotFound, TieredError, Unavailable
from tiered.provider.base import Provider
from tiered.provider.memory import MemoryProvider
from tiered.provider.open import open_provider
from tiered.provider.resolve import put_own
from tiered.provider.wrap import Metered, Retrying, Throttled, Wrapped, is_after_unknown
from tiered.settings import Store


class Seen:
    """A ``RequestObserver`` that remembers."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, int, int]] = []
        self.seconds: list[float] = []

    def request(self, verb: str, outcome: str, bytes_sent: int, bytes_received: int, seconds: float) -> None:
        self.requests.append((verb, outcome, bytes_sent, bytes_received))
        self.seconds.append(seconds)


def retrying(inner: Provider, clock: ManualClock, attempts: int = 4, **more: object) -> Retrying:
    return Retrying(inner, clock, random.Random(1), attempts=attempts, base_ms=100, max_ms=1000, **more)  # type: ignore[arg-type]


def test_retrying_is_bounded_and_says_how_often() -> None:
    clock = ManualClock()
    fake = Scripted(MemoryProvider("", clock), ["dropped"] * 100)
    with pytest.raises(Unavailable) as caught:
        retrying(fake, clock).put("k", [b"x"])
    assert len(fake.calls) == 4
    assert caught.value.fields["attempts"] == 4


def test_pauses_double_with_full_jitter_up_to_the_longest() -> None:
    class Waits(ManualClock):
        def __init__(self) -> None:
            super().__init__()
            self.waits: list[float] = []

        def wait(self, seconds: float, event: threading.Event | None = None) -> bool:
            self.waits.append(seconds)
            return super().wait(seconds, event)

    totals = [0.0] * 7
    for seed in range(200):
        clock = Waits()
        fake = Scripted(MemoryProvider("", clock), ["dropped"] * 7)
        Retrying(fake, clock, random.Random(seed), attempts=9, base_ms=100, max_ms=1000).put("k", [b"x"])
        ceilings = [0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0]
        assert all(0 <= wait <= ceiling for wait, ceiling in zip(clock.waits, ceilings, strict=True))
        totals = [total + wait for total, wait in zip(totals, clock.waits, strict=True)]
    assert all(0.4 * c < total / 200 < 0.6 * c for total, c in zip(totals, ceilings, strict=True)), (
        "uniform from zero"
    )


def test_a_stop_ends_the_waiting() -> None:
    clock, stop = ManualClock(), threading.Event()
    fake = Scripted(MemoryProvider("", clock), ["dropped"] * 9)
    stop.set()
    with pytest.raises(Unavailable):
        retrying(fake, clock, stop=stop).head("k")
    assert len(fake.calls) == 1


def test_a_read_says_how_often_it_was_refused_before() -> None:
    clock = ManualClock()
    stored = MemoryProvider("", clock)
    stored.put("k", [b"x"])
    fake = Scripted(stored, ["dropped", "dropped", "ok"])
    paced = Throttled(fake, clock, bytes_per_second=0, requests_per_second=0)
    provider = retrying(Metered(paced, Seen(), clock), clock)
    assert provider.get("k").refused == 2
    assert provider.get("k").refused == 0


@pytest.mark.parametrize("error", [NotFound("x"), Conflict("x"), Invalid("x"), Denied("x")])
def test_other_errors_are_not_retried(error: Exception) -> None:
    clock = ManualClock()
    fake = Scripted(MemoryProvider("", clock), [error])  # type: ignore[list-item]
    with pytest.raises(type(error)):
        retrying(fake, clock).get("k")
    assert len(fake.calls) == 1


def test_conflict_after_an_unknown_try_is_marked_and_a_first_one_is_not() -> None:
    clock = ManualClock()
    with pytest.raises(Conflict) as caught:
        retrying(Scripted(MemoryProvider("", clock), ["lost"]), clock).put("k", [b"x"])
    assert is_after_unknown(caught.value)
    memory = MemoryProvider("", clock)
    memory.put("k", [b"x"])
    with pytest.raises(Conflict) as plain:
        retrying(memory, clock).put("k", [b"x"])
    assert not is_after_unknown(plain.value)


def test_who_is_refused_hears_it_at_once_and_with_the_reason() -> None:
    clock, keys = ManualClock(), [f"k/{n}" for n in range(3)]
    refused = Denied("the token has expired", hint="renew it")
    fake = Scripted(MemoryProvider("", clock), [refused] * 4)
    with pytest.raises(Denied, match="renew it"):
        put_own(retrying(fake, clock), "k", [b"x"])
    assert retrying(fake, clock).delete_many(keys) == dict.fromkeys(keys, refused)
    assert [verb for verb, _ in fake.calls] == ["put", *["delete"] * 3]
    assert clock.monotonic() == 0


def test_a_replacing_put_and_a_delete_are_simply_done_again() -> None:
    clock = ManualClock()
    memory = MemoryProvider("", clock)
    retrying(Scripted(memory, ["lost", "lost"]), clock).put("k", [b"x"], create_only=False)
    assert memory.get("k").data == b"x"
    retrying(Scripted(memory, ["lost", "dropped"]), clock).delete("k")
    assert list(memory.list("")) == []


def test_a_broken_listing_goes_on_where_it_was() -> None:
    clock = ManualClock()
    memory = MemoryProvider("", clock)
    keys = [f"k/{number}" for number in range(10)]
    for key in keys:
        memory.put(key, [b"x"])

    class Breaking(Scripted):
        left = 3

        def list(self, prefix: str, *, start_after: str | None = None, limit: int | None = None):  # type: ignore[no-untyped-def]
            for count, stored in enumerate(self.inner.list(prefix, start_after=start_after, limit=limit)):
                if count == 2 and self.left:
                    self.left -= 1
                    raise Unavailable("broken")
                yield stored

    assert [stored.key for stored in retrying(Breaking(memory, []), clock, attempts=2).list("k/")] == keys
    assert [
        stored.key for stored in retrying(Breaking(memory, []), clock).list("k/", start_after="k/1", limit=5)
    ] == keys[2:7]
    with pytest.raises(Unavailable):
        list(retrying(Breaking(memory, []), clock, attempts=1).list("k/"))


def test_throttled_bytes_take_the_time_they_should() -> None:
    clock = ManualClock()
    slow = Throttled(MemoryProvider("", clock), clock, bytes_per_second=1000, requests_per_second=0)
    for number in range(11):
        slow.put(f"k/{number}", [b"x" * 500])
    assert clock.monotonic() == pytest.approx(4.5)  # a burst of one second's worth is free
    slow.put("large", [b"x" * 5000])  # larger than the burst: passes, with its debt
    assert clock.monotonic() == pytest.approx(9.5)
    slow.get("large")  # its length is known afterwards
    slow.head("large")
    assert clock.monotonic() == pytest.approx(9.5)
    slow.get("k/1", 0, 100)  # pays for the one before, too
    assert clock.monotonic() == pytest.approx(14.6)


def test_throttled_requests() -> None:
    clock = ManualClock()
    slow = Throttled(MemoryProvider("", clock), clock, bytes_per_second=0, requests_per_second=5)
    slow.put("k", [b"x"])
    for _ in range(14):
        slow.head("k")
    slow.delete("k")
    list(slow.list(""))
    assert clock.monotonic() == pytest.approx((16 - 5) / 5)


def test_a_stop_ends_the_throttle_before_anything_is_sent() -> None:
    clock, stop = ManualClock(), threading.Event()
    memory = MemoryProvider("", clock)
    slow = Throttled(memory, clock, bytes_per_second=10, requests_per_second=0, stop=stop)
    stop.set()
    with pytest.raises(Unavailable):
        slow.put("k", [b"x" * 100])
    assert list(memory.list("")) == []


def test_metered_counts_every_outcome() -> None:
    clock, seen = ManualClock(), Seen()
    provider = Metered(Scripted(MemoryProvider("", clock), []), seen, clock)
    provider.put("k", [b"abc", b"de"])
    with pytest.raises(Conflict):
        provider.put("k", [b"abcdef"])
    provider.get("k", 1, 3)
    provider.head("k")
    list(provider.list(""))
    next(provider.list("")).key  # noqa: B018 - left early
    with pytest.raises(NotFound):
        provider.get("nope")
    with pytest.raises(Invalid):
        provider.head("")
    provider.delete("k")
    assert seen.requests == [
        ("put", "ok", 5, 0),
        ("put", "conflict", 6, 0),
        ("get", "ok", 0, 3),
        ("head", "ok", 0, 0),
        ("list", "ok", 0, 0),
        ("list", "ok", 0, 0),
        ("get", "not_found", 0, 0),
        ("head", "invalid", 0, 0),
        ("delete", "ok", 0, 0),
    ]


def stacked(script: list[str | TieredError], clock: ManualClock, seen: Seen, **limits: int) -> Provider:
    """What ``open_provider`` makes over a store in memory that answers by script."""
    store = Store(attempts=4, retry_base_ms=1, retry_max_ms=1, **limits)
    return open_provider(
        "memory://", store, clock, observer=seen, each_try=lambda driver: Scripted(driver, script)
    )


def test_every_try_is_counted_by_its_own_outcome_and_its_own_time() -> None:
    clock, seen = ManualClock(), Seen()
    stacked(["dropped", "dropped"], clock, seen).put("k", [b"x"])
    assert seen.requests == [("put", "unavailable", 1, 0), ("put", "unavailable", 1, 0), ("put", "ok", 1, 0)]
    assert seen.seconds == [0, 0, 0], "the pauses between tries are no request"


def test_a_retry_waits_for_its_turn_as_any_request() -> None:
    """Just when a store pushes back it must not be asked more often."""
    clock, seen = ManualClock(), Seen()
    store = stacked(["dropped"] * 3, clock, seen, max_requests_per_second=1)
    store.put("k", [b"x"])
    assert clock.monotonic() == pytest.approx(3, abs=0.01), "four tries, of which the first is free"
    clock, seen = ManualClock(), Seen()
    store = stacked(["lost", "dropped"], clock, seen, max_bytes_per_second=1000)
    store.put("k", [bytes(1000)], create_only=False)
    assert clock.monotonic() == pytest.approx(2, abs=0.01), "the bytes of each try"


def test_a_listing_that_goes_on_waits_for_its_turn() -> None:
    clock, seen = ManualClock(), Seen()

    class Breaking(Wrapped):
        left = 3

        def list(self, prefix: str, *, start_after: str | None = None, limit: int | None = None):  # type: ignore[no-untyped-def]
            for stored in self.inner.list(prefix, start_after=start_after, limit=limit):
                yield stored
                if self.left:
                    self.left -= 1
                    raise Unavailable("broken")

    memory = MemoryProvider("", clock)
    keys = [f"k/{number}" for number in range(6)]
    for key in keys:
        memory.put(key, [b"x"])
    store = Store(attempts=2, retry_base_ms=1, retry_max_ms=1, max_requests_per_second=1)
    listed = open_provider("memory://", store, clock, observer=seen, each_try=lambda _: Breaking(memory))
    assert [stored.key for stored in listed.list("k/")] == keys
    assert [request[:2] for request in seen.requests] == [("list", "unavailable")] * 3 + [("list", "ok")]
    assert clock.monotonic() == pytest.approx(3, abs=0.01)


def test_wrappers_may_be_shared_by_threads() -> None:
    clock, seen = ManualClock(), Seen()
    memory = MemoryProvider("", clock)
    paced = Throttled(memory, clock, bytes_per_second=1000, requests_per_second=100)
    provider = retrying(Metered(paced, seen, clock), clock)
    threads = [
        threading.Thread(target=lambda t=t: [provider.put(f"{t}/{n}", [b"x"]) for n in range(50)])
        for t in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(list(memory.list(""))) == 400
    assert len(seen.requests) == 400


class Thirds(MemoryProvider):
    """A batch of deletions in which every third key meets a 503, and ``kept`` may not be deleted."""

    kept = ""
    count = 0
    asked: list[int]

    def delete_many(self, keys: Sequence[str]) -> dict[str, TieredError]:
        self.asked.append(len(keys))
        failed: dict[str, TieredError] = {}
        for key in keys:
            self.count += 1
            if key == self.kept:
                failed[key] = Invalid("no right", key=key)
            elif self.count % 3 == 0:
                failed[key] = Unavailable("503", key=key)
            else:
                self.delete(key)
        return failed


def thirds(clock: ManualClock, keys: Sequence[str]) -> Thirds:
    store = Thirds("", clock)
    store.asked = []
    for key in keys:
        store.put(key, [b"x"])
    return store


def test_of_a_batch_that_is_half_done_only_what_may_pass_is_asked_for_again() -> None:
    clock, keys = ManualClock(), [f"k/{n}" for n in range(9)]
    store = thirds(clock, keys)
    store.kept = "k/1"
    failed = retrying(store, clock).delete_many(keys)
    assert {key: type(error) for key, error in failed.items()} == {"k/1": Invalid}
    assert [s.key for s in store.list("k/")] == ["k/1"]
    assert store.asked == [9, 3, 1]


def test_what_stays_unavailable_is_said_key_by_key() -> None:
    clock, keys = ManualClock(), [f"k/{n}" for n in range(9)]
    store = thirds(clock, keys)
    failed = retrying(store, clock, attempts=1).delete_many(keys)
    assert sorted(failed) == ["k/2", "k/5", "k/8"]
    assert all(isinstance(error, Unavailable) for error in failed.values())
    whole = retrying(Scripted(MemoryProvider("", clock), ["dropped"] * 100), clock, attempts=2)
    assert sorted(whole.delete_many(keys)) == keys


def test_a_batch_is_one_request_and_keys_one_by_one_are_many() -> None:
    clock, seen = ManualClock(), Seen()
    store = Metered(thirds(clock, ["k/0", "k/1", "k/2"]), seen, clock)
    assert len(store.delete_many(["k/0", "k/1", "k/2"])) == 1
    assert seen.requests == [("delete", "unavailable", 0, 0)]
    slow = Throttled(MemoryProvider("", clock), clock, bytes_per_second=0, requests_per_second=2)
    before = clock.monotonic()
    slow.delete_many([f"k/{n}" for n in range(10)])
    assert clock.monotonic() - before >= 3
