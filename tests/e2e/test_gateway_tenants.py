"""A group that reads a hundred times at once from a slow store, and one beside it that reads little: it has its turns."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Event, Thread

import pytest

from tests.kit import remoting
from tests.kit.coldscene import TOPIC, ColdScene
from tests.kit.faultproxy import Action, FaultProxy, Rule
from tests.kit.gatewayproc import Gateway
from tests.kit.process import TIERED
from tests.kit.s3server import REGION
from tests.kit.unfair import UNFAIR

pytestmark = [pytest.mark.broker, pytest.mark.s3server, pytest.mark.slow]

AT_ONCE = 100
GET_SECONDS = 0.05
FOUND = 0
FORGETFUL = {
    "fetch.threads": 1,
    "fetch.read_ahead": False,
    "fetch.request_bytes": "64KiB",
    "fetch.budget_bytes": "8MiB",
    "fetch.cache_expiry_ms": 100,
    "fetch.wanted_ms": 100,
    "fetch.live_ms": 1000,
    "fetch.commit_cache_bytes": 0,
    "gateway.read_timeout_ms": 60_000,
}
"""One request at a time, and hardly a cache: whatever is read again is fetched again."""


@contextmanager
def gateway(cold: ColdScene, program: Sequence[str]) -> Iterator[Gateway]:
    """Behind it a store that takes ``GET_SECONDS`` for each of its answers."""
    place, _, rest = cold.archives["s3"].url.partition("?")
    endpoint = rest.partition("endpoint=http://")[2].partition("&")[0]
    with FaultProxy(endpoint) as proxy:
        url = f"{place}?endpoint={proxy.url}&region={REGION}"
        with cold.gateway("s3", url=url, program=program, **FORGETFUL).running() as made:
            made.child.wait_until(lambda: made.status().get("archive") == "open", 30, "the archive open")
            proxy.set(Rule(Action.DELAY, seconds=GET_SECONDS, method="GET"))
            yield made


class Pulling:
    """One connection of a lite consumer of a group, which pulls 8 messages at a time."""

    def __init__(self, address: str, group: str) -> None:
        self._connection = remoting.Connection(address, timeout_seconds=120)
        self._group = group
        self.seconds: list[float] = []

    def __enter__(self) -> Pulling:
        return self

    def __exit__(self, *exc: object) -> None:
        self._connection.__exit__(*exc)

    def hang_up(self) -> None:
        """End a pull that waits, from another thread."""
        self._connection.hang_up()

    def pull(self, queue: int, offset: int) -> None:
        """One pull; how long it took is noted."""
        fields = {
            "consumerGroup": self._group,
            "topic": TOPIC,
            "queueId": str(queue),
            "queueOffset": str(offset),
            "maxMsgNums": "8",
            "sysFlag": "4",
            "commitOffset": "0",
            "suspendTimeoutMillis": "0",
            "subscription": "*",
            "subVersion": "0",
            "expressionType": "TAG",
        }
        began = time.monotonic()
        self._connection.send(remoting.PULL_MESSAGE, fields)
        _, answer = self._connection.receive()
        assert answer.code == FOUND, answer
        self.seconds.append(time.monotonic() - began)


class Greedy:
    """A group that has ``AT_ONCE`` pulls on their way all the time, all over three queues."""

    def __init__(self, cold: ColdScene, made: Gateway) -> None:
        self._over = Event()
        self._pullings = [Pulling(made.broker(TOPIC), "kit_greedy") for _ in range(AT_ONCE)]
        room = min(cold.minimum.values()) - 100
        self._threads = [
            Thread(target=self._run, args=(one, number % 3, number * room // AT_ONCE, room), daemon=True)
            for number, one in enumerate(self._pullings)
        ]

    def __enter__(self) -> Greedy:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        for one in self._pullings:
            one.hang_up()
        for thread in self._threads:
            thread.join(60)

    @property
    def done(self) -> int:
        """Pulls that were answered."""
        return sum(len(one.seconds) for one in self._pullings)

    def _run(self, one: Pulling, queue: int, offset: int, room: int) -> None:
        while not self._over.is_set():
            try:
                one.pull(queue, offset)
            except OSError:
                if not self._over.is_set():
                    raise
            offset = (offset + 997) % room


def quiet_seconds(cold: ColdScene, made: Gateway, pulls: int) -> list[float]:
    """Each of some pulls of a quiet group beside the greedy one, which goes on meanwhile."""
    with Greedy(cold, made) as greedy, Pulling(made.broker(TOPIC), "kit_quiet") as quiet:
        made.child.wait_until(lambda: greedy.done >= 20, 30, "the greedy one's first answers")
        before = greedy.done
        for number in range(pulls):
            quiet.pull(3, 50 + 800 * number)
        assert greedy.done > before, "the greedy one is not starved either"
        return quiet.seconds


def test_a_quiet_group_is_not_starved_and_without_turns_it_is(cold: ColdScene) -> None:
    with gateway(cold, TIERED) as made:
        fair = quiet_seconds(cold, made, 4)
    with gateway(cold, UNFAIR) as made:
        (unfair,) = quiet_seconds(cold, made, 1)
    print(
        f"beside {AT_ONCE} reads at once: {[round(one, 2) for one in fair]} s; without turns {unfair:.2f} s"
    )
    assert 4 * max(fair) < unfair
