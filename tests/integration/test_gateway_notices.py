"""What a broker tells its clients of its own accord, through the gateway's sockets."""

from __future__ import annotations

import pytest

from tests.kit.gatewaykit import Peer, ScriptedAnswers, answer_to, frame, gateway, on_loop
from tiered.codec.remoting.frame import ONEWAY, Command, decode_command
from tiered.errors import Unavailable
from tiered.gateway.ports import NewBody

RESET = 220
OTHER = 40


def told(code: int, body: bytes = b"old", *, flag: int = ONEWAY, binary: bool = False) -> bytes:
    return frame(Command(code, 7, flag, None, {"topic": "T"}, body, 397, binary=binary))


@pytest.mark.parametrize("binary", [False, True], ids=["json", "binary"])
def test_one_is_changed_kept_back_or_passed_and_all_else_flows(binary: bool) -> None:
    async def decide(notice: Command, _: Command) -> NewBody | None:
        match bytes(notice.body):
            case b"change":
                return NewBody(b"changed, and longer")
            case b"fail":
                raise Unavailable("away")
            case b"break":
                raise RuntimeError("a mistake")
        return None

    async def speak(peer: Peer, data: bytes) -> None:
        """Asked anything, the broker says all this, then answers."""
        bodies = (b"change", b"", b"fail", b"break", b"keep" * 50_000)
        notices = [told(RESET, body, binary=binary) for body in bodies]
        await peer.send(*notices, told(OTHER, b"change", binary=binary))
        await peer.send(told(RESET, b"change", flag=0, binary=binary))  # one that wants an answer
        await peer.send(answer_to(decode_command(data[4:]), RESET, b"change"))

    async def test() -> None:
        answers = ScriptedAnswers(decide, codes=frozenset(), wanted=frozenset(), notices=frozenset({RESET}))
        async with gateway(answers, speak) as running:
            client = await running.client()
            await client.send(frame(Command(10, 1, binary=binary)))
            got = [await client.command() for _ in range(6)]
            bodies = sorted((c.code, c.flag, bytes(c.body)) for c in got)
            assert bodies == sorted(
                [
                    (RESET, ONEWAY, b"changed, and longer"),
                    (RESET, ONEWAY, b""),
                    (RESET, ONEWAY, b"keep" * 50_000),
                    (OTHER, ONEWAY, b"change"),
                    (RESET, 0, b"change"),
                    (RESET, 1, b"change"),
                ]
            )
            changed = next(c for c in got if bytes(c.body) == b"changed, and longer")
            assert (changed.opaque, changed.ext, changed.version, changed.binary) == (
                7,
                {"topic": "T"},
                397,
                binary,
            )
            assert running.held("failed_closed") == 2
            assert len(running.answers.asked) == 0
            assert running.sessions == 1, "nobody is cut off for it"

    on_loop(test())
