"""Whatever is wrong, one paragraph says what, where, expected, found and the fix; the exit code is not 0; nothing is lost."""

from __future__ import annotations

import json
import shutil
import struct
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.kit.assemble import assemble, memory
from tests.kit.command import Done, archive_once, tiered
from tests.kit.fakes3 import FakeS3
from tests.kit.pipeline import Crafted
from tests.kit.ports import free_block
from tiered.archive.keys import ArchiveKeys
from tiered.archive.log.reader import LogReader
from tiered.archive.read.reader import ArchiveReader
from tiered.clock import ManualClock, SystemClock
from tiered.codec.checksum import crc32c
from tiered.codec.format.commit import COMMIT_FOOTER_BYTES, encode_commit
from tiered.metadata.memory import MemoryStore
from tiered.model import MessageQueue
from tiered.provider.memory import MemoryProvider
from tiered.provider.open import open_provider
from tiered.settings import Store

QUICK = ("store.attempts=1", "store.connect_timeout_ms=500", "store.read_timeout_ms=2000")
ROOT = "DefaultCluster/broker-a"


@pytest.fixture
def broker(tmp_path: Path) -> Crafted:
    made = Crafted(tmp_path / "store", file_bytes=1 << 16)
    for number in range(60):
        made.send(queue_id=number % 2, body=b"number %d" % number)
    return made


@pytest.fixture
def url(broker: Crafted, tmp_path: Path) -> str:
    """An archive with everything the broker has."""
    made = f"file://{tmp_path}/archive"
    assert archive_once(broker.store, made).code == 0
    return made


def one_paragraph(done: Done, code: int, *said: object) -> None:
    """``error: …`` and its remedy, no more; each of ``said`` is in it."""
    assert done.code == code != 0, done.err
    assert done.out == b""
    assert "Traceback" not in done.err
    error, *rest = done.err.splitlines()
    assert error.startswith("error: "), done.err
    assert len(rest) == 1, f"one paragraph and one remedy, not {done.err!r}"
    assert rest[0].startswith("  → ")
    assert len(rest[0]) > 10
    for words in said:
        assert str(words) in done.err


def unharmed(url: str, messages: int = 60) -> None:
    done = tiered("verify", "--deep", "--archive", url, "--json")
    assert (done.code, done.json["messages"]) == (0, messages)


# ---- the broker's side


def test_a_store_that_does_not_exist(tmp_path: Path) -> None:
    done = archive_once(tmp_path / "nowhere", tmp_path / "archive")
    one_paragraph(done, 5, tmp_path / "nowhere", "source.store_dir")
    assert not (tmp_path / "archive").exists()


def test_a_store_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    one_paragraph(
        archive_once(tmp_path / "file", tmp_path / "archive"), 2, tmp_path / "file", "source.store_dir"
    )


def test_the_commitlog_directory_instead_of_the_store(broker: Crafted, tmp_path: Path) -> None:
    done = archive_once(broker.directory, tmp_path / "archive")
    one_paragraph(done, 5, broker.directory, f"set source.store_dir to {broker.store}")


def test_some_other_directory(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "passwd").write_text("x")
    one_paragraph(
        archive_once(tmp_path / "etc", tmp_path / "archive"), 5, "commitlog", "passwd", "storePathRootDir"
    )


def test_a_dledger_store(tmp_path: Path) -> None:
    (tmp_path / "store" / "dledger-n0").mkdir(parents=True)
    (tmp_path / "store" / "commitlog").mkdir()
    one_paragraph(archive_once(tmp_path / "store", tmp_path / "archive"), 3, "DLedger", "dledger-n0")


def test_sources_that_are_not_built(broker: Crafted, tmp_path: Path) -> None:
    for kind in ("ha", "dledger"):
        done = archive_once(broker.store, tmp_path / "archive", f"source.kind={kind}")
        one_paragraph(
            done, 2, kind, "source.kind must be commitlog"
        )  # a value that does not exist, as any other


def test_a_commitlog_of_garbage(tmp_path: Path) -> None:
    log = tmp_path / "store" / "commitlog"
    log.mkdir(parents=True)
    (log / f"{0:020d}").write_bytes(bytes(range(1, 256)) * 200)
    done = archive_once(tmp_path / "store", tmp_path / "archive")
    one_paragraph(done, 8, "position=0", "unknown magic 0x05060708", "source.store_dir")


