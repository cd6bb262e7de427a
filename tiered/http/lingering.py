"""A connection's end that lets the client read its last answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

PARTING_SECONDS = 1.0
"""How long a client that was answered for the last time may still send what nobody reads."""


class LingeringTransport(asyncio.Transport):
    """A transport whose ``close`` lets the client read the last answer.

    Closing at once with bytes of the client unread would make the kernel throw the answer away. So the sending side is closed,
    what comes is read for a moment, and whatever is not taken within ``send_seconds`` is cut.
    """

    def __init__(
        self,
        inner: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        send_seconds: float,
        cut: Callable[[], None],
    ) -> None:
        super().__init__()
        self._inner = inner
        self._loop = loop
        self._send_seconds = send_seconds
        self._cut = cut
        self._timer: asyncio.TimerHandle | None = None
        self._parting = False
        self._client_ended = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._inner.get_extra_info(name, default)

    def write(self, data: Any) -> None:
        self._inner.write(data)

    def pause_reading(self) -> None:
        if not self.is_closing():
            self._inner.pause_reading()

    def resume_reading(self) -> None:
        if not self._inner.is_closing():
            self._inner.resume_reading()

    def is_closing(self) -> bool:
        return self._parting or self._inner.is_closing()

    def abort(self) -> None:
        self._inner.abort()

    def close(self) -> None:
        if self.is_closing():
            return
        self._parting = True
        if self._client_ended or not self._inner.can_write_eof():
            self._end()
            return
        try:
            self._inner.write_eof()
            self._inner.resume_reading()
        except OSError:  # the client is gone
            self._end()
            return
        self._timer = self._loop.call_later(PARTING_SECONDS, self._end)

    def client_ended(self) -> None:
        """The client sends no more."""
        self._client_ended = True
        if self._parting:
            self._end()

    def forget(self) -> None:
        """The connection is gone: no timer is needed."""
        if self._timer is not None:
            self._timer.cancel()

    def _end(self) -> None:
        """Close for good once everything is sent, or cut."""
        self.forget()
        self._inner.close()
        self._timer = self._loop.call_later(self._send_seconds, self._cut)
