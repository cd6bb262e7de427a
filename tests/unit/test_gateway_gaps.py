"""Records that an answer of the broker leaves out, because their file was deleted while it was read."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kit.fakearchive import record
from tests.kit.gatewaydesk import RETRY, Desk, answered, fields, found, offsets_of, pull
from tiered.clock import ManualClock
from tiered.codec.record.message import decode_message, encode_message
from tiered.codec.remoting.frame import Command
from tiered.errors import Unavailable
from tiered.gateway.knowledge.caughtup import CALM_SECONDS
from tiered.gateway.knowledge.questions import KEEP_SECONDS, Floors
from tiered.gateway.ports import NEED_BODY, PEEK_BYTES, ConnectionInfo
from tiered.gateway.pull.gaps import lacks
from tiered.gateway.pull.verdict import HELD, Why
from tiered.model import MessageQueue


def bodies(*offsets: int) -> bytes:
    """Records back to back."""
    return b"".join(record("T", 0, offset) for offset in offsets)


def inner(offset: int, messages: int | None) -> bytes:
    """An inner batch, which owns several offsets; ``None``: it does not say how many."""
    plain = decode_message(record("T", 0, offset))
    counted = {} if messages is None else {"INNER_NUM": str(messages)}
    properties = {**plain.properties, **counted}
    return encode_message(replace(plain, sys_flag=plain.sys_flag | 0x80, properties=properties))


@pytest.fixture
def desk() -> Iterator[Desk]:
    made = Desk()
    made.archive.fill("T", 0, 0, 150)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("offsets", "following", "missing"),
    [
        ((10, 11, 12), 13, False),
        ((11, 12), 13, True),
        ((10, 12), 13, True),
        ((10, 12), 11, True),
        ((10, 12), 12, True),
        ((11, 12), 12, True),
        ((10, 11), 13, True),
        ((10,), 11, False),
        ((9, 10), 11, False),
        ((10, 11, 12), 11, False),
        ((), 10, False),
        ((), 13, True),
    ],
)
def test_every_offset_needs_its_record(offsets: tuple[int, ...], following: int, missing: bool) -> None:
    assert lacks(bodies(*offsets), 10, following) is missing


def test_inner_batches_own_several_offsets() -> None:
    assert not lacks(bodies(10) + inner(11, 4) + bodies(15), 10, 16)
    assert not lacks(inner(8, 4) + bodies(12), 10, 13)
    assert lacks(inner(10, 4) + bodies(15), 10, 16)
    assert lacks(inner(10, 4), 10, 16)
    assert not lacks(inner(10, None) + bodies(15), 10, 16)


@given(st.binary(max_size=400), st.integers(0))
def test_of_what_is_no_record_nothing_is_said(garbage: bytes, cut: int) -> None:
    lacks(garbage, 0, 5)
    whole, first = bodies(0, 1), len(bodies(0))
    cut %= len(whole)
    assert lacks(whole[:cut], 0, 5) == (cut in (0, first))
    assert not lacks(whole + b"\0" * 100, 0, 5)


@pytest.mark.parametrize(
    ("has", "following"),
    [([*range(40, 45), *range(60, 65)], 65), (list(range(40, 45)), 65)],
    ids=["between", "behind"],
)
def test_records_missing_in_an_answer_come_from_the_archive(
    desk: Desk, has: list[int], following: int
) -> None:
    answer = answered(0, "FOUND", following, 0, 200, body=bodies(*has))
    made = desk.ask(pull(offset=40, count=32), answer)
    assert offsets_of(made) == list(range(40, 72))
    assert fields(made)["nextBeginOffset"] == "72"
    desk.archive.error = Unavailable("away")
    assert desk.ask(pull(offset=40, count=32), answer) == RETRY


def test_what_the_archive_has_before_the_gap_is_served_and_the_rest_waits(desk: Desk) -> None:
    desk.archive.fill("T", 0, 0, 43)
    answer = answered(0, "FOUND", 65, 0, 200, body=bodies(*range(40, 43), *range(60, 65)))
    assert offsets_of(desk.ask(pull(offset=40), answer)) == [40, 41, 42]
    later = answered(0, "FOUND", 65, 0, 200, body=bodies(43, 44, *range(60, 65)))
    assert desk.ask(pull(offset=43), later) == RETRY


def test_complete_answers_and_others_pass_without_the_archive(desk: Desk) -> None:
    whole = found("T", 0, range(40, 72), 0, 200)
    assert desk.ask(pull(offset=40), whole) is whole
    assert desk.ask(pull(offset=40, subscription="a"), whole) is whole
    far = answered(0, "FOUND", 2_000_031, 0, 3_000_000, body=bodies(2_000_000, 2_000_030))
    assert desk.ask(pull(offset=2_000_000), far) is far
    assert desk.ask(pull(offset=2_000_000, subscription="a"), far) is far
    assert desk.archive.asked == []


def test_gaps_of_a_queue_that_is_not_archived_pass(desk: Desk) -> None:
    answer = answered(0, "FOUND", 65, 0, 200, body=bodies(40, 60))
    assert desk.ask(pull("Compacted", offset=40), answer) is answer


class TestDoubt:
    """Readers with a filter, near the minimum."""

    def doubted(self, desk: Desk) -> tuple[Command, Command]:
        desk.begin = 1 << 20
        return pull(offset=41, subscription="a"), found("T", 0, range(60, 61), 0, 200)

    def test_while_the_archive_is_away_it_waits_until_the_broker_has_been_calm(self, desk: Desk) -> None:
        request, answer = self.doubted(desk)
        desk.archive.error = Unavailable("away")
        assert desk.ask(request, answer) == RETRY
        desk.clock.advance(CALM_SECONDS - 1)
        assert desk.ask(request, answer) == RETRY
        desk.clock.advance(1)
        assert desk.ask(request, answer) is answer  # hot traffic flows
        desk.begin = 2 << 20  # the broker deletes
        assert desk.ask(request, answer) == RETRY

    def test_looks_made_while_the_archive_answers_count(self, desk: Desk) -> None:
        request, answer = self.doubted(desk)
        assert desk.ask(request, answer) is answer
        desk.clock.advance(CALM_SECONDS)
        desk.archive.error = Unavailable("away")
        assert desk.ask(request, answer) is answer

    def test_a_broker_that_does_not_say_where_it_begins_is_never_calm(self, desk: Desk) -> None:
        request, answer = self.doubted(desk)
        desk.archive.error, desk.begin = Unavailable("away"), None
        for _ in range(3):
            assert desk.ask(request, answer) == RETRY
            desk.clock.advance(CALM_SECONDS)

    def test_queues_not_archived_and_readers_at_the_tail_flow(self, desk: Desk) -> None:
        desk.begin, desk.archive.error = 1 << 20, Unavailable("away")
        other = found("Other", 0, range(60, 61), 0, 200)
        desk.ask(pull("Other", offset=41, subscription="a"), other)  # has what is known looked at
        assert desk.ask(pull("Other", offset=41, subscription="a"), other) is other
        tail = found("T", 0, range(180, 181), 0, 200)
        assert desk.ask(pull(offset=160, subscription="a"), tail) is tail
        assert desk.ask(pull(offset=100, subscription="a"), tail) == RETRY
        desk.archive.error = None
        assert desk.ask(pull(offset=160, subscription="a"), tail) is tail

    def test_what_the_broker_deletes_before_it_is_archived_is_waited_for(self, desk: Desk) -> None:
        tail, request = found("T", 0, range(180, 181), 0, 200), pull(offset=160, subscription="a")
        desk.archive.reached, desk.begin = 150_000, 150_001
        assert desk.ask(request, tail) == RETRY
        desk.clock.advance(CALM_SECONDS)
        assert desk.ask(request, tail) is tail  # whoever archives may be dead
        desk.begin = 172_000
        assert desk.ask(request, tail) == RETRY
        desk.archive.fill("T", 0, 0, 190, properties={171: {"TAGS": "a"}})
        assert offsets_of(desk.ask(request, tail)) == [171]
        desk.archive.fill("T", 0, 0, 150)
        desk.archive.reached = 172_000
        assert desk.ask(request, tail) is tail

    def test_a_filter_that_the_archive_followed_half_way_goes_on_from_there(self, desk: Desk) -> None:
        request, _ = self.doubted(desk)
        desk.archive.examine = 5
        made = desk.ask(request, answered(20, "NO_MATCHED_MESSAGE", 120, 0, 200))
        assert fields(made)["nextBeginOffset"] == "46"


class TestFilteredGaps:
    """What is left out between and behind the records of an answer, to a reader with a filter."""

    TAKEN = (40, 43, 47, 58, 60, 61, 64)

    @pytest.fixture
    def desk(self) -> Iterator[Desk]:
        made = Desk()
        made.archive.fill("T", 0, 0, 150, properties={o: {"TAGS": "a"} for o in self.TAKEN})
        made.begin = 1 << 20
        yield made
        made.close()

    @pytest.mark.parametrize(
        "has",
        [(40, 43, 60, 61, 64), (40, 43, 47), (40, 43, 47, 58, 60, 61)],
        ids=["between", "behind", "one"],
    )
    def test_they_come_from_the_archive(self, desk: Desk, has: tuple[int, ...]) -> None:
        answer = answered(0, "FOUND", 65, 0, 200, body=bodies(*has))
        made = desk.ask(pull(offset=40, subscription="a"), answer)
        assert offsets_of(made) == list(self.TAKEN)
        desk.archive.error = Unavailable("away")
        assert desk.ask(pull(offset=40, subscription="a"), answer) == RETRY
        desk.begin = 0  # the broker has deleted nothing at all
        assert desk.ask(pull(offset=40, subscription="a"), answer) is answer

    def test_an_answer_that_has_all_of_them_passes(self, desk: Desk) -> None:
        answer = answered(0, "FOUND", 65, 0, 200, body=bodies(*self.TAKEN))
        assert desk.ask(pull(offset=40, subscription="a"), answer) is answer
        more = answered(0, "FOUND", 65, 0, 200, body=bodies(*self.TAKEN[:3], 50, *self.TAKEN[3:]))
        assert desk.ask(pull(offset=40, subscription="a"), more) is more  # another tag of the same hash
        assert desk.count("pull", "passed") == 2

    def test_one_that_goes_further_than_the_archive_is_answered_up_to_there(self, desk: Desk) -> None:
        desk.archive.fill("T", 0, 0, 59, properties={o: {"TAGS": "a"} for o in self.TAKEN if o < 59})
        answer = answered(0, "FOUND", 65, 0, 200, body=bodies(*self.TAKEN))
        made = desk.ask(pull(offset=40, subscription="a"), answer)
        assert offsets_of(made) == [40, 43, 47, 58]
        assert fields(made)["nextBeginOffset"] == "59"


def test_an_archive_that_went_on_since_the_answer_is_no_queue_that_began_anew(desk: Desk) -> None:
    """The broker's end is asked for again: the answer's own may be older than what the archive has by now."""
    cold, gone = pull(offset=7), answered(21, "OFFSET_TOO_SMALL", 100, 100, 148)
    assert desk.ask(cold, gone) == RETRY  # the broker does not say
    desk.queue_end = 149
    assert desk.ask(cold, gone) == RETRY  # really shorter
    desk.queue_end = 150
    made = desk.ask(cold, gone)
    assert offsets_of(made)[0] == 7
    assert fields(made)["maxOffset"] == "150"


def test_the_same_for_a_reader_with_a_filter(desk: Desk) -> None:
    desk.archive.fill("T", 0, 0, 150, properties={o: {"TAGS": "a"} for o in (40, 50, 60)})
    desk.begin = 1 << 20
    doubted, request = found("T", 0, range(60, 61), 0, 148), pull(offset=41, subscription="a")
    assert desk.ask(request, doubted) == RETRY
    desk.queue_end = 150
    assert offsets_of(desk.ask(request, doubted)) == [50, 60]
    desk.queue_end = 149
    assert desk.ask(request, doubted) is doubted


def test_the_brokers_end_is_asked_for() -> None:
    async def ask(address: str, request: Command, seconds: float) -> Command:
        assert (address, request.code, request.ext) == ("b:1", 30, {"topic": "T", "queueId": "3"})
        return answers.pop()

    answers = [Command(1), Command(0, ext={"offset": "12"})]
    floors, connection, queue = (
        Floors(ask, ManualClock()),
        ConnectionInfo(1, "c:1", "b:1"),
        MessageQueue("T", 3),
    )
    assert asyncio.run(floors.end(connection, queue)) == 12
    with pytest.raises(Unavailable):
        asyncio.run(floors.end(connection, queue))


def test_a_record_that_is_still_there_says_that_all_behind_it_are() -> None:
    async def test() -> None:
        clock, asked = ManualClock(), [0]
        here, begin, none = Command(0, body=record("T", 0, 3)), Command(0, body=record("T", 0, 7)), Command(1)
        answers = [here, begin, none]

        async def ask(address: str, request: Command, seconds: float) -> Command:
            assert (request.code, request.ext) == (33, {"offset": "3000"})
            asked[0] += 1
            await asyncio.sleep(0)
            return answers[0]

        floors = Floors(ask, clock)
        connection = ConnectionInfo(1, "c:1", "b:1")
        assert await asyncio.gather(*(floors.has(connection, 3000) for _ in range(3))) == [True] * 3
        assert asked == [1]
        for _ in range(2):
            clock.advance(1.0)
            answers.pop(0)
            assert not await floors.has(connection, 3000)
        assert asked == [3]

    asyncio.run(test())


def test_a_fresh_floor_is_asked_for_after_the_question() -> None:
    async def test() -> None:
        clock, asked, gate = ManualClock(), [0], asyncio.Event()

        async def ask(address: str, request: Command, seconds: float) -> Command:
            asked[0] += 1
            number = asked[0]
            await gate.wait()
            return Command(0, body=b'{"table":{"commitLogMinOffset":"%d"}}' % number)

        floors = Floors(ask, clock)
        connection = ConnectionInfo(1, "c:1", "b:1")
        first = asyncio.create_task(floors.floor(connection))
        await asyncio.sleep(0.01)
        fresh = [asyncio.create_task(floors.floor(connection, fresh=True)) for _ in range(3)]
        gate.set()
        assert await first == 1
        assert await asyncio.gather(*fresh) == [2, 2, 2]
        assert await floors.floor(connection) == 2
        clock.advance(KEEP_SECONDS)
        assert await floors.floor(connection) == 3

    asyncio.run(test())


def test_an_answer_too_short_for_a_record_is_in_doubt(desk: Desk) -> None:
    """Its first bytes are all there is; what they are nobody can say, so it does not pass."""
    short = answered(0, "FOUND", 102, 0, 200, body=record("T", 0, 100)[:PEEK_BYTES])
    assert desk.answers.judge(pull(offset=100), short, short.body) is NEED_BODY
    assert desk.answers.judge(pull(offset=100), short, short.body, whole=True) is HELD[Why.DOUBT]


@given(
    st.lists(st.tuples(st.integers(9, 14), st.sampled_from([None, 1, 2, 4])), max_size=5),
    st.integers(9, 16),
    st.binary(max_size=2),
)
def test_what_is_seen_at_a_glance_is_what_a_walk_tells(
    records: list[tuple[int, int | None]], following: int, more: bytes
) -> None:
    """Nothing lacks where each expected offset is owned: by a record, or by an inner batch that begins before it."""
    body = b"".join(bodies(at) if owns is None else inner(at, owns) for at, owns in records) + more
    expected = 10
    for at, owns in records:
        if at > expected:
            break
        expected = at + (owns or 1)
    else:
        assert lacks(body, 10, following) is (not more and expected < following)
        return
    assert lacks(body, 10, following)
