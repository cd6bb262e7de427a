"""One load for many askers."""

from __future__ import annotations

from tiered.fetch.flight import Flights


def test_the_leading_names_that_nobody_brings() -> None:
    known = {"k"}
    flights = Flights(known.__contains__)
    first = flights.enter(("a", "b"), foreground=True)
    assert first is not None
    assert first.names == ("a", "b")
    assert flights.find("b") is first
    assert flights.enter(("b", "c"), foreground=True) is None
    second = flights.enter(("c", "d", "b", "e"), foreground=False)
    assert second is not None
    assert second.names == ("c", "d")
    third = flights.enter(("e", "k"), foreground=False)
    assert third is not None
    assert third.names == ("e",)
    assert flights.enter(("k",), foreground=True) is None
    assert len(flights) == 5


def test_what_left_may_be_asked_for_anew() -> None:
    flights = Flights(lambda name: False)
    first = flights.enter(("a", "b"), foreground=True)
    assert first is not None
    flights.leave(first)
    assert flights.find("a") is None
    second = flights.enter(("a",), foreground=True)
    flights.leave(first)
    assert second is not None
    assert flights.find("a") is second
