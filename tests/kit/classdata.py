"""Class data: what one JVM has loaded and verified is written to a file that the next ones map, and start for half the CPU.

An archive belongs to one ``java`` and one list of jars, by path, size and time; the JVM itself refuses any other, silently, and
loads its classes as ever (``-Xshare:auto``). Archives lie in the cache of the counterparts, one of some 100 to 200 MB for each
place that jars lie in, and go when nobody has used them for a week.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from functools import cache as once
from pathlib import Path

from tests.kit import cache

KEPT_SECONDS = 7 * 86_400.0


@once
def java_version() -> str:
    """What ``java -version`` says."""
    return subprocess.run(["java", "-version"], capture_output=True, text=True, check=True).stderr


def class_data(name: str, jars: Sequence[Path], train: Callable[[str], None]) -> str:
    """The option of a JVM of these jars that maps their class data; the archive is made if it is not there.

    ``train`` runs a JVM to its end with the option that it is given, and has it do what the tests' JVMs do: these classes are
    archived. Two processes that ask at once wait for each other. ``RuntimeError`` if no archive comes of it.
    """
    facts = [
        java_version(),
        *(f"{jar} {jar.stat().st_size} {jar.stat().st_mtime_ns}" for jar in sorted(jars)),
    ]
    digest = hashlib.sha256("\n".join(facts).encode()).hexdigest()[:12]
    directory = cache.root() / "class-data"
    archive = directory / f"{name}-{digest}.jsa"
    if not archive.exists():
        directory.mkdir(parents=True, exist_ok=True)
        with cache.locked(f"{name}-class-data"):
            if not archive.exists():
                _make(archive, train)
                _forget(directory, archive)
    os.utime(archive)
    return f"-XX:SharedArchiveFile={archive} -Xshare:auto"


def _make(archive: Path, train: Callable[[str], None]) -> None:
    part = archive.with_suffix(".part")
    part.unlink(missing_ok=True)
    train(f"-XX:ArchiveClassesAtExit={part} -Xlog:disable")
    if not part.exists():
        raise RuntimeError(f"the JVM ended without the class data that it was told to write: {part}")
    part.replace(archive)


def _forget(directory: Path, newest: Path) -> None:
    for one in directory.iterdir():
        if one != newest and one.stat().st_mtime < time.time() - KEPT_SECONDS:
            one.unlink()
