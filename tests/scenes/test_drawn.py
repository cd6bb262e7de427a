"""A share of the seeded histories is drawn; five draws in a row run all of them, each once; without the option all run."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit import drawn
from tests.mutants import __main__ as mutants

pytest_plugins = "pytester"

ROOT = Path(__file__).resolve().parents[2]
TEST = """
import pytest
@pytest.mark.history
@pytest.mark.parametrize("seed", range(7))
def test_lives(seed):
    pass
@pytest.mark.history
@pytest.mark.parametrize("kind", ["merged", "sealed"])
@pytest.mark.parametrize("part", range(3))
def test_damage(kind, part):
    pass
def test_another():
    pass
"""
ALL = 7 + 2 * 3
Run = Callable[..., str]


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A run of pytest on the module, in this process; what it says."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", ""))))
    monkeypatch.setenv("TIERED_TEST_CACHE", str(pytester.path / "cache"))
    monkeypatch.delenv("TIERED_NO_STAMPS", raising=False)
    pytester.makepyfile(test_module=TEST)
    plugins = ("-p", "tests.kit.drawn", "-p", "no:cacheprovider")
    return lambda *words: str(pytester.runpytest_inprocess(*plugins, "-v", *words).stdout)


def passed(output: str) -> list[str]:
    found = re.findall(r"::(test_\S+) PASSED|PASSED test_module\.py::(test_\S+)", output)
    return [there or here for there, here in found]


def test_all_run_where_no_share_is_asked_for(run: Run) -> None:
    for words in ((), ("--draw", "3"), ("--one-in", "1", "--draw", "3")):
        output = run(*words)
        assert len(set(passed(output))) == ALL + 1
        assert "NOT RUN HERE" not in output


@pytest.mark.parametrize("first", [0, 873])
def test_five_draws_in_a_row_run_every_history_once(run: Run, first: int) -> None:
    ran: Counter[str] = Counter()
    for draw in range(first, first + 5):
        now = passed(run("--one-in", "5", "--draw", str(draw)))
        assert 1 < len(now) <= 6
        ran.update(now)
    assert ran.pop("test_another") == 5
    assert len(ran) == ALL
    assert set(ran.values()) == {1}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnknownMarkWarning")
def test_those_that_follow_another_of_their_test_are_told_apart(pytester: pytest.Pytester) -> None:
    """By number: of what has a name each is another case."""
    items = pytester.getitems(TEST)
    first = [item.name for item in items if not drawn.follows_another(item)]
    assert first == ["test_lives[0]", "test_damage[0-merged]", "test_damage[0-sealed]", "test_another"]
    follow = [item.name for item in items if drawn.follows_another(item)]
    assert len(follow) == ALL - 3


@pytest.mark.parametrize("workers", [(), ("-n", "1")])
def test_what_was_left_out_is_counted_by_test(run: Run, workers: tuple[str, ...]) -> None:
    output = run("--one-in", "5", "--draw", "7", *workers)
    found = re.search(rf"NOT RUN HERE: (\d+) of {ALL} seeded histories; one in 5 is drawn, draw 2", output)
    assert found is not None
    left = {name: int(n) for name, n in re.findall(r"test_module\.py::(\w+): (\d+)\n", output + "\n")}
    assert left.keys() == {"test_lives", "test_damage"}
    assert sum(left.values()) == int(found[1])
    assert len(passed(output)) == ALL + 1 - int(found[1])


def test_one_history_is_drawn_alike_alone_and_among_others(run: Run) -> None:
    among = {name for name in passed(run("--one-in", "5")) if name.startswith("test_lives")}
    alone = {
        f"test_lives[{n}]"
        for n in range(7)
        if passed(run("--one-in", "5", f"test_module.py::test_lives[{n}]"))
    }
    assert alone == among


PROPERTIES = """
from hypothesis import example, given, settings
from hypothesis.strategies import integers
RAN = {"many": 0, "few": 0, "usual": 0}
@settings(max_examples=500, database=None)
@given(integers())
@example(4)
def test_many(n): RAN["many"] += 1
@settings(max_examples=7, database=None)
@given(integers())
def test_few(n): RAN["few"] += 1
@given(integers())
def test_usual(n): RAN["usual"] += 1
def test_how_many(): print(RAN)
"""


def test_hypothesis_draws_the_share_of_its_examples_and_what_the_source_names(
    run: Run, pytester: pytest.Pytester
) -> None:
    pytester.makepyfile(test_module=PROPERTIES)
    assert "{'many': 101, 'few': 7, 'usual': 20}" in run("--one-in", "5", "-s")
    assert "{'many': 51, 'few': 7, 'usual': 10}" in run("--one-in", "10", "-s")
    whole = run("-s")
    assert "{'many': 501, 'few': 7, 'usual': 100}" in whole
    assert "NOT RUN HERE" not in whole
    for workers in ((), ("-n", "1")):
        said = run("--one-in", "5", *workers)
        assert "NOT RUN HERE: of 607 examples that Hypothesis draws for 3 tests 480, others each time" in said


def test_a_share_is_a_number_from_1_on(pytester: pytest.Pytester, run: Run) -> None:
    result = pytester.runpytest_inprocess("-p", "tests.kit.drawn", "--one-in", "0")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "--one-in 0: give 1 for all" in str(result.stderr)


def test_a_stamp_is_of_one_history_and_not_of_its_test(run: Run, pytester: pytest.Pytester) -> None:
    """A history that was not drawn has no stamp: it runs where all do."""
    module = pytester.path / "test_module.py"
    module.write_text(
        TEST.replace(
            "@pytest.mark.history", "@pytest.mark.depends_only_on('test_module.py')\n@pytest.mark.history"
        )
    )
    stamps = ("-p", "tests.kit.passedbefore")
    drawn = set(passed(run(*stamps, "--one-in", "5"))) - {"test_another"}
    later = set(passed(run(*stamps))) - {"test_another"}
    assert drawn
    assert len(drawn) + len(later) == ALL
    assert not drawn & later


def test_the_quick_rings_alone_draw_by_the_commits() -> None:
    """CI's rings and mutants run every history."""
    text = (ROOT / "Makefile").read_text()
    recipes = dict(re.findall(r"^([a-z-]+):.*\n((?:\t.*\n)+)", text, re.MULTILINE))
    draws = {name for name, recipe in recipes.items() if "--one-in" in recipe or "$(DRAWN)" in recipe}
    assert draws == {"unit", "scenes"}
    assert re.search(
        r"^DRAWN = --one-in \$\(HISTORIES\) --draw .*git rev-list --count HEAD", text, re.MULTILINE
    )
    (rings,) = re.findall(r"^RINGS \?= (.*)$", text, re.MULTILINE)
    assert "coverage" in rings.split()
    assert not draws & set(rings.split())
    assert "--one-in" not in re.sub(r"^DRAWN = .*$", "", text, flags=re.MULTILINE)
    assert "one-in" not in Path(mutants.__file__).read_text()
