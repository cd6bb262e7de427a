"""Python as Spark starts it for its workers, with the modules that they need imported before they are forked.

Every kind of worker (tasks, planning, writing, …) has a daemon that forks one for each use, and each fork imports Arrow, pandas
and the data source anew, most of what it costs in tests. ``python_for_workers`` makes the executable that ``PYSPARK_PYTHON``
names. Executors of a cluster run plain Python, as users' do.
"""

from __future__ import annotations

import importlib
import os
import runpy
import sys
import tempfile
from functools import cache
from pathlib import Path

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


@cache
def python_for_workers() -> str:
    """An executable that takes the words of ``python``; it lies in a directory of this process."""
    directory = Path(tempfile.mkdtemp(prefix="spark-python-"))
    made = directory / "python"
    made.write_text(f'#!/bin/sh\nOPENBLAS_NUM_THREADS=1 exec {sys.executable} -P {__file__} "$@"\n')
    made.chmod(0o755)
    return str(made)


def main(words: list[str]) -> None:
    """``-m MODULE [ARGUMENT ...]``, all that Spark asks for."""
    option, module, *arguments = words
    if option != "-m":
        raise SystemExit(f"python is not asked for {option} by Spark")
    sys.path.insert(0, os.getcwd())
    if module == DAEMON:
        for name in (*MODULES, *(a for a in arguments if a.startswith("pyspark."))):
            importlib.import_module(name)
    sys.argv[1:] = arguments
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])
