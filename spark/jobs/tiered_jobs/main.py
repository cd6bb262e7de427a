"""Finds the job, reads its command line, runs it, and turns what happens into an exit code.

A job ``j`` lives in ``tiered_jobs/j/job.py``, which exposes ``Flags``, the shared flags and its own with Typer annotations,
``run(work)``, which returns ``None`` or an exit code of its own (1: a difference was found), and, if it writes anything,
``writes(work)``: lines for ``--dry-run``. Only the module of the job that was asked for is imported.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from types import ModuleType
from typing import Any, get_type_hints

import typer

from tiered import errors
from tiered.errors import Invalid, TieredError, did_you_mean, exit_code, not_installed
from tiered.text.commandline import check_values
from tiered.text.speaker import speaker

JOBS: Mapping[str, str] = {
    "pipeline": "Archive to tables: bronze, silver, gold; each run takes what is new.",
    "profile": "Topics at a glance: messages, bytes, keys, tags, sizes, delays, gaps; as table, JSON, HTML.",
    "trace": "The life of a key, unique key or transaction over topics, in time order.",
    "audit": "Every queue contiguous, every checksum right, counts agree; exit code 1 on a difference.",
    "compare": "Two archives, or two time ranges: missing, extra, different; exit code 1 on a difference.",
    "kafka_compare": "A sink's Kafka topics against the archive: lost, doubled, changed; exit code 1 on a difference.",
    "backfill": "A sink's history given by executors through the sink's driver; the daemon's sink goes on where it ends.",
}

EXIT_INTERRUPTED = 130


def main(argv: Sequence[str]) -> int:
    """Run one job; returns its exit code, those of ``tiered``."""
    debug, as_json = "--debug" in argv, "--json" in argv
    words = [word for word in argv if word != "--debug"]  # understood anywhere, as of every other verb
    try:
        if not words or words[0] in ("-h", "--help"):
            speaker(json_output=False).lines(_usage())
            return 0 if words else Invalid.exit_code
        command = _command(_job(words[0]), words[0])
        check_values(command, words[1:], f"tiered spark {words[0]} --help")
        with command.make_context(f"tiered spark {words[0]}", words[1:]) as context:
            return int(command.invoke(context) or 0)
    except typer.Exit as stop:  # after --help
        return stop.exit_code
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except Exception as error:  # noqa: BLE001  (the outermost door: one paragraph instead of a traceback)
        shown = _plain(error, f"tiered spark {words[0]} --help")
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


def _command(job: ModuleType, name: str) -> Any:
    """A job as a command; its flags are the fields of its ``Flags``."""

    def run(**given: Any) -> int:
        from tiered_jobs.work import Work  # PySpark, which the list of jobs does without

        with Work(name, job.Flags(**given)) as work:
            if work.dry_run:
                work.show_plan(job.writes(work) if hasattr(job, "writes") else ())
                return 0
            return int(job.run(work) or 0)

    hints = get_type_hints(job.Flags, include_extras=True)
    flags = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in fields(job.Flags)
    ]
    run.__signature__ = inspect.Signature(flags)  # type: ignore[attr-defined]
    run.__annotations__ = {flag.name: flag.annotation for flag in flags}
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    text = "\n\n".join((JOBS[name], *map(_as_it_is, (job.__doc__ or "").split("\n\n")[1:])))
    app.command(name, help=text, context_settings={"help_option_names": ["-h", "--help"]})(run)
    return typer.main.get_command(app)


def _as_it_is(paragraph: str) -> str:
    """A list keeps its lines, any other paragraph is filled."""
    return f"\b\n{paragraph}" if "  " in paragraph else paragraph


_OURS = re.compile(r"tiered\.errors\.(\w+): (.+)")


def _plain(error: Exception, help_command: str) -> Exception:
    """An error of ours that came through Spark, as itself; a package that is not there or a wrong command line, as ours."""
    if isinstance(error, typer.TyperException):
        return Invalid(" ".join(error.format_message().split()).rstrip("."), hint=help_command)
    if isinstance(error, ModuleNotFoundError):
        return not_installed("a Spark job", error.name or str(error), "spark")
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
