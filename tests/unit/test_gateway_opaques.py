"""An answer opens the archive only for the request that the broker has judged, whatever clients do to opaques and headers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kit.fakearchive import RECORD_ROOM
from tests.kit.gatewaydesk import Desk, found, offsets_of, pull, simple, too_small
from tests.kit.replacing import replace
from tiered.codec.remoting.frame import (
    DEFAULT_MAX_FRAME_BYTES,
    ONEWAY,
    RESPONSE,
    Command,
    decode_command,
    encode_command,
)
from tiered.errors import Corrupt, Refused, TieredError
from tiered.gateway.ports import NEED_BODY
from tiered.gateway.transport.frames import FrameWalk
from tiered.gateway.transport.limits import OPAQUES_PER_CONNECTION, Traffic
from tiered.gateway.transport.opaques import Opaques, envelope, gets_answer, shows_signature
from tiered.gateway.transport.pending import PENDING_SECONDS, AnswerJudge, HeldAnswer, Pending, RequestJudge

WIRE = Path(__file__).parent.parent / "data" / "wire"
SIGNED = {"AccessKey": "own-01", "Signature": "c2lnbmVk"}
CUT = "cut"
VIEWED = 40 * RECORD_ROOM
"""Where the record with queue offset 40 lies."""

encodings = pytest.mark.parametrize("binary", [False, True], ids=["json", "binary"])


class Wire:
    """One connection between the judges of both directions, and what reaches the client of topic ``Secret``'s archive."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.pending = Pending(desk.clock.monotonic)
        self.held: list[HeldAnswer] = []
        answers, connection, traffic = desk.answers, desk.connection, Traffic()
        requests = RequestJudge(answers, connection, self.pending, traffic)
        replies = AnswerJudge(answers, connection, self.pending, traffic, self.held.append)
        self._client = FrameWalk(requests, DEFAULT_MAX_FRAME_BYTES)
        self._broker = FrameWalk(replies, DEFAULT_MAX_FRAME_BYTES)

    def send(self, *requests: Command | bytes) -> None:
        """Requests, or JSON headers, of the client."""
        for request in requests:
            self._client.feed(framed(request))

    def answer(self, answer: Command) -> list[int]:
        """A frame of the broker; the queue offsets of the archived records that are served in its place."""
        self._broker.feed(framed(answer))
        if not self.held:
            return []
        held = self.held.pop()
        verdict = self.desk.judge(held.request, held.answer) if held.verdict is NEED_BODY else held.verdict
        made = asyncio.run(self.desk.answers.answer(held.request, held.answer, verdict, self.desk.connection))
        return offsets_of(made) if isinstance(made, Command) else []

    def play(self, own: Command | bytes, secret: Command | bytes, answer: Command) -> list[int] | str:
        """Ask what is allowed, then what is not, and have the first answered first."""
        try:
            self.send(own, secret)
        except TieredError:
            return CUT
        return self.answer(answer)


def framed(frame: Command | bytes) -> bytes:
    if isinstance(frame, bytes):
        return (4 + len(frame)).to_bytes(4, "big") + len(frame).to_bytes(4, "big") + frame
    return b"".join(map(bytes, encode_command(frame)))


def header(command: Command, *changes: tuple[bytes, bytes]) -> bytes:
    """The JSON header of a command, with some of its bytes exchanged."""
    data = framed(command)[8:]
    for old, new in changes:
        assert old in data
        data = data.replace(old, new)
    return data


def signed(command: Command, *, binary: bool = False, opaque: int = 77) -> Command:
    return replace(command, ext={**command.ext, **SIGNED}, binary=binary, opaque=opaque)


OWN = signed(pull("Own", offset=40))
FOREIGN = signed(pull("Own", offset=40, bname="broker-b"))
SECRET = signed(pull("Secret", offset=40, count=2))
QUERY = {"key": "k", "maxNum": "32", "beginTimestamp": "0", "endTimestamp": str(1 << 62)}


@pytest.fixture
def desk() -> Iterator[Desk]:
    made = Desk()
    made.archive.fill("Own", 0, 10, 150)
    made.archive.fill("Secret", 0, 10, 150, properties={offset: {"KEYS": "k"} for offset in range(10, 150)})
    yield made
    made.close()


@pytest.fixture
def wire(desk: Desk) -> Wire:
    return Wire(desk)


