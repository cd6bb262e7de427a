"""Files of a sink read back, by its manifests and not by a listing of files."""

from __future__ import annotations

import base64
import json
from collections.abc import Collection, Iterator, Sequence
from io import BytesIO
from typing import Any

from tiered.codec.checksum import crc32c
from tiered.errors import NotFound
from tiered.model import MessageQueue
from tiered.provider.base import Provider
from tiered.sink.base import SinkBatch, SinkPosition
from tiered.sink.comparison.base import Marks
from tiered.sink.comparison.content import content_of, marks_of, origin_of
from tiered.sink.comparison.tables import COLUMNS, table_marks
from tiered.sink.fields import message_values
from tiered.sink.file.manifest import FileManifest, GivenFile, Manifests
from tiered.sink.keptposition import laid_over
from tiered.sink.kinds import SinkPlace

_AT_ONCE = 4_096


class FileReadBack:
    """Of one sink, below its name. ``parquet``: what the order says now; each file is read by what it is."""

    ordered = True

    def __init__(self, provider: Provider, place: SinkPlace, *, parquet: bool) -> None:
        self._provider, self._place, self._parquet = provider, place, parquet
        self._manifests = Manifests(provider, place.name)
        self._first = 0
        self._gone = self._broken = 0

    def position(self) -> SinkPosition:
        last = self._manifests.last()
        if last is None:
            return SinkPosition()
        last.check_owner(self._place, self._provider.url)
        position = SinkPosition()
        for number in range(last.complete, last.number):
            position = laid_over(position, self._manifests.read(number).position)
        return laid_over(position, last.position)

    def target(self, queue: MessageQueue) -> MessageQueue:
        return queue

    def lane(self, queue: MessageQueue) -> str:
        return ""

    def given(self, batch: SinkBatch) -> Marks:
        if self._parquet:
            from tiered.codec.arrow.givenrows import given_table

            return table_marks(given_table(batch.messages, batch.rows))
        return _marks([(value, body, value["properties"]) for value, body in message_values(batch)])

    def read(self, queues: Collection[MessageQueue]) -> Iterator[Marks]:
        self._gone = self._broken = 0
        for at, manifest in enumerate(self._manifests.all()):
            if at == 0:
                self._first = manifest.number
            yield from self._files(manifest)

    def buried(self) -> Iterator[Marks]:
        return iter(())

    def begins_late(self, queue: MessageQueue) -> bool:
        return self._first > 0

    def unread(self) -> str | None:
        said = []
        if self._gone:
            said.append(f"{self._gone} files that manifests name were deleted")
        if self._broken:
            said.append(f"{self._broken} files are not what their manifests say, or cannot be read")
        return "; ".join(said) or None

    def close(self) -> None:
        self._provider.close()

    def _files(self, manifest: FileManifest) -> Iterator[Marks]:
        for file in manifest.files:
            try:
                data = bytes(self._provider.get(file.key).data)
            except NotFound:
                self._gone += 1
                continue
            whole = len(data) == file.bytes and crc32c(data) == file.crc32c
            broken = 0 if whole else 1
            try:
                yield from self._rows(file, data)
            except (ValueError, KeyError, TypeError):  # what could be read was compared
                broken = 1
            self._broken += broken

    def _rows(self, file: GivenFile, data: bytes) -> Iterator[Marks]:
        if file.key.endswith(".parquet"):
            from tiered.codec.arrow.givenrows import given_rows

            for some in given_rows(data, COLUMNS, _AT_ONCE):
                yield table_marks(some)
            return
        held: list[tuple[dict[str, Any], bytes, dict[str, str]]] = []
        for line in BytesIO(data):
            value = json.loads(line)
            body = value["body"].encode() if "body" in value else base64.b64decode(value["body_base64"])
            held.append((value, body, value["properties"]))
            if len(held) >= _AT_ONCE:
                yield _marks(held)
                held = []
        yield _marks(held)


def _marks(held: Sequence[tuple[dict[str, Any], bytes, dict[str, str]]]) -> Marks:
    return marks_of(
        [(value["topic"], value["queue_id"]) for value, _, _ in held],
        [value["queue_offset"] for value, _, _ in held],
        [origin_of(value["msg_id"]) for value, _, _ in held],
        [content_of(body, properties.items()) for _, body, properties in held],
    )
