"""Encrypted archives by their key in the environment, and what is said without it. No JVM."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kit.encryption import KEY, OTHER_KEY
from tests.kit.realdaemon import tiered
from tests.kit.sparkscene import archive, by_place, expected, scan
from tiered.errors import Invalid, Refused
from tiered.settings import Encryption
from tiered_spark.columns import message_schema
from tiered_spark.datasource import MessageReader
from tiered_spark.options import parse_options
from tiered_spark.snapshot import encryption_of, shared_provider

pytestmark = pytest.mark.spark


Named = Callable[[str], Path]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """600 messages, encrypted with ``KEY``."""
    directory = tmp_path_factory.mktemp("encrypted")
    (directory / "key").write_text(KEY)
    assert tiered("gen", "--store", directory / "store", "--messages", 600, "--topics", 2).code == 0
    return archive(directory / "store", directory, encryption__key_file=directory / "key")


@pytest.fixture
def named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Named]:
    """Puts a key into a file that the environment names; ``""``: into none."""

    def put(text: str) -> Path:
        shared_provider.cache_clear()
        (tmp_path / "key").write_text(text)
        if text:
            monkeypatch.setenv("TIERED_ENCRYPTION_KEY_FILE", str(tmp_path / "key"))
        return tmp_path / "key"

    yield put
    shared_provider.cache_clear()


def test_every_row(url: str, named: Named) -> None:
    key = named(KEY)
    options = {"archive": url, "decodeBody": "false"}
    rows, wanted = by_place(scan(options)), by_place(expected(url, key_file=str(key)))
    assert len(wanted) == 600
    assert rows.keys() == wanted.keys()
    for place, row in wanted.items():
        assert rows[place] == row, place
    chosen = next(iter(wanted.values()))["unique_key"]
    assert [row["unique_key"] for row in scan({**options, "keys": chosen})] == [chosen]
    for partition in MessageReader(parse_options(options), message_schema()).partitions():
        assert not [secret for secret in (KEY, str(key)) if secret.encode() in pickle.dumps(partition)]


@pytest.mark.parametrize("text", ["", OTHER_KEY], ids=["no key", "wrong key"])
def test_without_its_key(url: str, named: Named, text: str) -> None:
    named(text)
    with pytest.raises(Refused, match=r"no key is named|another key") as error:
        scan({"archive": url})
    assert "key_file" in str(error.value)
    assert OTHER_KEY not in str(error.value)


def test_the_environment_names_a_key_like_the_daemons_settings() -> None:
    assert encryption_of({}) == Encryption()
    given = {"TIERED_ENCRYPTION_KEY_COMMAND": "kms", "TIERED_ENCRYPTION_COMMAND_TIMEOUT_MS": "3s"}
    assert encryption_of(given) == Encryption(key_command="kms", command_timeout_ms=3000)
    with pytest.raises(Invalid, match="command_timeout_ms"):
        encryption_of({"TIERED_ENCRYPTION_COMMAND_TIMEOUT_MS": "soon"})
