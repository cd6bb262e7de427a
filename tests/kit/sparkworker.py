"""Python as Spark starts it for its workers, with the modules that they need imported before they are forked.

Every kind of worker (tasks, planning, writing, …) has a daemon that forks one for each use, and each fork imports Arrow, pandas
and the data source anew, most of what it costs in tests; each stream has a whole process of its own. ``python_for_workers``
makes the executable that ``PYSPARK_PYTHON`` names: it imports first and then is the daemon, or has a process forked by a warm
one (``warm.py``). Executors of a cluster run plain Python, as users' do.
"""

from __future__ import annotations

import atexit
import importlib
import os
import runpy
import shutil
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tests.kit.warm import Warm, serve

MODULES = (
    "pyarrow",
    "pandas",
    "pyspark.worker",
    "tiered.provider.posix",
    "tiered_spark.datasource",
    "tiered_spark.scan",
    "tiered_spark.stream",
)
DAEMON = "pyspark.daemon"
STREAM = "pyspark.sql.streaming.python_streaming_source_runner"
_STARTS = """#!/bin/sh
if [ "$2" = {daemon} ]; then OPENBLAS_NUM_THREADS=1 exec {python} -m {module} "$@"; fi
exec {python} -I -S {client} {socket} "$@"
"""


@cache
def python_for_workers() -> str:
    """An executable that takes the words of ``python`` that Spark says; it ends with this process."""
    warm = Warm(__name__)
    directory = Path(tempfile.mkdtemp(prefix="spark-python-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    atexit.register(warm.end)
    made = directory / "python"
    client, python = Path(__file__).with_name("sparkfork.py"), sys.executable
    made.write_text(
        _STARTS.format(daemon=DAEMON, python=python, module=__name__, client=client, socket=warm.address())
    )
    made.chmod(0o755)
    return str(made)


def run(words: Sequence[str]) -> None:
    """``-m MODULE [ARGUMENT ...]``, all that Spark asks for."""
    option, module, *arguments = words
    if option != "-m":
        raise SystemExit(f"{option}: Spark asks Python for modules alone")
    sys.argv[1:] = arguments
    sys.modules.pop(module, None)  # it is run as the main module
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def main(words: Sequence[str]) -> None:
    """Be a daemon; or, with the path of a socket, fork for each request and be what it asks for."""
    daemon = words[0] == "-m"
    for name in (*MODULES, *(words[2:] if daemon else (STREAM,))):
        importlib.import_module(name)
    run(words if daemon else serve(words[0]))


if __name__ == "__main__":
    sys.path[0] = os.getcwd()
    main(sys.argv[1:])
