"""A test that depends on a few files alone is taken out only while all of them are as they were when it passed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit import passedbefore
from tests.kit.imported import Imports
from tests.kit.passedbefore import content_digest, imports_digest

pytest_plugins = "pytester"

ROOT = Path(__file__).resolve().parents[2]
TEST = """
import pathlib, pytest
@pytest.mark.depends_only_on({place!r})
def test_it():
    assert "good" in pathlib.Path({place!r}, "facts.py").read_text()
def test_another():
    pass
"""
Run = Callable[..., str]


@pytest.fixture
def place(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the test depends on: a directory beside its module, with a cache of its own."""
    monkeypatch.setenv("TIERED_TEST_CACHE", str(pytester.path / "cache"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", ""))))
    monkeypatch.delenv("TIERED_NO_STAMPS", raising=False)
    made = pytester.mkdir("place")
    pytester.makepyfile(test_module=TEST.format(place=str(made)))
    return made


@pytest.fixture
def run(pytester: pytest.Pytester) -> Run:
    """A run of pytest on the module, in this process; what it says."""

    def call(*words: str) -> str:
        content_digest.cache_clear()
        return str(pytester.runpytest_inprocess("-p", "tests.kit.passedbefore", *words).stdout)

    return call


def test_a_pass_is_remembered_and_named_until_a_file_changes(
    place: Path, run: Run, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts, module = place / "facts.py", pytester.path / "test_module.py"
    facts.write_text("bad\n")
    assert "1 failed, 1 passed" in run()
    assert "1 failed, 1 passed" in run(), "a failure leaves no stamp"
    facts.write_text("good\n")
    assert "2 passed" in run()
    cached = run()
    assert "1 passed, 1 deselected" in cached
    assert "CACHED: 1 tests, the same content passed before" in cached
    assert "test_module.py: test_it" in cached
    with monkeypatch.context() as patch:
        patch.setenv("TIERED_NO_STAMPS", "1")
        assert "2 passed" in run()
    module.write_text(module.read_text() + "\n")
    assert "2 passed" in run(), "the test itself is another"
    facts.with_name("more.py").write_text("")
    assert "2 passed" in run(), "a file more"


def test_workers_take_out_what_the_controlling_process_knew(place: Path, run: Run) -> None:
    (place / "facts.py").write_text("good\n")
    assert "2 passed" in run("-n", "1")
    cached = run("-n", "1")
    assert "1 passed" in cached
    assert "test_module.py: test_it" in cached


MODULES = {
    "product/__init__.py": "",
    "product/way.py": "",
    "product/way/__init__.py": "",
    "product/way/inner.py": "def later():\n    import product.late as late\n    return late\n",
    "product/late.py": "",
    "product/typed.py": "",
    "product/text.py": "X = 1",
    "product/any.py": "from importlib import import_module\nNOW = import_module(__name__)\n",
    "product/foreign.py": "",
    "probes/__init__.py": "",
    "probes/test_one.py": """
import os
from typing import TYPE_CHECKING

from product.way import (  # a comment (with brackets)
    inner,  # and one more)
)
from product import \\
    text

if TYPE_CHECKING:
    from product.typed import Nothing
""",
}


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    """A small repository."""
    for name, text in MODULES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def imported(root: Path) -> set[str]:
    closure = Imports(root, ("product", "probes")).closure(root / "probes/test_one.py")
    return {str(file.relative_to(root)) for file in closure}


def test_what_a_module_imports_directly_or_not(modules: Path) -> None:
    """In brackets, behind comments, over two lines, in functions; packages around what is imported; not what types need."""
    assert imported(modules) == {
        "probes/test_one.py",
        "product/__init__.py",
        "product/way.py",
        "product/way/__init__.py",
        "product/way/inner.py",
        "product/late.py",
        "product/text.py",
    }


def test_who_imports_by_a_name_made_at_run_time_may_import_anything(modules: Path) -> None:
    (modules / "product/late.py").write_text("from product import any\n")
    assert imported(modules) == set(MODULES)


def test_imports_files_packages_and_settings_make_the_digest(
    modules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A digest for each state of what a marked test depends on; what it does not import changes nothing."""
    packages, page, settings = modules / "packages", modules / "page.md", modules / "pyproject.toml"
    (packages / "numpy-1.0.dist-info").mkdir(parents=True)
    page.write_text("")
    settings.write_text("")
    monkeypatch.setattr(passedbefore, "_ALWAYS", (settings,))
    monkeypatch.setattr(passedbefore.sysconfig, "get_path", lambda name: str(packages))

    def digest() -> str:
        content_digest.cache_clear()
        imports_digest.cache_clear()
        monkeypatch.setattr(passedbefore, "_IMPORTS", Imports(modules, ("product", "probes")))
        return imports_digest(modules / "probes/test_one.py", page)

    first = digest()
    (modules / "product/foreign.py").write_text("Y = 2")
    assert digest() == first
    seen = {first}
    for change in (
        lambda: (modules / "probes/test_one.py").write_text(MODULES["probes/test_one.py"] + "\n"),
        lambda: (modules / "product/late.py").write_text("Z = 3"),
        lambda: page.write_text("more"),
        lambda: settings.write_text("more"),
        lambda: (packages / "numpy-1.0.dist-info").rename(packages / "numpy-1.1.dist-info"),
    ):
        change()
        assert digest() not in seen
        seen.add(digest())


def test_where_coverage_is_measured_what_it_counts_runs_again(
    place: Path, run: Run, pytester: pytest.Pytester
) -> None:
    """The option alone: two measurements in one process would disturb each other."""
    pytester.makeconftest("def pytest_addoption(parser): parser.addoption('--cov', dest='cov_source')")
    (place / "facts.py").write_text("good\n")
    covering = ("-p", "no:pytest_cov", "--cov=tiered")
    assert "2 passed" in run("-p", "no:pytest_cov")
    assert "2 passed" in run(*covering)
    module = pytester.path / "test_module.py"
    module.write_text(module.read_text().replace("@", "@pytest.mark.no_cover\n@", 1))
    assert "2 passed" in run(*covering)
    assert "1 passed, 1 deselected" in run(*covering)


def test_a_stamp_does_not_last_for_ever(place: Path, run: Run, pytester: pytest.Pytester) -> None:
    (place / "facts.py").write_text("good\n")
    assert "2 passed" in run()
    (old,) = (pytester.path / "cache" / "passed").iterdir()
    os.utime(old, (0, 0))
    assert "2 passed" in run()
