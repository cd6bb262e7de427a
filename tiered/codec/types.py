"""The shapes that bytes and columns of numbers have wherever they go."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Buffer = bytes | bytearray | memoryview
"""Contiguous bytes that are only read."""

Ints = npt.NDArray[np.int64]
"""Offsets, positions, lengths, times in ms: whole numbers, one for each row."""

Bools = npt.NDArray[np.bool_]
"""A mark for each row."""
