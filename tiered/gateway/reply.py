"""Answers made here, out of the broker's own: same opaque id, flag, release, language and header encoding."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from tiered.codec.remoting.frame import DEFAULT_MAX_FRAME_BYTES, Command
from tiered.metrics import Metrics
from tiered.settings import KIB, Gateway

MAX_REMARK = 1000
"""Characters of a remark, or of a reason in the log."""

FRAME_ROOM = 64 * KIB
"""Left free in a frame for its header."""

NO_TEXTS: Mapping[str, str] = MappingProxyType({})


def max_body_bytes(settings: Gateway) -> int:
    """Most bytes of the body of an answer made here: what fits a frame that the client and we take."""
    return max(min(settings.max_frame_bytes, DEFAULT_MAX_FRAME_BYTES) - FRAME_ROOM, KIB)


def changed(
    answer: Command,
    code: int,
    remark: str | None,
    numbers: Mapping[str, int],
    body: bytes | memoryview = b"",
    texts: Mapping[str, str] = NO_TEXTS,
) -> Command:
    """The broker's answer with another code, remark and body, and some fields set. All other fields are kept.

    ``suggestWhichBrokerId`` is added where a pull answer lacks it: Java clients fail without.
    """
    ext = {**answer.ext, **{name: str(value) for name, value in numbers.items()}, **texts}
    if "nextBeginOffset" in ext:
        ext.setdefault("suggestWhichBrokerId", "0")
    return Command(
        code=int(code),
        opaque=answer.opaque,
        flag=answer.flag,
        remark=remark,
        ext=ext,
        body=body,
        version=answer.version,
        language=answer.language,
        binary=answer.binary,
    )


def reply(answer: Command, code: int, remark: str) -> Command:
    """An answer without fields and body: a code that clients take for an error, and why."""
    return Command(
        code=int(code),
        opaque=answer.opaque,
        flag=answer.flag,
        remark=remark[:MAX_REMARK],
        version=answer.version,
        language=answer.language,
        binary=answer.binary,
    )


def refused(metrics: Metrics, what: str, made: Command) -> Command:
    """``made``, counted as refused."""
    metrics.cold_answers.labels(what, "refused").inc()
    return made
