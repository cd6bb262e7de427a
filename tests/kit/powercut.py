"""Power cuts: what a process wrote and did not sync is forgotten, whatever library wrote it.

``PowerCut(root).run(…)`` runs a command over a small library (``powercut.c``) that notes which names came and went below
``root`` and what was synced. ``cut()`` then leaves what a disk would have kept at worst: a file's bytes up to its last sync, a
name only if its directory was synced after it was made. What stood there before the first command counts as synced.

Overwriting in place is not modelled: a file that grows keeps the head that was synced.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".c")


def missing() -> str | None:
    """Why no power can be cut here; ``None`` if it can."""
    if shutil.which("cc") is None:
        return "a C compiler, cc, is not on the PATH"
    return None


@cache
def _library() -> str:
    """The compiled library, made once by each process; its directory goes with the process."""
    made = Path(_scratch().name, "powercut.so")
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", made, SOURCE, "-ldl"], check=True)
    return str(made)


@cache
def _scratch() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="powercut-")


class PowerCut:
    """The disk below ``root``, an existing directory; its books lie beside it."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self._log = self.root.with_name(self.root.name + ".powercut")
        self._grave = self.root.with_name(self.root.name + ".grave")
        self._grave.mkdir()
        self._durable: dict[str, dict[str, int]] = {}
        self._sizes: dict[int, int] = {}
        self.begin()

    def environment(self) -> dict[str, str]:
        """The environment of a process whose writes count."""
        return {
            **os.environ,
            "LD_PRELOAD": _library(),
            "POWERCUT_LOG": str(self._log),
            "POWERCUT_ROOT": str(self.root),
            "POWERCUT_GRAVE": str(self._grave),
        }

    def run(self, command: Sequence[str], *, exit_code: int | None = 0) -> str:
        """Run a command to its end, which need not be a clean one; what it printed."""
        done = subprocess.run(
            command, env=self.environment(), capture_output=True, text=True, timeout=120, check=False
        )
        if exit_code is not None and done.returncode != exit_code:
            raise RuntimeError(f"{command[-1]} ended with {done.returncode}: {done.stdout}{done.stderr}")
        return done.stdout

    def cut(self) -> list[str]:
        """Forget what was not synced; the names, relative to the root, that are gone or shorter."""
        durable, sizes = self._durable, self._sizes
        live = {directory: dict(names) for directory, names in durable.items()}
        for line in self._log.read_text().splitlines():
            what, number, rest = line.split(" ", 2)
            directory, name = os.path.split(rest)
            if what == "S":
                sizes[int(number)] = int(rest)
            elif what == "D":
                durable[rest] = dict(live.get(rest, {}))
            elif what == "+":
                live.setdefault(directory, {})[name] = int(number)
            else:
                live.get(directory, {}).pop(name, None)
        lost = self._settle(live)
        shutil.rmtree(self._grave)
        self._grave.mkdir()
        self.begin()
        return lost

    def begin(self) -> None:
        """Fresh books: what is there now counts as synced."""
        self._log.unlink(missing_ok=True)
        self._durable = dict(_live(self.root))
        self._sizes = {
            number: os.stat(os.path.join(directory, name)).st_size
            for directory, names in self._durable.items()
            for name, number in names.items()
            if not os.path.isdir(os.path.join(directory, name))
        }

    def _settle(self, live: dict[str, dict[str, int]]) -> list[str]:
        """Make the tree what was durable. A name that went without a word of the process was removed by somebody else."""
        lost: list[str] = []
        pending = [str(self.root)]
        while pending:
            directory = pending.pop()
            wanted, last = self._durable.get(directory, {}), live.get(directory, {})
            for name in sorted({*wanted, *os.listdir(directory)}):
                path = os.path.join(directory, name)
                there = os.lstat(path).st_ino if os.path.lexists(path) else None
                keep = wanted.get(name)
                if keep is None or (there is None and last.get(name) == keep):
                    _remove(path)
                elif there != keep:
                    _remove(path)
                    os.link(self._grave / str(keep), path)
                if there is not None and (keep is None or there != keep):
                    lost.append(os.path.relpath(path, self.root))
                if os.path.isdir(path):
                    pending.append(path)
                elif os.path.lexists(path) and os.stat(path).st_size > self._sizes.get(keep or 0, 0):
                    os.truncate(path, self._sizes.get(keep or 0, 0))
                    lost.append(os.path.relpath(path, self.root))
        return lost


def _live(root: Path) -> Iterator[tuple[str, dict[str, int]]]:
    for directory, directories, files in os.walk(root):
        yield (
            directory,
            {name: os.lstat(os.path.join(directory, name)).st_ino for name in (*directories, *files)},
        )


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)
