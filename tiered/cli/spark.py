"""``tiered spark JOB …``: hands everything to the jobs of ``spark/jobs``, which are installed beside, with an extra."""

from __future__ import annotations

import importlib
from typing import Any

import typer

from tiered.errors import NotFound

SETTINGS: dict[str, Any] = {
    "add_help_option": False,
    "context_settings": {"allow_extra_args": True, "ignore_unknown_options": True},
}
"""A job has its own flags and its own ``--help``."""


def command(context: typer.Context) -> int:
    """Run a job on the archive."""
    try:
        jobs = importlib.import_module("tiered_jobs.main")
    except ModuleNotFoundError as error:
        raise NotFound(
            "a package that the jobs need is not installed", missing=error.name,
            hint="pip install 'rocketmq-tiered[spark]', or make install-spark",
        ) from error  # fmt: skip
    code: int = jobs.main(context.args)
    return code
