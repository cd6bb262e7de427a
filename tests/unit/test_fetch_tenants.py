"""Who is a tenant, what it may have of the store, and that a reader over the budget waits and loses nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.fetchscene import READERS, Scene, scene
from tiered.clock import ManualClock
from tiered.errors import Invalid, Unavailable
from tiered.fetch import allowance
from tiered.fetch.allowance import OverBudget, Shares
from tiered.fetch.base import ReaderId
from tiered.fetch.fair import TenantGroup
from tiered.fetch.fetcher import Fetcher
from tiered.filter.tenants import Allowance, TenantRules, namespace_of
from tiered.metrics import TENANTS_SHOWN, Metrics
from tiered.settings import KIB, MIB, Tenants

A = TenantGroup("a", "g")


def bounded(**settings: object) -> tuple[Shares, ManualClock]:
    clock = ManualClock()
    return Shares(Tenants(**settings), clock), clock  # type: ignore[arg-type]


# ---- whose topic it is, and what that one may have


@pytest.mark.parametrize(
    ("topic", "namespace"),
    [
        ("Orders", ""),
        ("MQ_INST_1%Orders", "MQ_INST_1"),
        ("%RETRY%MQ_INST_1%group", "MQ_INST_1"),
        ("%DLQ%group", ""),
        ("%LMQ%one", ""),
        ("odd%", ""),
    ],
)
def test_a_namespace_is_a_tenant(topic: str, namespace: str) -> None:
    assert namespace_of(topic) == namespace


def test_the_first_pattern_that_fits_decides() -> None:
    rules = TenantRules(
        Tenants(
            topics=("pay=Pay*", " rest = P*"),
            bytes_per_second=5,
            limits=("pay=64MiB/s 200/s", "batch-*=100/s", "audit=unlimited", "p*=1KiB/s"),
        )
    )
    tenants = [rules.tenant_of(topic) for topic in ("PayIn", "Pin", "X%PayIn", "Orders", "PayIn")]
    assert tenants == ["pay", "rest", "X", "default", "pay"]
    found = [rules.allowance_of(name) for name in ("pay", "batch-7", "audit", "proof", "default")]
    assert found == [
        Allowance(64 * MIB, 200),
        Allowance(0, 100),
        Allowance(),
        Allowance(KIB, 0),
        Allowance(5, 0),
    ]


@pytest.mark.parametrize("entry", ["=Pay*", "pay=", "pay", " = "])
def test_what_names_no_tenant_is_refused(entry: str) -> None:
    with pytest.raises(Invalid) as caught:
        TenantRules(Tenants(topics=("x=y", entry)))
    assert caught.value.fields == {"key": "tenants.topics", "found": entry}


@pytest.mark.parametrize(
    "entry",
    ["pay", "pay=", "=1/s", "pay=1", "pay=64MiB", "pay=1/s 2/s", "pay=0/s", "pay=unlimited 1/s", "p=x/s"],
)
def test_what_is_not_a_budget_is_refused(entry: str) -> None:
    with pytest.raises(Invalid) as caught:
        TenantRules(Tenants(limits=(entry,)))
    assert caught.value.fields == {"key": "tenants.limits", "found": entry}


# ---- budgets


def test_a_budget_is_overdrawn_once_and_then_made_up_for() -> None:
    shares, clock = bounded(bytes_per_second=1000, burst_ms=2000)
    shares.admit(A)
    shares.charge(A, 5000)
    with pytest.raises(OverBudget) as caught:
        shares.admit(A)
    assert (caught.value.seconds, caught.value.fields["tenant"]) == (3.0, "a")
    assert not shares.may_ahead(A)
    shares.admit(TenantGroup("b", "g"))
    clock.advance(2.9)
    with pytest.raises(OverBudget):
        shares.admit(A)
    clock.advance(0.2)
    shares.admit(A)
    clock.advance(3600)
    shares.charge(A, 1999)
    shares.admit(A)
    shares.charge(A, 1)
    with pytest.raises(OverBudget):
        shares.admit(A)


def test_requests_are_counted_beside_bytes() -> None:
    shares, clock = bounded(requests_per_second=2, burst_ms=1000)
    for _ in range(2):
        shares.admit(A)
        shares.charge(A, 10**9)
    with pytest.raises(OverBudget):
        shares.admit(A)
    clock.advance(0.5)
    shares.admit(A)
    shares.charge(A, 1)
    shares.charge(A, -1, -1)  # the disk had it
    shares.admit(A)


def test_without_a_bound_nobody_waits_and_all_is_counted() -> None:
    shares, _ = bounded(limits=("a=1KiB/s",))
    other = TenantGroup("b", "g")
    shares.charge(other, 10**12)
    shares.admit(other)
    assert shares.may_ahead(other)
    shares.charge(A, 2 * KIB)
    assert list(shares.status()) == ["b", "a"]
    assert shares.status()["b"] == {"fetched_bytes": 10**12, "requests": 1, "refused": 0, "wait_seconds": 0.0}


def test_groups_of_a_tenant_that_wait_take_turns_and_who_had_least_is_first() -> None:
    """A greedy group asks ten times as often as a modest one, and first each time."""
    shares, clock = bounded(requests_per_second=1, burst_ms=1000)
    had = {"greedy": 0, "modest": 0}
    for _ in range(200):
        for group in ("greedy",) * 10 + ("modest",):
            share = TenantGroup("a", group)
            try:
                shares.admit(share)
            except OverBudget:
                continue
            shares.charge(share, 100)
            had[group] += 1
        clock.advance(0.5)
    assert sum(had.values()) >= 95
    assert abs(had["greedy"] - had["modest"]) <= 2


def test_a_group_that_waits_no_more_holds_up_nobody() -> None:
    shares, clock = bounded(requests_per_second=1, burst_ms=1000)
    shares.charge(A, 1, 3)
    for share in (A, TenantGroup("a", "gone")):
        with pytest.raises(OverBudget):
            shares.admit(share)
    clock.advance(2.1)
    with pytest.raises(OverBudget):  # the other one had less, and may come
        shares.admit(A)
    clock.advance(1.0)
    shares.admit(A)


def test_the_table_is_bounded_and_nobody_gets_a_fresh_budget_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allowance, "MOST_TENANTS", 2)
    shares, clock = bounded(bytes_per_second=100, burst_ms=1000)
    for name in ("a", "b", "c", "d"):
        shares.charge(TenantGroup(name, "g"), 1000)
    for name in ("a", "b", "c", "d", "e"):
        with pytest.raises(OverBudget):
            shares.admit(TenantGroup(name, "g"))
    assert len(shares.status()) == 3, "and one for all that came beyond"
    assert shares.status()["(beyond the table)"]["fetched_bytes"] == 2000
    clock.advance(3600)
    shares.admit(TenantGroup("f", "g"))
    assert "f" in shares.status() or len(shares.status()) == 3


def test_series_are_bounded() -> None:
    metrics, (shares, _) = Metrics(), bounded()
    for number in range(TENANTS_SHOWN + 5):
        shares.charge(TenantGroup(f"t{number:03}", "g"), 1000 - number)
    metrics.tenants(shares.status())
    text = metrics.expose().decode()
    assert text.count("tiered_tenant_requests{") == TENANTS_SHOWN + 1
    assert metrics.value("tiered_tenant_requests", tenant="(all others)") == 5
    assert metrics.value("tiered_tenant_fetched_bytes", tenant="t000") == 1000
    assert len(shares.shown()) == TENANTS_SHOWN


# ---- reads


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Scene]:
    with scene(tmp_path) as built:
        built.send(120, size=1000, noise=True)
        yield built


def through(scene_: Scene, fetcher: Fetcher) -> tuple[list[bytes], int]:
    """All records in order, and how often the reader had to wait; what it is told is where it goes on."""
    found, offset, waited = list[bytes](), 0, 0
    while offset < 120:
        try:
            got = scene_.read(fetcher, offset, 10)
        except OverBudget as over:
            waited += 1
            assert waited < 500
            scene_.clock.advance(over.seconds)
            continue
        assert got.queue_offsets[0] == offset
        assert got.next_offset == offset + len(got.records)
        found += map(bytes, got.records)
        offset = got.next_offset
    return found, waited


@pytest.mark.parametrize("read_ahead", [True, False])
def test_a_reader_over_its_budget_waits_and_gets_everything_in_order(made: Scene, read_ahead: bool) -> None:
    shares = Shares(Tenants(bytes_per_second=4 * KIB, burst_ms=1000), made.clock)
    fetcher = made.fetcher(shares=shares, read_ahead=read_ahead, request_bytes=64 * KIB)
    begun = made.clock.monotonic()
    found, waited = through(made, fetcher)
    assert found == made.raws()
    assert waited > 3
    had = shares.status()["default"]
    seconds = made.clock.monotonic() - begun
    assert int(str(had["refused"])) >= waited, "also where an answer ends early"
    assert made.provider.bytes <= int(str(had["fetched_bytes"]))
    assert int(str(had["fetched_bytes"])) <= 4 * KIB * (seconds + 1) + 64 * KIB + MIB // 8


def test_what_the_cache_has_costs_nothing(made: Scene) -> None:
    shares = Shares(Tenants(limits=("default=1KiB/s",)), made.clock)
    fetcher = made.fetcher(shares=shares, read_ahead=False)
    first = made.read(fetcher, 0, 1)
    with pytest.raises(Unavailable):
        made.read(fetcher, 100, 1)
    assert made.read(fetcher, 0, 1, reader=ReaderId("another")).records == first.records
    assert made.read(fetcher, 0, 1, reader=READERS).records == first.records
