"""Unmodified consumers of every kind, far behind, with the gateway between: nothing skipped, repeated, reordered or changed.

One of them, the first, is compared with what the producer was promised; it also tells the store times, which say where those
that start at a time have to begin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.kit import cache
from tests.kit.client import Outcome, Running
from tests.kit.coldscene import TOPIC, ColdScene, ending
from tests.kit.consumerkinds import KINDS, Kind
from tests.kit.delivery import compare, first_from
from tests.kit.gatewayproc import Gateway

pytestmark = [pytest.mark.broker, pytest.mark.s3server, pytest.mark.slow]

FIRST = KINDS[0]
ON_S3 = {
    "s3, " + str(kind): kind
    for kind in KINDS
    if kind.version == cache.ROCKETMQ_5 and kind.name in ("push", "push-orderly", "lite-begin")
}


@dataclass(frozen=True, slots=True)
class Seen:
    """What the first consumer was handed, and a time in the middle of it: a whole second, since push consumers know no less."""

    lines: list[dict[str, Any]]
    time_ms: int
    begin: dict[int, int]


def start(cold: ColdScene, gateway: Gateway, kind: Kind, messages: int, **options: object) -> Running:
    """Start one: it ends 3 seconds after so many messages, so that it may also take too much. On a busy machine
    nothing may come for long: it ends before only after a minute without any."""
    client = cold.client(kind.version, name_server=gateway.address)
    chosen = {**kind.options, **ending(messages), **options}
    return client.start(kind.command, topic=TOPIC, group=cold.group(str(kind)), **chosen)


class SideBySide:
    """The consumers of every kind, some of them running ahead of the test that looks at them: they mostly wait."""

    AHEAD = 2

    def __init__(self, start: Callable[[Kind], Running]) -> None:
        self._start = start
        self.running: dict[str, Running] = {}

    def outcome(self, kind: Kind) -> Outcome:
        """What this one was handed."""
        at = KINDS.index(kind)
        for other in KINDS[at : at + self.AHEAD]:
            if str(other) not in self.running:
                self.running[str(other)] = self._start(other)
        return self.running[str(kind)].wait()


@pytest.fixture(scope="module")
def gateway(cold: ColdScene) -> Iterator[Gateway]:
    with cold.gateway("posix").running() as gateway:
        yield gateway


@pytest.fixture(scope="module")
def gateway_s3(cold: ColdScene) -> Iterator[Gateway]:
    with cold.gateway("s3").running() as gateway:
        yield gateway


@pytest.fixture(scope="module")
def seen(cold: ColdScene, gateway: Gateway) -> Seen:
    """The first consumer's messages."""
    lines = start(cold, gateway, FIRST, len(cold.sent)).wait().lines()
    times = sorted(line["store_timestamp"] for line in lines)
    # The whole second in the first half that most messages are on either side of.
    time_ms = -(-times[len(times) // 4] // 1000) * 1000
    return Seen(lines, time_ms, first_from(lines, time_ms))


@pytest.fixture(scope="module")
def side_by_side(cold: ColdScene, gateway: Gateway, seen: Seen) -> Iterator[SideBySide]:
    later = len(cold.sent) - sum(seen.begin.values())
    consumers = SideBySide(
        lambda kind: start(
            cold, gateway, kind, later if kind.timed else len(cold.sent), timestamp=seen.time_ms
        )
    )
    yield consumers
    for consumer in consumers.running.values():
        consumer.kill()


def test_the_first_of_all_gets_everything_exactly_once(cold: ColdScene, seen: Seen) -> None:
    found = compare(cold.sent, seen.lines)
    assert found.exact, str(found)
    assert found.received == len(cold.sent)
    assert 0 < sum(seen.begin.values()) < cold.cold(), "the time must lie within what the broker has deleted"


@pytest.mark.parametrize("kind", KINDS[1:], ids=str)
def test_every_kind_of_consumer_gets_everything(
    cold: ColdScene, side_by_side: SideBySide, seen: Seen, kind: Kind
) -> None:
    outcome = side_by_side.outcome(kind)
    found = compare(cold.sent, outcome.lines(), begin=seen.begin if kind.timed else None)
    assert found.exact, str(found)
    assert outcome.summary["consumed"] == found.expected
    if kind.command == "pull":
        assert not outcome.summary["statuses"].keys() - {"FOUND", "NO_NEW_MSG"}, outcome.summary


def test_the_broker_was_not_asked_about_each_pull_or_about_every_one(
    gateway: Gateway, side_by_side: SideBySide
) -> None:
    """As the setting says."""
    assert side_by_side.outcome(FIRST).lines()
    unasked = gateway.metric("tiered_cold_unasked_total")
    assert unasked is not None
    assert (unasked > 0) is gateway.short_cut


@pytest.mark.parametrize("kind", ON_S3.values(), ids=ON_S3)
def test_from_the_s3_server(cold: ColdScene, gateway_s3: Gateway, kind: Kind) -> None:
    found = compare(cold.sent, start(cold, gateway_s3, kind, len(cold.sent)).wait().lines())
    assert found.exact, str(found)


def test_a_tag_selects_the_same_messages_as_the_broker_would(cold: ColdScene, gateway: Gateway) -> None:
    wanted = [line for line in cold.sent if line["tags"] == "paid"]
    kinds = (FIRST, *(kind for kind in KINDS if str(kind) == "pull-4.9.7"))
    consumers = {str(kind): start(cold, gateway, kind, len(wanted), sub="paid") for kind in kinds}
    for kind, consumer in consumers.items():
        found = compare(wanted, consumer.wait().lines())
        assert found.exact, f"{kind}: {found}"


def test_what_applications_are_shown_with_an_old_message_is_of_the_whole_history(
    cold: ColdScene, seen: Seen
) -> None:
    """The queue's minimum is the archive's, its maximum the broker's."""
    ends = {queue: cold.broker.offsets(TOPIC, queue).stop for queue in cold.minimum}
    old = [line for line in seen.lines if line["queue_offset"] < cold.minimum[line["queue_id"]]]
    assert {line["properties"]["MIN_OFFSET"] for line in old} == {"0"}
    assert all(int(line["properties"]["MAX_OFFSET"]) == ends[line["queue_id"]] for line in old)
