"""Filters of pulls: compiled aside, once, and never more kept than a bounded number of characters."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from tests.kit.gatewaydesk import RETRY, Desk, offsets_of, pull, too_small
from tiered.codec.remoting.codes import SYS_CLASS_FILTER, PullRequest
from tiered.codec.remoting.frame import Command
from tiered.errors import BadRequest, Unavailable
from tiered.filter.base import RowFilter
from tiered.gateway.knowledge import clients
from tiered.gateway.knowledge.asking import Asking
from tiered.gateway.knowledge.clients import MAX_EXPRESSION, Clients
from tiered.gateway.pull import filters
from tiered.gateway.pull.filters import MAX_COMING, MAX_KEPT_CHARACTERS, Filters
from tiered.metrics import Metrics

LONGEST = ("n = 60 OR n = -1 OR " * (MAX_EXPRESSION // 20))[: MAX_EXPRESSION - 20].rpartition(" OR ")[0]


class Compiler:
    """Stands in for ``row_filter``: what was compiled and in which thread; ``gate`` holds up the pool."""

    def __init__(self) -> None:
        self.made: list[tuple[str, threading.Thread]] = []
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, expression: str, kind: str) -> RowFilter | None:
        if threading.current_thread() is not threading.main_thread():
            self.gate.wait(30)
        self.made.append((expression, threading.current_thread()))
        if "refused" in expression:
            raise BadRequest("no such thing", hint="write another", position=len(self.made))
        return None

    @property
    def aside(self) -> list[bool]:
        """Of each compiled expression: whether it was compiled in another thread than the event loop's."""
        return [thread is not threading.main_thread() for _, thread in self.made]


@pytest.fixture
def desk() -> Iterator[Desk]:
    made = Desk()
    made.archive.fill("T", 0, 0, 150, properties={o: {"TAGS": "a", "n": str(o)} for o in range(150)})
    yield made
    made.close()


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Compiler:
    made = Compiler()
    monkeypatch.setattr(filters, "row_filter", made)
    return made


def asked(expression: str, kind: str = "SQL92") -> PullRequest:
    return PullRequest.parse(pull(offset=40, subscription=expression, kind=kind).ext)


def over(desk: Desk) -> Filters:
    return Filters(Clients(Metrics()), Asking(desk.pool, 20.0))


def test_the_longest_expression_is_run() -> None:
    assert MAX_EXPRESSION - 100 < len(LONGEST) <= MAX_EXPRESSION
    patient = Desk(read_timeout_ms=100_000)
    patient.archive.fill("T", 0, 50, 70, properties={o: {"n": str(o)} for o in range(50, 70)})
    made = patient.ask(pull(offset=50, subscription=LONGEST, kind="SQL92"), too_small(100, 200))
    assert offsets_of(made) == [60]
    patient.close()


@pytest.mark.parametrize("kind", ["SQL92", "TAG"])
def test_a_longer_one_is_refused_with_a_remark(desk: Desk, kind: str) -> None:
    made = desk.ask(pull(offset=40, subscription="a" * (MAX_EXPRESSION + 1), kind=kind), too_small(100, 200))
    assert isinstance(made, Command)
    assert made.code == 23
    assert "too long" in (made.remark or "")
    assert str(MAX_EXPRESSION) in (made.remark or "")
    assert len(made.remark or "") < 400


def test_a_longer_one_of_a_heartbeat_is_refused_too_and_by_tag_gets_everything(desk: Desk) -> None:
    desk.heartbeat("G", "T", "n = 1 OR " * MAX_EXPRESSION, "SQL92")
    made = desk.ask(pull(offset=40, subscription=None, kind="SQL92"), too_small(100, 200))
    assert isinstance(made, Command), "not told to try again for ever"
    assert made.code == 23
    assert "too long" in (made.remark or "")
    desk.heartbeat("H", "T", "a || " * MAX_EXPRESSION)
    made = desk.ask(pull(offset=40, count=2, subscription=None, consumerGroup="H"), too_small(100, 200))
    assert offsets_of(made) == [40, 41]


def test_what_may_take_long_is_compiled_aside(desk: Desk, compiler: Compiler) -> None:
    async def run() -> None:
        chosen = over(desk)
        for expression, kind in (
            ("a || b", "TAG"),
            ("a" * 20_000, "TAG"),
            ("a = 1", "SQL92"),
            ("b", "XPATH"),
        ):
            for _ in range(2):
                await chosen.of(asked(expression, kind))

    asyncio.run(run())
    assert [expression[:6] for expression, _ in compiler.made] == ["a || b", "aaaaaa", "a = 1", "b", "b"]
    assert compiler.aside == [False, True, True, False, False]


