"""Tests that passed here and whose files are as they were then are kept, not run again: ``--keep``, which ``make unit`` and
``make scenes`` give.

A test depends on its module, on whatever that imports of this repository (``tests.kit.imported``), on ``PLACES``, the installed
packages, Python and the environment. That a module needs no more is not believed: an audit hook looks at what is opened,
listed and started while it is imported and while its tests run. A module that reached for anything else of the repository, or
that started or asked another process, is kept only while no file of the whole repository changes. What the hook cannot see is
a question by ``stat`` alone: a module that names ``__file__``, to find its way in the repository, counts as one of those.

Nothing is kept that failed, was skipped or met an error, nothing for longer than ``GOOD_SECONDS``, nothing without ``--keep``:
``make coverage``, and so ``make test`` and CI, runs all. The end of the report counts what was kept, by module.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import sys
import sysconfig
import time
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kit import cache
from tests.kit.imported import Imports

GOOD_SECONDS = 7 * 86400
PLACES = ("tests/data", "config", "tiered", "tests/kit", "pyproject.toml", "tests/conftest.py")
"""Of the first four all that is not Python; caches of a process may hold what another module's test read there."""
STARTS = frozenset(
    ("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec", "os.spawn", "os.system")
)
READS = frozenset(("open", "os.listdir", "os.scandir"))
VARIABLES = ("TIERED_", "CI", "TZ", "LANG", "LC_", "PATH", "JAVA_HOME", "HYPOTHESIS_")
"""What names of environment variables that may matter begin with."""
NOT_CONTENT = frozenset(("__pycache__", "build", "dist", "out", "htmlcov", "node_modules"))
PACKAGES = ("tiered", "tests")
ASIDE = "spark"
"""Packages that lie elsewhere: who imports one of them depends on all that is there."""
_IMPORTS_ASIDE = re.compile(r"^[ \t]*(?:from|import)[ \t]+(?:tiered_spark|tiered_jobs)\b", re.MULTILINE)
_ROOT = Path(__file__).parents[2]
_IMPORTERS = ("<frozen importlib._bootstrap_external>", "<frozen importlib._bootstrap>", "<frozen zipimport>")
_NAMES_FILES = "__file__"
_COMPILED = f"{os.sep}__pycache__{os.sep}"
_STARTING_SECONDS = 2.0
"""So long before pytest is configured something may have been imported."""


class Depends:
    """What modules of tests below ``root`` depend on, as digests."""

    def __init__(self, root: Path, packages: tuple[str, ...], share: int = 1) -> None:
        """``share``: of seeded histories and examples; what passed with a share is not good for all."""
        self.root = root
        self._imports = Imports(root, packages)
        self._machine = _machine(share)
        self._contents: dict[Path, str] = {}
        self._digests: dict[Path, str] = {}
        self._closures: dict[Path, frozenset[Path]] = {}
        self._aside: dict[Path, bool] = {}
        self._given = frozenset(
            file for place in PLACES for file in _files(root / place) if self._is_given(file)
        )

    def _is_given(self, file: Path) -> bool:
        return file.suffix != ".py" or str(file.relative_to(self.root)) in PLACES

    def closure(self, module: Path) -> frozenset[Path]:
        """What a clean module depends on."""
        if module not in self._closures:
            imported = self._imports.closure(module)
            aside = _files(self.root / ASIDE) if any(map(self._goes_aside, imported)) else ()
            self._closures[module] = self._given.union(imported, aside)
        return self._closures[module]

    def _goes_aside(self, file: Path) -> bool:
        if file not in self._aside:
            self._aside[file] = _IMPORTS_ASIDE.search(file.read_text()) is not None
        return self._aside[file]

    def of_imports(self, module: Path) -> str:
        """Digest of a module that reaches for nothing but what it imports."""
        if module not in self._digests:
            self._digests[module] = self._digest(self.closure(module))
        return self._digests[module]

    def of_everything(self) -> str:
        """Digest of the whole repository."""
        if self.root not in self._digests:
            self._digests[self.root] = self._digest(_files(self.root))
        return self._digests[self.root]

    def _digest(self, files: Iterable[Path]) -> str:
        lines = sorted(f"{file.relative_to(self.root)} {self._content(file)}" for file in files)
        return hashlib.sha256("\n".join((*lines, self._machine)).encode()).hexdigest()[:24]

    def _content(self, file: Path) -> str:
        """What it was when it was first asked for: before the tests run."""
        if file not in self._contents:
            self._contents[file] = hashlib.sha256(file.read_bytes()).hexdigest()
        return self._contents[file]

    def changed_since(self, when: float, module: Path, *, clean: bool) -> bool:
        """Whether somebody writes while tests run: nobody knows then which content it was that passed."""
        files = self.closure(module) if clean else _files(self.root)
        return any(file.stat().st_mtime > when for file in files)


