"""The sink: files are put as they fill up, and count once the manifest of the next flush is there."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tiered.archive.state.offsetmap import OffsetMap
from tiered.errors import Conflict, Corrupt, Fenced, NotFound
from tiered.model import MessageQueue
from tiered.provider.base import Provider
from tiered.sink.base import Accepted, Rewound, SafePoint, SinkBatch, SinkPosition
from tiered.sink.file.formats import FileFormat
from tiered.sink.file.manifest import FileManifest, GivenFile, Manifests, given_file
from tiered.sink.keptposition import laid_over
from tiered.sink.kinds import SinkPlace

COMPLETE_EVERY = 256
"""Manifests from one with the complete position to the next: so many are read at most when the sink is opened."""


class FileSink:
    """``file_bytes``: about how large a file becomes before the next one begins. Opening it takes a number, so that whoever had
    the sink before finds the number of its next manifest taken, and is fenced."""

    def __init__(self, provider: Provider, place: SinkPlace, made: FileFormat, file_bytes: int) -> None:
        self._provider = provider
        self._place = place
        self._file = made
        self._file_bytes = file_bytes
        self._writer = uuid.uuid4().hex[:12]
        self._manifests = Manifests(provider, place.keeps_as)
        self._files: list[GivenFile] = []
        self._rewound: tuple[Rewound, ...] = ()
        self._position, self._number = self._claim()
        self._complete = self._number
        self._sweep()

    def position(self) -> SinkPosition:
        return self._position

    def write(self, batch: SinkBatch) -> Accepted:
        rows = batch.rows
        for first in range(0, len(rows), 1_000):  # a file stays near its size whatever a batch has
            self._file.add(SinkBatch(batch.messages, rows[first : first + 1_000]))
            if self._file.size >= self._file_bytes:
                self._put_file()
        return Accepted(len(rows))

    def mark(self, rewound: Sequence[Rewound]) -> None:
        """Of the files before the next manifest, whose messages stand behind the marks."""
        self._rewound += tuple(rewound)

    def join(self, parts: Sequence[str], maps: Mapping[MessageQueue, OffsetMap]) -> None:
        """Their files count by the next manifest of this sink; they stay where they are."""
        for part in parts:
            root = replace(self._place, part=part).keeps_as
            for manifest in Manifests(self._provider, root).all():
                self._files += manifest.files

    def joined(self, parts: Sequence[str]) -> None:
        """Nothing: their files are named by this sink's manifest, and lie beside theirs."""

    def flush(self, position: SinkPosition) -> SafePoint:
        if self._file.messages:
            self._put_file()
        whole = laid_over(self._position, position)
        if not self._files and not self._rewound and whole == self._position:
            return SafePoint(position)
        number = self._number + 1
        complete = number if number - self._complete >= COMPLETE_EVERY else self._complete
        self._put(self._manifest(number, complete, whole if complete == number else position))
        self._position, self._number, self._complete = whole, number, complete
        self._files, self._rewound = [], ()
        return SafePoint(position)

    def close(self) -> None:
        self._files = []
        self._provider.close()

    def _claim(self) -> tuple[SinkPosition, int]:
        """Read how far the sink is, and take the next number; (position, number)."""
        while True:
            last = self._manifests.last()
            if last is None:
                position, number = SinkPosition(), 0
            else:
                self._check(last)
                position, number = self._whole(last), last.number + 1
            try:
                self._put(self._manifest(number, number, position))
            except Fenced:
                continue  # another opening, or a last flush of the one before, was faster: look again
            return position, number

    def _check(self, last: FileManifest) -> None:
        last.check_owner(self._place, self._provider.url)
        if last.epoch > self._place.epoch:
            raise Fenced(
                "a later writer has this sink",
                sink=self._place.name,
                expected=self._place.epoch,
                found=last.epoch,
            )

    def _whole(self, last: FileManifest) -> SinkPosition:
        position = SinkPosition()
        for number in range(last.complete, last.number):
            try:
                position = laid_over(position, self._manifests.read(number).position)
            except NotFound as error:
                raise Corrupt(
                    "a manifest of a sink's files is missing", found=self._manifests.key(number),
                    hint=f"restore it: those from {last.complete} on hold the position together",
                ) from error  # fmt: skip
        return laid_over(position, last.position)

    def _manifest(self, number: int, complete: int, position: SinkPosition) -> FileManifest:
        place = self._place
        return FileManifest(
            number, complete, place.archive_id.hex(), place.epoch, self._writer, position, tuple(self._files),
            self._rewound, place.sink_id.hex(),
        )  # fmt: skip

    def _put(self, manifest: FileManifest) -> None:
        """Put a manifest; ``Fenced`` if its number is somebody else's."""
        key, data = self._manifests.key(manifest.number), manifest.encode()
        try:
            self._provider.put(key, [data])
        except Conflict as conflict:
            if bytes(self._provider.get(key).data) != data:
                raise Fenced(
                    "another process has this sink now", sink=self._place.name, key=key,
                    hint="one daemon writes an archive, and its sinks; look for a second one",
                ) from conflict  # fmt: skip

    def _put_file(self) -> None:
        messages, data = self._file.messages, self._file.take()
        name = f"{self._number + 1:020d}-{self._place.epoch}-{self._writer}-{len(self._files):04d}"
        key = f"{self._place.keeps_as}/data/{name}.{self._file.suffix}"
        try:
            self._provider.put(key, [data])
        except Conflict:
            if (
                bytes(self._provider.get(key).data) != data
            ):  # ours alone by its name: a try that was told to have failed
                raise
        self._files.append(given_file(key, messages, data))

    def _sweep(self) -> None:
        """Delete what the opening before this one put for the manifest that it cannot put any more."""
        prefix = f"{self._place.keeps_as}/data/{self._number:020d}-"
        for stored in list(self._provider.list(prefix)):
            self._provider.delete(stored.key)
