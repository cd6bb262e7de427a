"""Where the layers of a table lie, and the small documents beside them that say what they were made from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

from tiered.errors import Corrupt, Refused
from tiered_spark.enginepaths import lacking
from tiered_spark.positions import Position

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Table:
    """The directories of one table. A layer's checkpoint is in its own directory: copied, moved and deleted with it."""

    def __init__(self, root: str) -> None:
        self.root = root.rstrip("/")

    @property
    def bronze(self) -> str:
        """Every message as it was archived."""
        return f"{self.root}/bronze"

    def silver(self, name: str) -> str:
        """Decoded messages of one declaration."""
        return f"{self.root}/silver/{name}"

    @property
    def dead_letters(self) -> str:
        """What could not be decoded, of all declarations."""
        return f"{self.root}/dead_letter"

    def dead_letter(self, name: str) -> str:
        """What could not be decoded, of one declaration."""
        return f"{self.dead_letters}/declaration={name}"

    @property
    def gold(self) -> str:
        """Figures per topic, tag and hour."""
        return f"{self.root}/gold/hourly"


def checkpoint(layer: str) -> str:
    """State of the query that fills a layer. Readers do not see it: its name begins with an underscore."""
    return f"{layer}/_checkpoint"


class Files:
    """Small files, through the file systems that Spark itself uses."""

    def __init__(self, spark: SparkSession) -> None:
        self._java: Any = spark._jvm
        self._conf: Any = spark._jsc.hadoopConfiguration()

    def _at(self, url: str) -> tuple[Any, Any]:
        path = self._java.org.apache.hadoop.fs.Path(url)
        try:
            return path.getFileSystem(self._conf), path
        except Py4JJavaError as error:
            told = str(error.java_exception)
            found = lacking(told, url, "name a directory that driver and executors share")
            if found is None:
                raise
            raise found from error

    def exists(self, url: str) -> bool:
        """Whether a file or directory is there."""
        system, path = self._at(url)
        return bool(system.exists(path))

    def names(self, url: str) -> list[str]:
        """What is in a directory; nothing if it is not there."""
        system, path = self._at(url)
        if not system.exists(path):
            return []
        return [str(status.getPath().getName()) for status in system.listStatus(path)]

    def read(self, url: str) -> bytes | None:
        """A whole file; ``None`` if it is not there."""
        system, path = self._at(url)
        if not system.exists(path):
            return None
        stream = system.open(path)
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    def create(self, url: str, data: bytes) -> None:
        """A new file, whole or not at all."""
        system, path = self._at(url)
        _, new = self._at(f"{url}.new")
        self.replace(f"{url}.new", data)
        system.rename(new, path)

    def replace(self, url: str, data: bytes) -> None:
        """A file, new or over an old one; who reads meanwhile may find less of it."""
        system, path = self._at(url)
        stream = system.create(path, True)
        try:
            stream.write(bytearray(data))
        finally:
            stream.close()

    def delete(self, url: str) -> None:
        """Remove a file; fine if it is not there."""
        system, path = self._at(url)
        system.delete(path, False)


def keep(files: Files, url: str, wanted: Mapping[str, object], *, what: str, hint: str) -> None:
    """Write down what a layer is made from, or compare: ``Refused`` if it was made from something else."""
    found = files.read(url)
    if found is None:
        files.create(url, json.dumps(dict(wanted), indent=2).encode())
        return
    before = document(url, found.decode(errors="replace"))
    for name, value in wanted.items():
        if before.get(name) != value:
            raise Refused(
                f"{what} was made with another {name}",
                hint=hint,
                file=url,
                expected=before.get(name),
                found=value,
            )


def last_batch(files: Files, layer: str) -> tuple[int | None, int]:
    """Last batch that was begun and not ended, if any, and the watermark (ms since 1970) that the next one begins with."""
    state = checkpoint(layer)
    ended = _numbers(files.names(f"{state}/commits"))
    begun = _numbers(files.names(f"{state}/offsets"))
    open_ = max(begun, default=-1) if max(begun, default=-1) > max(ended, default=-1) else None
    if not ended:
        return open_, 0
    told = _line(files, f"{state}/commits/{max(ended)}", 1, "{}")
    return open_, int(told.get("nextBatchWatermarkMs", 0))


def taken(files: Files, layer: str) -> dict[str, int]:
    """Archive → last commit that a layer made from the archive has taken in; empty before the first batch has ended.
    ``Refused`` where the last one took a part of a commit."""
    state = checkpoint(layer)
    ended = _numbers(files.names(f"{state}/commits"))
    if not ended:
        return {}
    url = f"{state}/offsets/{max(ended)}"
    found = _line(files, url, 2, "")
    try:
        positions = {place: Position.parse(shown) for place, shown in found.items()}
    except (TypeError, ValueError):
        raise _damaged(url, str(found)) from None
    if any(position.queue is not None for position in positions.values()):
        raise Refused(
            "the table has a part of a commit: its last run was cut off", file=url, found=found,
            hint="run the pipeline again, which takes the rest",
        )  # fmt: skip
    return {place: position.commit for place, position in positions.items()}


def _line(files: Files, url: str, number: int, absent: str) -> dict[str, Any]:
    """A line of a file of Spark's checkpoints; ``absent`` where the file ends before it."""
    lines = (files.read(url) or b"").decode(errors="replace").splitlines()
    return document(url, lines[number] if number < len(lines) else absent)


def document(url: str, text: str) -> dict[str, Any]:
    """``Corrupt`` names a file whose JSON is damaged."""
    try:
        found = json.loads(text)
        if not isinstance(found, dict):
            raise ValueError
    except ValueError as error:
        raise _damaged(url, text) from error
    return found


def _damaged(url: str, text: str) -> Corrupt:
    return Corrupt(
        "a file of the table's state is damaged", key=url, expected="a JSON object, of commits by archive if of offsets",
        found=text[:80], hint="restore it from a copy, or delete the layer's directory: the next run makes it anew",
    )  # fmt: skip


def _numbers(names: list[str]) -> list[int]:
    return [int(name) for name in names if name.isdigit()]
