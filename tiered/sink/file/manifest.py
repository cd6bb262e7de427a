"""Manifests: the numbered objects that say which files count, and how far the sink is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from tiered.codec.checksum import crc32c
from tiered.errors import Corrupt, Refused
from tiered.provider.base import Provider
from tiered.sink.base import Rewound, SinkPosition
from tiered.sink.keptposition import position_of, position_value, rewound_of, rewound_value
from tiered.sink.kinds import SinkPlace

FORMAT = 1


@dataclass(frozen=True, slots=True)
class GivenFile:
    """A file that counts: its key below the location, messages, bytes, CRC-32C of the bytes."""

    key: str
    messages: int
    bytes: int
    crc32c: int


@dataclass(frozen=True, slots=True)
class FileManifest:
    """``position``: complete if ``number == complete``, else the queues that changed since the one before; ``complete`` is the
    number of the last one that is complete. ``writer``: of the opening that wrote it. ``rewound``: what of the
    files before this manifest the broker lost; JSON has it only where there is something. ``sink_id``: empty in those of
    before it was kept."""

    number: int
    complete: int
    archive_id: str
    epoch: int
    writer: str
    position: SinkPosition
    files: tuple[GivenFile, ...] = ()
    rewound: tuple[Rewound, ...] = ()
    sink_id: str = ""

    def check_owner(self, place: SinkPlace, location: str) -> None:
        """``Refused`` where it is of another archive, or of a sink that had this name before."""
        wanted, found = (place.archive_id.hex(), place.sink_id.hex()), (self.archive_id, self.sink_id)
        for whose, expected, there in zip(
            ("archive", "sink, which had this name"), wanted, found, strict=True
        ):
            if there not in ("", expected):
                raise Refused(
                    f"the files at this location are of another {whose}", location=location, expected=expected,
                    found=there, hint="add a sink of another name, or with another location",
                )  # fmt: skip

    def encode(self) -> bytes:
        """As JSON."""
        value = {
            "format": FORMAT, "number": self.number, "complete": self.complete, "archive_id": self.archive_id,
            "epoch": self.epoch, "writer": self.writer, "files": [asdict(file) for file in self.files],
            "sink_id": self.sink_id, **position_value(self.position),
        }  # fmt: skip
        if self.rewound:
            value["rewound"] = [rewound_value(gone) for gone in self.rewound]
        return json.dumps(value, separators=(",", ":")).encode()


def decode_manifest(data: bytes, key: str) -> FileManifest:
    """``Corrupt`` if it is none, or of a newer program."""
    try:
        value: dict[str, Any] = json.loads(data)
        if value["format"] != FORMAT:
            raise ValueError(f"format {value['format']}")
        return FileManifest(
            int(value["number"]), int(value["complete"]), str(value["archive_id"]), int(value["epoch"]),
            str(value["writer"]), position_of(value), tuple(GivenFile(**file) for file in value["files"]),
            tuple(map(rewound_of, value.get("rewound", ()))), str(value.get("sink_id", "")),
        )  # fmt: skip
    except (ValueError, KeyError, TypeError) as error:
        raise Corrupt(
            "a manifest of a sink's files cannot be read", found=f"{key}: {error}"[:200],
            hint="restore it from a copy; it is never changed once it is there",
        ) from error  # fmt: skip


class Manifests:
    """Those of one sink, below its root ``NAME``."""

    def __init__(self, provider: Provider, root: str) -> None:
        self._provider = provider
        self._prefix = f"{root}/manifests/"

    def key(self, number: int) -> str:
        """Where the manifest of a number lies."""
        return f"{self._prefix}{number:020d}.json"

    def read(self, number: int) -> FileManifest:
        """``NotFound``, ``Corrupt``, ``Unavailable``."""
        key = self.key(number)
        return decode_manifest(bytes(self._provider.get(key).data), key)

    def last(self) -> FileManifest | None:
        """The newest one, found by asking again and again whether there is one behind a number: a few dozen requests however
        many there are, and readers may have deleted old ones."""
        if not self._any_from(0):
            return None
        low, step = 0, 1
        while self._any_from(low + step):
            low, step = low + step, step * 2
        high = low + step
        while high - low > 1:
            middle = (low + high) // 2
            if self._any_from(middle):
                low = middle
            else:
                high = middle
        return self.read(low)

    def all(self) -> Iterator[FileManifest]:
        """Every one, in order."""
        for stored in self._provider.list(self._prefix):
            yield decode_manifest(bytes(self._provider.get(stored.key).data), stored.key)

    def _any_from(self, number: int) -> bool:
        after = self.key(number - 1) if number else None
        return next(self._provider.list(self._prefix, start_after=after, limit=1), None) is not None


def given_file(key: str, messages: int, data: bytes) -> GivenFile:
    """What a manifest says of a file."""
    return GivenFile(key, messages, len(data), crc32c(data))
