"""``tiered spark JOB …``: hands everything to the jobs, which register themselves and say what they lack."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from typing import Any

import typer

from tiered.errors import Invalid

REGISTERED = "tiered.verbs"
"""The group of entry points in which a package above this one offers a verb: a function of words that gives the exit code."""

INSTALL = "install the wheel anew, or make install"

SETTINGS: dict[str, Any] = {
    "add_help_option": False,
    "context_settings": {"allow_extra_args": True, "ignore_unknown_options": True},
}
"""A job has its own flags and its own ``--help``."""


def command(context: typer.Context) -> int:
    """Run a job on the archive."""
    found = next(iter(entry_points(group=REGISTERED, name="spark")), None)
    if found is None:
        raise Invalid("the Spark jobs are not installed", hint=INSTALL)
    try:
        run: Callable[[Sequence[str]], int] = found.load()
    except (
        ModuleNotFoundError
    ) as error:  # a wheel that was built without them, and registers them all the same
        raise Invalid("the Spark jobs are not installed", missing=error.name, hint=INSTALL) from None
    debug = ["--debug"] if context.obj else []  # the words have it no more, wherever it stood
    return run([*debug, *context.args])
