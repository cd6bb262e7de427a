"""The contract of sinks: good ones pass, and each check finds the sinks that break what it is for."""

from __future__ import annotations

import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from tests.kit import brokensinks as broken
from tests.kit.brokensinks import MemorySink, PlainSink, TestedMemory
from tiered.errors import Invalid, TieredError
from tiered.sink.contract.checks import SinkContract
from tiered.sink.order import SinkOrder


class TestExactlyOnce(SinkContract):
    """Into memory, with a position there."""

    @pytest.fixture
    def tested(self) -> TestedMemory:
        return TestedMemory(MemorySink)


class TestAtLeastOnce(SinkContract):
    """Into memory, without a position."""

    @pytest.fixture
    def tested(self) -> TestedMemory:
        return TestedMemory(PlainSink)


BROKEN = (AssertionError, ValueError, OSError, TieredError)
CHECKS = tuple(name for name in vars(SinkContract) if name.startswith("test_"))
FOUND_BY = {
    broken.Doubles: "test_queues_keep_their_order",
    broken.Drops: "test_a_huge_batch",
    broken.Reorders: "test_queues_keep_their_order",
    broken.PositionFirst: "test_an_answer_lost_at_any_request",
    broken.PositionLater: "test_an_answer_lost_at_any_request",
    broken.AllRows: "test_only_the_rows_of_a_batch_are_given",
    broken.KeepsReferences: "test_the_buffer_is_free_after_a_flush",
    broken.ForgetsQueues: "test_the_position_is_complete",
    broken.IgnoresEmptyFlushes: "test_an_empty_flush_moves_the_position",
    broken.NotFenced: "test_the_older_of_two_openings_does_no_harm",
    broken.WritesAtClose: "test_a_stop_between_write_and_flush_loses_nothing",
    broken.EmptyBodiesAreNone: "test_hostile_messages_arrive_whole",
    broken.TextOnly: "test_hostile_messages_arrive_whole",
    broken.CutsProperties: "test_hostile_messages_arrive_whole",
    broken.CleansTopics: "test_hostile_messages_arrive_whole",
    broken.ClosesOnce: "test_closing_twice_raises_nothing",
    broken.LeavesOutWildTopics: "test_names_that_no_broker_takes",
    broken.ForeignErrors: "test_an_answer_lost_at_any_request",
    broken.SwallowsAbsence: "test_a_destination_that_is_away",
    broken.ReadsNoBodies: "test_what_is_read_back_is_what_was_given",
    broken.NothingDurable: "test_a_stop_after_a_flush_doubles_nothing",
}


@pytest.mark.parametrize("kind", FOUND_BY, ids=lambda kind: kind.__name__)
def test_a_broken_sink_is_found_by_the_check_that_is_for_it(kind: type[MemorySink]) -> None:
    with pytest.raises(BROKEN):  # as pytest counts it: whatever is raised fails the check
        getattr(SinkContract(), FOUND_BY[kind])(TestedMemory(kind))


def test_every_check_finds_a_broken_sink() -> None:
    """No check is there for nothing; one that only counts on others (an idle opening) is found out by a sink that doubles."""
    others = [name for name in CHECKS if name not in FOUND_BY.values()]
    assert [name for name in others if not any(_fails(name, kind) for kind in FOUND_BY)] == []


def test_every_kind_of_sink_is_registered_under_its_name() -> None:
    """By the project's own file: what is installed in a checkout may be older."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    for name, place in project["entry-points"]["tiered.sinks"].items():
        kind = EntryPoint(name, place, "tiered.sinks").load()()
        with pytest.raises(Invalid, match="options"):
            kind.check(SinkOrder("s", name, {"no-such-option": "x"}))


def _fails(name: str, kind: type[MemorySink]) -> bool:
    try:
        getattr(SinkContract(), name)(TestedMemory(kind))
    except BROKEN:
        return True
    return False
