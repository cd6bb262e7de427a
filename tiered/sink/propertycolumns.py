"""Properties as columns, where all messages have the same names in the same order: as most that one program sent. Pure."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tiered.codec.record.properties import PropertyEntries
from tiered.codec.record.ragged import gather

_MOST = 64
"""Names of a message; with more each message is looked at by itself."""


class AlikeProperties(NamedTuple):
    """``names`` of every message, distinct; for each of them the values of all messages in order, as they are stored."""

    names: tuple[str, ...]
    values: tuple[list[bytes], ...]


def property_columns(entries: PropertyEntries, messages: int) -> AlikeProperties | None:
    """Of so many messages; ``None`` if they are not alike. Names that are not UTF-8 have U+FFFD in them."""
    several, left = divmod(len(entries.row), messages) if messages else (0, 0)
    if left or several > _MOST:
        return None
    rows = entries.row.reshape(messages, several)
    starts = entries.name_start.reshape(messages, several)
    lengths = entries.name_end.reshape(messages, several) - starts
    if (rows != np.arange(messages)[:, None]).any() or (lengths != lengths[:1]).any():
        return None
    names = []
    for at, length in enumerate(lengths[0].tolist() if messages else ()):
        written = gather(entries.blob, starts[:, at], f"V{length}").view(np.uint8).reshape(messages, length)
        if (written != written[0]).any():
            return None
        names.append(written[0].tobytes().decode("utf-8", "replace"))
    if len(set(names)) < several:
        return None
    values = (entries.name_end + 1).reshape(messages, several), entries.value_end.reshape(messages, several)
    # Column by column: values of one name are often of one length, and then cut in one step.
    cut = (entries.cut(begins, ends) for begins, ends in zip(*(v.T for v in values), strict=True))
    return AlikeProperties(tuple(names), tuple(cut))
