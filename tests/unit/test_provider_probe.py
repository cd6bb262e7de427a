"""The probe catches the stores that break their promise, in each way seen in the wild."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from tests.kit.fakes3 import FakeS3
from tests.kit.storefakes import Ignoring, Racing, Scripted
from tiered.archive.keys import parse
from tiered.clock import ManualClock, SystemClock
from tiered.codec.types import Buffer
from tiered.errors import Denied, Refused, Unavailable
from tiered.provider import probe as probing
from tiered.provider.base import Capabilities, Fetched, Provider, Stored
from tiered.provider.memory import MemoryProvider
from tiered.provider.probe import ProbeReport, probe, require_promises
from tiered.provider.s3 import S3Provider
from tiered.provider.wrap import Wrapped

CLOCK = SystemClock()


def memory() -> MemoryProvider:
    return MemoryProvider("", CLOCK)


def refuted(provider: Provider) -> dict[str, str]:
    return {finding.capability: finding.detail for finding in probe(provider, CLOCK).refuted}


def test_an_honest_store_passes_and_is_left_clean() -> None:
    store = memory()
    report = probe(store, CLOCK, prefix="DefaultCluster/broker-a/")
    assert report.refuted == ()
    assert require_promises(report, accept_weak=False) == ()
    assert {finding.capability for finding in report.findings} >= {
        "create-only",
        "create-only under a race",
        "ranges",
        "listing",
    }
    assert list(store.list("")) == []


def test_its_keys_are_keys_of_the_archive() -> None:
    store = Scripted(memory(), [])
    probe(store, CLOCK)
    keys = {key for verb, key in store.calls if verb == "put"}
    assert len(keys) > 10
    for key in keys:
        parse(key)


def test_a_store_that_ignores_the_condition_is_refuted() -> None:
    assert set(refuted(Ignoring(memory()))) == {"create-only", "whole uploads"}


def test_a_store_where_racers_win_passes_in_sequence_and_is_refuted_by_the_race() -> None:
    found = refuted(Racing(memory()))
    assert set(found) == {"create-only under a race"}
    assert "were told that they had created it" in found["create-only under a race"]


def test_a_server_that_ignores_the_header_is_refuted() -> None:
    class IgnoringToy(FakeS3):
        def next_word(self, method: str, *, peek: bool = False) -> str:
            return "ignore"

    with IgnoringToy(CLOCK).running() as toy:
        provider = S3Provider("bucket", "", toy.store(), CLOCK)
        assert "create-only" in refuted(provider)
        provider.close()


class Cutting(MemoryProvider):
    """A store whose uploads can be cut."""

    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, cutter=self)

    def put_cut(self, key: str, parts: Sequence[Buffer]) -> None:
        raise NotImplementedError


def test_a_server_that_keeps_half_an_upload_is_refuted() -> None:
    class Keeping(Cutting):
        def put_cut(self, key: str, parts: Sequence[Buffer]) -> None:
            self.put(key, [b"".join(parts)[: len(parts[0]) // 2]])
            raise Unavailable("cut")

    assert "left an object of 131072 bytes" in refuted(Keeping("", CLOCK))["whole uploads"]


def test_a_server_that_blocks_a_name_after_a_cut_is_refuted() -> None:
    class Blocking(Cutting):
        def put_cut(self, key: str, parts: Sequence[Buffer]) -> None:
            self.put(key, [b""])
            self.blocked = key
            raise Unavailable("cut")

        def head(self, key: str) -> Stored:
            return super().head("nothing/there" if key == getattr(self, "blocked", None) else key)

    assert "counts as taken" in refuted(Blocking("", CLOCK))["whole uploads"]


def test_the_cut_meets_the_key_below_a_wrapper_and_nothing_stays() -> None:
    class Half(Cutting):
        def put_cut(self, key: str, parts: Sequence[Buffer]) -> None:
            self.put(key, [b"half"])
            raise Unavailable("cut")

    store = Half("", CLOCK)
    assert "whole uploads" in refuted(Wrapped(store))
    assert list(store.list("")) == []


def test_wrong_suffix_ranges_are_refuted() -> None:
    class Suffixless(Wrapped):
        def get(self, key: str, start: int | None = None, length: int | None = None) -> Fetched:
            return self.inner.get(key, None if start is not None and start < 0 else start, length)

    assert set(refuted(Suffixless(memory()))) == {"ranges"}


def test_a_listing_in_another_order_is_refuted() -> None:
    class Reversed(Wrapped):
        def list(
            self, prefix: str, *, start_after: str | None = None, limit: int | None = None
        ) -> Iterator[Stored]:
            return reversed([*self.inner.list(prefix, start_after=start_after, limit=limit)])

    assert "order" in refuted(Reversed(memory()))["listing"]


def test_a_listing_that_lags_is_refuted() -> None:
    class Lagging(Wrapped):
        def list(
            self, prefix: str, *, start_after: str | None = None, limit: int | None = None
        ) -> Iterator[Stored]:
            return iter([*self.inner.list(prefix, start_after=start_after, limit=limit)][:-1])

    assert "right after" in refuted(Lagging(memory()))["listing"]


def test_a_listing_that_ignores_start_after_is_refuted() -> None:
    class FromTheStart(Wrapped):
        def list(
            self, prefix: str, *, start_after: str | None = None, limit: int | None = None
        ) -> Iterator[Stored]:
            return self.inner.list(prefix, limit=limit)

    assert "start after" in refuted(FromTheStart(memory()))["listing"]


def test_deleting_forbidden_is_told_but_not_refused() -> None:
    class Immutable(Wrapped):
        def delete(self, key: str) -> None:
            raise Denied("the store refuses access")

    report = probe(Immutable(memory()), CLOCK)
    assert report.refuted == ()
    assert [finding.capability for finding in report.findings if not finding.held] == ["deleting"]


def test_refusing_names_the_lost_guarantee_and_the_setting() -> None:
    report = probe(Ignoring(memory()), CLOCK)
    with pytest.raises(Refused) as caught:
        require_promises(report, accept_weak=False)
    assert "create-only" in str(caught.value)
    assert "commits may be lost" in str(caught.value)
    assert "archive.accept_weak_store" in str(caught.value)
    lost = require_promises(report, accept_weak=True)
    assert any("commits may be lost" in sentence for sentence in lost)


def test_a_store_that_is_away_cannot_be_judged() -> None:
    with pytest.raises(Unavailable):
        probe(Scripted(memory(), [Unavailable("away")] * 3), CLOCK)


def test_the_store_clock_is_compared_with_this_hosts() -> None:
    store_clock, host_clock = ManualClock(1_700_000_100_000), ManualClock(1_700_000_000_000)
    report: ProbeReport = probe(MemoryProvider("", store_clock), host_clock)
    assert report.clock_offset_ms == 100_000


def test_a_racer_that_never_comes_is_said_and_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def one_too_few(workers: int, **options: Any) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(workers - 1, **options)

    monkeypatch.setattr(probing, "ThreadPoolExecutor", one_too_few)
    monkeypatch.setattr(probing, "START_SECONDS", 0.2)
    with pytest.raises(Unavailable, match="did not begin"):
        probe(memory(), CLOCK)


@pytest.mark.parametrize("from_put", [0, 2], ids=["the first put", "the race"])
def test_a_full_disk_is_named_with_its_fix(from_put: int) -> None:
    class Full(Wrapped):
        puts = 0

        def put(self, key: str, parts: Sequence[Buffer], *, create_only: bool = True) -> Stored:
            self.puts += 1
            if self.puts > from_put:
                raise Unavailable("no space left to write an object", hint="free disk space", key=key)
            return super().put(key, parts, create_only=create_only)

    with pytest.raises(Unavailable, match="no space left") as caught:
        probe(Full(memory()), CLOCK)
    assert caught.value.hint == "free disk space"