def _machine(share: int) -> str:
    packages = sorted(path.name for path in Path(sysconfig.get_path("purelib")).glob("*.dist-info"))
    variables = {name: value for name, value in os.environ.items() if name.startswith(VARIABLES)}
    variables.pop("TIERED_NO_STAMPS", None)
    return json.dumps(
        [share, sys.version, os.geteuid(), os.uname()[2:5], packages, sorted(variables.items())]
    )


def _files(place: Path) -> Iterator[Path]:
    """Files at and below a place; no caches, nothing hidden but the CI's."""
    if place.is_file():
        yield place
        return
    for directory, below, names in os.walk(place):
        below[:] = [n for n in below if n not in NOT_CONTENT and (n == ".ci" or not n.startswith("."))]
        for name in names:
            if not name.startswith(".") and not name.endswith(".pyc"):
                yield Path(directory, name)


class Watch:
    """Who reaches for what: an audit hook, which cannot be taken away again, so there is one a process."""

    def __init__(self, root: Path) -> None:
        self._root = str(root) + os.sep
        self._machines = tuple(
            self._root + name + os.sep for name in (".venv", ".hypothesis", ".pytest_cache")
        )
        self.allowed: frozenset[str] = frozenset()
        self.seen: list[str] | None = None
        """While tests run: what they reached for that was not allowed."""
        self.imported: dict[str, set[str]] = {}
        """What files of the repository reached for when they were imported, which they do once a process."""

    def install(self) -> None:
        """From now on."""
        sys.addaudithook(self.hook)

    def hook(self, event: str, args: tuple[Any, ...]) -> None:
        """What the interpreter tells; it must not raise."""
        if event in READS:
            path = self._read(event, args[0])
        elif event in STARTS or (event == "socket.connect" and not isinstance(args[1], tuple)):
            path = event
        else:
            return
        if path is None or sys._getframe(1).f_code.co_filename in _IMPORTERS:
            return
        if self.seen is None:
            for file in self._importing():
                self.imported.setdefault(file, set()).add(path)
        elif path not in self.allowed:
            self.seen.append(path)

    def _read(self, event: str, what: object) -> str | None:
        """The path, if it is the repository's and no file of ``tests/data`` is listed."""
        if isinstance(what, int):
            return None
        path = (
            os.path.abspath(os.fsdecode(what)) if isinstance(what, (str, bytes, os.PathLike)) else os.getcwd()
        )
        if not (path + os.sep).startswith(self._root) or path.startswith(self._machines) or _COMPILED in path:
            return None
        return None if event != "open" and path.startswith(self._root + "tests/data") else path

    def _importing(self) -> Iterator[str]:
        """Files of the repository that are being imported now."""
        frame = sys._getframe(2)
        while frame is not None:
            if frame.f_code.co_name == "<module>" and frame.f_code.co_filename.startswith(self._root):
                yield frame.f_code.co_filename
            frame = frame.f_back  # type: ignore[assignment]


@functools.cache
def watch(root: Path) -> Watch:
    """The one of this process."""
    made = Watch(root)
    made.install()
    return made


