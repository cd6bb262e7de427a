"""Columns of messages as an object holds them, made of their records."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tiered.codec.format.object import ROW_DTYPE
from tiered.codec.record.batch import MessageBatch
from tiered.codec.record.properties import PropertyColumns
from tiered.codec.types import Ints


def message_rows(
    messages: MessageBatch, properties: PropertyColumns, order: Ints, owned: Ints
) -> npt.NDArray[np.void]:
    """``ROW_DTYPE`` rows of the messages in this order, each of which owns so many queue offsets; ``tag`` is an index into the
    properties' tags."""
    headers = messages.headers[order]
    rows = np.zeros(len(order), dtype=ROW_DTYPE)
    for name in (
        "size", "physical_offset", "store_timestamp", "born_timestamp", "sys_flag", "body_crc", "body_length",
    ):  # fmt: skip
        rows[name] = headers[name]
    rows["tags_code"] = properties.tags_code[order]
    rows["tag"] = properties.tag[order]
    rows["queue_offsets"] = owned
    return rows