def test_a_commitlog_cut_inside_a_record(broker: Crafted, tmp_path: Path) -> None:
    last = broker.sent[-1][0].physical_offset
    with broker.path(0).open("r+b") as file:
        file.truncate(last + 60)
    done = archive_once(broker.store, tmp_path / "archive")
    one_paragraph(done, 8, f"position={last}", "bytes are left", "start the broker")
    unharmed(f"file://{tmp_path}/archive", 59)


def corrupt_body(broker: Crafted, number: int) -> int:
    """Change the body of a record; its physical offset."""
    bad = broker.sent[number][0]
    at = bad.physical_offset + broker.records[bad.physical_offset].index(b"number %d" % number)
    broker.write(at, b"NUMBER")
    return bad.physical_offset


def corrupt_head(broker: Crafted, number: int) -> int:
    """Change the magic code of a record: nothing in it says where the next one begins."""
    bad = broker.sent[number][0]
    broker.write(bad.physical_offset + 4, b"\x05\x06\x07\x08")
    return bad.physical_offset


@pytest.mark.parametrize("corrupt", [corrupt_body, corrupt_head])
def test_a_corrupt_record_in_the_middle_becomes_a_gap_and_nothing_else_is_lost(
    broker: Crafted, tmp_path: Path, corrupt: Callable[[Crafted, int], int]
) -> None:
    """``--once`` archives all the rest, then says what is missing, and does not end like a success."""
    at = corrupt(broker, 31)
    url = f"file://{tmp_path}/archive"
    done = archive_once(broker.store, url, "source.corrupt_wait_ms=300", "log.level=error")
    assert done.code == 8, done.err
    assert "Traceback" not in done.err
    said, error, remedy = done.err.splitlines()
    assert "recorded as a gap" in said
    assert f"start={at}" in said
    length = len(broker.records[at])
    for word in (f"file={broker.path(0)}", f"position={at}", f"length={length}"):
        assert word in error
    assert "tiered queues" in remedy
    assert "tiered verify" in remedy
    unharmed(url, 59)
    status = tiered("status", "--archive", url, "--json").json
    assert [(g["start"], g["end"]) for g in status["physical_gaps"]] == [(at, at + length)]
    rows = {r["queue_id"]: r for r in tiered("queues", "--archive", url, "--json").json}
    assert [g[:2] for g in rows[1]["gaps"]] == [[15, 16]]
    assert rows[0]["gaps"] == []
    again = archive_once(broker.store, url, "source.corrupt_wait_ms=300")
    assert (again.code, again.err) == (0, ""), "a later run finds nothing new"


def test_two_damaged_places_and_a_rolled_file_behind_them(broker: Crafted, tmp_path: Path) -> None:
    for number in range(60, 900):
        broker.send(body=b"number %d" % number)
    first, second = corrupt_head(broker, 20), corrupt_head(broker, 880)
    assert broker.path(first) != broker.path(second)
    url = f"file://{tmp_path}/archive"
    done = archive_once(broker.store, url, "source.corrupt_wait_ms=300", "log.level=error")
    assert done.code == 8, done.err
    assert f"position={first}" in done.err.splitlines()[-2]
    assert "gaps=2" in done.err.splitlines()[-2]
    unharmed(url, 898)


