"""What the command imports: a verb starts fast because it leaves out what it does not need. Guarded by modules, not by time."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.kit.command import archive_once, tiered
from tests.kit.httpscene import serving_key_values
from tests.kit.memorykeyvalues import MemoryKeyValues

LOADED = """
import json, sys
from tiered.cli.entry import main
try:
    code = main()
finally:
    print("loaded", json.dumps(sorted(sys.modules)), file=sys.stderr)
sys.exit(code)
"""

OF_STORES = {"boto3", "botocore", "s3fs", "fsspec", "aiohttp"}
OF_SERVICES = {"asyncio", "uvloop", "rocksdict", "tiered.daemon.app", "tiered.gateway"}
OF_SPARK = {"pyspark", "pyarrow", "pandas", "tiered_spark", "tiered_jobs"}
OF_READING = {"prometheus_client", "http.server", "http.client", "ssl", "tiered.store", "tiered.fetch"}


def loaded(*words: object) -> set[str]:
    """The modules that the command has imported when it ends."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED, *map(str, words)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stderr.rpartition("loaded ")[2]))


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> str:
    directory = tmp_path_factory.mktemp("startup")
    assert tiered("gen", "--store", directory / "store", "--messages", 20, "--topics", 1).code == 0
    assert archive_once(directory / "store", directory / "archive", "hold.max_disk_percent=99").code == 0
    return f"file://{directory}/archive"


@pytest.mark.parametrize("words", [("--help",), ("--version",)])
def test_help_needs_no_library_but_its_own(words: tuple[str, ...]) -> None:
    found = loaded(*words)
    unwanted = OF_STORES | OF_SERVICES | OF_SPARK | OF_READING
    assert not found & (unwanted | {"numpy", "pydantic", "tiered.provider", "tiered.codec"})
    assert ("rich" in found) == (words == ("--version",))


@pytest.mark.parametrize("words", [("config", "print"), ("config", "default")])
def test_settings_are_shown_without_numbers_and_stores(words: tuple[str, ...]) -> None:
    assert not loaded(*words) & (OF_STORES | OF_SERVICES | OF_SPARK | OF_READING | {"numpy"})


@pytest.mark.parametrize("verb", ["status", "topics", "queues", "verify"])
def test_a_verb_that_reads_no_message_needs_no_readers(archive: str, verb: str) -> None:
    assert not loaded(verb, "--archive", archive) & (OF_STORES | OF_SERVICES | OF_SPARK | OF_READING)


def test_reading_from_a_directory_needs_no_client_of_another_store(archive: str) -> None:
    place = ("--topic", "DemoTopic0", "--queue", 0, "--count", 1)
    assert not loaded("read", "--archive", archive, *place) & (OF_STORES | OF_SERVICES | OF_SPARK)


def test_json_is_written_without_rich(archive: str) -> None:
    assert "rich" not in loaded("topics", "--archive", archive, "--json")


def test_entries_are_asked_for_without_what_serves_them() -> None:
    view = MemoryKeyValues()
    with serving_key_values(view) as scene:
        found = loaded("kv", "namespaces", "--server", scene.url, "--json")
    asking = {"http.client", "ssl"}
    assert not found & ((OF_STORES | OF_SERVICES | OF_SPARK | OF_READING | {"numpy", "starlette"}) - asking)
    assert "rich" not in found
