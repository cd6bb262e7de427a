"""Seeded histories of which a run may draw a share, another with each commit, and which parts it leaves to others.

A test whose marker is ``@pytest.mark.history`` is parametrised by seeds, or by parts of what it goes through; each value is an
item of its own, with a stamp of its own (``tests.kit.passedbefore``), and asserts by itself all that it has to. ``--one-in N
--draw NUMBER`` takes out all but about one in ``N`` of these items: any ``N`` numbers in a row draw every item once. The end of
the report counts what was left out, by test. Without the option all run.

Of what Hypothesis draws it draws a share, too: with ``--one-in N`` a test has the ``N``-th part of its examples, ``FEWEST`` at
least, others in each run, and all that its source names.
"""

from __future__ import annotations

import zlib
from collections import Counter
from typing import Any

import pytest
from hypothesis import is_hypothesis_test, settings

MARKER = "history"
FEWEST = 10
"""Examples that Hypothesis draws at least, where a test does not ask for fewer."""
_SETTINGS = "_hypothesis_internal_use_settings"
"""Where ``@settings`` leaves them. There is no other way to change those of a test that has some."""


def turn(item: pytest.Item) -> int:
    """The draw, modulo any share, at which an item has its turn. It depends on the item alone, not on what else is collected:
    neighbours among the values of a test follow one another, and tests begin at places of their own."""
    function = item.nodeid.partition("[")[0]
    callspec: Any = getattr(item, "callspec", None)
    return zlib.crc32(function.encode()) + (sum(callspec.indices.values()) if callspec else 0)


def follows_another(item: pytest.Item) -> bool:
    """Whether it is a history, by a seed or number, other than the first of its test: that one has visited the same lines."""
    if item.get_closest_marker(MARKER) is None:
        return False
    callspec: Any = getattr(item, "callspec", None)
    values = {mark.args[0]: mark.args[1] for mark in item.iter_markers("parametrize")}
    return any(isinstance(of[0], int) and callspec.params[name] != of[0] for name, of in values.items())


def fewer_examples(function: Any, one_in: int) -> tuple[int, int]:
    """Let Hypothesis draw the share of a test's examples; how many it draws now, and of how many."""
    its: settings = getattr(function, _SETTINGS)
    share = min(its.max_examples, max(FEWEST, its.max_examples // one_in))
    setattr(function, _SETTINGS, settings(its, max_examples=share))
    return share, its.max_examples


class Drawn:
    """The plugin. All workers of pytest-xdist have the same options and draw the same."""

    def __init__(self, one_in: int, draw: int) -> None:
        self._one_in, self._draw = one_in, draw
        self.histories = 0
        self.examples = (0, 0, 0)
        """Of what Hypothesis draws: tests, examples, and of how many."""
        self.left: dict[str, int] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Take out the histories that are not drawn."""
        histories = [item for item in items if item.get_closest_marker(MARKER) is not None]
        out = {item for item in histories if (turn(item) - self._draw) % self._one_in}
        self.histories = len(histories)
        self.left = dict(Counter(item.nodeid.partition("[")[0] for item in histories if item in out))
        if out:
            items[:] = [item for item in items if item not in out]
            config.hook.pytest_deselected(items=list(out))
        if self._one_in > 1:
            functions = {getattr(item.obj, "__func__", item.obj) for item in items if _draws(item)}
            shares = [fewer_examples(function, self._one_in) for function in functions]
            self.examples = (len(shares), sum(n for n, _ in shares), sum(n for _, n in shares))

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Hand the counts to the controlling process; a run left empty is fine."""
        output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["histories"] = (self.histories, self.left, self.examples)
        elif exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and self.left:
            session.exitstatus = pytest.ExitCode.OK

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """Every worker collects everything: one worker's counts are complete."""
        self.histories, self.left, self.examples = getattr(node, "workeroutput", {}).get(
            "histories", (self.histories, self.left, self.examples)
        )

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Name each test of which something was left out, how much, and who runs it."""
        tests, examples, of = self.examples
        if examples < of:
            line = f"NOT RUN HERE: of {of} examples that Hypothesis draws for {tests} tests {of - examples}, others each time"
            terminalreporter.write_line(
                f"{line} (make coverage and CI draw all, and so does HISTORIES=1)",
                yellow=True,
                bold=True,
            )
        if not self.left:
            return
        line = (
            f"NOT RUN HERE: {sum(self.left.values())} of {self.histories} seeded histories; one in {self._one_in} is drawn, "
            f"draw {self._draw % self._one_in} (make coverage and CI run all, and so does HISTORIES=1):"
        )
        terminalreporter.write_line(line, yellow=True, bold=True)
        for function, count in self.left.items():
            terminalreporter.write_line(f"  {function}: {count}", yellow=True)


def _draws(item: pytest.Item) -> bool:
    return is_hypothesis_test(getattr(item, "obj", None)) and hasattr(item.obj, _SETTINGS)


def pytest_addoption(parser: pytest.Parser) -> None:
    """The share and the draw."""
    parser.addoption(
        "--one-in",
        type=int,
        default=1,
        metavar="N",
        help="of seeded histories run about one in N, drawn by --draw, and of Hypothesis' examples that share; default: all",
    )
    parser.addoption(
        "--draw",
        type=int,
        default=0,
        metavar="NUMBER",
        help="which of N shares is drawn; any N numbers in a row draw everything",
    )


def pytest_configure(config: pytest.Config) -> None:
    """The marker and the plugin, for ``tests/conftest.py`` and where this module itself is a plugin."""
    config.addinivalue_line("markers", f"{MARKER}: one of a test's seeded histories; --one-in draws a share")
    one_in: int = config.getoption("one_in")
    if one_in < 1:
        raise pytest.UsageError(f"--one-in {one_in}: give 1 for all, or a number above it")
    config.pluginmanager.register(Drawn(one_in, config.getoption("draw")), "drawn")
