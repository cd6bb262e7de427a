"""Which requests wait for an answer that somebody wants to look at, and the judges of both directions of a connection.

Requests go on as they came, but those that the gateway answers itself. Answers go on too, except those of remembered requests:
they are held and handed over. Requests that the broker sends to a client, and the client's answers to those, have an opaque
space of their own and pass; but some of those that want no answer are held too, to be handed on with another body. Whose answer
an answer is: ``opaques``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tiered.codec.remoting.frame import Command, decode_header
from tiered.errors import Refused
from tiered.gateway.ports import HOLD, PASS, Answering, ConnectionInfo, Verdict
from tiered.gateway.transport.frames import Fate, code_of
from tiered.gateway.transport.limits import PENDING_PER_CONNECTION, Traffic
from tiered.gateway.transport.opaques import Opaques, envelope, gets_answer, is_response, shows_signature

_PASSES, _COPIED, _PEEKED, _HELD = Fate.PASS, Fate.COPY, Fate.PEEK, Fate.HOLD  # as in ``frames``

MAX_OBSERVED_BODY = 4 << 20
"""A heartbeat with thousands of subscriptions has some hundred KiB; a longer body passes unseen."""

PENDING_SECONDS = 600.0
"""A request this old has no answer any more: every client gives up within suspend time + 30 s."""

_PENDING_HEADER_BYTES = 16 << 20


@dataclass(slots=True)
class HeldAnswer:
    """A withheld answer of the broker: its request, the answer decoded, its verdict so far, and its first bytes as they came.

    Or a request of the broker's own to the client: ``request`` and ``answer`` both.
    """

    request: Command
    answer: Command
    verdict: Verdict = HOLD
    head: bytes = b""

    @property
    def stands_in(self) -> bool:
        """Whether the broker was not asked: the answer is what it is known to say."""
        return not self.head

    @property
    def is_notice(self) -> bool:
        """Whether nobody has asked for it."""
        return not self.answer.is_response


class Pending:
    """Requests whose answers are wanted, by opaque; oldest first, bounded in number and bytes.

    ``opaques``: those of all requests in flight that are known, wanted or not.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self.opaques = Opaques()
        self._now = now
        self._by_opaque: dict[int, tuple[Command, float, int]] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._by_opaque)

    def remember(self, request: Command, size: int) -> None:
        """Wait for the answer to ``request``, of which ``size`` bytes are kept.

        Raises ``Refused`` when too many wait: an answer must not slip through because its request was forgotten early. And
        for an opaque that waits already: the answer to what a client may ask would be taken for one to what it may not.
        """
        if request.opaque in self._by_opaque or self._full(size):
            self._forget_old()
            if request.opaque in self._by_opaque:
                raise Refused("an opaque is used again before its answer came", found=request.opaque)
            if self._full(size):
                raise Refused(
                    "too many requests without an answer on one connection",
                    found=len(self._by_opaque),
                    expected=f"≤ {PENDING_PER_CONNECTION}",
                )
        self._by_opaque[request.opaque] = (request, self._now(), size)
        self._bytes += size

    def take(self, opaque: int) -> Command | None:
        """The request with this opaque, forgotten from now on."""
        entry = self._by_opaque.pop(opaque, None)
        if entry is None:
            return None
        self._bytes -= entry[2]
        return entry[0]

    def clear(self) -> None:
        """The connection is gone."""
        self._by_opaque.clear()
        self._bytes = 0
        self.opaques.clear()

    def _full(self, size: int) -> bool:
        return len(self._by_opaque) >= PENDING_PER_CONNECTION or self._bytes + size > _PENDING_HEADER_BYTES

    def _forget_old(self) -> None:
        before = self._now() - PENDING_SECONDS
        old = []
        for opaque, (_, since, _) in self._by_opaque.items():
            if since >= before:
                break
            old.append(opaque)
        for opaque in old:
            self.take(opaque)