class Kept:
    """The plugin. With pytest-xdist each worker reads the records for itself, when it has collected."""

    def __init__(self, depends: Depends, watch: Watch, directory: Path, *, known: bool) -> None:
        self._depends, self._watch, self._directory, self._known = depends, watch, directory, known
        self._passed: list[str] = []
        self._began = time.time() - _STARTING_SECONDS
        self.kept: dict[str, int] = {}
        self.ran = 0

    def _clean(self, module: Path) -> bool:
        """Whether nothing that comes with it reached for anything else when it was imported."""
        closure = set(map(str, self._depends.closure(module)))
        imported = (self._watch.imported.get(file, set()) for file in closure)
        return _NAMES_FILES not in module.read_text() and all(reached <= closure for reached in imported)

    def _record(self, module: Path, clean: bool) -> Path:
        name = module.relative_to(self._depends.root)
        which = self._depends.of_imports(module) if clean else self._depends.of_everything()
        return self._directory / f"{'-'.join(name.parts)}.{'imports' if clean else 'everything'}.{which}"

    def _passed_before(self, module: Path) -> set[str]:
        found: set[str] = set()
        for clean in (True, False):
            record = self._record(module, clean)
            try:
                if record.stat().st_mtime > time.time() - GOOD_SECONDS:
                    found.update(record.read_text().splitlines())
            except FileNotFoundError:
                continue
        return found

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Take out what passed when all it depends on was what it is."""
        modules = {item.path for item in items if item.path.is_relative_to(self._depends.root)}
        for module in modules:
            self._depends.of_imports(module)
        self._depends.of_everything()
        if not self._known:
            return
        before = {module: self._passed_before(module) for module in modules}
        out = {item for item in items if item.nodeid in before.get(item.path, ())}
        self.kept = dict(sorted(Counter(item.nodeid.partition("::")[0] for item in out).items()))
        self.ran = len(items) - len(out)
        if out:
            items[:] = [item for item in items if item not in out]
            config.hook.pytest_deselected(items=list(out))

    def _begin(self, module: Path) -> None:
        self._watch.allowed = frozenset(map(str, self._depends.closure(module)))
        self._watch.seen = []

    def _end(self) -> list[str]:
        seen, self._watch.seen = self._watch.seen, None
        return seen or []

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None, Any, Any]:
        """Watch a module's tests from its first to its last, and write down which of them passed."""
        if not item.path.is_relative_to(self._depends.root):
            return (yield)
        if self._watch.seen is None:
            self._begin(item.path)
            self._passed = []
        item.stash[_PHASES] = 0
        done = yield
        if nextitem is None or nextitem.path != item.path:
            self._write(item.path, self._end())
        return done

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, Any, Any]:
        """Setting up, the test and taking down, all three."""
        report: pytest.TestReport = yield
        item.stash[_PHASES] = item.stash.get(_PHASES, 0) + (report.passed and not hasattr(report, "wasxfail"))
        if report.when == "teardown" and item.stash[_PHASES] == 3:
            self._passed.append(item.nodeid)
        return report

    def _write(self, module: Path, seen: list[str]) -> None:
        clean = self._clean(module) and not seen
        if not self._passed or self._depends.changed_since(self._began, module, clean=clean):
            return
        record = self._record(module, clean)
        record.parent.mkdir(parents=True, exist_ok=True)
        for older in record.parent.glob(f"{record.name.rpartition('.')[0]}.*"):
            if older.stat().st_mtime < time.time() - GOOD_SECONDS:
                older.unlink(missing_ok=True)
        with record.open("a") as file:
            file.write("".join(f"{nodeid}\n" for nodeid in self._passed))

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Hand the counts to the controlling process; a run left empty is fine."""
        output: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["kept"] = (self.ran, self.kept)
        elif exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and self.kept:
            session.exitstatus = pytest.ExitCode.OK

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: object) -> None:
        """Every worker collects everything: one worker's counts are complete."""
        self.ran, self.kept = getattr(node, "workeroutput", {}).get("kept", (self.ran, self.kept))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Count what was kept, by module, and say who runs it."""
        if not self.kept:
            return
        count = sum(self.kept.values())
        line = (
            f"KEPT, NOT RUN AGAIN: {count} tests of {len(self.kept)} modules; {self.ran} ran. Nothing that the kept ones "
            "import or read has changed since they passed here (KEEP= runs all, as make coverage and CI do):"
        )
        terminalreporter.write_line(line, yellow=True, bold=True)
        folders: dict[str, list[str]] = {}
        for module, count in self.kept.items():
            folder, _, name = module.rpartition("/")
            folders.setdefault(folder, []).append(f"{name.removeprefix('test_').removesuffix('.py')} {count}")
        for folder, names in folders.items():
            terminalreporter.write_line(f"  {folder}: {', '.join(names)}", yellow=True)


_PHASES = pytest.StashKey[int]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Off unless it is asked for."""
    parser.addoption(
        "--keep",
        action="store_true",
        help="do not run again what passed here with the same files; default: run all",
    )


def pytest_configure(config: pytest.Config) -> None:
    """For ``tests/conftest.py`` and where this module itself is a plugin."""
    if not config.getoption("keep"):
        return
    if config.getoption("cov_source", default=None):
        raise pytest.UsageError("--keep leaves tests out: no coverage can be measured beside it")
    known = os.environ.get("TIERED_NO_STAMPS") != "1" and not os.environ.get("CI")
    depends = Depends(_ROOT, PACKAGES, config.getoption("one_in", default=1))
    config.pluginmanager.register(Kept(depends, watch(_ROOT), cache.root() / "kept", known=known), "kept")
