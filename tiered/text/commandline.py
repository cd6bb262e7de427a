"""Words of a command line that its parser would take without a sound, and that were not meant so."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from tiered.errors import Invalid

_HELP = frozenset(("-h", "--help"))


def check_values(command: Any, words: Sequence[str], hint: str) -> None:
    """``Invalid`` where an option's value is left out and the next flag would be taken for it (``--out --json``).

    ``command`` is Typer's, or a group of commands; ``words`` are its own, up to ``--``. A value that looks like a flag can be
    given as ``--option=value``. ``hint``: where the help is.
    """
    words = words[: words.index("--")] if "--" in words else words
    options = _options(command)
    for word, following in pairwise(words):
        command = getattr(command, "commands", {}).get(word, command)
        options |= _options(command)
        takes_value = word in options and not options[word].is_flag
        if takes_value and (following in options or following in _HELP):
            raise Invalid(f"option {word} requires a value", found=following, hint=hint)


def _options(command: Any) -> dict[str, Any]:
    return {
        name: parameter
        for parameter in command.params
        if parameter.param_type_name == "option"
        for name in (*parameter.opts, *parameter.secondary_opts)
    }
