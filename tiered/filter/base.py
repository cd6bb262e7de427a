"""The port of filters: which records a reader wants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt


class RowFilter(Protocol):
    """Which records a reader wants: first by columns, before a body is fetched, then exactly."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Row columns that ``may_match`` wants (``ROW_DTYPE`` names); empty: it can tell nothing from columns."""
        ...

    def may_match(self, rows: Mapping[str, npt.NDArray[Any]], tags: Sequence[bytes]) -> npt.NDArray[np.bool_]:
        """Per row of the ``columns``: false means surely not wanted. ``tags``: the object's dictionary, which column ``tag``
        counts in."""
        ...

    def accepts(self, record: memoryview) -> bool:
        """Whether one stored record is wanted: exact."""
        ...
