"""What the transport and the answers know of each other: the port between sessions and ``Answers``.

The transport knows frames and connections, never what a pull means; the answers know what a pull means, never a socket.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from tiered.codec.remoting.frame import Bytes, Command

PEEK_BYTES = 64
"""Body bytes by which a long answer is judged at first: enough for both offsets of the first record (see its layout)."""


KEYS_HINT = "a broker with access control needs gateway.access_key and gateway.secret_key"

MAX_SAID = 200
"""Characters of a text from the wire that a log line or a remark repeats."""


def clipped(text: str) -> str:
    """``text``, or its start and how long it is: a header field may have megabytes."""
    return text if len(text) <= MAX_SAID else f"{text[:MAX_SAID]}… ({len(text)} characters)"


@dataclass(frozen=True, slots=True)
class ConnectionInfo:
    """One client connection: ``number`` is unique in this process, ``client`` its address, ``broker_address`` where it leads.

    ``broker_name`` is what route answers call that broker; ``None`` while no answer has named it.
    """

    number: int
    client: str
    broker_address: str
    broker_name: str | None = None


class Reason(Enum):
    """Why an answer is held: the answers' own words, which the transport carries and does not read."""


@dataclass(frozen=True, slots=True, eq=False)
class Verdict:
    """What becomes of a broker's answer: ``PASS``, ``NEED_BODY``, or held: ``HOLD`` or one with a reason. Compare by ``is``."""

    why: Reason | None = None


PASS = Verdict()
"""The answer goes on as it came."""

NEED_BODY = Verdict()
"""The first bytes do not tell: the answer is collected and judged again by all of it."""

HOLD = Verdict()
"""The client gets what ``answer`` makes."""


@dataclass(frozen=True, slots=True)
class NewBody:
    """The header of the broker's answer, byte for byte, with another body."""

    body: bytes


class Answering(Protocol):
    """What a session asks about frames of its connection. Called on the event loop: nothing here may block."""

    codes: frozenset[int]
    """Request codes that any of these may care for; frames of every other code are not even parsed."""

    own: frozenset[int]
    """Request codes that are answered here: they never go to the broker, and need none."""

    notices: frozenset[int]
    """Codes of the broker's own requests to its clients that ``notice`` is to see; none of others is parsed."""

    def wants(self, request: Command) -> bool:
        """Whether the answer to this request is to be looked at, by ``learn`` and ``judge``."""
        ...

    def stand_in(self, request: Command, connection: ConnectionInfo) -> tuple[Command, Verdict] | None:
        """What the broker is known to answer to a request of ``codes``, and the verdict on it; ``None``: it is asked."""
        ...

    def learn(self, request: Command, answer: Command, first: Bytes, connection: ConnectionInfo) -> None:
        """The broker has answered a wanted request, so it has judged who asks. Once for each answer, before ``judge``.

        ``request.body`` is complete, or empty if it was too long; ``first``: the first ``PEEK_BYTES`` of the answer's body.
        """
        ...

    def judge(self, request: Command, answer: Command, body: Bytes, *, whole: bool = False) -> Verdict:
        """What becomes of an answer: by the ``whole`` of its body where that is here, else by its first ``PEEK_BYTES``.

        In that case ``NEED_BODY`` has it judged once more, by the whole.
        """
        ...

    def at_once(
        self, request: Command, answer: Command, verdict: Verdict, connection: ConnectionInfo
    ) -> Command | None:
        """What ``answer`` would make of an answer that stands in, if nothing need be waited for; ``None``: ask ``answer``."""
        ...

    async def answer(
        self, request: Command, answer: Command, verdict: Verdict, connection: ConnectionInfo
    ) -> Command | NewBody | None:
        """What the client gets instead of the broker's ``answer``, held by ``verdict``; ``None``: the answer as it came.

        Whatever is raised, and being too slow, makes the client try again (``SYSTEM_BUSY``): the broker's answer is not
        passed on then. A ``Command`` must carry the opaque of the answer.
        """
        ...

    async def serve(self, request: Command, connection: ConnectionInfo) -> Command:
        """The answer to a request of ``own``, with its opaque; its body is complete. Raised errors become ``SYSTEM_BUSY``."""
        ...

    async def notice(self, notice: Command, connection: ConnectionInfo) -> NewBody | None:
        """What the client gets instead of a request of ``notices`` that the broker sends it; ``None``: the request as it came.

        It wants no answer. Whatever is raised, and being too slow, keeps it from the client.
        """
        ...

    def observe(self, request: Command, connection: ConnectionInfo) -> None:
        """A request of ``codes`` goes to the broker (its body complete). Changes nothing.

        Nobody has judged yet who sends it: what others would feel must not be learnt here. See ``learn``.
        """
        ...

    def closed(self, connection: ConnectionInfo) -> None:
        """The connection is gone."""
        ...
