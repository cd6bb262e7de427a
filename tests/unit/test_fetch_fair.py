"""Turns of those who wait: by tenant, then by group; and a greedy tenant beside a modest one, counted in requests served."""

from __future__ import annotations

import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Semaphore

import pytest

from tests.kit.fetchscene import ORDERS, pull, scene
from tiered.fetch import fair
from tiered.fetch.allowance import Shares
from tiered.fetch.base import ReaderId
from tiered.fetch.budget import Budget
from tiered.fetch.fair import FairQueue, TenantGroup
from tiered.model import MessageQueue
from tiered.settings import KIB, Tenants

GREEDY, MODEST = TenantGroup("greedy", "g"), TenantGroup("modest", "m")


def served(queue: FairQueue[str]) -> str:
    return "".join(queue.drain())


def test_one_line_keeps_its_order_whatever_its_pieces_cost() -> None:
    queue = FairQueue[str]()
    for name, cost in zip("abcdef", (9, 1, 5, 2, 7, 3), strict=True):
        queue.push(GREEDY, cost, name)
    assert queue.first() == "a"
    assert (served(queue), len(queue)) == ("abcdef", 0)


def test_a_piece_of_another_tenant_waits_for_one_of_the_greedy_one_at_most() -> None:
    queue = FairQueue[str]()
    for _ in range(100):
        queue.push(GREEDY, 10, "g")
    for _ in range(7):
        queue.pop()
    queue.push(MODEST, 10, "m")
    assert served(queue)[:3].count("m") == 1


def test_tenants_that_always_wait_get_the_same_cost() -> None:
    queue, drawn, had = FairQueue[tuple[str, int]](), random.Random(7), Counter[str]()
    for tenant, most in (("small", 10), ("large", 1000), ("medium", 100)):
        for _ in range(2_000_000 // most):
            cost = drawn.randint(1, most)
            queue.push(TenantGroup(tenant, "g"), cost, (tenant, cost))
    while min(had.values(), default=0) < 400_000 or len(had) < 3:
        tenant, cost = queue.pop()
        had[tenant] += cost
    assert max(had.values()) - min(had.values()) <= 2 * 1000


def test_many_groups_of_a_tenant_have_its_part_together() -> None:
    queue = FairQueue[str]()
    for number in range(50):
        queue.push(TenantGroup("greedy", f"g{number}"), 10, "g")
    for _ in range(20):
        queue.push(MODEST, 10, "m")
    assert served(queue)[:40].count("m") == 20


def test_groups_of_one_tenant_take_turns() -> None:
    queue = FairQueue[str]()
    for _ in range(50):
        queue.push(TenantGroup("t", "a"), 10, "a")
    for _ in range(5):
        queue.push(TenantGroup("t", "b"), 10, "b")
    assert served(queue)[:10].count("b") == 5


def test_who_had_much_and_comes_back_does_not_jump_the_line() -> None:
    queue = FairQueue[str]()
    for _ in range(10):
        queue.push(GREEDY, 10, "g")
    queue.push(MODEST, 55, "M")
    assert [queue.pop() for _ in range(2)] == ["g", "M"]
    queue.push(MODEST, 55, "M")
    assert served(queue) == "ggggg" + "M" + "gggg"


def test_what_is_remembered_of_lines_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    most, most_tenants = 512, 64  # fewer than it has: at the bound each line that is served looks through all
    monkeypatch.setattr(fair, "MOST_REMEMBERED", most)
    monkeypatch.setattr(fair, "MOST_TENANTS_REMEMBERED", most_tenants)
    queue = FairQueue[str]()
    queue.push(TenantGroup("last", "g"), 1, "-")
    for number in range(3 * most):
        queue.push(TenantGroup(f"t{number}", "g"), 10**9, "x")
        queue.push(GREEDY, 0, "g")
        queue.pop()
        queue.pop()
    assert len(queue._tenants._ends) <= most + 1
    assert len(queue._groups) <= most_tenants + 1


def test_memory_is_given_out_by_turns() -> None:
    log: list[str] = []
    budget = Budget(100, lambda size, ahead: 0)
    for number in range(10):
        budget.request(100, lambda n=number: log.append(f"g{n}"), GREEDY)  # type: ignore[misc]
    budget.request(100, lambda: log.append("m"), MODEST)
    for _ in range(2):
        budget.settle(100)
    assert log == ["g0", "m", "g1"]


class Gated:
    """A store that answers one request each time ``serve`` is called."""

    def __init__(self) -> None:
        self.go = Semaphore(0)
        self.begun = Semaphore(0)

    def __call__(self, key: str, start: int, length: int) -> None:
        self.begun.release()
        assert self.go.acquire(timeout=30)

    def serve(self) -> None:
        assert self.begun.acquire(timeout=30)
        self.go.release()


def test_a_group_that_reads_a_hundred_times_does_not_starve_another(tmp_path: Path) -> None:
    with scene(tmp_path) as made:
        topics = [MessageQueue("A%Orders", 0), MessageQueue("B%Orders", 0)]
        for queue in topics:
            made.send(400, size=1000, noise=True, flush=False, topic=queue.topic, queue_id=0)
        made.daemon.settle(2.0)
        with ThreadPoolExecutor(1) as pool:
            fetcher = made.fetcher(pool=pool, threads=1, read_ahead=False, request_bytes=64 * KIB)
            for queue in topics:  # so that tables are known, and every read is one request
                fetcher.read(made.state, pull(0, 1, queue=queue), 1)
            gate = made.provider.gate = Gated()
            before = len(made.provider.gets)
            greedy = [
                fetcher.read_async(
                    made.state, pull(8 + 4 * n, 1, queue=topics[0], reader=ReaderId(f"g{n}")), 1
                )
                for n in range(90)
            ]
            for _ in range(5):
                gate.serve()
            modest = fetcher.read_async(made.state, pull(200, 1, queue=topics[1]), 1)
            served_first = 0
            while not modest.done() and served_first < 80:
                gate.serve()
                assert gate.begun.acquire(timeout=30)  # the next one is asked, so this one is done
                gate.begun.release()
                served_first += 1
            asked = len(made.provider.gets) - before
            for _ in range(90):
                gate.go.release()
            assert [bytes(raw) for raw in modest.result(30).records] == [made.raws(topics[1])[200]]
            assert served_first <= 3, "one under way, at most one of the greedy tenant, its own"
            assert asked <= 10, "the greedy tenant's other requests had not even been made"
            assert [len(each.result(30).records) for each in greedy] == [1] * 90


def test_a_reader_is_its_tenant_and_its_group() -> None:
    shares = Shares(Tenants(topics=("shop=Ord*",)), clock=None)  # type: ignore[arg-type]
    assert shares.account(ReaderId("g"), ORDERS.topic).share == TenantGroup("shop", "g")
