"""Which messages of a batch have bodies as they were declared, what these become, and where the others go."""

from __future__ import annotations

import json
from typing import Any, Protocol

import numpy as np

from tiered.codec.record.message import body_fields
from tiered.errors import Invalid
from tiered.sink.base import SinkBatch
from tiered.sink.bodies import BodyShape, Misfit
from tiered.sink.fields import message_values


class MisfitPlace(Protocol):
    """Where messages go whose bodies do not fit: ``DeadLetters`` is one."""

    def bury(self, name: str, lines: bytes, messages: int) -> None:
        """Put them there, under a name that says which they are."""
        ...

    def close(self) -> None:
        """Let go."""
        ...


def fitting(batch: SinkBatch, shape: BodyShape, misfits: MisfitPlace | None) -> tuple[SinkBatch, list[bytes]]:
    """The messages whose bodies fit, and what they become. Of a message that does not, all that it has, and why, is buried.
    ``Invalid`` without a place for that."""
    kept: list[int] = []
    values: list[bytes] = []
    for row, (told, body) in zip(batch.rows.tolist(), message_values(batch), strict=True):
        try:
            values.append(shape.value(body))
        except Misfit as misfit:
            _bury(told, body, str(misfit), misfits)
        else:
            kept.append(row)
    return SinkBatch(batch.messages, np.array(kept, np.int64)), values


def _bury(told: dict[str, Any], body: bytes, why: str, misfits: MisfitPlace | None) -> None:
    where = f"{told['topic']}/{told['queue_id']}"
    if misfits is None:
        raise Invalid(
            "a body is not what the sink's shape declares", queue=where, queue_offset=told["queue_offset"], reason=why,
            hint="mend the schema, or give such messages a place: shape.dead_letters=LOCATION",
        )  # fmt: skip
    told.update(body_fields(body))
    line = json.dumps({**told, "misfit": why}, ensure_ascii=False, separators=(",", ":")).encode(
        errors="replace"
    )
    misfits.bury(f"misfit/{told['msg_id']}-{told['queue_offset']}", line + b"\n", 1)
