"""The bytes of a file in the making, kept in a local file without a name: the system's cache holds them, not this process."""

from __future__ import annotations

import contextlib
import mmap
import tempfile
from types import TracebackType

from tiered.codec.types import Buffer
from tiered.errors import Unavailable


class Spool:
    """Takes bytes in order, and shows them all as one buffer. ``directory``: where the local file lies; ``None``: where the
    system keeps temporary files. ``Unavailable`` if it cannot be written. Of one thread."""

    def __init__(self, directory: str | None = None) -> None:
        self._directory = directory
        try:
            self._file = tempfile.TemporaryFile(dir=directory, prefix="tiered-spool-")  # noqa: SIM115 - closed by ``close``
        except OSError as error:
            raise self._unavailable(error) from error
        self._mapped: mmap.mmap | None = None
        self.length = 0

    def write(self, piece: Buffer) -> None:
        """Add bytes."""
        try:
            self._file.write(piece)
        except OSError as error:
            raise self._unavailable(error) from error
        self.length += len(piece)

    def restart(self) -> None:
        """Forget what was written."""
        try:
            self._file.seek(0)
            self._file.truncate()
        except OSError as error:
            raise self._unavailable(error) from error
        self.length = 0

    def parts(self) -> list[Buffer]:
        """Everything that was written; nothing may be added any more. Good until ``close``."""
        try:
            self._file.flush()
            self._mapped = mmap.mmap(self._file.fileno(), self.length, prot=mmap.PROT_READ)
        except OSError as error:
            raise self._unavailable(error) from error
        return [memoryview(self._mapped)]

    def close(self) -> None:
        """Give the space back; whoever still looks at the bytes keeps it until then."""
        self._mapped = None
        with contextlib.suppress(
            OSError
        ):  # of a full disk once more: what is left in the buffer nobody wants
            self._file.close()

    def __enter__(self) -> Spool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _unavailable(self, error: OSError) -> Unavailable:
        return Unavailable(
            "a file in the making cannot be kept on the local disk",
            hint="make room in state.directory: sealed files (seal.segment_bytes) are put together there",
            directory=self._directory or tempfile.gettempdir(), found=str(error),
        )  # fmt: skip
