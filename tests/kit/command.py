"""The ``tiered`` command, called in this process or as one of its own, with everything it said."""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tiered.archive.log.identity import decode_identity
from tiered.cli import main as cli


@dataclass(frozen=True)
class Done:
    """How a command ended. ``out`` is standard output as bytes."""

    code: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode()

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One JSON document a line."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def error(self) -> dict[str, Any]:
        """What ``--json`` says on standard error."""
        found: dict[str, Any] = json.loads(self.err.splitlines()[-1])["error"]
        return found


class _Written(io.TextIOWrapper):
    def __init__(self) -> None:
        self.bytes = io.BytesIO()
        super().__init__(self.bytes, encoding="utf-8", write_through=True)


@contextmanager
def _apart() -> Iterator[None]:
    """Without ``TIERED_…`` from outside, and with logging put back as it was."""
    root, own = logging.getLogger(), logging.getLogger("tiered")
    handlers, level, own_level = list(root.handlers), root.level, own.level
    hidden = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith("TIERED_")}
    try:
        yield
    finally:
        root.handlers[:], root.level = handlers, level
        own.setLevel(own_level)
        os.environ.update(hidden)


def tiered(*args: object) -> Done:
    """Run the command in this process."""
    out, err = _Written(), io.StringIO()
    with _apart(), redirect_stdout(out), redirect_stderr(err):
        code = cli.main([str(arg) for arg in args])
        out.flush()
    return Done(code, out.bytes.getvalue(), err.getvalue())


def tiered_process(*args: object, timeout: float = 120) -> Done:
    """Run the command as a process of its own."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TIERED_")}
    done = subprocess.run(
        [sys.executable, "-m", "tiered.cli.main", *map(str, args)],
        capture_output=True, env=environment, timeout=timeout, check=False,
    )  # fmt: skip
    return Done(done.returncode, done.stdout, done.stderr.decode())


def archive_once(store: Path, archive: Path | str, *sets: str, process: bool = False) -> Done:
    """``tiered run --once`` with nothing but errors on standard error, and no web pages."""
    url = archive if isinstance(archive, str) else f"file://{archive}"
    options = [word for value in ("web.port=-1", "log.level=error", *sets) for word in ("--set", value)]
    run = tiered_process if process else tiered
    return run("run", "--once", "--store", store, "--archive", url, *options)


def made_before(archive: Path) -> None:
    """Have an archive on this disk be one that was made before archives were collected by default."""
    for path in archive.rglob("archive.json"):
        identity = decode_identity(path.read_bytes(), path.name)
        path.write_bytes(replace(identity, collected=False).encode())
