"""One budget: foreground in line, read-ahead only in what is free, nothing in a circle."""

from __future__ import annotations

from tiered.fetch.budget import Budget


class Shelf:
    """A cache that is only a number: ``worthless`` bytes of ``held`` may go for read-ahead."""

    def __init__(self) -> None:
        self.held = 0
        self.worthless = 0
        self.asked: list[tuple[int, bool]] = []

    def evict(self, size: int, *, ahead: bool) -> int:
        self.asked.append((size, ahead))
        freed = min(size, self.worthless if ahead else self.held)
        self.held -= freed
        self.worthless = max(0, self.worthless - freed)
        return freed


def made(limit: int = 100) -> tuple[Budget, Shelf, list[str]]:
    shelf = Shelf()
    return Budget(limit, shelf.evict), shelf, []


def test_a_load_that_fits_is_granted_at_once() -> None:
    budget, shelf, log = made()
    budget.request(60, lambda: log.append("a"))
    budget.request(40, lambda: log.append("b"))
    assert (log, budget.used_bytes, shelf.asked) == (["a", "b"], 100, [])


def test_the_rest_waits_in_line_even_if_something_behind_would_fit() -> None:
    budget, _, log = made()
    budget.request(80, lambda: log.append("a"))
    budget.request(50, lambda: log.append("b"))
    budget.request(10, lambda: log.append("c"))
    assert (log, budget.waiting) == (["a"], 2)
    budget.settle(80)
    assert (log, budget.used_bytes) == (["a", "b", "c"], 60)


def test_foreground_takes_from_the_cache() -> None:
    budget, shelf, log = made()
    budget.request(90, lambda: log.append("a"))
    shelf.held = 90
    budget.settle(90, 90)
    budget.request(30, lambda: log.append("b"))
    assert (log, shelf.held, budget.used_bytes) == (["a", "b"], 70, 100)


def test_a_load_larger_than_everything_goes_alone() -> None:
    budget, shelf, log = made()
    budget.request(20, lambda: log.append("a"))
    budget.request(500, lambda: log.append("huge"))
    budget.request(5, lambda: log.append("c"))
    assert log == ["a"]
    shelf.held = 20
    budget.settle(20, 20)
    assert (log, shelf.held, budget.used_bytes) == (["a", "huge"], 0, 500)
    budget.settle(500)
    assert (log, budget.used_bytes) == (["a", "huge", "c"], 5)


def test_read_ahead_takes_what_is_free_and_not_the_last_part() -> None:
    budget, _, _ = made()
    assert budget.try_ahead(70)
    assert not budget.try_ahead(10), "three quarters are in flight ahead"
    budget.settle(70, 70, ahead=True)
    assert not budget.try_ahead(40), "it would not fit"
    assert budget.try_ahead(30)
    assert (budget.used_bytes, budget.ahead_bytes) == (100, 30)


def test_read_ahead_takes_what_nobody_wants() -> None:
    budget, shelf, _ = made()
    assert budget.try_ahead(60)
    shelf.held, shelf.worthless = 60, 40
    budget.settle(60, 60, ahead=True)
    assert budget.try_ahead(70)
    assert (shelf.held, budget.used_bytes) == (30, 100)
    assert shelf.asked == [(30, True)]


def test_no_read_ahead_while_somebody_waits() -> None:
    budget, _, log = made()
    budget.request(90, lambda: log.append("a"))
    budget.request(50, lambda: log.append("b"))
    assert not budget.try_ahead(5)
    budget.settle(90)
    assert budget.try_ahead(5)


def test_what_the_cache_drops_of_its_own_accord_is_free() -> None:
    budget, _, log = made()
    budget.request(100, lambda: log.append("a"))
    budget.settle(100, 100)
    budget.request(50, lambda: log.append("b"))
    assert log == ["a"]
    budget.release(60)
    budget.release(0)
    assert (log, budget.used_bytes) == (["a", "b"], 90)


def test_closing_lets_everything_go() -> None:
    budget, _, log = made()
    for name in "abc":
        budget.request(90, lambda name=name: log.append(name))  # type: ignore[misc]
    budget.close()
    assert log == ["a", "b", "c"]
    assert not budget.try_ahead(1)
