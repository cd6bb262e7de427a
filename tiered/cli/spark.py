"""``tiered spark JOB …``: hands everything to the jobs of ``spark/jobs``, which say themselves what they lack."""

from __future__ import annotations

import importlib
from typing import Any

import typer

SETTINGS: dict[str, Any] = {
    "add_help_option": False,
    "context_settings": {"allow_extra_args": True, "ignore_unknown_options": True},
}
"""A job has its own flags and its own ``--help``."""


def command(context: typer.Context) -> int:
    """Run a job on the archive."""
    code: int = importlib.import_module("tiered_jobs.main").main(context.args)
    return code
