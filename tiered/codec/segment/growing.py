"""The file that pyarrow believes it writes to: its bytes since the last look, side by side, in memory of their own."""

from __future__ import annotations

import mmap

_FIRST_BYTES = 32 << 20
_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS


class GrowingFile:
    """A file to write to. ``position``: bytes written so far. Of one thread.

    What is written lies in pages that the kernel gives when they are touched, and takes back when the last view of them is
    gone: tens of megabytes in the heap, in pieces and once more joined, would leave it in holes.
    """

    def __init__(self) -> None:
        self.position = 0
        self.closed = False
        self._pages: mmap.mmap | None = None
        self._length = 0  # of what was written there

    def write(self, data: bytes) -> int:
        """Add bytes."""
        pages, end = self._pages, self._length + len(data)
        if pages is None or end > len(pages):
            pages = mmap.mmap(-1, max(_FIRST_BYTES, 2 * end), flags=_PRIVATE)
            if self._pages is not None:
                pages[: self._length] = self._pages[: self._length]
            self._pages = pages
        pages[self._length : end] = data
        self._length = end
        self.position += len(data)
        return len(data)

    def tell(self) -> int:
        """``position``."""
        return self.position

    def flush(self) -> None:
        """Nothing waits here."""

    def close(self) -> None:
        """Nothing is written after this."""
        self.closed = True

    def taken(self) -> memoryview:
        """What was written since the last call."""
        pages, length = self._pages, self._length
        self._pages, self._length = None, 0
        return memoryview(b"" if pages is None else pages)[:length]
