"""A test is kept only while all that it depends on is as it was when it passed, whatever way it got at it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.kit import kept
from tests.kit.rewriting import own_order

pytest_plugins = "pytester"

ROOT = Path(__file__).resolve().parents[2]
FILES = {
    "product/__init__.py": "",
    "product/used.py": "WORTH = 1",
    "product/foreign.py": "",
    "probes/__init__.py": "",
    "probes/helper.py": "",
    "probes/test_one.py": """
import os, pathlib, subprocess, sys
import pytest
from product import used
from probes import helper
def test_it():
    assert used.WORTH
def test_more():
    pass
""",
    "README.md": "good",
    "tests/data/golden": "1",
    "docs/a.md": "",
}
PLUGINS = (
    "-p",
    "tests.kit.kept",
    "-p",
    "no:cacheprovider",
    "-W",
    "ignore::pytest.PytestAssertRewriteWarning",
)
AFTER = "def test_more():\n    "
Run = Callable[..., str]
Write = Callable[[str, str], None]


@pytest.fixture
def write(pytester: pytest.Pytester) -> Write:
    """A file of the small repository, an hour old."""

    def put(name: str, text: str) -> None:
        file = pytester.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        os.utime(file, (file.stat().st_atime - 3600,) * 2)

    return put


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, write: Write) -> Run:
    """A run of pytest on a small repository, in a fork of this process; what it says. The hook of a watch cannot be taken out
    again: here it would be asked by every later test, and let threads in while a trace function is being installed."""
    for name, text in FILES.items():
        write(name, text)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", ""))))
    monkeypatch.setenv("TIERED_TEST_CACHE", str(pytester.path.with_name(f"{pytester.path.name}-cache")))
    monkeypatch.setattr(kept, "_ROOT", pytester.path)
    monkeypatch.setattr(kept, "PACKAGES", ("product", "probes"))
    for name in ("TIERED_NO_STAMPS", "CI"):
        monkeypatch.delenv(name, raising=False)
    told = pytester.path.with_name(f"{pytester.path.name}-told")

    def forked(*words: str) -> str:
        child = os.fork()
        if not child:
            try:
                told.write_text(str(pytester.runpytest_inprocess(*PLUGINS, "--keep", *words).stdout))
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        return told.read_text()

    return forked


def with_test(body: str, before: str = "") -> str:
    return before + FILES["probes/test_one.py"].replace(AFTER + "pass", AFTER + body)


def test_what_passed_is_kept_and_counted_until_what_it_imports_changes(run: Run, write: Write) -> None:
    assert "2 passed" in run()
    said = run()
    assert "2 deselected" in said
    assert "0 selected" in said
    assert "KEPT, NOT RUN AGAIN: 2 tests of 1 modules; 0 ran." in said
    assert "probes: one 2" in said
    for foreign in ("product/foreign.py", "README.md", "docs/a.md"):
        write(foreign, "more = 1")
        assert "2 deselected" in run(), foreign
    for own in ("product/used.py", "product/__init__.py", "probes/helper.py", "tests/data/golden"):
        write(own, "WORTH = 2")
        assert "2 passed" in run(), own
        assert "2 deselected" in run(), own
    write("probes/test_one.py", with_test("assert True"))
    assert "2 passed" in run(), "the module itself"


@pytest.mark.parametrize(
    "body",
    [
        "open('README.md').close()",
        "os.close(os.open('README.md', os.O_RDONLY))",
        "pathlib.Path('README.md').read_bytes()",
        "os.listdir()",
        "list(os.scandir(os.getcwd()))",
        "list(pathlib.Path('docs').glob('*.md'))",
        "subprocess.run([sys.executable, '-c', ''], check=True)",
        "os.waitpid(os.fork() or os._exit(0), 0)",
        "pathlib.Path(__file__, '../../README.md').exists()",
    ],
)
def test_a_module_that_reached_for_more_is_kept_until_anything_changes(
    run: Run, write: Write, body: str
) -> None:
    write("probes/test_one.py", with_test(body))
    assert "2 passed" in run()
    assert "2 deselected" in run()
    write("docs/a.md", "more")
    assert "2 passed" in run()


@pytest.mark.parametrize("importer", ["probes/test_one.py", "probes/helper.py"])
def test_what_is_read_when_something_is_imported_counts_as_well(
    run: Run, write: Write, importer: str
) -> None:
    write(importer, "import pathlib\npathlib.Path('README.md').read_text()\n" + FILES[importer])
    assert "2 passed" in run()
    assert "2 deselected" in run()
    write("docs/a.md", "more")
    assert "2 passed" in run()


def test_who_imports_a_package_that_lies_elsewhere_depends_on_all_that_lies_there(
    run: Run, write: Write, monkeypatch: pytest.MonkeyPatch, pytester: pytest.Pytester
) -> None:
    monkeypatch.syspath_prepend(str(pytester.path / "spark"))
    write("spark/tiered_spark/__init__.py", "")
    write("probes/helper.py", "def late():\n    import tiered_spark\n")
    assert "2 passed" in run()
    assert "2 deselected" in run()
    write("spark/jobs/another.py", "")
    assert "2 passed" in run()


def test_golden_files_may_be_read(run: Run, write: Write) -> None:
    write("probes/test_one.py", with_test("os.listdir('tests/data'); open('tests/data/golden').close()"))
    assert "2 passed" in run()
    write("docs/a.md", "more")
    assert "2 deselected" in run()
    write("tests/data/another", "")
    assert "2 passed" in run(), "a golden file more"


@pytest.mark.parametrize(
    "body", ["assert False", "pytest.skip('no')", "pytest.xfail('no')", "raise OSError('no')"]
)
def test_only_what_passed_is_kept(run: Run, write: Write, body: str) -> None:
    write("probes/test_one.py", with_test(body))
    run()
    again = run()
    assert "1 deselected" in again
    assert "KEPT, NOT RUN AGAIN: 1 tests of 1 modules; 1 ran." in again


def test_what_fails_when_it_is_taken_down_is_not_kept(run: Run, write: Write) -> None:
    fixture = "@pytest.fixture\ndef spoilt():\n    yield\n    assert False\n"
    write(
        "probes/test_one.py",
        FILES["probes/test_one.py"].replace("def test_more()", fixture + "def test_more(spoilt)"),
    )
    assert "2 passed, 1 error" in run()
    assert "1 passed, 1 deselected, 1 error" in run()


@pytest.mark.parametrize("variable", ["TIERED_NO_STAMPS", "CI"])
def test_who_wants_all_gets_all(run: Run, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    assert "2 passed" in run()
    monkeypatch.setenv(variable, "1")
    said = run()
    assert "2 passed" in said
    assert "KEPT" not in said


def test_nothing_is_kept_without_being_asked(pytester: pytest.Pytester, run: Run) -> None:
    assert "2 passed" in run()
    result = pytester.runpytest_inprocess(*PLUGINS)
    assert "2 passed" in str(result.stdout)


def test_coverage_wants_all(pytester: pytest.Pytester, run: Run) -> None:
    pytester.makeconftest("def pytest_addoption(parser): parser.addoption('--cov', dest='cov_source')")
    result = pytester.runpytest_inprocess(*PLUGINS, "-p", "no:pytest_cov", "--keep", "--cov=tiered")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "--keep leaves tests out: no coverage can be measured beside it" in str(result.stderr)


def test_what_passed_while_somebody_wrote_is_not_kept(run: Run, write: Write) -> None:
    write("probes/test_one.py", with_test("pathlib.Path('product/used.py').touch()"))
    assert "2 passed" in run()
    assert "2 passed" in run()


def test_what_passed_with_a_share_of_the_examples_is_not_good_for_all(run: Run) -> None:
    assert "2 passed" in run("-p", "tests.kit.drawn", "--one-in", "5")
    assert "2 deselected" in run("-p", "tests.kit.drawn", "--one-in", "5")
    assert "2 passed" in run("-p", "tests.kit.drawn")


def test_a_pass_is_not_good_for_ever(run: Run, pytester: pytest.Pytester) -> None:
    assert "2 passed" in run()
    (record,) = pytester.path.with_name(f"{pytester.path.name}-cache").joinpath("kept").iterdir()
    os.utime(record, (record.stat().st_mtime - kept.GOOD_SECONDS - 1,) * 2)
    assert "2 passed" in run()


def test_tests_of_another_place_are_none_of_ours(run: Run, pytester: pytest.Pytester) -> None:
    """In a worker, whose process looks at this repository."""
    (pytester.path / "test_alone.py").write_text("def test_it(): pass\n")
    assert "1 passed" in run("-n", "1", "test_alone.py")
    assert "1 passed" in run("-n", "1", "test_alone.py")


def test_one_workers_counts_are_reported(pytester: pytest.Pytester, run: Run) -> None:
    assert "2 passed" in run()
    depends = kept.Depends(pytester.path, ("product", "probes"))
    worker, controlling = (
        kept.Kept(depends, kept.Watch(pytester.path), pytester.path, known=True) for _ in range(2)
    )
    worker.kept, worker.ran = {"probes/test_one.py": 2}, 5
    node: Any = SimpleNamespace(workeroutput={})
    worker.pytest_sessionfinish(cast(pytest.Session, SimpleNamespace(config=node)), 0)
    controlling.pytest_testnodedown(node, None)
    assert (controlling.kept, controlling.ran) == (worker.kept, worker.ran)


def test_the_quick_rings_alone_keep() -> None:
    """Not coverage, and so not CI."""
    text = (ROOT / "Makefile").read_text()
    recipes = dict(re.findall(r"^([a-z-]+):.*\n((?:\t.*\n)+)", text, re.MULTILINE))
    keeping = {name for name, recipe in recipes.items() if re.search(r"--keep\b|\$\(KEEP\)", recipe)}
    assert keeping == {"unit", "scenes"}
    assert re.findall(r"^(.*) --keep$", text, re.MULTILINE) == ["KEEP ?="]


def test_every_worker_imports_all_from_a_place_of_its_own() -> None:
    modules = [Path(name) for name in "abcdefg"]
    orders = [own_order(modules, worker, 3) for worker in range(3)]
    assert [order[0].name for order in orders] == ["a", "c", "e"]
    assert all(sorted(order) == modules for order in orders)