class TestOneOpaqueForTwo:
    """Each of these had the archive opened for a topic that the broker would have refused."""

    @encodings
    def test_a_pull_that_says_it_is_for_another_broker(self, wire: Wire, binary: bool) -> None:
        own, secret = (replace(command, binary=binary) for command in (FOREIGN, SECRET))
        assert wire.play(own, secret, too_small(100, 200)) == CUT

    @encodings
    def test_a_code_that_is_not_watched(self, wire: Wire, binary: bool) -> None:
        own = signed(Command(38, ext={"consumerGroup": "G"}), binary=binary)
        secret = signed(Command(33, ext={"offset": str(VIEWED), "topic": "Secret"}), binary=binary)
        assert wire.play(own, secret, simple(0, body=b'{"consumerIdList":[]}')) == CUT

    def test_a_question_whose_answer_is_not_wanted(self, wire: Wire) -> None:
        own = signed(Command(14, ext={"consumerGroup": "G", "topic": "Own", "queueId": "0"}))
        secret = signed(Command(12, ext={"topic": "Secret", **QUERY}))
        assert wire.play(own, secret, simple(22)) == CUT

    @pytest.mark.parametrize("code", [11, 12, 33, 200050])
    def test_a_one_way_request_that_is_answered_all_the_same(self, wire: Wire, code: int) -> None:
        """The broker writes records of its store straight to the connection, whether or not anybody waits for them."""
        own = replace(OWN, code=code, flag=ONEWAY)
        secret = signed(Command(12, ext={"topic": "Secret", **QUERY}))
        assert wire.play(own, secret, found("Own", 0, range(100, 101), 100, 200)) == CUT

    @pytest.mark.parametrize("letter", [b"\\u0041", b"\\x41", b"\\u+041", "\\u００41".encode()])
    def test_a_signature_that_is_written_in_another_way(self, wire: Wire, letter: bytes) -> None:
        own = signed(Command(38, ext={"consumerGroup": "G"}))
        secret = signed(Command(33, ext={"offset": str(VIEWED), "topic": "Secret"}))
        hidden = header(own, (b"AccessKey", letter + b"ccessKey"))
        assert wire.play(hidden, secret, simple(0, body=b"{}")) == CUT
        assert wire.pending.opaques.strict

    def test_a_signed_request_after_an_unsigned_one(self, wire: Wire) -> None:
        unsigned = pull("Secret", offset=40, count=2)
        assert wire.play(unsigned, FOREIGN, too_small(100, 200)) == CUT

    def test_a_request_that_is_held_for_very_long(self, wire: Wire, desk: Desk) -> None:
        """The client chooses how long a broker keeps a pull."""
        wire.send(OWN)
        desk.clock.advance(PENDING_SECONDS + 1)
        with pytest.raises(Refused, match="before its answer came"):
            wire.send(SECRET)


class TestOneHeaderForTwo:
    """What a broker reads must be what the gateway reads."""

    @pytest.mark.parametrize(
        ("old", "new"),
        [
            pytest.param(b'"opaque":77', b'"opaque":5,"opaque":77', id="twice"),
            pytest.param(b'"opaque":77', b'"opaque":77,"op\\u0061que":5', id="twice, escaped"),
            pytest.param(
                b'"extFields":{', b'"extFields":{"topic":"Own"},"extFields":{', id="two sets of fields"
            ),
            pytest.param(b'"topic":', b'"topic":"Own","topic":', id="a field twice"),
            pytest.param(b'"opaque":77', b'"Opaque":77', id="another spelling"),
            pytest.param(b'"opaque":77', b'"opaque":77,"ext_fields":{}', id="an underscore"),
            pytest.param(b'"opaque":77,', b"", id="left out"),
            pytest.param(b'"opaque":77', b'"opaque":null', id="null"),
            pytest.param(b'"opaque":77', b'"opaque":"77"', id="text"),
            pytest.param(b'"opaque":77', b'"opaque":true', id="truth"),
            pytest.param(b'"opaque":77', b"'opaque':77", id="no JSON"),
            pytest.param(b'"topic":', b'"topic\x00":"Own","topic":', id="control character"),
        ],
    )
    def test_two_meanings_end_the_connection(self, wire: Wire, old: bytes, new: bytes) -> None:
        with pytest.raises(Corrupt):
            wire.send(header(SECRET, (old, new)))
        with pytest.raises(Corrupt):
            wire.send(header(replace(SECRET, code=38), (old, new)))

    @pytest.mark.parametrize("path", sorted(WIRE.glob("*.bin")), ids=lambda path: path.stem)
    def test_recorded_headers_have_one(self, path: Path) -> None:
        frame = path.read_bytes()
        word = int.from_bytes(frame[4:8], "big")
        read = envelope(frame[8 : 8 + (word & 0xFFFFFF)], word >> 24)
        command = decode_command(frame[4:])
        assert read == (command.code, command.opaque, command.flag)

    @given(st.binary(max_size=60), st.sampled_from([0, 1]))
    def test_any_header(self, data: bytes, encoding: int) -> None:
        shows_signature(data, encoding)
        with contextlib.suppress(Corrupt):
            envelope(data, encoding)