class RequestJudge:
    """Client → broker: requests of the watched codes are read, and remembered if their answer is wanted. All pass but those
    that are answered here, which ``on_own`` gets whole."""

    __slots__ = (
        "_answers",
        "_connection",
        "_known",
        "_on_known",
        "_on_own",
        "_opaques",
        "_own",
        "_pending",
        "_request",
        "_traffic",
    )

    def __init__(
        self,
        answers: Answering,
        connection: ConnectionInfo,
        pending: Pending,
        traffic: Traffic,
        on_own: Callable[[Command], None] = lambda request: None,
        on_known: Callable[[HeldAnswer], None] = lambda held: None,
    ) -> None:
        self._answers = answers
        self._connection = connection
        self._pending = pending
        self._opaques = pending.opaques
        self._traffic = traffic
        self._own = answers.own
        self._on_own = on_own
        self._on_known = on_known
        self._request: Command | None = None  # the frame under way, if it is copied or held
        self._known: HeldAnswer | None = None  # the same, if what the broker would say is known

    def head(self, header: memoryview, encoding: int, body_bytes: int) -> Fate:
        """Count the frame, and read it if its code is watched. Raises ``Corrupt`` for a header that cannot be read.

        And ``Refused`` for an opaque that waits for another request's answer.
        """
        data = bytes(header)
        opaques = self._opaques
        if opaques.strict or shows_signature(data, encoding):
            opaques.strict = True
            return self._strict(data, encoding, body_bytes)
        code = code_of(data, encoding)
        request = None
        if code is None:
            request = decode_header(data, encoding)
            code = request.code
        if request is not None and request.is_response:
            return _PASSES
        self._traffic.seen(code)
        if code in self._own:
            return self._held(request or decode_header(data, encoding), body_bytes)
        if code not in self._answers.codes:
            return _PASSES
        request = request or decode_header(data, encoding)
        if request.is_response:
            return _PASSES
        if self._is_known(request):
            return _HELD
        if not request.is_oneway:
            opaques.begin(request.opaque)
        return self._watched(request, len(data), body_bytes)

    def _strict(self, header: bytes, encoding: int, body_bytes: int) -> Fate:
        """A frame of a client that signs: no request may pass for another one."""
        code, opaque, flag = envelope(header, encoding)
        if is_response(flag):
            return _PASSES
        self._traffic.seen(code)
        if code in self._own:
            return self._held(decode_header(header, encoding), body_bytes)
        request = decode_header(header, encoding) if code in self._answers.codes else None
        if request is not None and self._is_known(request):
            return _HELD
        if gets_answer(code, flag):
            self._opaques.begin(opaque)
        return _PASSES if request is None else self._watched(request, len(header), body_bytes)

    def _is_known(self, request: Command) -> bool:
        """What the broker would say is known, so it does not see the request."""
        known = self._answers.stand_in(request, self._connection)
        if known is not None:
            self._known = HeldAnswer(request, *known)
        return known is not None

    def _held(self, request: Command, body_bytes: int) -> Fate:
        """A request that is answered here. Its opaque may be that of another one under way: no broker sees it."""
        if request.is_response:
            return _PASSES
        if body_bytes > MAX_OBSERVED_BODY:
            raise Refused(
                "the body of a request is too long", expected=f"≤ {MAX_OBSERVED_BODY}", found=body_bytes
            )
        self._request = request
        return _HELD

    def _watched(self, request: Command, header_bytes: int, body_bytes: int) -> Fate:
        kept_bytes = body_bytes if body_bytes <= MAX_OBSERVED_BODY else 0
        if not request.is_oneway and self._answers.wants(request):
            self._pending.remember(request, header_bytes + kept_bytes)
        if not body_bytes:  # nearly all of them
            self._answers.observe(request, self._connection)
            return _PASSES
        if not kept_bytes:
            return _PASSES
        self._request = request
        return _COPIED

    def peek(self, first: memoryview, body: memoryview | None) -> Fate:
        """Never asked for."""
        return _PASSES

    def whole(self, header: bytes, body: memoryview) -> None:
        """A watched request is complete."""
        if self._known is not None:
            known, self._known = self._known, None
            self._on_known(known)
            return
        request, self._request = self._request, None
        assert request is not None
        request.body = body
        if request.code in self._own:
            self._on_own(request)
        else:
            self._answers.observe(request, self._connection)


class AnswerJudge:
    """Broker → client: answers to remembered requests are held; while no request is known no more than the code is read."""

    __slots__ = (
        "_answers",
        "_connection",
        "_held",
        "_notices",
        "_on_held",
        "_opaques",
        "_pending",
        "_traffic",
    )

    def __init__(
        self,
        answers: Answering,
        connection: ConnectionInfo,
        pending: Pending,
        traffic: Traffic,
        on_held: Callable[[HeldAnswer], None],
    ) -> None:
        self._answers = answers
        self._connection = connection
        self._notices = answers.notices
        self._pending = pending
        self._opaques = pending.opaques
        self._traffic = traffic
        self._on_held = on_held
        self._held: HeldAnswer | None = None  # the frame under way, if it is looked at

    def head(self, header: memoryview, encoding: int, body_bytes: int) -> Fate:
        """Whether the frame answers a remembered request. Raises ``Corrupt`` for a header that cannot be read."""
        self._traffic.answers += 1
        if not len(self._opaques):  # those of ``Pending`` are among them
            if not self._notices or code_of(header, encoding) not in self._notices:
                return _PASSES
            return self._notice(decode_header(header, encoding))
        answer = decode_header(header, encoding)
        if not answer.is_response:
            return self._notice(answer)
        self._opaques.end(answer.opaque)
        request = self._pending.take(answer.opaque)
        if request is None:
            return _PASSES
        self._held = HeldAnswer(request, answer)
        return _PEEKED

    def _notice(self, notice: Command) -> Fate:
        """A frame that answers nothing, unless it is an answer to what is not known: held if it is one to look at."""
        if notice.code in self._notices and notice.is_oneway and not notice.is_response:
            self._held = HeldAnswer(notice, notice)
            return _HELD
        return _PASSES

    def peek(self, first: memoryview, body: memoryview | None) -> Fate:
        """Whether the answer passes after all; what it vouches for is learnt.

        One that must be judged by all of it, and is here, is judged where it lies: nearly all pass, and nothing was copied.
        """
        held = self._held
        assert held is not None
        request, answer = held.request, held.answer
        self._answers.learn(request, answer, first, self._connection)
        if body is None:
            held.verdict = self._answers.judge(request, answer, first)
        else:
            held.verdict = self._answers.judge(request, answer, body, whole=True)
        return _PASSES if held.verdict is PASS else _HELD

    def whole(self, header: bytes, body: memoryview) -> None:
        """A held answer is complete."""
        held, self._held = self._held, None
        assert held is not None
        held.head, held.answer.body = header, body
        self._on_held(held)
