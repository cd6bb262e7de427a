"""A log that is archived beside here under another name, found before a second archive of it is made."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.assemble import KEYS, assemble, memory
from tests.kit.pipeline import Crafted
from tests.kit.storefakes import Scripted
from tiered.archive.keys import ArchiveKeys
from tiered.archive.read.reader import ArchiveReader
from tiered.clock import ManualClock
from tiered.errors import Corrupt, Denied, Invalid, Unavailable
from tiered.model import Progress
from tiered.opening import othername
from tiered.opening.othername import MOST_BYTES, check_other_names, is_same_log
from tiered.provider.base import Stored
from tiered.settings import Hold, Source
from tiered.source.local import LocalCommitLog

NEW = ArchiveKeys("DefaultCluster", "broker-b")


@pytest.fixture
def store(tmp_path: Path) -> Scripted:
    """A store with the archive of a broker in it, whose first files the broker has deleted since."""
    made, clock, provider = Crafted(tmp_path / "store", file_bytes=1 << 13), ManualClock(), memory()
    for _ in range(200):
        made.send(body=b"x" * 200)
    archived = assemble(made.store, provider, clock)
    archived.settle()
    archived.close()
    for old in sorted((made.store / "commitlog").iterdir())[:3]:
        old.unlink()
    return provider


def source(path: Path) -> LocalCommitLog:
    return LocalCommitLog(Source(store_dir=str(path)), Hold(max_disk_percent=99), ManualClock())


def test_the_archive_of_this_log_is_named(store: Scripted, tmp_path: Path) -> None:
    for keys in (NEW, ArchiveKeys("other", "broker-a")):
        with pytest.raises(Invalid, match=r"source.broker to broker-a; .* archive.url of its own") as caught:
            check_other_names(source(tmp_path / "store"), store, keys)
        assert caught.value.fields["expected"] == "DefaultCluster/broker-a"
    check_other_names(source(tmp_path / "store"), store, KEYS)  # its own


def test_a_log_of_the_same_size_beside_it_is_another(store: Scripted, tmp_path: Path) -> None:
    other = Crafted(tmp_path / "other", file_bytes=1 << 13)
    for _ in range(200):
        other.send(body=b"y" * 200)
    check_other_names(source(other.store), store, NEW)
    check_other_names(source(Crafted(tmp_path / "empty").store), store, NEW)


def test_what_may_not_be_looked_at_is_passed_over(
    store: Scripted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def raising(error: Exception) -> None:
        def refused(*_: object, **__: object) -> Iterator[Stored]:
            raise error

        monkeypatch.setattr(store, "list", refused)

    raising(Denied("403"))
    check_other_names(source(tmp_path / "store"), store, NEW)
    raising(Unavailable("away"))
    with pytest.raises(Unavailable):
        check_other_names(source(tmp_path / "store"), store, NEW)
    monkeypatch.undo()

    def damaged(*_: object, **__: object) -> None:
        raise Corrupt("an archive that cannot be read")

    monkeypatch.setattr(ArchiveReader, "at", damaged)
    check_other_names(source(tmp_path / "store"), store, NEW)
    assert "cannot be compared" in caplog.text


def test_many_archives_and_long_marks_are_not_all_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = list[tuple[str, str]]()
    monkeypatch.setattr(
        othername, "list_archives", lambda *_: [("c", f"b{n}") for n in range(500)] + [("d", "mine")]
    )
    monkeypatch.setattr(
        othername,
        "_is_of_log",
        lambda source, provider, keys: bool(opened.append((keys.cluster, keys.broker))),
    )
    check_other_names(source(Crafted(tmp_path / "store").store), memory(), ArchiveKeys("z", "mine"))
    assert len(opened) == othername.MOST_OPENED
    assert opened[0] == ("d", "mine")

    class Bytes:
        read = 0

        def copy_local(self, start: int, end: int) -> bytes:
            Bytes.read += end - start
            return bytes(end - start)

        def file_start(self, offset: int) -> int:
            return offset - offset % (1 << 30)

    far = 1 << 30
    marks = [
        Progress(1, n * far + short, 7, n * far)
        for n in range(99, 0, -1)
        for short in (MOST_BYTES + 1, 30, 20)
    ]
    assert not is_same_log(Bytes(), marks)  # type: ignore[arg-type]
    assert Bytes.read == 20 * othername.MOST_FILES
