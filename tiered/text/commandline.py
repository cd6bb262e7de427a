"""Words of a command line that its parser would take without a sound, and that were not meant so."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from tiered.errors import Invalid

_HELP = frozenset(("-h", "--help"))

_NAMES = frozenset(("--topic", "--prefix", "--key", "--unique-key", "--group"))
"""Options whose values are names at a broker: text, never the bytes of a path."""


def check_values(command: Any, words: Sequence[str], hint: str) -> None:
    """``Invalid`` where an option's value is left out and the next flag would be taken for it (``--out --json``).

    ``command`` is Typer's, or a group of commands; ``words`` are its own, up to ``--``. A value that looks like a flag can be
    given as ``--option=value``. ``hint``: where the help is. So is a name that is not text: no broker has it, and it would look
    like damage further on.
    """
    words = words[: words.index("--")] if "--" in words else words
    options = _options(command)
    for word, following in pairwise(words):
        command = getattr(command, "commands", {}).get(word, command)
        options |= _options(command)
        takes_value = word in options and not options[word].is_flag
        if takes_value and (following in options or following in _HELP):
            raise Invalid(f"option {word} requires a value", found=following, hint=hint)
    for word, following in pairwise((*words, "")):
        name, equals, value = word.partition("=")
        if name in _NAMES:
            _check_text(name, value if equals else following)


def _check_text(option: str, value: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Invalid(
            f"the value of {option} is not text: its bytes are not UTF-8",
            found=ascii(value),
            hint="names of brokers' topics, groups and keys are UTF-8: set a UTF-8 locale, or write the name anew",
        ) from None


def _options(command: Any) -> dict[str, Any]:
    return {
        name: parameter
        for parameter in command.params
        if parameter.param_type_name == "option"
        for name in (*parameter.opts, *parameter.secondary_opts)
    }
