"""``tiered doctor`` says what ``tiered run`` would meet, by the same checks, and changes neither broker nor archive."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.kit.command import Done, archive_once, made_before, tiered
from tests.kit.pipeline import Crafted
from tiered.archive.log.localfiles import record_fence
from tiered.clock import SystemClock
from tiered.daemon import preview
from tiered.daemon.config import load
from tiered.daemon.preview import compared, look
from tiered.errors import Corrupt
from tiered.source.base import idle
from tiered.source.open import open_source

FILE_BYTES = 1 << 14
SETS = ("hold.max_disk_percent=99", "source.corrupt_wait_ms=100")


class Scene:
    """A broker with one archived file and the beginning of a second; nothing behind that is archived."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.broker = Crafted(directory / "store", file_bytes=FILE_BYTES)
        self.fill(FILE_BYTES + 2000)
        assert archive_once(self.broker.store, self.url, *SETS).code == 0
        self.archived = self.broker.position
        self.fill(4 * FILE_BYTES)

    @property
    def url(self) -> str:
        return f"file://{self.directory}/archive"

    def fill(self, end: int) -> None:
        while self.broker.position < end:
            self.broker.time_ms += 1
            self.broker.send(body=bytes(200), properties={"KEYS": "key " * 20})

    def whole_file(self) -> Path:
        """A full file, not archived yet, with others behind it."""
        return self.broker.path(2 * FILE_BYTES)

    def doctor(self, *sets: str) -> tuple[Done, dict[str, dict[str, str]]]:
        options = [word for pair in (*SETS, *sets) for word in ("--set", pair)]
        done = tiered("doctor", "--store", self.broker.store, "--archive", self.url, "--json", *options)
        return done, {row["check"]: row for row in done.json}


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Standing still is found out sooner."""
    monkeypatch.setattr(preview, "STILL_SECONDS", 3.0)


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def digest(directory: Path) -> dict[str, str]:
    """Every file below, by the hash of its bytes."""
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def test_a_sound_broker_with_much_to_archive(scene: Scene) -> None:
    before = digest(scene.broker.store), digest(scene.directory / "archive")
    done, rows = scene.doctor()
    assert (done.code, {row["result"] for row in rows.values()}) == (0, {"good"}), rows
    assert rows["same broker"]["found"] == f"archived up to {scene.archived:,}"
    assert f"[{scene.archived:,}, {scene.broker.position:,})" in rows["not archived yet"]["found"]
    assert (digest(scene.broker.store), digest(scene.directory / "archive")) == before


def test_what_stays_stored_for_ever_is_told_with_its_price(scene: Scene) -> None:
    _, rows = scene.doctor()
    assert (rows["collection"]["result"], rows["retention"]["result"]) == ("good", "good")
    assert "for ever" in rows["retention"]["found"]
    assert "23.55 USD a month" in rows["retention"]["found"]
    assert "for ever" not in scene.doctor("retain.keep_ms=90d")[1]["retention"]["found"]
    for name in ("gc.enabled=false", "gc.enabled=new"):
        done, rows = scene.doctor(name)
        assert (done.code, rows["collection"]["result"]) == (0, "off")
        assert re.search(r"0 B of [\d.]+ KiB that nothing refers to", rows["collection"]["found"])
        assert "gc.enabled = true" in rows["collection"]["fix"]
        made_before(scene.directory / "archive")
    assert scene.doctor("gc.enabled=true")[1]["collection"]["result"] == "good"


def everything(directory: Path) -> set[str]:
    """Every file and directory below; the broker's lock and abort files are its own."""
    return {str(path.relative_to(directory)) for path in directory.rglob("*")}


def test_nothing_is_left_behind(scene: Scene, tmp_path: Path) -> None:
    """No link in the hold, no folder of the probe, and where no archive is yet, no root for one either."""
    before = everything(tmp_path)
    done, rows = scene.doctor()
    assert (done.code, everything(tmp_path)) == (0, before)
    assert rows["hard links"]["result"] == rows["deleting"]["result"] == "good"
    shutil.rmtree(tmp_path / "archive")
    shutil.rmtree(tmp_path / "store.tiered")
    shutil.rmtree(tmp_path / "store.tiered-hold")
    before = everything(tmp_path)
    done, rows = scene.doctor()
    assert (done.code, everything(tmp_path)) == (0, before), rows
    assert rows["hard links"]["result"] == "good"


def zeroed_properties(scene: Scene) -> None:
    """A page that was lost, beginning inside a record's properties, in a file that the broker has left behind."""
    message = next(m for m, _ in scene.broker.sent if m.physical_offset > 2 * FILE_BYTES + 4000)
    raw = scene.broker.records[message.physical_offset]
    scene.broker.write(message.physical_offset + len(raw) - 40, bytes(4096))


