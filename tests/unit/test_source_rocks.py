"""Brokers that keep their topics in RocksDB: stores that RocketMQ wrote, read without a byte written among its files."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

import pytest
import rocksdict

from tests.kit import golden
from tiered.errors import Unavailable
from tiered.source import rocks
from tiered.source.queues import QueueNumbering
from tiered.source.topiclists import ROCKS_PLACES, TOPICS_FILE, place_of
from tiered.source.topics import BrokerTopicLists, read_topics

HOUR_MS = 3_600_000
V2, UNIFIED, V1 = ROCKS_PLACES
LAYOUTS = {"v1": V1, "unified": UNIFIED, "v2": V2}


@pytest.fixture
def stores(tmp_path: Path) -> Path:
    return golden.unpack(golden.ROCKS, tmp_path)


def files(directory: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(p.relative_to(directory)): (p.read_bytes(), p.stat().st_mtime_ns)
        for p in sorted(directory.rglob("*"))
        if p.is_file()
    }


@pytest.mark.parametrize("layout", LAYOUTS)
def test_topics_of_each_layout_are_read_and_the_brokers_files_stay_as_they_are(
    stores: Path, layout: str
) -> None:
    store = stores / layout
    before = files(store)
    found = read_topics(str(store))
    assert found is not None
    assert found.reserved_ms() == {"Orders": 72 * HOUR_MS}
    assert found.deleted(["Orders", "Payments", "TBW102"]) == {"Payments"}
    assert ("SELF_TEST_TOPIC" in found.attributes) == (layout != "v2")
    assert files(store) == before
    assert not list(store.rglob("rocksdict-config.json"))
    assert QueueNumbering(str(store)).counts_inner("Orders", 0), "a broker of 5.x"


def test_of_several_lists_the_one_counts_that_was_opened_last(stores: Path) -> None:
    store = stores / "v1"
    shutil.copytree(stores / "v2" / V2.directory, store / V2.directory)
    old = store / TOPICS_FILE
    old.write_text("{}")
    for newest in (old, store / V2.directory / "CURRENT", store / V1.directory / "CURRENT"):
        for path in (old, store / V2.directory / "CURRENT", store / V1.directory / "CURRENT"):
            os.utime(path, (1_000 + (path == newest), 1_000 + (path == newest)))
        expected = {old: None, store / V2.directory / "CURRENT": V2}.get(newest, V1)
        assert place_of(str(store)) == expected


_HOLDS = "import fcntl, sys; f = open(sys.argv[1], 'wb'); fcntl.lockf(f, fcntl.LOCK_EX); print(flush=True); sys.stdin.read()"


def test_of_several_lists_the_one_counts_that_a_broker_has_open(stores: Path) -> None:
    store = stores / "v1"
    shutil.copytree(stores / "v2" / V2.directory, store / V2.directory)
    os.utime(store / V2.directory / "CURRENT")
    (store / V1.directory / "CURRENT").touch()
    os.utime(store / V1.directory / "CURRENT", (1_000, 1_000))
    assert place_of(str(store)) == V2
    lock = str(store / V1.directory / "LOCK")
    with subprocess.Popen([sys.executable, "-c", _HOLDS, lock], stdin=PIPE, stdout=PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        assert place_of(str(store)) == V1
        found = read_topics(str(store))
        assert found is not None
        assert "SELF_TEST_TOPIC" in found.attributes
        holder.communicate()
    assert place_of(str(store)) == V2


def test_a_file_of_the_wrapper_beside_the_brokers_is_not_written_through(stores: Path) -> None:
    """Somebody looked into the store with the same wrapper."""
    left = stores / "v1" / V1.directory / "rocksdict-config.json"
    left.write_text('{"raw_mode":true,"left":"behind"}')
    assert read_topics(str(stores / "v1")) is not None
    assert "behind" in left.read_text()


def test_a_file_that_goes_while_it_is_read_makes_the_reading_begin_anew(
    stores: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = os.listdir, []

    def listdir(path: str) -> list[str]:
        calls.append(path)
        names = real(path)
        return names if len(calls) > 1 else [name for name in names if not name.endswith(".sst")]

    monkeypatch.setattr(rocks.os, "listdir", listdir)
    found = read_topics(str(stores / "v1"))
    assert found is not None
    assert "Orders" in found.attributes
    assert len(calls) == 2


def test_a_damaged_store_is_no_reason_to_trim(stores: Path) -> None:
    store = stores / "v1"
    for path in (store / V1.directory).glob("*.sst"):
        path.write_bytes(b"x" * path.stat().st_size)
    with pytest.raises(Unavailable) as found:
        read_topics(str(store))
    assert found.value.fields["path"] == str(store / V1.directory)
    (store / V1.directory / "CURRENT").write_text("MANIFEST-9\n")
    with pytest.raises(Unavailable):
        read_topics(str(store))


def write(store: Path, pairs: dict[bytes, bytes]) -> None:
    (store / "config").mkdir(parents=True)
    db = rocksdict.Rdict(str(store / V2.directory), rocksdict.Options(raw_mode=True))
    for key, value in pairs.items():
        db.put(key, value)
    db.close()


TABLE = b"\1\0\3"


def test_a_store_without_users_topics_has_them_all_deleted_only_if_it_ever_had_one(tmp_path: Path) -> None:
    write(tmp_path / "new", {})
    with pytest.raises(Unavailable, match="list of topics"):
        read_topics(str(tmp_path / "new"))
    write(tmp_path / "old", {TABLE + b"\1data_version": bytes(24)})
    found = read_topics(str(tmp_path / "old"))
    assert found is not None
    assert found.deleted(["Orders", "TBW102"]) == {"Orders"}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (TABLE + b"\2\0\6Order", b"\1{}"),
        (TABLE + b"\2\0\6Orders", b"\2\x08\x06"),
        (TABLE + b"\2\0\6Orders", b"\1{"),
        (TABLE + b"\2\0\6Orders", b"\1[]"),
        (TABLE + b"\2\0\2\xff\xfe", b"\1{}"),
    ],
)
def test_what_is_written_in_another_way_is_not_guessed(tmp_path: Path, key: bytes, value: bytes) -> None:
    write(tmp_path / "store", {TABLE + b"\1data_version": bytes(24), key: value})
    with pytest.raises(Unavailable, match="list of topics"):
        read_topics(str(tmp_path / "store"))


def test_hostile_names_are_names(tmp_path: Path) -> None:
    names = ["a" * 127, "..", "日本", "\x01\x00"]
    encoded = {name: name.encode() for name in names}
    pairs = {
        TABLE + b"\2" + len(n).to_bytes(2, "big") + n: b'\1{"attributes":{"reserve.time":"5"}}'
        for n in encoded.values()
    }
    write(tmp_path / "store", {TABLE + b"\1data_version": bytes(24), **pairs})
    found = read_topics(str(tmp_path / "store"))
    assert found is not None
    assert found.reserved_ms() == dict.fromkeys(names, 5 * HOUR_MS)


def test_a_damaged_block_does_not_make_the_list_shorter(tmp_path: Path) -> None:
    """The engine's iterators end there without an error: all topics behind it would count as deleted."""
    names = [f"topic-{n:05}" for n in range(4000)]
    version, record = TABLE + b"\1", TABLE + b"\2"
    topics = {
        record + len(n).to_bytes(2, "big") + n.encode(): b'\1{"topicName":"%s"}' % n.encode() for n in names
    }
    write(tmp_path, {version: b"\0", **topics})
    found = read_topics(str(tmp_path))
    assert found is not None
    assert found.deleted(names) == set()
    directory = tmp_path / V2.directory
    flushed = rocksdict.Rdict(str(directory), rocksdict.Options(raw_mode=True))
    flushed.flush()
    flushed.close()
    table = max(directory.glob("*.sst"), key=lambda path: path.stat().st_size)
    data = bytearray(table.read_bytes())
    assert len(data) > 16 * 1024, "several blocks"
    data[len(data) // 2] ^= 1
    table.write_bytes(data)
    with pytest.raises(Unavailable):
        read_topics(str(tmp_path))


def unflushed(store: Path, names: list[str]) -> Path:
    """A store whose topics are in its log alone, as a killed broker leaves it; the log."""
    code = (
        "import os, sys, rocksdict\n"
        "db = rocksdict.Rdict(sys.argv[1], rocksdict.Options(raw_mode=True))\n"
        "for name in sys.argv[2:]:\n"
        "    db.put(bytes([1, 0, 3, 2]) + len(name).to_bytes(2, 'big') + name.encode(), b'\\x01{}')\n"
        "os._exit(0)\n"
    )
    directory = store / V2.directory
    directory.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, "-c", code, directory, *names], check=True)
    return max(directory.glob("*.log"), key=lambda path: path.stat().st_size)


