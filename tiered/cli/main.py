"""The ``tiered`` command: finds the verb, runs it, and turns what happens into an exit code.

A verb ``v`` lives in ``tiered/cli/v.py`` and exposes either ``command``, a function with Typer annotations, or ``app``, a
Typer group. Only the module of the verb that was asked for is imported, so that ``tiered gen`` never pays for S3. A
verb returns ``None``, or an exit code of its own. ``--debug`` is understood anywhere on the line.
"""

from __future__ import annotations

import contextlib
import importlib
import re
import sys
from collections.abc import Callable, Sequence
from copy import copy
from typing import Annotated, Any

import typer

from tiered.cli.completion import VARIABLE, answer, words_so_far
from tiered.cli.entry import EXIT_INTERRUPTED
from tiered.cli.stdout import drop_stdout, unwritten
from tiered.cli.verbs import EXIT_NO_READER, VERBS, SubverbGroup, VerbGroup, example
from tiered.daemon.config import environment
from tiered.errors import Invalid, did_you_mean, exit_code
from tiered.stderr import settle
from tiered.text.commandline import check_values
from tiered.text.speaker import speaker
from tiered.version import __version__

_UNKNOWN_VERB = re.compile(r"No such command '(.*?)'")
NO_VERB = "tiered --help lists the verbs"


def build(args: Sequence[str]) -> typer.Typer:
    """The application with the verb named in ``args``; the others, or all when none is named, are only names with a word on
    each: their modules are not imported.
    """
    app = typer.Typer(
        name="tiered",
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        cls=VerbGroup,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    asked = next((word for word in args if not word.startswith("-")), None)
    for verb in VERBS:
        if verb == asked:
            _register(app, verb)
        else:
            app.command(verb, short_help=VERBS[verb])(_not_asked)
    return app


def _not_asked() -> None:
    """In the place of a verb that the line does not name."""
    raise AssertionError("unreachable: the verb on the line is registered")


def _command(words: Sequence[str]) -> Any:
    """The verb on the line, and the others by name; each says in its help that ``--debug`` is understood."""
    group: Any = typer.main.get_command(build(words))
    debug = copy(next(parameter for parameter in group.params if parameter.name == "debug"))
    debug.expose_value = False
    pending = list(group.commands.values())
    while pending:
        command = pending.pop()
        command.params.append(debug)
        pending += getattr(command, "commands", {}).values()
    return group


def _or_help(group: Any, words: Sequence[str]) -> list[str]:
    """The words, or, where they end before a verb, a question for help."""
    at = group
    for word in words:
        at = getattr(at, "commands", {}).get(word)
    wants_more = at is group or getattr(at, "no_args_is_help", False)
    return [*words, "--help"] if wants_more else [*words]


def _register(app: typer.Typer, verb: str) -> None:
    module = importlib.import_module(f"tiered.cli.{verb}")
    group = getattr(module, "app", None)
    if group is not None:
        app.add_typer(group, name=verb, cls=SubverbGroup, short_help=VERBS[verb], epilog=example(verb))
    else:
        settings = {"epilog": example(verb), **getattr(module, "SETTINGS", {})}
        app.command(verb, short_help=VERBS[verb], **settings)(module.command)


def _version(asked: bool) -> None:
    if asked:
        speaker(json_output=False).lines([f"tiered {__version__}"])
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_version)
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks; understood anywhere.")] = False,
) -> None:
    """Tiered storage for Apache RocketMQ: archives a live broker's commitlog to S3 or POSIX, exactly once."""


def main(argv: Sequence[str] | None = None, *, imported: Callable[[], None] = lambda: None) -> int:
    """Run one command; returns its exit code (``verbs.EXIT_CODES``). ``imported`` is called when the verb's modules
    are there."""
    words = list(sys.argv[1:] if argv is None else argv)
    end = words.index("--") if "--" in words else len(words)
    if words[:1] == ["help"]:
        words, end = [*words[1:], "--help"], len(words)
    debug, as_json = "--debug" in words[:end], "--json" in words[:end]
    words = [word for number, word in enumerate(words) if word != "--debug" or number >= end]
    usage = NO_VERB
    try:
        env = environment()
        completing = env.get(VARIABLE)
        group = _command(words if completing is None else words_so_far(env))
        imported()
        if completing is not None:
            return answer(group, completing)
        usage = _help_of(group, words)
        check_values(group, words, usage)
        with group.make_context("tiered", _or_help(group, words), obj=debug) as context:
            result = group.invoke(context)
        sys.stdout.flush()
        return result if isinstance(result, int) and not isinstance(result, bool) else 0
    except typer.Exit as stop:
        return stop.exit_code
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 1
    except (KeyboardInterrupt, typer.Abort):
        drop_stdout()
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        drop_stdout()
        return EXIT_NO_READER
    except typer.TyperException as error:
        return _tell(_usage(error, usage, group, words), debug=debug, as_json=as_json)
    except Exception as error:  # noqa: BLE001  (the outermost door: one paragraph instead of a traceback)
        return _tell(unwritten(error) or error, debug=debug, as_json=as_json)
    finally:
        settle()


def _usage(error: typer.TyperException, usage: str, group: Any, words: Sequence[str]) -> Exception:
    """A wrong command line as one of the program's own errors; a verb that is not there with those that are."""
    text = " ".join(error.format_message().split()).rstrip(".")
    unknown = _UNKNOWN_VERB.match(text)
    if unknown:
        at, path = _deepest(group, words)
        known = getattr(at, "commands", {})
        return Invalid(
            f"{path} has no verb {unknown[1]!r}", hint=did_you_mean(unknown[1], known, "its verbs: ")
        )
    return Invalid(text, hint=usage)


def _help_of(group: Any, words: Sequence[str]) -> str:
    """What shows the help of the verb on the line, or of the verb of its group: ``tiered kv cas --help``."""
    at, path = _deepest(group, words)
    return f"{path} --help" if at is not group else NO_VERB


def _deepest(group: Any, words: Sequence[str]) -> tuple[Any, str]:
    """The last verb on the line that there is, and how it is called; the program itself where there is none."""
    at, path = group, "tiered"
    for word in words:
        below = getattr(at, "commands", {}).get(word)
        if below is not None:
            at, path = below, f"{path} {word}"
    return at, path


def _tell(error: BaseException, *, debug: bool, as_json: bool) -> int:
    with contextlib.suppress(OSError):  # the exit code is left to speak, if standard error is full or closed
        speaker(json_output=as_json).error(error, debug=debug)
    return exit_code(error)


if __name__ == "__main__":
    sys.exit(main())