def test_many_askers_cause_one_compilation_and_who_goes_away_leaves_it_to_them(
    desk: Desk, compiler: Compiler
) -> None:
    async def run() -> None:
        chosen = over(desk)
        compiler.gate.clear()
        askers = [asyncio.ensure_future(chosen.of(asked("a = 1"))) for _ in range(5)]
        await asyncio.sleep(0)
        askers[0].cancel()
        assert isinstance(
            (await asyncio.gather(askers[0], return_exceptions=True))[0], asyncio.CancelledError
        )
        compiler.gate.set()
        assert await asyncio.gather(*askers[1:]) == [None] * 4
        await chosen.of(asked("a = 1"))

    asyncio.run(run())
    assert len(compiler.made) == 1


def test_a_refusal_is_kept_and_each_asker_hears_an_error_of_its_own(desk: Desk, compiler: Compiler) -> None:
    async def run() -> list[BadRequest]:
        chosen = over(desk)
        heard = []
        for _ in range(2):
            with pytest.raises(BadRequest) as caught:
                await chosen.of(asked("refused"))
            heard.append(caught.value)
        return heard

    one, two = asyncio.run(run())
    assert str(one) == str(two) == "no such thing (position=1) → write another"
    assert one is not two
    assert len(compiler.made) == 1


def test_what_is_kept_is_bounded_by_its_characters(desk: Desk, compiler: Compiler) -> None:
    long = 60_000

    async def run() -> None:
        chosen = over(desk)
        for number in range(10):
            await chosen.of(asked(f"{number}" * long))
        await chosen.of(asked("9" * long))
        assert len(compiler.made) == 10, "the newest is kept"
        await chosen.of(asked("0" * long))
        assert len(compiler.made) == 11, "the oldest is not"
        for number in range(MAX_KEPT_CHARACTERS // filters.ROOM_CHARACTERS + 10):
            await chosen.of(asked(f"{number}", "TAG"))
        before = len(compiler.made)
        await chosen.of(asked("0", "TAG"))
        assert len(compiler.made) == before + 1, "short ones are bounded in number"

    asyncio.run(run())


def test_a_flood_of_new_expressions_is_told_to_come_back(desk: Desk, compiler: Compiler) -> None:
    async def run() -> None:
        chosen = over(desk)
        compiler.gate.clear()
        askers = [asyncio.ensure_future(chosen.of(asked(f"n = {n}"))) for n in range(MAX_COMING)]
        await asyncio.sleep(0)
        with pytest.raises(Unavailable, match="too many new filter expressions"):
            await chosen.of(asked("one = more"))
        assert await chosen.of(asked("a", "TAG")) is None
        compiler.gate.set()
        assert await asyncio.gather(*askers) == [None] * MAX_COMING
        assert await chosen.of(asked("one = more")) is None

    asyncio.run(run())


def test_subscriptions_are_bounded_by_their_characters(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "MAX_GROUPS_BYTES", 100_000)
    crowded = Desk(desk.archive)
    for number in range(5):
        crowded.heartbeat(f"G{number}", "T", f"n = {number}" + " " * 40_000, "SQL92")
    known = [crowded.answers.clients.subscription(f"G{number}", "T") is not None for number in range(5)]
    assert known == [False, False, False, True, True]
    crowded.heartbeat("g" * 100_000, "T", "n = 1", "SQL92")
    assert crowded.answers.clients.subscription("g" * 100_000, "T") is None
    assert crowded.answers.clients.subscription("G4", "T") is not None
    crowded.close()


def test_sql_that_was_told_once_is_compiled_before_it_is_answered(desk: Desk) -> None:
    desk.heartbeat("G", "T", "n > 140", "SQL92")
    made = desk.ask(pull(offset=40, subscription=None, kind="SQL92"), too_small(145, 200))
    assert made != RETRY
    assert offsets_of(made) == list(range(141, 150))


def test_a_class_filter_is_declined_and_skips_nothing(desk: Desk) -> None:
    request = pull(offset=40)
    request.ext["sysFlag"] = str(6 | SYS_CLASS_FILTER)
    made = desk.ask(request, too_small(100, 200))
    assert isinstance(made, Command)
    assert made.code == 23
    assert "filter classes" in (made.remark or "")


def test_a_compilation_that_fails_is_tried_again(desk: Desk, compiler: Compiler) -> None:
    async def run() -> None:
        chosen = over(desk)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(filters, "row_filter", None)
            with pytest.raises(TypeError):
                await chosen.of(asked("a = 1"))
        assert await chosen.of(asked("a = 1")) is None

    asyncio.run(run())
