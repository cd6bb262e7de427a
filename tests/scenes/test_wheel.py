"""What a wheel of this project holds: packages at its top, whatever folder they have here, and the files they read."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_packages_are_at_the_top_with_the_files_they_read() -> None:
    from hatchling.builders.wheel import (
        WheelBuilder,
    )  # late: every worker imports this module, and one runs it

    found = {one.distribution_path for one in WheelBuilder(str(ROOT)).recurse_included_files()}
    wanted = {
        str(path.relative_to(ROOT / above))
        for above, package in ((".", "tiered"), ("spark", "tiered_spark"), ("spark/jobs", "tiered_jobs"))
        for path in (ROOT / above / package).rglob("*.py")
    }
    assert {path for path in found if path.endswith(".py")} == wanted
    assert {"tiered/text/prices.toml", "tiered/http/templates/archive.html"} <= found


def test_the_wheel_that_make_builds_works_where_there_is_no_checkout(tmp_path: Path) -> None:
    """In a fresh environment, without the network: what the wheel depends on is lent by this one, the program is not."""
    own = Path(sys.executable).parent
    make = ["make", "-o", "install", "wheel", f"DIST={tmp_path}", f"BIN={own}"]
    subprocess.run(make, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    (wheel,) = tmp_path.glob("rocketmq_tiered-*.whl")
    venv.create(tmp_path / "fresh", with_pip=False, symlinks=True)
    program = tmp_path / "fresh" / "bin"
    pip = [str(own / "python"), "-m", "pip", "--python", str(program / "python")]
    subprocess.run([*pip, "install", "--quiet", "--no-deps", "--no-index", str(wheel)], check=True)
    (site,) = (tmp_path / "fresh" / "lib").glob("python*/site-packages")
    (site / "lent.pth").write_text(sysconfig.get_path("purelib"))
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("TIERED_", "PYTHON"))
    }

    def run(*words: str) -> str:
        done = subprocess.run(
            words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        )
        return done.stdout

    imported = run(
        str(program / "python"), "-c", "import tiered, tiered_jobs, tiered_spark; print(tiered.__file__)"
    )
    assert Path(imported.strip()).is_relative_to(site)
    tiered = str(program / "tiered")
    store, archive = ("--store", str(tmp_path / "store")), ("--archive", f"file://{tmp_path}/archive")
    run(tiered, "gen", *store, "--messages", "50", "--queues", "1")
    run(
        tiered, "run", "--once", *store, *archive, "--set", "web.port=-1", "--set", "hold.max_disk_percent=99"
    )
    read = run(
        tiered, "read", *archive, "--topic", "DemoTopic0", "--queue", "0", "--count", "0", "--format", "json"
    )
    assert len(read.splitlines()) == 50
    assert "pipeline" in run(tiered, "spark", "--help")
