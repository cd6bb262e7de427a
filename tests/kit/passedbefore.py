"""Tests that depend on a few files alone do not run again while those files are what they were when the test passed.

A test says so by its marker, ``@pytest.mark.depends_only_on("tests/model")``. When it passes, a stamp is written below
``cache.root() / "passed"``, named by a digest of the named files, of the test's own module, and of Python's version. While the
stamp is there the test is taken out, and the end of the report names it as CACHED. ``TIERED_NO_STAMPS=1`` runs all.
"""

from __future__ import annotations

import functools
import hashlib
import os
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.kit import cache

MARKER = "depends_only_on"
_ROOT = Path(__file__).parents[2]


def stamp(item: pytest.Item) -> Path | None:
    """Where the stamp of a test lies or will lie; ``None`` for a test without the marker."""
    marker = item.get_closest_marker(MARKER)
    if marker is None:
        return None
    name = hashlib.sha256(item.nodeid.encode()).hexdigest()[:24]
    return _directory() / content_digest(item.path, *(_ROOT / named for named in marker.args)) / name


@functools.cache
def content_digest(*places: Path) -> str:
    """Digest of the Python files at and below ``places``, by name and content, and of Python's version."""
    whole = hashlib.sha256(sys.version.encode())
    for place in places:
        for file in [place] if place.is_file() else sorted(place.rglob("*.py")):
            data = file.read_bytes()
            whole.update(f"{file.relative_to(place)} {len(data)}\n".encode() + data)
    return whole.hexdigest()[:24]


def _directory() -> Path:
    return cache.root() / "passed"


def _stamps() -> list[str]:
    if os.environ.get("TIERED_NO_STAMPS") == "1":
        return []
    return sorted(str(path) for path in _directory().glob("*/*"))


class PassedBefore:
    """The plugin. With pytest-xdist all workers go by the stamps that the controlling process found."""

    def __init__(self, config: pytest.Config) -> None:
        given: dict[str, Any] | None = getattr(config, "workerinput", None)
        self._known = set(_stamps() if given is None else given["stamps"])
        self.cached: list[str] = []

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Hand the stamps to a worker."""
        node.workerinput["stamps"] = sorted(self._known)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """Every worker takes out the same tests: one worker's list is complete."""
        self.cached = getattr(node, "workeroutput", {}).get("cached", self.cached)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Take out what has its stamp."""
        out = [item for item in items if str(stamp(item)) in self._known]
        if out:
            self.cached = [item.nodeid for item in out]
            items[:] = [item for item in items if item not in set(out)]
            config.hook.pytest_deselected(items=out)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, Any, None]:
        """A stamp for what passed."""
        report: pytest.TestReport = (yield).get_result()
        path = stamp(item)
        if path is not None and report.when == "call" and report.passed:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(item.nodeid + "\n")

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Hand the list to the controlling process; a run left empty is fine."""
        output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["cached"] = self.cached
        elif exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and self.cached:
            session.exitstatus = pytest.ExitCode.OK

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Name each test that was taken out, and the way to run it."""
        if not self.cached:
            return
        count = len(self.cached)
        line = f"CACHED: {count} tests, the same content passed before (TIERED_NO_STAMPS=1 runs them):"
        terminalreporter.write_line(line, yellow=True, bold=True)
        modules: dict[str, list[str]] = {}
        for nodeid in self.cached:
            module, _, name = nodeid.partition("::")
            modules.setdefault(module, []).append(name)
        for module, names in modules.items():
            terminalreporter.write_line(f"  {module}: {', '.join(names)}", yellow=True)


def pytest_configure(config: pytest.Config) -> None:
    """The marker and the plugin, for ``tests/conftest.py`` and where this module itself is a plugin."""
    config.addinivalue_line("markers", f"{MARKER}(place, ...): not run again while nothing there changed")
    config.pluginmanager.register(PassedBefore(config), "passed-before")