@pytest.mark.parametrize("damage", ["flipped", "cut"])
def test_topics_behind_damage_in_the_stores_log_do_not_count_as_deleted(tmp_path: Path, damage: str) -> None:
    """The engine reads a log up to where it is damaged, and says nothing."""
    write(tmp_path, {TABLE + b"\1data_version": bytes(24)})
    log = unflushed(tmp_path, ["Orders", "Payments"])
    found = read_topics(str(tmp_path))
    assert found is not None
    assert found.deleted(["Orders", "Payments", "Gone"]) == {"Gone"}
    data = bytearray(log.read_bytes())
    if damage == "flipped":
        data[data.rindex(b"Payments")] ^= 1
    log.write_bytes(data[:-1] if damage == "cut" else data)
    with pytest.raises(Unavailable, match="RocksDB store"):
        read_topics(str(tmp_path))


def test_a_store_is_read_again_only_when_it_changed(tmp_path: Path) -> None:
    write(tmp_path, {TABLE + b"\1data_version": bytes(24)})
    lists = BrokerTopicLists(str(tmp_path))
    for names, parsed in ((["Orders"], 1), ([], 1), (["Payments"], 2), ([], 2)):
        if names:
            unflushed(tmp_path, names)
        found = lists.read()
        assert found is not None
        assert found.deleted(names) == set()
        assert lists.parsed == parsed
