"""Class data of JVMs: made once for one list of jars, mapped by all who have these, and forgotten when nobody has."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit import classdata
from tests.kit.classdata import KEPT_SECONDS, class_data


@pytest.fixture
def jar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A jar, an empty cache and a known ``java``."""
    monkeypatch.setenv("TIERED_TEST_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(classdata, "java_version", lambda: "java 17")
    made = tmp_path / "a.jar"
    made.write_text("classes")
    return made


def training(times: list[str]) -> Callable[[str], None]:
    """A JVM that writes what it is told to."""

    def train(option: str) -> None:
        times.append(option)
        found = re.search(r"-XX:ArchiveClassesAtExit=(\S+)", option)
        assert found is not None
        Path(found[1]).write_text("class data")

    return train


def archive(option: str) -> Path:
    found = re.search(r"-XX:SharedArchiveFile=(\S+)", option)
    assert found is not None
    return Path(found[1])


def test_it_is_made_once_for_these_jars(jar: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times: list[str] = []
    first = class_data("one", [jar], training(times))
    assert archive(first).read_text() == "class data"
    assert class_data("one", [jar], training(times)) == first
    assert len(times) == 1
    jar.write_text("other classes")
    other = class_data("one", [jar], training(times))
    monkeypatch.setattr(classdata, "java_version", lambda: "java 21")
    assert len({first, other, class_data("one", [jar], training(times))}) == 3
    assert len(times) == 3


def test_a_jvm_that_writes_none_is_an_error(jar: Path) -> None:
    with pytest.raises(RuntimeError, match="without the class data"):
        class_data("one", [jar], lambda option: None)


def test_what_nobody_has_used_for_long_goes(jar: Path) -> None:
    old, young = (archive(class_data(name, [jar], training([]))) for name in ("old", "young"))
    long_ago = time.time() - KEPT_SECONDS - 60
    os.utime(old, (long_ago, long_ago))
    archive(class_data("new", [jar], training([])))
    assert (old.exists(), young.exists()) == (False, True)