def cut_file(scene: Scene) -> None:
    os.truncate(scene.whole_file(), FILE_BYTES // 2)


def changed_body(scene: Scene) -> None:
    """One byte of one body: only its checksum tells."""
    message = scene.broker.sent[-40][0]
    scene.broker.write(message.physical_offset + 100, b"X")


def lost_file(scene: Scene) -> None:
    scene.whole_file().unlink()


@pytest.mark.parametrize("damage", [zeroed_properties, cut_file, changed_body, lost_file])
def test_damage_that_is_not_archived_yet(scene: Scene, damage: Callable[[Scene], None]) -> None:
    damage(scene)
    done, rows = scene.doctor()
    assert done.code == 1
    row = rows["not archived yet"]
    assert row["result"] in ("BAD", "WEAK")
    assert row["fix"]
    assert rows["same broker"]["result"] == "good"


def test_a_record_that_is_too_large(scene: Scene) -> None:
    """Larger than the daemon believes: archiving would end there, or record a gap."""
    scene.broker.send(body=bytes(6000))
    scene.fill(scene.broker.position + FILE_BYTES)
    assert scene.doctor("source.max_record_bytes=8KiB")[0].code == 0
    done, rows = scene.doctor("source.max_record_bytes=4KiB")
    assert done.code == 1
    assert rows["not archived yet"]["result"] == "BAD"


def test_a_reinstalled_broker(scene: Scene) -> None:
    for path in scene.broker.directory.iterdir():
        path.unlink()
    again = Crafted(scene.broker.store, file_bytes=FILE_BYTES, time_ms=scene.broker.time_ms - 1_000_000)
    for _ in range(200):
        again.send(topic="Other", body=bytes(200))
    done, rows = scene.doctor()
    assert (done.code, rows["same broker"]["result"]) == (1, "BAD")
    assert "--new-lineage" in rows["same broker"]["fix"]
    ran = archive_once(scene.broker.store, scene.url, *SETS)
    assert ran.code == 3
    assert rows["same broker"]["found"].split(" (")[0] in ran.err
    assert scene.doctor("archive.new_lineage=true")[0].code == 0


def test_what_the_broker_deleted_too_early(scene: Scene) -> None:
    for base in (0, FILE_BYTES, 2 * FILE_BYTES):
        scene.broker.path(base).unlink()
    hold = Path(f"{scene.broker.store}.tiered-hold")
    for path in hold.rglob("*"):
        if path.is_file():
            path.unlink()
    done, rows = scene.doctor()
    assert (done.code, rows["same broker"]["result"]) == (1, "WEAK")
    assert f"[{scene.archived:,}, {3 * FILE_BYTES:,})" in rows["same broker"]["found"]


def test_a_state_directory_that_forbids_a_start(scene: Scene) -> None:
    state = Path(f"{scene.broker.store}.tiered")
    record_fence(state, "another writer's epoch 7")
    done, rows = scene.doctor()
    assert (done.code, rows["writer"]["result"]) == (1, "BAD")
    assert "--take-over" in rows["writer"]["fix"]
    (state / "fenced").unlink()
    (scene.directory / "archive").rename(scene.directory / "elsewhere")
    done, rows = scene.doctor()
    assert (done.code, rows["writer"]["result"]) == (1, "BAD")
    assert "is gone" in rows["writer"]["found"]


def test_a_log_on_which_nothing_moves(scene: Scene) -> None:
    """Whatever the cause: below the end, waiting for ever is a finding and no wait."""
    settings = load(flags={"source.store_dir": str(scene.broker.store), "archive.url": scene.url}).settings
    source = open_source(settings.source, settings.hold, SystemClock())
    stuck = SimpleNamespace(
        read=lambda start, **_: idle(start, "the moon is not full"),
        max_offset=source.max_offset, files=source.files, away=None, min_offset=source.min_offset,
        readable_behind=lambda position: False, waiting=None, patience_seconds=60.0,
    )  # fmt: skip
    looked = look(stuck, compared(source, None, settings), settings, SystemClock())  # type: ignore[arg-type]
    source.close()
    assert isinstance(looked.problem, Corrupt)
    assert "the moon is not full" in str(looked.problem)


def test_more_than_doctor_reads_is_said(scene: Scene) -> None:
    settings = load(flags={"source.store_dir": str(scene.broker.store), "archive.url": scene.url}).settings
    source = open_source(settings.source, settings.hold, SystemClock())
    looked = look(source, compared(source, None, settings), settings, SystemClock(), most_bytes=FILE_BYTES)
    source.close()
    assert (looked.partly, looked.problem) == (True, None)
    assert looked.end < scene.broker.position