class TestSignatures:
    @encodings
    @pytest.mark.parametrize("recorded", ["pull-11-found", "heartbeat-34", "raw-pull-11-found"])
    def test_unsigned_requests(self, recorded: str, binary: bool) -> None:
        command = replace(decode_command((WIRE / f"{recorded}.request.bin").read_bytes()[4:]), binary=binary)
        assert not shows_signature(header(command), binary)
        assert shows_signature(header(signed(command, binary=binary)), binary)

    @pytest.mark.parametrize(
        "value", ["KEYS\x01a\x02TAGS\x01b\x02", 'a "b" /\n\t\b\f\r', "\x1f", "\u4e2d\uffff"]
    )
    def test_escapes_of_other_things_are_none(self, value: str) -> None:
        sent = Command(310, ext={"i": value})
        assert not shows_signature(header(sent), 0)

    def test_other_characters_escaped_are_none(self) -> None:
        assert not shows_signature(b'{"code":310,"extFields":{"i":"\\u4e2d\\u000A\\uFF21"}}', 0)

    @given(st.data())
    def test_any_mixture_of_escapes_is_one(self, data: st.DataObject) -> None:
        forms = [
            data.draw(st.sampled_from([letter, f"\\u{ord(letter):04x}", f"\\u{ord(letter):04X}"]))
            for letter in "AccessKey"
        ]
        head = header(Command(310, ext={"AccessKey": "k", "i": "a\x01b\x02"}))
        assert shows_signature(head.replace(b"AccessKey", "".join(forms).encode()), 0)


class TestInFlight:
    @encodings
    def test_an_answer_frees_the_opaque(self, wire: Wire, binary: bool) -> None:
        for code in (38, 310, 11, 38):
            wire.send(signed(replace(OWN, code=code), binary=binary))
            assert len(wire.pending.opaques) == 1
            wire.answer(replace(simple(1, "no"), binary=binary))
            assert (len(wire.pending.opaques), len(wire.pending)) == (0, 0)

    def test_the_brokers_own_requests_have_opaques_of_their_own(self, wire: Wire) -> None:
        wire.send(SECRET)
        wire.answer(Command(40, 77, ONEWAY))
        wire.answer(Command(220, 77))
        assert len(wire.pending.opaques) == 1
        wire.send(signed(Command(0, flag=RESPONSE)), signed(Command(0, flag=RESPONSE, ext={"topic": "Own"})))
        assert len(wire.pending.opaques) == 1
        assert wire.answer(too_small(100, 200)) == [40, 41]

    @pytest.mark.parametrize("code", [10, 15, 34, 37, 310, 320])
    def test_what_clients_send_one_way_is_not_tracked(self, wire: Wire, code: int) -> None:
        wire.send(SECRET, *[replace(OWN, code=code, flag=ONEWAY)] * 3)
        assert len(wire.pending.opaques) == 1
        assert gets_answer(code, 0)

    def test_clients_that_do_not_sign_are_not_tracked(self, wire: Wire) -> None:
        """But for what is read anyway."""
        wire.send(*[Command(310, 5, ext={"i": "a\x01b\x02"}), Command(38, 5)] * 3)
        assert len(wire.pending.opaques) == 0
        assert not wire.pending.opaques.strict
        wire.send(pull("Own", bname="broker-b"))
        assert (len(wire.pending.opaques), len(wire.pending)) == (1, 0)
        with pytest.raises(Refused, match="before its answer came"):
            wire.send(pull("Secret"))

    def test_one_signature_is_enough(self, wire: Wire) -> None:
        wire.send(signed(Command(34), opaque=1), Command(38, 5))
        with pytest.raises(Refused, match="before its answer came"):
            wire.send(Command(310, 5))

    def test_they_are_bounded(self) -> None:
        opaques = Opaques()
        for opaque in range(OPAQUES_PER_CONNECTION):
            opaques.begin(opaque)
        with pytest.raises(Refused, match="too many"):
            opaques.begin(-1)
        opaques.end(7)
        opaques.end(7)
        opaques.begin(-1)
        opaques.clear()
        assert len(opaques) == 0
