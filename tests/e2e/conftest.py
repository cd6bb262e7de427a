"""The far-behind scenes that the tests of cold reads share: made once by each worker that needs one.

Which modules share them, ``SHARING`` in ``tests/conftest.py`` says.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.kit import cache
from tests.kit.coldscene import ColdScene, cold_scene

MESSAGES_49 = 6000


@pytest.fixture(scope="session")
def cold(s3_server: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ColdScene]:
    """20,000 messages, nearly all deleted by the broker and archived twice, in a directory and on the S3 server."""
    with cold_scene(tmp_path_factory.mktemp("cold"), s3=s3_server) as scene:
        yield scene


@pytest.fixture(scope="session")
def cold_49(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ColdScene]:
    """The same with an older broker: fewer messages, archived in a directory."""
    with cold_scene(
        tmp_path_factory.mktemp("cold49"), version=cache.ROCKETMQ_4, messages=MESSAGES_49
    ) as scene:
        yield scene
