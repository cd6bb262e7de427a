"""Telling systemd how the service is: the ``sd_notify`` datagrams, written to the socket named by ``NOTIFY_SOCKET``.

Without that socket every call does nothing. A socket that does not answer is logged once and never stops the daemon.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping

_log = logging.getLogger("tiered.daemon.notify")


class Notifier:
    """Sends states to systemd. ``address``: path of the socket, ``@name`` for an abstract one, ``None`` for nobody.

    ``watchdog_seconds``: the time within which systemd wants a beat; ``None`` if it does not watch.
    """

    def __init__(self, address: str | None, watchdog_seconds: float | None = None) -> None:
        self.watchdog_seconds = watchdog_seconds
        self._address = "\0" + address[1:] if address and address.startswith("@") else address
        self._complained = False

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> Notifier:
        """Made from systemd's variables ``NOTIFY_SOCKET``, ``WATCHDOG_USEC`` and ``WATCHDOG_PID``."""
        micros = env.get("WATCHDOG_USEC", "")
        ours = env.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        watchdog = int(micros) / 1e6 if micros.isascii() and micros.isdigit() and ours else None
        return cls(env.get("NOTIFY_SOCKET") or None, watchdog)

    def ready(self, status: str) -> None:
        """Start-up is complete: the epoch is held and archiving runs."""
        self._send("READY=1", f"STATUS={_line(status)}")

    def status(self, text: str) -> None:
        """The line that ``systemctl status`` shows."""
        self._send(f"STATUS={_line(text)}")

    def stopping(self) -> None:
        """A graceful stop has begun."""
        self._send("STOPPING=1", "STATUS=stopping: last flush")

    def watchdog(self) -> None:
        """The process is live; systemd restarts it when this stays away."""
        if self.watchdog_seconds is not None:
            self._send("WATCHDOG=1")

    def extend(self, seconds: float) -> None:
        """Ask for ``seconds`` more to start or to stop."""
        self._send(f"EXTEND_TIMEOUT_USEC={round(seconds * 1e6)}")

    def _send(self, *lines: str) -> None:
        if self._address is None:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
                channel.setblocking(False)
                channel.connect(self._address)
                channel.send("\n".join(lines).encode())
        except OSError as error:
            if not self._complained:
                self._complained = True
                _log.warning(
                    "systemd's notify socket does not answer", extra={"error": error.strerror or str(error)}
                )


def _line(text: str) -> str:
    return " ".join(text.split())[:200]
