"""Finds the job, reads its command line, runs it, and turns what happens into an exit code.

A job ``j`` lives in ``tiered_jobs/j/job.py``, which exposes ``arguments(parser)``, which adds its own flags to the shared ones,
``run(work)``, which returns ``None`` or an exit code of its own (1: a difference was found), and, if it writes anything,
``writes(work)``: lines for ``--dry-run``. Only the module of the job that was asked for is imported.
"""

from __future__ import annotations

import argparse
import importlib
import re
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import NoReturn

from tiered import errors
from tiered.errors import Invalid, NotFound, TieredError, did_you_mean, exit_code
from tiered.text.output import speaker

JOBS: Mapping[str, str] = {
    "pipeline": "Archive to tables: bronze, silver, gold; each run takes what is new.",
    "profile": "Topics at a glance: messages, bytes, keys, tags, sizes, delays, gaps; as table, JSON, HTML.",
    "trace": "The life of a key, unique key or transaction over topics, in time order.",
    "audit": "Every queue contiguous, every checksum right, counts agree; exit code 1 on a difference.",
    "compare": "Two archives, or two time ranges: missing, extra, different; exit code 1 on a difference.",
    "estimate": "What retention, sealing and codec choices would cost, from the archive's own statistics.",
}

EXIT_INTERRUPTED = 130


class _Parser(argparse.ArgumentParser):
    """Wrong flags are errors of the program's own kind."""

    def error(self, message: str) -> NoReturn:
        raise Invalid(message[:1].lower() + message[1:], hint=f"{self.prog} --help")


def main(argv: Sequence[str]) -> int:
    """Run one job; returns its exit code, those of ``tiered``."""
    words = list(argv)
    debug, as_json = "--debug" in words, "--json" in words
    try:
        if not words or words[0] in ("-h", "--help"):
            speaker(json_output=False).lines(_usage())
            return 0 if words else Invalid.exit_code
        return _run(_job(words[0]), words[0], words[1:])
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except SystemExit as stop:  # argparse after --help
        return stop.code if isinstance(stop.code, int) else 1
    except Exception as error:  # noqa: BLE001  (the outermost door: one paragraph instead of a traceback)
        shown = _plain(error)
        speaker(json_output=as_json).error(shown, debug=debug)
        return exit_code(shown)


def _usage() -> list[str]:
    width = max(map(len, JOBS))
    listed = [f"  {name:<{width}}  {text}" for name, text in JOBS.items()]
    return ["usage: tiered spark JOB …", "", *listed, "", "tiered spark JOB --help shows the flags of a job."]


def _job(name: str) -> ModuleType:
    if name not in JOBS:
        raise Invalid("unknown job", job=name, hint=did_you_mean(name, JOBS, "jobs: "))
    return importlib.import_module(f"tiered_jobs.{name}.job")


def _run(job: ModuleType, name: str, words: Sequence[str]) -> int:
    from tiered_jobs.work import Work, shared_arguments  # PySpark, which the list of jobs does without

    parser = _Parser(
        prog=f"tiered spark {name}", description=JOBS[name], allow_abbrev=False,
        epilog=(job.__doc__ or "").split("\n\n", 1)[-1], formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    shared_arguments(parser)
    job.arguments(parser)
    with Work(name, parser.parse_args(words)) as work:
        if work.dry_run:
            work.show_plan(job.writes(work) if hasattr(job, "writes") else ())
            return 0
        return int(job.run(work) or 0)


_OURS = re.compile(r"tiered\.errors\.(\w+): (.+)")


def _plain(error: Exception) -> Exception:
    """An error of ours that came through Spark, as itself; a package that is not there, as ours."""
    if isinstance(error, ModuleNotFoundError):
        return NotFound(
            "a package that the jobs need is not installed", missing=error.name,
            hint="pip install 'rocketmq-tiered[spark]', or make install-spark",
        )  # fmt: skip
    if isinstance(error, TieredError):
        return error
    found = _OURS.search(str(error))
    kind = getattr(errors, found[1], None) if found else None
    if found is None or not (isinstance(kind, type) and issubclass(kind, TieredError)):
        return error
    message, _, hint = found[2].strip().partition(" → ")
    return kind(message, hint=hint or None)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
