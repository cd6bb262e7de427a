"""Golden files of the archive's own format: decoded to the same content, encoded to the same bytes."""

from __future__ import annotations

import hashlib
import json

import pytest
import zstandard

from tests.kit import format_golden as golden

MANIFEST = json.loads(golden.MANIFEST.read_text())
NAMES = sorted(MANIFEST["files"])


@pytest.mark.parametrize("name", NAMES)
def test_decodes_to_the_same(name: str) -> None:
    data = (golden.DIRECTORY / name).read_bytes()
    told = MANIFEST["files"][name]
    assert hashlib.sha256(data).hexdigest() == told["sha256"]
    assert json.loads(json.dumps(golden.describe(name, data))) == told["content"]


def test_encodes_to_the_same() -> None:
    made, again = golden.files(), golden.files()
    assert sorted(made) == NAMES
    assert made == again
    same_library = list(zstandard.ZSTD_VERSION) == MANIFEST["zstd"]
    for name, data in made.items():
        told = json.loads(json.dumps(golden.describe(name, data)))
        if same_library:
            assert data == (golden.DIRECTORY / name).read_bytes(), name
        else:  # another zstd may choose other bytes for the same content
            assert told.get("edits") == MANIFEST["files"][name]["content"].get("edits")
            assert told.get("runs") == MANIFEST["files"][name]["content"].get("runs")
