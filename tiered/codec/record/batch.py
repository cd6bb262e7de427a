"""The value that flows: one buffer of records, their headers as one array, their topics interned."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class MessageBatch:
    """Records of one buffer. ``headers`` has HEADER_DTYPE, rows in buffer order; ``topic_index`` points into
    ``topics``.

    ``buffer`` is not copied: it must not change while the batch is used.
    """

    buffer: memoryview
    headers: npt.NDArray[np.void]
    topics: tuple[str, ...]

    def __len__(self) -> int:
        """Records in the batch."""
        return len(self.headers)

    def record(self, row: int) -> memoryview:
        """The bytes of one record, not copied."""
        position = int(self.headers["position"][row])
        return self.buffer[position : position + int(self.headers["size"][row])]
