"""Frames for a client that are made here: one of the broker's with another body, and *come again*."""

from __future__ import annotations

from tiered.codec.remoting.codes import ResponseCode
from tiered.codec.remoting.frame import RESPONSE, Bytes, Command, encode_command
from tiered.gateway.ports import NewBody
from tiered.gateway.reply import MAX_REMARK
from tiered.gateway.transport.pending import HeldAnswer


def whole_frame(held: HeldAnswer, made: Command | NewBody | None) -> list[Bytes]:
    """The frame that goes to the client."""
    if isinstance(made, Command):
        return encode_command(made)
    body = held.answer.body if made is None else made.body
    head = held.head
    if made is not None:
        head = (len(head) - 4 + len(body)).to_bytes(4, "big") + head[4:]
    return [head, body] if len(body) else [head]


def busy_frame(like: Command, why: str) -> list[Bytes]:
    """SYSTEM_BUSY, so that the client tries again: to a request, or in the place of an answer, whose opaque it carries."""
    return encode_command(
        Command(
            code=ResponseCode.SYSTEM_BUSY,
            opaque=like.opaque,
            flag=RESPONSE,
            remark=f"[gateway] try again: {why}"[:MAX_REMARK],
            version=like.version,
            language=like.language,
            binary=like.binary,
        )
    )
