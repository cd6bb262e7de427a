"""One HTTP/1.1 connection: uvicorn's protocol over h11, with the bounds that they do not have.

uvicorn answers requests; here are the times within which a head must come and an answer be taken, the number of connections and
of requests on one, heads that are not plainly right (h11 forgives bare line feeds and folded lines), clients that close their
sending side, and a close that lets the client read its last answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, cast

import h11
from starlette.responses import Response
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from tiered.errors import TieredError
from tiered.http.heads import check_request_head, empty_lines, too_long, what_is_wrong, with_host
from tiered.http.limits import MAX_HEAD_BYTES, HttpLimits, Watcher
from tiered.http.lingering import LingeringTransport
from tiered.http.refusals import HttpRefusal, bad_request
from tiered.settings import MIB

EVERY_ANSWER = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
"""Headers of every answer, whatever it is."""
_PARTING_BYTES = 1 * MIB
_log = logging.getLogger("tiered.http.protocol")
_log.setLevel(logging.ERROR)  # uvicorn warns of every request that is not HTTP: anybody could fill the log


@dataclass(frozen=True, slots=True)
class Door:
    """What the connections of one server share: its bounds, how it words a refusal, who counts, where it logs.

    ``lenient``: requests with bare line feeds, without ``Host`` or with more than one slash before the path are answered, too.
    """

    limits: HttpLimits
    refusal: Callable[[TieredError], Response]
    watcher: Watcher
    log: logging.Logger
    lenient: bool = False


class Connection(H11Protocol):
    """A connection. ASGI applications find it in ``scope["state"]["connection"]``."""

    def __init__(
        self, config: Config, server_state: ServerState, door: Door, loop: asyncio.AbstractEventLoop
    ) -> None:
        super().__init__(config, server_state, {}, loop)
        self.app_state = {"connection": self}
        self.logger = _log
        self._door = door
        self._lingering: LingeringTransport
        self._head_timer: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self._answered = 0
        self._skipped = 0  # bytes of empty lines before the head that is awaited
        self._discarded = 0
        self._ended = False  # the client has closed its sending side
        self._was_cut = False
        self.broken_body: HttpRefusal | None = None
        """Why the rest of the body that is being read will never come; the connection ends with this request."""

    @property
    def is_last_request(self) -> bool:
        """Whether the request under way is the last that this connection may carry."""
        return self._answered + 1 >= self._door.limits.requests

    def cut(self) -> None:
        """End the connection at once, whatever has not been sent."""
        self._was_cut = True
        self.transport.abort()

    # ---- asyncio's protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client has come."""
        limits = self._door.limits
        client = cast("asyncio.Transport", transport)  # uvloop's is not a subclass
        full = len(self.connections) >= limits.connections
        self._lingering = LingeringTransport(client, self.loop, limits.send_seconds, self.cut)
        super().connection_made(self._lingering)
        if full:
            self.connections.discard(self)  # it takes nobody's place
            self._refuse(_busy(limits.connections))
            client.close()
        else:
            self._await_head(limits.head_seconds, self._too_late)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed, by either side."""
        unfinished = self.cycle is not None and not self.cycle.response_complete
        if unfinished or self._was_cut:
            self._door.watcher.cut()
        self._lingering.forget()
        self._await_head(None)
        self._stop_stall()
        self._unset_keepalive_if_required()
        self.app_state = {}
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes of requests; what comes after the last answer is thrown away."""
        if not self.transport.is_closing():
            super().data_received(data)
            return
        self._discarded += len(data)
        if self._discarded > _PARTING_BYTES:
            self.transport.abort()

    def eof_received(self) -> Any:  # uvicorn's says None; asyncio keeps the connection for True
        """The client sends no more: what it asked for before is answered, then the connection ends."""
        self._ended = True
        self._lingering.client_ended()
        if self._busy and self.conn.their_state is h11.SEND_BODY:
            self._break_body(bad_request("the connection ended within a body", hint="send the whole request"))
        self._finish_after_end()
        return not self._lingering.is_closing()

    def pause_writing(self) -> None:
        """The client does not take what is sent."""
        super().pause_writing()
        self._stalled = self.loop.call_later(self._door.limits.send_seconds, self.cut)

    def resume_writing(self) -> None:
        """The client reads on."""
        self._stop_stall()
        super().resume_writing()

    # ---- requests

    def handle_events(self) -> None:
        """Look at the head that has come, then let uvicorn and h11 understand it."""
        if self.conn.their_state is h11.IDLE:
            try:
                if not self._look_at_head():
                    return
            except HttpRefusal as refusal:
                self._refuse(refusal)
                return
        super().handle_events()
        if self._busy:
            self._skipped = 0
            self._await_head(None)

    def _look_at_head(self) -> bool:
        """Whether there is something to understand; what h11 would not forgive and the door does is mended."""
        received = self.conn.trailing_data[0]
        empty = empty_lines(received, lenient=self._door.lenient)
        self._skipped += empty
        head = received[empty:]
        check_request_head(head, skipped=self._skipped, lenient=self._door.lenient)
        if self._door.lenient:
            head = with_host(head)
        if head != received:
            self.conn = h11.Connection(
                h11.SERVER, MAX_HEAD_BYTES
            )  # between requests it has nothing but the bytes
            if head:
                self.conn.receive_data(head)
        return head not in (b"", b"\r")

    def send_400_response(self, msg: str) -> None:
        """h11 cannot understand the request; called while its error is handled."""
        error = sys.exception()
        if self._busy:  # its head was understood: it is the body
            self._break_body(
                bad_request("the body is not as HTTP/1.1 has it", found=str(error)[:80], hint="use HTTP/1.1")
            )
            return
        if isinstance(error, h11.RemoteProtocolError) and error.error_status_hint == 431:
            self._refuse(too_long())
        else:
            self._refuse(
                bad_request("this is not an HTTP request", found=what_is_wrong(error), hint="use HTTP/1.1")
            )

    def on_response_complete(self) -> None:
        """An answer is handed over: the next request, or the wait for one."""
        self._answered += 1
        super().on_response_complete()
        self._unset_keepalive_if_required()
        if not self._busy and not self.transport.is_closing():
            self._await_head(self._door.limits.idle_seconds, self.transport.close)
        self._finish_after_end()

    def _should_upgrade(self) -> bool:
        return False  # what asks for another protocol is answered in this one

    @property
    def _busy(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _refuse(self, refusal: HttpRefusal) -> None:
        """Answer bytes that are not a request, and close the connection."""
        answer = self._door.refusal(refusal)
        headers = [pair for pair in answer.raw_headers if pair[0] != b"connection"]
        with contextlib.suppress(h11.LocalProtocolError):  # an answer is under way: it ends here
            status = answer.status_code
            head = h11.Response(
                status_code=status,
                headers=[*headers, *EVERY_ANSWER, (b"connection", b"close")],
                reason=HTTPStatus(status).phrase.encode(),
            )
            parts = (head, h11.Data(data=bytes(answer.body)), h11.EndOfMessage())
            self.transport.write(b"".join(self.conn.send(part) or b"" for part in parts))
            self._door.watcher.answered(status)
        self._await_head(None)
        self.transport.close()

    def _break_body(self, why: HttpRefusal) -> None:
        """Tell a page that reads a body that no more of it comes; one that reads none goes on."""
        self.broken_body = why
        self.cycle.message_event.set()

    def _finish_after_end(self) -> None:
        """The client has closed its side and nothing is under way: part, with a word if it left half a request."""
        if not self._ended or self._busy or self.transport.is_closing():
            return
        if self.conn.their_state is h11.IDLE and self.conn.trailing_data[0].strip(b"\r\n"):
            self._refuse(bad_request("the connection ended within a request", hint="send the whole request"))
        self.transport.close()

    # ---- times

    def _await_head(self, seconds: float | None, late: Callable[[], None] = lambda: None) -> None:
        """Within ``seconds`` the next whole head must be there; ``None``: it is."""
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
        if seconds is not None:
            self._head_timer = self.loop.call_later(seconds, late)

    def _too_late(self) -> None:
        limit = f"{self._door.limits.head_seconds:g} s"
        self._refuse(
            HttpRefusal(
                408, "the request did not arrive in full in time", expected=limit, hint="send it at once"
            )
        )

    def _stop_stall(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None


def _busy(most: int) -> HttpRefusal:
    return HttpRefusal(
        503,
        "too many connections",
        expected=f"at most {most}",
        hint="close idle ones, or ask again later",
        close=True,
    )
