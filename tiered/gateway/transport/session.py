"""One client connection and the one upstream connection that belongs to it.

Bytes go from socket to socket in the callbacks of the event loop; a side that takes nothing stops the reading of the other.
Whatever ends one side ends the other: a broker knows a client by its connection.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from tiered.codec.remoting.frame import Bytes, Command, encode_command
from tiered.errors import TieredError, Unavailable
from tiered.gateway.ports import NEED_BODY, PASS, Answering, ConnectionInfo, NewBody, clipped
from tiered.gateway.reply import MAX_REMARK
from tiered.gateway.transport.frames import FrameWalk
from tiered.gateway.transport.framing import busy_frame, whole_frame
from tiered.gateway.transport.limits import ANSWERING_PER_CONNECTION, ANSWERS_PER_CONNECTION
from tiered.gateway.transport.pending import AnswerJudge, HeldAnswer, Pending, RequestJudge
from tiered.gateway.transport.side import Shared, Side

log = logging.getLogger("tiered.gateway")


class Session:
    """Both sides of one client connection, and the answers being made for it."""

    def __init__(
        self,
        shared: Shared,
        info: ConnectionInfo,
        answers: Answering,
        on_gone: Callable[[Session], None],
        on_left: Callable[[], None] = lambda: None,
    ) -> None:
        """``on_gone`` is called when both sides are closed, ``on_left`` when the server closed a client's connection."""
        self.shared = shared
        self.info = info
        self.closed = False
        self.answering = 0  # held answers that are not written yet
        self.client = Side(self, "client")
        self.upstream = Side(self, "server")
        self.client.other, self.upstream.other = self.upstream, self.client
        self._pending = Pending(shared.clock.monotonic)
        requests = RequestJudge(answers, info, self._pending, shared.traffic, self._own, self._hold)
        replies = AnswerJudge(answers, info, self._pending, shared.traffic, self._hold)
        most = shared.settings.max_frame_bytes
        self.client.walk = FrameWalk(requests, most)
        self.upstream.walk = FrameWalk(replies, most)
        self._answers = answers
        self._on_gone = on_gone
        self._on_left = on_left
        self.gone = asyncio.Event()  # both sockets are closed
        self._tasks: set[asyncio.Task[None]] = set()
        self._turns = asyncio.Semaphore(ANSWERS_PER_CONNECTION)
        self._room = asyncio.Event()  # see ``ready``
        self._room.set()
        self._aside = 0  # bytes of the budget whose answers the client has not taken yet
        self._held_bytes = 0  # of the broker's answers that are held
        self.holds_much = False
        """So many bytes of the broker's answers are held that no more are read."""
        self._idle = self._stalled = (0, shared.clock.monotonic())  # sums at the last look, and since when

    def cut(self, reason: str, why: str) -> None:
        """End both sides at once, say why, count it."""
        if self.closed:
            return
        self.shared.metrics.gateway_cut.labels(reason).inc()
        if (unsaid := self.unsaid(reason)) is not None:
            broker = self.info.broker_address
            said = {"reason": reason, "client": self.info.client, "broker": broker, "unsaid": unsaid}
            log.warning("connection ended: %s", why[:MAX_REMARK], extra=said)
        self._close()
        self._end(at_once=True)

    def unsaid(self, kind: str) -> int | None:
        """``None``: no line of this kind in the log now. Else how many were left out since the last one."""
        return self.shared.sparse.due(kind, self.shared.clock.monotonic())

    def abort(self) -> None:
        """Drop what a closed session has not written yet."""
        self._end(at_once=True)

    def close(self) -> None:
        """End both sides in order: what is written already still goes out."""
        self._close()
        self._end(at_once=False)

    def lost(self, side: Side, error: Exception | None) -> None:
        """One socket is gone: the other one is closed when it has taken what waits for it."""
        if not self.closed:
            log.debug("the %s closed", side.name, extra={"client": self.info.client, "error": repr(error)})
            if side is self.upstream:
                self._on_left()
        self.close()

    def drained(self, side: Side) -> None:
        """A side takes bytes again."""
        if side is self.client:
            self.settle()

    @property
    def spoke(self) -> bool:
        """Whether the client has sent a frame."""
        return self.client.walk.frames > 0

    @property
    def ready(self) -> bool:
        """Nothing made for the client waits, so more may be made."""
        return self._room.is_set()

    def settle(self) -> None:
        """Write finished answers, if the client takes bytes and is not in the middle of a frame; then more may be made."""
        walk, client = self.upstream.walk, self.client
        if walk.inserts and walk.between and not client.paused and not self.closed:
            client.send(walk.take_inserts())
        if walk.inserts or client.paused:
            self._room.clear()
        elif not self._room.is_set():
            self.shared.budget.give_back(self._aside)
            self._aside = 0
            self._room.set()

    def look(self, now: float) -> None:
        """Called now and then: cut what is idle, and what takes no bytes though some wait."""
        if self.closed:
            if now - self._stalled[1] > self._stall_seconds:  # a peer that does not take the last bytes
                self._end(at_once=True)
            return
        moved = self.client.received + self.upstream.received
        if moved != self._idle[0] or self.answering:
            self._idle = (moved, now)
        elif now - self._idle[1] > self.shared.settings.idle_timeout_ms / 1000:
            self.cut("idle", f"nothing moved for {now - self._idle[1]:.0f} s")
        delivered = self.client.delivered + self.upstream.delivered
        if delivered != self._stalled[0] or not (self.client.waiting or self.upstream.waiting):
            self._stalled = (delivered, now)
        elif now - self._stalled[1] > self._stall_seconds:
            slow = self.client if self.client.waiting else self.upstream
            self.cut("slow_reader", f"the {slow.name} took none of {slow.waiting} bytes for too long")

    @property
    def _stall_seconds(self) -> float:
        return self.shared.settings.stall_timeout_ms / 1000

    def _end(self, *, at_once: bool) -> None:
        """End the sockets that are open; without any the session is gone."""
        for side in (self.client, self.upstream):
            if side.transport is not None and side.open:
                side.transport.abort() if at_once else side.transport.close()
        if not (self.client.open or self.upstream.open or self.gone.is_set()):
            self.gone.set()
            self._on_gone(self)

    def _close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self._stalled = (0, self.shared.clock.monotonic())
        for task in tuple(self._tasks):
            task.cancel()
        self._pending.clear()
        self.shared.budget.give_back(self._aside)
        self._aside = 0
        self._answers.closed(self.info)

    def _hold(self, held: HeldAnswer) -> None:
        """An answer that did not pass by its first bytes passes by all of it, or is made in a task of its own."""
        if held.verdict is NEED_BODY:
            answer = held.answer
            held.verdict = self._answers.judge(held.request, answer, answer.body, whole=True)
            if held.verdict is PASS:  # ``settle`` sends it when the chunk under way has been walked over
                self.upstream.walk.insert(whole_frame(held, None))
                return
        if held.stands_in and self._at_once(held):
            return
        self._answering_more()
        size = len(held.answer.body)
        self._hold_bytes(size)
        task = asyncio.get_running_loop().create_task(self._answer(held))
        self._tasks.add(task)
        task.add_done_callback(lambda task: self._done(task, size))

    def _at_once(self, held: HeldAnswer) -> bool:
        """An answer that stands in, replaced without a task of its own where nothing need be waited for: neither the archive
        nor room for the answer. What goes wrong here goes wrong once more in the task, which says so."""
        if self.closed or not self.ready:
            return False
        aside = self.shared.budget.take_at_once(self.shared.settings.max_pull_bytes)
        if aside is None:
            return False
        try:
            made = self._answers.at_once(held.request, held.answer, held.verdict, self.info)
            pieces = None if made is None else encode_command(made)
        except Exception:  # noqa: BLE001 - see above
            pieces = None
        if pieces is not None:
            self._written(pieces, aside, "replaced")
            return True
        self.shared.budget.give_back(aside)
        return False

    def _own(self, request: Command) -> None:
        """A request that is answered without the broker."""
        if self.closed or request.is_oneway:
            return
        self._answering_more()
        task = asyncio.get_running_loop().create_task(self._serve(request))
        self._tasks.add(task)
        task.add_done_callback(lambda task: self._done(task, 0))

    async def _serve(self, request: Command) -> None:
        """One of them. It has as long as the answers need that it asks: they have limits of their own."""
        try:
            async with self._turns:
                await self._room.wait()
                pieces = encode_command(await self._answers.serve(request, self.info))
        except TieredError as error:
            pieces = busy_frame(request, error.told)
        self.upstream.walk.insert(pieces)
        self.settle()

    def _answering_more(self) -> None:
        """One answer more is under way: requests are small, and answered here they have no other bound."""
        self.answering += 1
        if self.answering >= ANSWERING_PER_CONNECTION:
            self.client.stop_reading("answers under way")

    def _hold_bytes(self, more: int) -> None:
        """Bytes of held answers came or went: the server is not read while there are too many."""
        self._held_bytes += more
        most = self.shared.settings.max_pending_bytes
        if not self.holds_much and self._held_bytes > most:
            self.holds_much = True
            self.upstream.stop_reading("held answers")
        elif self.holds_much and self._held_bytes <= most // 2 and not self.closed:
            self.holds_much = False
            self.upstream.read_on("held answers")

    def _done(self, task: asyncio.Task[None], held_bytes: int) -> None:
        self._tasks.discard(task)
        self.answering -= 1
        if self.answering <= ANSWERING_PER_CONNECTION // 2 and not self.closed:
            self.client.read_on("answers under way")
        self._hold_bytes(-held_bytes)
        if not task.cancelled() and task.exception() is not None:
            log.error("an answer was lost", exc_info=task.exception(), extra={"client": self.info.client})
            self.cut("failure", "an answer was lost")

    async def _answer(self, held: HeldAnswer) -> None:
        """Replace one answer, or let it go on; whatever goes wrong becomes *busy*, never the broker's answer."""
        settings, budget = self.shared.settings, self.shared.budget
        aside = 0
        outcome = "failed_closed"
        self.settle()
        try:
            async with asyncio.timeout(settings.read_timeout_ms / 1000), self._turns:
                await self._room.wait()
                asked = held.request.ext
                group = asked.get("consumerGroup", "")
                aside = await budget.take(settings.max_pull_bytes, asked.get("topic", ""), group)
                made = await self._made(held)
                pieces, outcome = whole_frame(held, made), "passed" if made is None else "replaced"
        except TimeoutError:
            pieces = self._busy(held, f"the archive did not answer within {settings.read_timeout_ms} ms")
        except TieredError as error:
            pieces = self._busy(held, error.told, str(error))
        except Exception as error:  # the door of what answers; fail closed
            if (unsaid := self.unsaid("answer")) is not None:
                log.exception("an answer failed", extra={"client": self.info.client, "unsaid": unsaid})
            pieces = self._busy(held, f"the gateway failed: {type(error).__name__}")
        except asyncio.CancelledError:
            budget.give_back(aside)
            raise
        self._written(pieces, aside, outcome)

    def _written(self, pieces: list[Bytes], aside: int, outcome: str) -> None:
        """An answer is made. ``aside`` bytes of the budget are given back once the client takes more."""
        self.shared.metrics.gateway_held.labels(outcome).inc()
        self.upstream.walk.insert(pieces)
        self.settle()
        if self.ready or self.closed:
            self.shared.budget.give_back(aside)
        else:
            self._aside += aside

    async def _made(self, held: HeldAnswer) -> Command | NewBody | None:
        if held.is_notice:
            return await self._answers.notice(held.request, self.info)
        made = await self._answers.answer(held.request, held.answer, held.verdict, self.info)
        if made is None and held.stands_in:  # there is no answer of the broker's own
            raise Unavailable("the broker is asked again")
        return made

    def _busy(self, held: HeldAnswer, told: str, why: str = "") -> list[Bytes]:
        """Answer SYSTEM_BUSY, so that the client retries; drop a notice, which has no reply. ``why``: what the log says, if
        that is more than the client is told."""
        why = (why or told)[:MAX_REMARK]
        what = "what the broker told a client was not passed on" if held.is_notice else "told to try again"
        if (unsaid := self.unsaid("notice" if held.is_notice else "busy")) is not None:
            topic = clipped(held.request.ext.get("topic", ""))
            said = {
                "client": self.info.client, "code": held.request.code, "topic": topic, "unsaid": unsaid,
            }  # fmt: skip
            log.warning("%s: %s", what, why, extra=said)
        if held.is_notice:
            return []
        return busy_frame(held.answer, told)
