"""Where messages of a feed end in their queues."""

from __future__ import annotations

import numpy as np

from tiered.codec.record.batch import MessageBatch
from tiered.codec.record.layout import SYS_INNER_BATCH
from tiered.codec.record.properties import property_columns
from tiered.codec.types import Ints


def queue_ends(messages: MessageBatch) -> Ints:
    """The queue offset behind each message: one that a client batched owns several."""
    offsets = messages.headers["queue_offset"].astype(np.int64)
    if not (messages.headers["sys_flag"] & SYS_INNER_BATCH).any():
        return offsets + 1
    return offsets + property_columns(messages).queue_offsets
