"""What is in a file: one line of JSON for each message, or Parquet."""

from __future__ import annotations

from io import BytesIO
from typing import Protocol

from tiered.sink.base import SinkBatch
from tiered.sink.fields import json_lines


class FileFormat(Protocol):
    """A file in the making: messages are added until it is taken."""

    suffix: str

    def add(self, batch: SinkBatch) -> None:
        """Append the rows of a batch; nothing of its buffer is kept."""
        ...

    @property
    def size(self) -> int:
        """Bytes so far, about."""
        ...

    @property
    def messages(self) -> int:
        """Messages so far."""
        ...

    def take(self) -> bytes:
        """The whole file; the next one begins."""
        ...


class JsonLines:
    """One message a line, in UTF-8: the fields of ``tiered read --format json``."""

    suffix = "jsonl"

    def __init__(self) -> None:
        self._file = BytesIO()
        self.messages = 0

    @property
    def size(self) -> int:
        return self._file.tell()

    def add(self, batch: SinkBatch) -> None:
        for line in json_lines(batch):
            self._file.write(line)
            self._file.write(b"\n")
        self.messages += len(batch.rows)

    def take(self) -> bytes:
        whole, self._file, self.messages = self._file.getvalue(), BytesIO(), 0
        return whole


FORMATS = ("jsonl", "parquet")


def file_format(name: str) -> FileFormat:
    """A file of the format of this name. ``Invalid`` if pyarrow is not installed and it needs that."""
    if name == "jsonl":
        return JsonLines()
    from tiered.codec.arrow.givenrows import ParquetFile

    return ParquetFile()