def test_files_the_broker_deleted_in_its_own_time_are_no_damage(broker: Crafted, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/archive"
    for number in range(600):
        broker.send(body=b"more %d" % number)
    assert len(broker.bases()) >= 2
    assert archive_once(broker.store, url, "source.start=1").code == 0
    for number in range(1200):
        broker.send(body=b"and more %d" % number)
    while len(broker.bases()) > 1:
        broker.delete_oldest()
    for link in (tmp_path / "store.tiered-hold").iterdir():
        link.unlink()
    done = archive_once(broker.store, url, "log.level=error")
    assert done.code == 0, done.err
    assert tiered("status", "--archive", url, "--json").json["physical_gaps"]


def test_leftovers_of_an_unclean_stop_are_no_damage(broker: Crafted, tmp_path: Path) -> None:
    """A broker does not erase what lies behind its log after recovery: an end, with a word in the log."""
    broker.write(broker.position, b"left over from a former life of this broker")
    done = archive_once(broker.store, tmp_path / "archive", "log.level=warning")
    assert done.code == 0
    assert done.err.count("leftovers of an unclean stop") == 1
    unharmed(f"file://{tmp_path}/archive")


def test_another_broker_under_the_same_archive(broker: Crafted, url: str, tmp_path: Path) -> None:
    other = Crafted(tmp_path / "other", file_bytes=1 << 16, time_ms=broker.time_ms + 5000)
    for number in range(20):
        other.send(body=b"somebody else %d" % number)
    done = archive_once(other.store, url)
    one_paragraph(
        done, 3, "reinstalled or different broker", f"archived_up_to={broker.position}", "--new-lineage"
    )
    unharmed(url)


# ---- the store's side


def test_urls_that_are_none(broker: Crafted, tmp_path: Path) -> None:
    for bad, said in (
        ("", "archive.url"),
        ("/plain/path", "write file:///plain/path"),
        ("file://host/path", "three slashes"),
        ("s3:/bucket", "://"),
        ("s4://bucket", "did you mean s3"),
        ("gs://bucket", "fsspec+gs"),
        ("s3://", "bucket"),
        ("s3://bucket/p?endpiont=x", "did you mean endpoint"),
        ("s3://key:secret@bucket", "credentials"),
    ):
        done = archive_once(broker.store, bad)
        one_paragraph(done, 2, said)
        assert "secret@" not in done.err


def test_an_archive_under_a_file(broker: Crafted, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    done = archive_once(broker.store, tmp_path / "file" / "archive")
    one_paragraph(done, 2, tmp_path / "file")


def test_a_hold_under_a_file(broker: Crafted, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    done = archive_once(broker.store, tmp_path / "archive", f"hold.directory={tmp_path}/file/hold")
    one_paragraph(done, 2, tmp_path / "file", "hold.directory")


def test_a_state_directory_under_a_file(broker: Crafted, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    done = archive_once(broker.store, tmp_path / "archive", f"state.directory={tmp_path}/file/state")
    one_paragraph(done, 2, tmp_path / "file", "state.directory")


def test_state_inside_the_brokers_store(broker: Crafted, tmp_path: Path) -> None:
    done = archive_once(broker.store, tmp_path / "archive", f"state.directory={broker.store}/state")
    one_paragraph(done, 2, "state.directory", f"source.store_dir={broker.store}")


@pytest.fixture
def toy() -> Iterator[FakeS3]:
    made = FakeS3(SystemClock())
    with made.running():
        yield made


def s3(toy: FakeS3, *sets: str) -> tuple[str, tuple[str, ...]]:
    keys = ("store.access_key_id=toy", "store.secret_access_key=toy-secret", "store.region=us-east-1", *QUICK)
    return f"s3://bucket/archive?endpoint={toy.endpoint}&path_style=true", (*keys, *sets)


class Always(deque[str]):
    """A script without an end."""

    def __init__(self, word: str) -> None:
        super().__init__([word])

    def popleft(self) -> str:
        return self[0]


@pytest.mark.parametrize(
    ("word", "code", "said", "hint"),
    [
        ("404", 2, "bucket", "archive.url"),
        ("403", 4, "SignatureDoesNotMatch", "store."),
        ("400", 2, "region", "store.region"),
        ("301 in eu-west-1", 2, "another region", "store.region"),
    ],
)
def test_a_wrong_bucket_key_or_region(
    broker: Crafted, toy: FakeS3, word: str, code: int, said: str, hint: str
) -> None:
    toy.script_all = Always(word)
    url, sets = s3(toy)
    done = archive_once(broker.store, url, *sets)
    one_paragraph(done, code, hint)
    assert said.lower() in done.err.lower()
    assert "toy-secret" not in done.err


def test_a_store_that_is_not_there(broker: Crafted) -> None:
    url = f"s3://bucket/archive?endpoint=http://127.0.0.1:{free_block()}&path_style=true"
    keys = ("store.access_key_id=a", "store.secret_access_key=b", "store.region=us-east-1")
    done = archive_once(broker.store, url, *keys, *QUICK)
    assert done.code == 4
    assert done.err.startswith("error: ")
    assert "127.0.0.1" in done.err
    assert "Traceback" not in done.err


def test_a_store_that_lies_about_create_only(broker: Crafted, toy: FakeS3) -> None:
    toy.script = Always("ignore")
    url, sets = s3(toy)
    done = archive_once(broker.store, url, *sets)
    one_paragraph(done, 3, "create", "accept_weak_store")
    keys = [name for method, name, _ in toy.requests if method == "PUT"]
    assert keys
    assert all("/probe/" in key for key in keys), "nothing but the probe's own was written"


# ---- settings


def test_typos(broker: Crafted, tmp_path: Path) -> None:
    file = tmp_path / "t.toml"
    for text, said in (
        ("[dispatch]\ngroup_comit_bytes = 5\n", "group_commit_bytes"),
        ("[dispach]\n", "dispatch"),
        ("[dispatch]\ngroup_commit_bytes = 5\n", "at least"),
        ("[web]\nport = true\n", "whole number"),
        ("[archive\n", "TOML"),
        ('[archive]\ntakeover_wait_ms = "soon"\n', "takeover_wait_ms"),
    ):
        file.write_text(text)
        done = tiered("run", "--config", file, "--store", broker.store, "--archive", f"file://{tmp_path}/a")
        one_paragraph(done, 2, said, file)
    one_paragraph(tiered("run", "--config", tmp_path / "none.toml"), 2, "none.toml")
    one_paragraph(tiered("topics", "--archive", "memory://", "--set", "source.brokr=x"), 2, "source.broker")


def test_nothing_given(broker: Crafted, tmp_path: Path) -> None:
    one_paragraph(tiered("run"), 2, "source.store_dir", "--store")
    one_paragraph(tiered("run", "--store", broker.store), 2, "archive.url", "--archive")
    for verb in ("topics", "queues", "status", "verify"):
        one_paragraph(tiered(verb), 2, "--archive")


# ---- the archive


def test_no_archive_there(tmp_path: Path) -> None:
    done = tiered("topics", "--archive", f"file://{tmp_path}/empty")
    one_paragraph(done, 5, "expected=DefaultCluster/broker-a", "found=nothing", "source.broker")


def test_an_archive_of_another_broker(url: str) -> None:
    done = tiered("topics", "--archive", url, "--set", "source.broker=broker-b")
    one_paragraph(done, 5, "expected=DefaultCluster/broker-b", "found=DefaultCluster/broker-a")


def identity_of(url: str) -> Path:
    return Path(url.removeprefix("file://")) / ROOT / "archive.json"


def signed(file: Path, **fields: object) -> bytes:
    """An identity with other fields and the checksum that belongs to them (archive format, archive.json)."""
    changed = {**json.loads(file.read_text()), **fields, "crc32c": "00000000"}
    data = json.dumps(changed, sort_keys=True).encode() + b"\n"
    return data.replace(b"00000000", b"%08x" % crc32c(data))


def test_a_foreign_archive(broker: Crafted, url: str) -> None:
    """Somebody moved an archive to where ours belongs."""
    file = identity_of(url)
    file.write_bytes(signed(file, broker="broker-z"))
    for done in (tiered("topics", "--archive", url), archive_once(broker.store, url)):
        one_paragraph(done, 3, "another broker's archive", "found=DefaultCluster/broker-z", "archive.url")


def test_an_identity_of_a_newer_program(broker: Crafted, url: str) -> None:
    file = identity_of(url)
    file.write_bytes(signed(file, format=99))
    for done in (tiered("topics", "--archive", url), archive_once(broker.store, url)):
        one_paragraph(done, 3, "newer program", "found=99")


def test_an_identity_that_was_changed_by_hand(url: str) -> None:
    file = identity_of(url)
    file.write_text(file.read_text().replace('"created_ms": 1', '"created_ms": 2'))
    one_paragraph(tiered("topics", "--archive", url), 8, "archive.json", "checksum", "restore this key")


def test_a_damaged_identity(url: str) -> None:
    identity_of(url).write_bytes(b"\x00garbage")
    done = tiered("topics", "--archive", url)
    one_paragraph(done, 8, "archive.json", "restore this key", "tiered verify")


def commits(url: str) -> list[Path]:
    return sorted(p for p in (identity_of(url).parent / "commit").rglob("0*") if p.is_file())


def of_a_newer_program(data: bytes) -> bytes:
    """The same bytes with a footer that says a later format version (archive format, trailer)."""
    version = struct.unpack_from("<H", data, len(data) - 16)[0] + 1
    return data[:-16] + struct.pack("<HH", version, version ^ 0xFFFF) + data[-12:]


def test_a_commit_of_a_newer_program(broker: Crafted, url: str) -> None:
    newest = commits(url)[-1]
    newest.write_bytes(of_a_newer_program(newest.read_bytes()))
    for done in (
        tiered("topics", "--archive", url),
        tiered("verify", "--archive", url),
        archive_once(broker.store, url, "state.metadata=memory"),
    ):
        one_paragraph(done, 3, "newer program", newest.name, "install")


def test_a_commit_that_demands_a_newer_reader(broker: Crafted, url: str) -> None:
    """min_reader of an OpenEpoch: known bytes, unknown meaning."""
    provider = open_provider(url, Store(), SystemClock())
    keys = ArchiveKeys("DefaultCluster", "broker-a")
    opened = ArchiveReader(provider, keys, MemoryStore(), table_cache_bytes=1000).at()
    head = opened.state.head()
    assert head is not None
    first = LogReader(provider, keys, opened.identity).read(0)
    assert first is not None
    (edit,) = first.commit.edits
    columns = {**edit.columns, "min_reader": edit.ints("min_reader") + 5, "epoch": edit.ints("epoch") + 1}
    future = replace(
        first.commit, seq=head.seq + 1, epoch=head.epoch + 1, previous_id=head.commit_id, commit_id=b"f" * 16,
        edits=[replace(edit, columns=columns)],
    )  # fmt: skip
    provider.put(keys.commit(head.seq + 1), encode_commit(future))
    one_paragraph(tiered("topics", "--archive", url), 3, "newer format", "install")


def test_an_object_of_a_newer_program(broker: Crafted, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/archive"
    assert archive_once(broker.store, url, "dispatch.inline_bytes=0").code == 0
    (data, *_) = (p for p in (identity_of(url).parent / "data").iterdir())
    data.write_bytes(of_a_newer_program(data.read_bytes()))
    one_paragraph(tiered("verify", "--archive", url), 3, "newer program", data.name)


@pytest.mark.parametrize("what", ["flipped", "cut", "empty"])
def test_a_damaged_commit(broker: Crafted, url: str, what: str) -> None:
    victim = commits(url)[1]
    whole = victim.read_bytes()
    flipped = bytearray(whole)
    flipped[-COMMIT_FOOTER_BYTES - 5] ^= 4
    victim.write_bytes({"flipped": bytes(flipped), "cut": whole[:-20], "empty": b""}[what])
    for done in (
        tiered("topics", "--archive", url),
        archive_once(broker.store, url, "state.metadata=memory"),
    ):
        one_paragraph(done, 8, victim.name, "restore this key", "tiered repair")
    done = tiered("verify", "--archive", url, "--json")
    assert done.code == 1
    assert victim.name in done.json["damage"][0]["key"]
    victim.write_bytes(whole)
    unharmed(url)


def test_a_bucket_that_lost_its_newest_commits(broker: Crafted, url: str) -> None:
    newest = commits(url)[-1]
    newest.unlink()
    done = archive_once(broker.store, url)
    assert (done.code, done.out) == (0, b"")
    assert newest.name in done.err
    assert "their messages are archived again" in done.err
    unharmed(url)


def test_a_damaged_block_is_never_read_as_data(broker: Crafted, tmp_path: Path) -> None:
    url = f"file://{tmp_path}/archive"
    assert archive_once(broker.store, url, "dispatch.inline_bytes=0").code == 0
    data = max((identity_of(url).parent / "data").iterdir(), key=lambda path: path.stat().st_size)
    whole = bytearray(data.read_bytes())
    whole[20] ^= 1
    data.write_bytes(whole)
    done = tiered(
        "read", "--archive", url, "--topic", "Orders", "--queue", "0", "--format", "raw", "--count", "0"
    )
    one_paragraph(
        done, 8, data.name, "position=", "expected=", "found=", "tiered verify --deep", "restore this key"
    )


def test_a_fenced_daemon_waits_for_a_word(broker: Crafted, url: str) -> None:
    (Path(f"{broker.store}.tiered") / "fenced").write_text("commit 7 is of another writer\n")
    one_paragraph(archive_once(broker.store, url), 7, "commit 7 is of another writer", "--take-over")
    done = tiered(
        "run", "--once", "--take-over", "--store", broker.store, "--archive", url, "--set", "web.port=-1",
        "--set", "log.level=error",
    )  # fmt: skip
    assert (done.code, done.err) == (0, "")
    assert archive_once(broker.store, url).code == 0


# ---- questions about what is not there


def test_unknown_topics_queues_and_offsets(url: str, tmp_path: Path) -> None:
    for topic, queue, hint in (("Nope", 0, "tiered topics"), ("Orders", 99, "tiered queues")):
        done = tiered("read", "--archive", url, "--topic", topic, "--queue", queue)
        one_paragraph(done, 5, f"topic={topic}", hint)
        done = tiered("query", "--archive", url, "--topic", topic, "--queue", queue, "--time", 5)
        one_paragraph(done, 5, f"topic={topic}")
    done = tiered("read", "--archive", url, "--topic", "Orders", "--queue", "0", "--offset", "31")
    one_paragraph(done, 2, "offset=31", "[0, 30)")
    done = tiered("query", "--archive", url, "--topic", "Orders", "--key", "nope")
    one_paragraph(done, 5, "key=nope")
    done = tiered("read", "--archive", url, "--topic", "Orders", "--queue", "-1")
    one_paragraph(done, 2, "--queue")
    done = tiered("read", "--archive", url, "--topic", "Orders", "--queue", "0", "--format", "xml")
    one_paragraph(done, 2, "--format")
    done = tiered("read", "--archive", url, "--topic", "Orders", "--queue", "0", "--out", tmp_path / "x")
    one_paragraph(done, 2, "--format raw")
    done = tiered(
        "read",
        "--archive",
        url,
        "--topic",
        "Orders",
        "--queue",
        "0",
        "--format",
        "raw",
        "--out",
        tmp_path / "no" / "x",
    )
    one_paragraph(done, 2, tmp_path / "no" / "x")


def test_every_error_is_also_one_json_object(broker: Crafted, url: str, tmp_path: Path) -> None:
    for args, code in (
        (("topics", "--archive", f"file://{tmp_path}/none"), 5),
        (("read", "--archive", url, "--topic", "N", "--queue", "0"), 5),
        (("config", "check"), 2),
        (("query", "--archive", url), 2),
    ):
        done = tiered(*args, "--json")
        assert (done.code, done.out) == (code, b"")
        assert len(done.err.splitlines()) == 1
        assert done.error["exit_code"] == code
        assert done.error["hint"]


def test_a_traceback_only_when_asked_for(tmp_path: Path) -> None:
    args = ("topics", "--archive", f"file://{tmp_path}/none")
    assert "Traceback" not in tiered(*args).err
    assert "Traceback" in tiered(*args, "--debug").err


# ---- clocks


@pytest.mark.parametrize("whose", ["host", "store", "broker"])
def test_a_clock_set_back(tmp_path: Path, whose: str) -> None:
    """Archiving goes on, nothing is lost, and nobody takes an old date for a reason to stop."""
    broker = Crafted(tmp_path / "store", file_bytes=1 << 16)
    host, store_clock = ManualClock(broker.time_ms + 60_000), ManualClock(broker.time_ms + 60_000)
    store = memory()
    store.inner = MemoryProvider("", store_clock)
    one = assemble(broker.store, store, host)
    for number in range(10):
        broker.send(body=b"before %d" % number)
    one.settle()
    day_ms = 86_400_000
    setback: dict[str, Callable[[], None]] = {
        "host": lambda: host.set_wall(host.now_ms() - day_ms),
        "store": lambda: store_clock.set_wall(store_clock.now_ms() - day_ms),
        "broker": lambda: setattr(broker, "time_ms", broker.time_ms - day_ms),
    }
    setback[whose]()
    for number in range(10):
        broker.send(body=b"after %d" % number)
    one.settle()
    one.close()
    again = assemble(broker.store, store, host, seed=2)
    for number in range(10):
        broker.send(body=b"restarted %d" % number)
    again.settle()
    rows = again.rows()[MessageQueue("Orders", 0)]
    assert [raw for _, _, raw in rows] == [raw for _, raw in broker.sent]
    queue = again.state.queue(MessageQueue("Orders", 0))
    assert queue is not None
    times = [m.store_timestamp for m, _ in broker.sent]
    assert (queue.min_store_time, queue.max_store_time) == (min(times), max(times))
    again.close()


def test_a_full_copy_of_an_archive_is_an_archive(url: str, tmp_path: Path) -> None:
    """The bucket alone is enough: no path, no host, no local file is in it."""
    shutil.copytree(url.removeprefix("file://"), tmp_path / "moved")
    unharmed(f"file://{tmp_path}/moved")
