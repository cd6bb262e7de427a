"""``tiered completion SHELL``: a script that completes verbs and flags; and the answers to what that script asks.

The script calls ``tiered`` itself with a variable in the environment that says what to answer: no verb runs then.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

import typer
from typer import completion as typer_completion

from tiered.text.speaker import speaker

VARIABLE = "_TIERED_COMPLETE"
_LINE = ("COMP_WORDS", "_TYPER_COMPLETE_ARGS")
"""Where shells put the line so far."""


class Shell(StrEnum):
    """Shells that are known."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def command(shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="bash, zsh or fish.")]) -> None:
    """Write a script that completes verbs and flags: source it in the shell's own start file, for example
    `eval "$(tiered completion bash)"` in ~/.bashrc.
    """
    script: str = typer_completion.get_completion_script(  # type: ignore[attr-defined]
        prog_name="tiered", complete_var=VARIABLE, shell=shell.value
    )
    speaker(json_output=False).raw(script.encode() + b"\n")


def words_so_far(env: Mapping[str, str]) -> list[str]:
    """The words behind the program's name on the line that is being completed."""
    line = next((env[name] for name in _LINE if name in env), "")
    try:
        return shlex.split(line)[1:]
    except ValueError:  # a quote is still open
        return line.split()[1:]


def answer(group: Any, instruction: str) -> int:
    """Write what may come next; the exit code."""
    typer_completion.completion_init()  # type: ignore[attr-defined]
    return typer_completion.shell_complete(group, {}, "tiered", VARIABLE, instruction)
