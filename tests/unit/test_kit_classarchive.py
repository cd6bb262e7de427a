"""Archives of classes that a JVM writes at its end: made once for these jars and this Java, forgotten when nobody uses them."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit.classarchive import KEPT_SECONDS, written_at_exit


def java(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program ``java`` that comes first on the path."""
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text("#!/bin/sh\n")
    (home / "bin" / "java").chmod(0o755)
    (home / "lib").mkdir()
    (home / "lib" / "modules").write_text("Java's own classes")
    monkeypatch.setenv("PATH", f"{home / 'bin'}:{os.environ['PATH']}")


@pytest.fixture
def jar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A jar, an empty cache and a known ``java``."""
    monkeypatch.setenv("TIERED_TEST_CACHE", str(tmp_path / "cache"))
    java(tmp_path / "jdk17", monkeypatch)
    made = tmp_path / "a.jar"
    made.write_text("classes")
    return made


def training(times: list[str]) -> Callable[[str], None]:
    """A JVM that writes what it is told to."""

    def train(option: str) -> None:
        times.append(option)
        found = re.search(r"-XX:ArchiveClassesAtExit=(\S+)", option)
        assert found is not None
        Path(found[1]).write_text("classes")

    return train


def archive(option: str) -> Path:
    found = re.search(r"-XX:SharedArchiveFile=(\S+)", option)
    assert found is not None
    return Path(found[1])


def test_it_is_made_once_for_these_jars(jar: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times: list[str] = []
    first = written_at_exit("one", [jar], training(times))
    assert archive(first).read_text() == "classes"
    assert written_at_exit("one", [jar], training(times)) == first
    assert len(times) == 1
    jar.write_text("other classes")
    other = written_at_exit("one", [jar], training(times))
    java(tmp_path / "jdk21", monkeypatch)
    assert len({first, other, written_at_exit("one", [jar], training(times))}) == 3
    assert len(times) == 3


def test_a_jvm_that_writes_none_is_an_error(jar: Path) -> None:
    with pytest.raises(RuntimeError, match="without the archive"):
        written_at_exit("one", [jar], lambda option: None)


def test_what_nobody_has_used_for_long_goes(jar: Path) -> None:
    old, young = (archive(written_at_exit(name, [jar], training([]))) for name in ("old", "young"))
    long_ago = time.time() - KEPT_SECONDS - 60
    os.utime(old, (long_ago, long_ago))
    archive(written_at_exit("new", [jar], training([])))
    assert (old.exists(), young.exists()) == (False, True)
