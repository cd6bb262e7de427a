"""Tests that depend on a few files alone do not run again while those files are what they were when the test passed.

A test says so by its marker. ``@pytest.mark.depends_only_on("tests/model")`` names the files. ``depends_only_on_imports`` is
for tests that do the same each time (fixed seeds, nothing of real clocks), start no program, and read no files but their own
and those that the marker names: they depend on their module, on whatever that imports of this repository
(``tests.kit.imported``), on the installed packages, and on how tests are run here. When a test passes, a stamp is written below
``cache.root() / "passed"``, named by a digest of all that and of Python's version. While the stamp is there the test is taken
out, and the end of the report names it as CACHED. ``TIERED_NO_STAMPS=1`` runs all, and where coverage is measured all run that
it counts.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import sys
import sysconfig
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from tests.kit import cache
from tests.kit.imported import Imports

MARKER = "depends_only_on"
IMPORTS_MARKER = "depends_only_on_imports"
KEPT_SECONDS = 30 * 86400
"""Then the stamps of some content go: contents follow one another, and few come back."""
_ROOT = Path(__file__).parents[2]
_IMPORTS = Imports(_ROOT, ("tiered", "tests"))
_ALWAYS = (_ROOT / "pyproject.toml", _ROOT / "tests/conftest.py")
"""How tests are run here."""


def stamp(item: pytest.Item) -> Path | None:
    """Where the stamp of a test lies or will lie; ``None`` for a test without the marker."""
    if (marker := item.get_closest_marker(MARKER)) is not None:
        digest = content_digest(item.path, *(_ROOT / named for named in marker.args))
    elif (marker := item.get_closest_marker(IMPORTS_MARKER)) is not None:
        digest = imports_digest(item.path, *(_ROOT / named for named in marker.args))
    else:
        return None
    return _directory() / digest / hashlib.sha256(item.nodeid.encode()).hexdigest()[:24]


@functools.cache
def imports_digest(module: Path, *places: Path) -> str:
    """Digest of a module, of all that it imports of this repository, of every file at and below ``places``, and of the names
    and versions of installed packages."""
    files = [*_ALWAYS, *sorted(_IMPORTS.closure(module))]
    for place in places:
        files += [place] if place.is_file() else sorted(file for file in place.rglob("*") if file.is_file())
    whole = hashlib.sha256(content_digest(*files).encode())
    packages = Path(sysconfig.get_path("purelib")).glob("*.dist-info")
    whole.update("\n".join(sorted(package.name for package in packages)).encode())
    return whole.hexdigest()[:24]


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
    for content in _directory().glob("*"):
        if content.stat().st_mtime < time.time() - KEPT_SECONDS:
            shutil.rmtree(content, ignore_errors=True)
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
        covering = bool(config.getoption("cov_source", default=None))
        out = [
            item
            for item in items
            if str(stamp(item)) in self._known
            and not (covering and item.get_closest_marker("no_cover") is None)
        ]
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
    config.addinivalue_line(
        "markers", f"{IMPORTS_MARKER}: not run again while nothing changed that its module imports"
    )
    config.pluginmanager.register(PassedBefore(config), "passed-before")
