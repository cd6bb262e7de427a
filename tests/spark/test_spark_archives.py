"""Which archives a scan reads: all that lie under its URLs, each of them once. No JVM."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.assemble import memory
from tests.kit.fetchscene import Scene, scene
from tests.kit.sparkscene import scan
from tiered.archive.identity import ensure_identity
from tiered.archive.keys import ArchiveKeys
from tiered.clock import ManualClock
from tiered.errors import NotFound, Refused
from tiered.provider.base import Provider
from tiered_spark import snapshot
from tiered_spark.options import parse_options
from tiered_spark.snapshot import find_archives, open_snapshots

pytestmark = pytest.mark.spark


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> Provider:
    """103 brokers under one root."""
    made = memory(ManualClock())
    for number in range(103):
        ensure_identity(made, ArchiveKeys("C", f"broker-{number:03d}"), 1, lambda n: bytes(n))
    monkeypatch.setattr(snapshot, "shared_provider", lambda url: made)
    return made


@pytest.fixture
def one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    """An archive of five messages that every URL names."""
    with scene(tmp_path) as made:
        monkeypatch.setattr(snapshot, "shared_provider", lambda url: made.provider)
        made.send(5)
        yield made


def found(**options: str) -> list[str]:
    given = {"archive": "memory://x", **options}
    return [keys.broker for _, keys in find_archives(parse_options(given))]


def test_however_many_there_are(many: Provider) -> None:
    assert found() == [f"broker-{number:03d}" for number in range(103)]
    assert found(broker="broker-102") == ["broker-102"]


def test_more_than_can_be_opened_are_refused(many: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "MAX_ARCHIVES", 100)
    with pytest.raises(Refused, match=r"at most 100.*found=103.*cluster and broker"):
        found()
    assert len(found(broker="broker-0*")) == 100


def test_an_error_names_some_of_many(many: Provider) -> None:
    with pytest.raises(NotFound, match=r"C/broker-000, .*C/broker-099, …") as caught:
        found(broker="other")
    assert "broker-100" not in str(caught.value)


@pytest.mark.parametrize("urls", ["memory://x,memory://x", "memory://x,memory://x/"])
def test_an_archive_that_is_named_twice_is_read_once(one: Scene, urls: str) -> None:
    assert [row["queue_offset"] for row in scan({"archive": urls})] == list(range(5))
    (opened,) = open_snapshots(parse_options({"archive": urls}))
    assert opened.place.url == "memory://x"
    past = {"archive": urls, "asOfCommit": str(opened.commit)}
    assert len(scan(past)) == 5
