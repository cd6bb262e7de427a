"""A Java program of the benchmarks: one source file, compiled for the run, whose last line of output is JSON."""

from __future__ import annotations

import itertools
import json
import subprocess
from pathlib import Path
from typing import Any

from tests.kit.process import Child, ChildError, Scratch

SOURCES = Path(__file__).parent / "java"
TIMEOUT_SECONDS = 600.0


class JavaProgram:
    """The class ``name``, with the jars of a directory; everything it writes goes below ``work``."""

    def __init__(self, name: str, jars: Path, work: Path) -> None:
        self._name, self._jars, self._work = name, jars, work
        self._classes = work / f"{name}-classes"
        self._runs = itertools.count()
        source = SOURCES / f"{name}.java"
        command = ["javac", "-nowarn", "-encoding", "UTF-8", "-cp", f"{jars}/*", "-d", str(self._classes)]
        subprocess.run([*command, str(source)], check=True)

    def run(self, *arguments: str, java: tuple[str, ...] = (), **options: object) -> dict[str, Any]:
        """What it says at its end. ``options`` are arguments too, as key=value; ``java``: for the virtual machine."""
        run = f"{self._name}-{next(self._runs)}"  # several may run at once
        scratch = Scratch(self._work / f"tmp-{run}")
        scratch.make()
        line = ["java", "-Xmx768m", "-Xms256m", "-XX:+UseSerialGC", scratch.java_option, *java]
        line += [
            f"-Duser.home={self._work}",
            "-cp",
            f"{self._classes}:{self._jars}/*",
            self._name,
            *arguments,
        ]
        line += [f"{key}={value}" for key, value in options.items()]
        what = " ".join((self._name, *arguments))
        child = Child(what, line, self._work / f"{run}.out")
        try:
            code = child.wait(TIMEOUT_SECONDS)
        finally:
            scratch.remove()
        if code:
            raise ChildError(f"{what} ended with {code}:\n{child.output()}")
        return dict(json.loads(child.output().strip().splitlines()[-1]))
