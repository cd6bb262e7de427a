"""A gateway of two workers and a real broker: groups read what it deleted, a worker is killed, one group is reset."""

from __future__ import annotations

import os
import signal

import pytest

from tests.kit import remoting
from tests.kit.coldscene import TOPIC, ColdScene
from tests.kit.daemonproc import wait_for
from tests.kit.delivery import compare
from tiered.codec.remoting.codes import RequestCode, ResponseCode

pytestmark = [pytest.mark.broker, pytest.mark.s3server, pytest.mark.slow]


def test_a_worker_is_killed_and_a_group_reset_while_groups_read(cold: ColdScene) -> None:
    with cold.gateway("posix", **{"gateway.workers": 2}).running() as gateway:
        wait_for(lambda: gateway.metric("tiered_gateway_workers", state="there") == 2, "both workers", 60)
        client = cold.client(name_server=gateway.address)
        groups = [cold.group(f"workers-{number}") for number in range(3)]
        running = [
            client.start("push", topic=TOPIC, group=group, rate=2000, n=3 * len(cold.sent), idle=20)
            for group in groups
        ]
        wait_for(lambda: (gateway.metric("tiered_cold_messages_total") or 0) > 3000, "cold messages", 60)
        before = {w: said["pid"] for w, said in gateway.status()["workers"].items()}
        os.kill(before["1"], signal.SIGKILL)
        wait_for(
            lambda: "worker 1 is missing: signal 9" in gateway.ask("/readyz")[1].decode(), "its absence", 30
        )
        reset = {"topic": TOPIC, "group": groups[0], "timestamp": "0", "isForce": "true"}
        told: list[remoting.Answer] = []

        def is_reset() -> bool:
            """While a worker is made that may not have heard it the answer is *ask again*."""
            told.append(
                remoting.request(
                    gateway.broker(TOPIC),
                    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
                    {**reset, "queueId": "-1", "offset": "-1"},
                )
            )
            assert told[-1].code in (0, ResponseCode.SYSTEM_BUSY), told[-1].remark
            return told[-1].code == 0

        wait_for(is_reset, "the reset", 60)
        wait_for(lambda: gateway.metric("tiered_gateway_workers", state="there") == 2, "the worker again", 60)
        after = {w: said["pid"] for w, said in gateway.status()["workers"].items()}
        assert after["0"] == before["0"]
        assert after["1"] != before["1"]
        for consumer in running:
            found = compare(cold.sent, consumer.wait().lines())
            assert found.complete, str(found)
        gateway.stop()
