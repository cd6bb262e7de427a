"""Signals before ``Signals`` listens: while modules are imported and settings read, a service has nothing to finish.

Nothing is imported here that takes time: the handlers stand before everything else.
"""

from __future__ import annotations

import os
import signal
from types import FrameType
from typing import Any

SERVICES = ("run", "gateway")
"""Verbs for which SIGTERM is a request, answered with exit code 0 whenever it comes."""

_DEFAULTS: dict[int, Any] = {signal.SIGTERM: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler}


def install() -> None:
    """From now on SIGTERM and SIGINT end the process at once, with 0. What the caller's shell ignores stays ignored."""
    for number, default in _DEFAULTS.items():
        if signal.getsignal(number) is default:
            signal.signal(number, _leave)


def before(number: int, handler: Any) -> Any:
    """What stood before ``install``, if ``handler`` is its own, else ``handler``: for those who give signals back."""
    return _DEFAULTS[number] if handler is _leave else handler


def _leave(number: int, frame: FrameType | None) -> None:
    os._exit(0)
