"""Verbs that change an archive as its one writer: settings, signals, a claim of their own, tasks, and what these did."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from typing import Annotated, Any, get_type_hints

import typer

from tiered.cli.options import ArchiveUrl, ConfigFile, DaemonState, SetValues, StoreDir, flags
from tiered.clock import SystemClock
from tiered.daemon import logs
from tiered.daemon.checks import check, require
from tiered.daemon.config import Loaded, environment, load
from tiered.daemon.crashing import install_crash
from tiered.daemon.maintain import TaskReport, maintain
from tiered.daemon.maintenance import TaskMaker
from tiered.daemon.signals import Signals
from tiered.errors import TieredError
from tiered.text.output import Output

TakeOver = Annotated[
    bool, typer.Option("--take-over", help="Claim the archive now, even though another writer may be alive.")
]


@dataclass(frozen=True, slots=True)
class WriterFlags:
    """What the command line of such a verb says."""

    config: ConfigFile = None
    archive: ArchiveUrl = None
    store: StoreDir = None
    state: DaemonState = None
    take_over: TakeOver = False
    sets: SetValues = None

    def load(self) -> Loaded:
        """The settings, checked."""
        given = flags(self.store, self.archive, self.sets)
        if self.state is not None:
            given["state.directory"] = self.state
        env = environment()
        install_crash(env)
        loaded = load(self.config, env, given)
        check(loaded)
        require(loaded, "archive.url")
        return loaded


def with_writer_flags(verb: Callable[..., int]) -> Callable[..., int]:
    """A verb (its parameters by name only) whose ``given`` is made of the options of ``WriterFlags``: its command line takes
    them in that place."""
    signature = inspect.signature(verb, eval_str=True)
    kinds = get_type_hints(WriterFlags, include_extras=True)
    options = [
        inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=kinds[f.name])
        for f in fields(WriterFlags)
    ]
    taken = [
        each for own in signature.parameters.values() for each in (options if own.name == "given" else [own])
    ]

    @wraps(verb)
    def command(**values: Any) -> int:
        given = WriterFlags(**{option.name: values.pop(option.name) for option in options})
        return verb(given=given, **values)

    command.__dict__["__signature__"] = signature.replace(parameters=taken)
    command.__annotations__ = {each.name: each.annotation for each in taken}
    return command


def do_all(out: Output, given: WriterFlags, make_tasks: TaskMaker | None = None) -> list[TaskReport]:
    """Do all that these tasks (``None``: all that there are) have to do, in an epoch of this process."""
    loaded = given.load()
    settings, clock, stop = loaded.settings, SystemClock(), threading.Event()
    if not settings.state_directory:
        require(loaded, "state.directory")
    logs.configure(settings.log, loaded.secrets())
    with Signals(stop, clock), out.progress("turns", 0) as advance:
        return maintain(
            settings, clock, stop, take_over=given.take_over, progress=advance, make_tasks=make_tasks
        )


def tell(out: Output, reports: list[TaskReport], *, json: bool) -> int:
    """What was done, and the exit code; where there is one task alone, its error is raised."""
    if len(reports) == 1 and reports[0].error is not None:
        raise reports[0].error
    if json:
        out.record(
            {
                r.name: {
                    "turns": r.turns,
                    "complete": r.complete,
                    **r.figures,
                    "troubles": r.troubles,
                    **told(r),
                }
                for r in reports
            }
        )
    for report in [] if json else reports:
        if report.error is not None:
            out.note(f"{report.name}: {report.error}")
        if not report.turns:
            out.record({"task": report.name, "done": report.outlook.said})
        else:
            out.record(
                {"task": report.name, "turns": report.turns, "complete": report.complete, **report.figures}
            )
        for trouble in report.troubles:
            out.note(f"left as it is: {trouble}")
        if report.left is not None:
            out.note(f"{report.name}: there is still to do: {report.left}")
    return exit_code_of(reports)


def told(report: TaskReport) -> dict[str, str]:
    """What a task left, and the error that it ended in, for programs."""
    said = {"left": report.left, "error": None if report.error is None else str(report.error)}
    return {name: text for name, text in said.items() if text is not None}


def exit_code_of(reports: list[TaskReport]) -> int:
    """Of the first task that ended in an error; 1 if something was left as it is; else 0."""
    errors = [report.error for report in reports if report.error is not None]
    if errors:
        return errors[0].exit_code
    return TieredError.exit_code if any(report.troubles for report in reports) else 0
