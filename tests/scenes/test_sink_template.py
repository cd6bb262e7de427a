"""The driver of docs/SINKS.md, as a stranger would copy it: its files alone in a directory, and pytest started there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs/SINKS.md"
BLOCK = re.compile(r"^```python\n# (\w+\.py)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def run(directory: Path, *, change: tuple[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """pytest over the page's files, one line of them changed."""
    files = dict(BLOCK.findall(PAGE.read_text()))
    assert sorted(files) == ["conftest.py", "mysink.py", "test_mysink.py"]
    for name, text in files.items():
        if change is not None and name == "mysink.py":
            assert text.count(change[0]) == 1
            text = text.replace(*change)
        (directory / name).write_text(text)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(directory),
        ".",
    ]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=300, check=False)


def test_the_template_keeps_the_contract(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert done.returncode == 0, done.stdout[-3000:]
    assert re.search(r"\b1[0-9] passed", done.stdout), "the checks ran"


def test_a_template_that_forgets_its_fence_does_not(tmp_path: Path) -> None:
    done = run(tmp_path, change=("if opening != self.opening:", "if False:"))
    assert done.returncode == 1
    assert "test_the_older_of_two_openings_does_no_harm" in done.stdout
