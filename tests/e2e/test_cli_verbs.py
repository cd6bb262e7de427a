"""Every verb of the command, with and without ``--json``, on one small archive that has one of everything."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.kit.command import archive_once, tiered, tiered_process
from tests.kit.pipeline import INNER_BATCH, PREPARED, Crafted
from tests.kit.process import PATIENCE
from tiered.archive.log.identity import decode_identity
from tiered.codec.record.hosts import encode_message_id
from tiered.codec.record.message import Message
from tiered.text.human import moment

V6_HOST = "[2001:db8::1]:10911"


@dataclass
class Small:
    """A store, its archive, and the messages in it."""

    broker: Crafted
    url: str
    state: Path

    def run(self, *args: object) -> object:
        return tiered(*args, "--archive", self.url)

    def of(self, topic: str, queue_id: int = 0) -> list[tuple[Message, bytes]]:
        return [(m, raw) for m, raw in self.broker.sent if (m.topic, m.queue_id) == (topic, queue_id)]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Small:
    directory = tmp_path_factory.mktemp("small")
    broker = Crafted(directory / "store", file_bytes=1 << 16)
    for number in range(100):
        broker.time_ms += 1000
        broker.send(
            "Orders", number % 2, b"order %d" % number,
            properties={"UNIQ_KEY": f"UK{number}", "KEYS": f"o-{number} even-{number % 2}", "TAGS": "new"},
        )  # fmt: skip
    broker.send("Binary", 0, bytes(range(256)) * 4, store_host=V6_HOST, born_host=V6_HOST)
    broker.send("Bätche", 3, b"inner", sys_flag=INNER_BATCH, properties={"INNER_NUM": "5"})
    broker.send("Bätche", 3, b"after")
    broker.send("Jumpy", 0, b"one")
    broker.send("Jumpy", 0, b"two", queue_offset=10)
    broker.send("Restarted", 0, b"old", queue_offset=7)
    broker.send("Restarted", 0, b"new", queue_offset=0)
    broker.send("rmq_sys_wheel_timer", 0, b"system")
    broker.send("Orders", 0, b"half", sys_flag=PREPARED)
    url = f"file://{directory}/archive"
    assert archive_once(broker.store, url).code == 0
    return Small(broker, url, Path(f"{broker.store}.tiered"))


def people(done: object) -> list[str]:
    """Lines of a table for people: header first; every row one line."""
    assert done.code == 0, done.err  # type: ignore[attr-defined]
    return done.text.splitlines()  # type: ignore[attr-defined,no-any-return]


# ---- status, topics, queues


def test_status(small: Small) -> None:
    done = tiered("status", "--archive", small.url, "--store", small.broker.store, "--json")
    assert done.code == 0
    told = done.json
    assert told["messages"] == 109 + 4 - 1, (
        "an inner batch owns five offsets; an old generation does not count"
    )
    assert told["queues"] == 8
    assert told["gaps"] == 1
    assert told["physical_gaps"] == []
    assert told["proven_offset"] == small.broker.position
    assert told["daemon"] == "not running here"
    assert told["lag"] == {"bytes": 0, "local_end": small.broker.position}
    assert (told["epoch"], told["lineage"]) == (1, 1)
    text = people(tiered("status", "--archive", small.url))
    assert any(line.split()[:2] == ["messages", "112"] for line in text)
    assert "lag" not in tiered("status", "--archive", small.url, "--json").json


def test_topics(small: Small) -> None:
    rows = {r["topic"]: r for r in tiered("topics", "--archive", small.url, "--json").json}
    assert list(rows) == ["Binary", "Bätche", "Jumpy", "Orders", "Restarted"]
    assert (rows["Orders"]["queues"], rows["Orders"]["messages"]) == (2, 100)
    assert rows["Orders"]["bytes"] == sum(
        len(raw) for q in (0, 1) for m, raw in small.of("Orders", q) if not m.sys_flag
    )
    assert (rows["Jumpy"]["gaps"], rows["Orders"]["gaps"]) == (1, 0)
    assert rows["Orders"]["oldest"] == small.broker.sent[0][0].store_timestamp
    everything = tiered("topics", "--archive", small.url, "--json", "--system").json
    assert {"!off-queue", "rmq_sys_wheel_timer"} == {r["topic"] for r in everything} - set(rows)
    lines = people(tiered("topics", "--archive", small.url))
    assert len(lines) == 6
    assert lines[0].split() == ["topic", "queues", "messages", "bytes", "oldest", "newest", "gaps"]


def test_queues(small: Small) -> None:
    done = tiered("queues", "--archive", small.url, "--state", small.state, "--json")
    rows = {(r["topic"], r["queue_id"]): r for r in done.json}
    orders = rows["Orders", 0]
    assert [orders[k] for k in ("min_offset", "max_offset", "commit_offset", "dispatch_offset", "messages")] == [
        0, 50, 50, 50, 50,
    ]  # fmt: skip
    assert rows["Bätche", 3]["max_offset"] == 6
    assert rows["Jumpy", 0]["gaps"] == [[1, 10, "queue offsets jumped"]]
    assert (rows["Restarted", 0]["generation"], rows["Restarted", 0]["max_offset"]) == (2, 1)
    one = tiered("queues", "--archive", small.url, "--topic", "Jumpy", "--json")
    assert [r["topic"] for r in one.json] == ["Jumpy"]
    assert [
        r["topic"] for r in tiered("queues", "--archive", small.url, "--topic", "!off-queue", "--json").json
    ] == ["!off-queue"], "a topic that is named is shown, system or not"
    without = tiered("queues", "--archive", small.url)
    assert "dispatch offsets are kept" in without.err
    assert all(r["dispatch_offset"] is None for r in tiered("queues", "--archive", small.url, "--json").json)
    lines = people(without)
    assert len(lines) == 1 + 6, "one line a queue, however many columns, because nobody watches"
    assert all(len(line) > 100 for line in lines)
    by_store = tiered("queues", "--archive", small.url, "--store", small.broker.store, "--json").json
    assert all(r["dispatch_offset"] == r["max_offset"] for r in by_store)


def everything(main: int) -> str:
    """What was written to a terminal that is closed by now; one read gives 4 KiB at most."""
    seen = b""
    with contextlib.suppress(OSError):  # its end
        while piece := os.read(main, 1 << 16):
            seen += piece
    return seen.decode()


def test_reading_a_lot_shows_how_far_it_is(small: Small, tmp_path: Path) -> None:
    """On standard error, when that is a terminal: standard output has the messages and nothing else."""
    main, terminal = pty.openpty()
    command = [
        sys.executable,
        "-m",
        "tiered.cli.entry",
        "read",
        "--archive",
        small.url,
        "--topic",
        "Orders",
        "--queue",
        "0",
    ]
    raw = subprocess.run(
        [*command, "--count", "0", "--format", "raw"], stdout=subprocess.PIPE, stderr=terminal, check=True
    ).stdout
    gen = [
        sys.executable,
        "-m",
        "tiered.cli.entry",
        "gen",
        "--store",
        str(tmp_path / "gen"),
        "--messages",
        "20",
    ]
    subprocess.run(gen, stdout=subprocess.PIPE, stderr=terminal, check=True)
    os.close(terminal)
    seen = everything(main)
    os.close(main)
    assert raw == b"".join(raw for m, raw in small.of("Orders") if not m.sys_flag)
    assert "reading" in seen
    assert "50/50" in seen
    assert "appending" in seen
    assert "20/20" in seen


@pytest.mark.parametrize(
    "question",
    [
        ("queues",),
        ("read", "--queue", 0),
        ("query", "--key", "o-42"),
        ("query", "--unique-key", "UK42"),
        ("query", "--queue", 0, "--time", 5),
    ],
)
def test_a_topic_that_is_not_archived_is_an_error(small: Small, question: tuple[object, ...]) -> None:
    for topic, hint in (("Order", "did you mean Orders?"), ("Nope", "tiered topics lists")):
        done = tiered(*question, "--archive", small.url, "--topic", topic, "--json")
        assert (done.code, done.out) == (5, b"")
        assert done.error["message"] == "this topic is not archived"
        assert (done.error["fields"], hint in done.error["hint"]) == ({"topic": topic}, True)


@pytest.mark.parametrize("question", [("read",), ("query", "--time", 5)])
def test_a_queue_that_is_not_archived_is_an_error(small: Small, question: tuple[object, ...]) -> None:
    done = tiered(*question, "--archive", small.url, "--topic", "Orders", "--queue", 9)
    assert (done.code, done.out) == (5, b"")
    assert "0 to 1" in done.err


@pytest.mark.parametrize("url", ["memory://", "memory://x", "fsspec+memory://x/y"])
def test_an_archive_that_ends_with_its_process_is_refused(small: Small, url: str) -> None:
    for command in (
        ("run", "--once", "--store", small.broker.store),
        ("config", "check", "--store", small.broker.store),
        ("doctor", "--store", small.broker.store),
        ("topics",),
    ):
        done = tiered(*command, "--archive", url)
        assert done.code == 3, command
        assert "archive.url" in done.err
        assert "ends with the process" in done.err


# ---- read


def test_read_raw(small: Small, tmp_path: Path) -> None:
    wanted = [raw for m, raw in small.of("Orders") if not m.sys_flag]
    place = ("--archive", small.url, "--topic", "Orders", "--queue", 0, "--format", "raw")
    assert tiered("read", *place, "--count", 0).out == b"".join(wanted)
    assert tiered("read", *place).out == b"".join(wanted[:32]), "32 unless told otherwise"
    assert tiered("read", *place, "--offset", 45).out == b"".join(wanted[45:])
    assert tiered("read", *place, "--offset", 10, "--count", 3).out == b"".join(wanted[10:13])
    assert tiered("read", *place, "--offset", 50).out == b""
    file = tmp_path / "out.bin"
    done = tiered("read", *place, "--count", 0, "--out", file)
    assert (done.code, done.out, file.read_bytes()) == (0, b"", b"".join(wanted))


def test_read_json(small: Small) -> None:
    done = tiered(
        "read",
        "--archive",
        small.url,
        "--topic",
        "Orders",
        "--queue",
        1,
        "--json",
        "--offset",
        7,
        "--count",
        1,
    )
    message, _ = small.of("Orders", 1)[7]
    (row,) = done.rows
    assert row["queue_offset"] == 7
    assert row["body"] == message.body.decode()
    assert row["physical_offset"] == message.physical_offset
    assert row["msg_id"] == message.message_id
    assert (row["unique_key"], row["keys"], row["tags"]) == ("UK15", ["o-15", "even-1"], "new")
    assert row["store_timestamp"] == message.store_timestamp
    same = tiered("read", "--archive", small.url, "--topic", "Orders", "--queue", 1, "--format", "json", "--offset", 7,
                  "--count", 1)  # fmt: skip
    assert same.out == done.out
    (binary,) = tiered("read", "--archive", small.url, "--topic", "Binary", "--queue", 0, "--json").rows
    import base64

    assert base64.b64decode(binary["body_base64"]) == bytes(range(256)) * 4
    assert binary["store_host"] == V6_HOST


def test_read_table(small: Small) -> None:
    lines = people(tiered("read", "--archive", small.url, "--topic", "Orders", "--queue", 0, "--count", 3))
    assert len(lines) == 4
    assert "order 4" in lines[3]
    assert "UK4" in lines[3]
    (_, binary) = people(tiered("read", "--archive", small.url, "--topic", "Binary", "--queue", 0))
    assert "\x00" not in binary
    assert "…" in binary


def test_read_inner_batches_gaps_and_generations(small: Small) -> None:
    batch, after = small.of("Bätche", 3)
    for offset in range(5):
        done = tiered(
            "read",
            "--archive",
            small.url,
            "--topic",
            "Bätche",
            "--queue",
            3,
            "--format",
            "raw",
            "--offset",
            offset,
        )
        assert done.out == batch[1] + after[1], "an inner batch comes whole"
    last = tiered(
        "read", "--archive", small.url, "--topic", "Bätche", "--queue", 3, "--format", "raw", "--offset", 5
    )
    assert last.out == after[1]
    jumpy = tiered("read", "--archive", small.url, "--topic", "Jumpy", "--queue", 0, "--json", "--offset", 3)
    assert [row["queue_offset"] for row in jumpy.rows] == [10]
    for words, first in ((("--offset", 3), 3), (("--format", "raw"), 1)):
        told = tiered("read", "--archive", small.url, "--topic", "Jumpy", "--queue", 0, *words)
        assert f"not archived: offsets {first} to 9 of Jumpy/0 (a gap, tiered queues shows it)" in told.err
    restarted = tiered("read", "--archive", small.url, "--topic", "Restarted", "--queue", 0, "--json")
    assert [(row["queue_offset"], row["body"]) for row in restarted.rows] == [(0, "new")]


# ---- query


def test_query_by_key(small: Small) -> None:
    place = ("query", "--archive", small.url, "--topic", "Orders")
    (row,) = tiered(*place, "--key", "o-42", "--json").json
    assert (row["queue_id"], row["queue_offset"], row["body"]) == (0, 21, "order 42")
    many = tiered(*place, "--key", "even-1", "--json", "--limit", 5).json
    assert [(r["queue_id"], r["queue_offset"]) for r in many] == [(1, n) for n in range(5)]
    (unique,) = tiered(*place, "--unique-key", "UK42", "--json").json
    assert unique == row
    assert tiered(*place, "--key", "UK42").code == 5, "a unique key is no key"
    lines = people(tiered(*place, "--key", "o-42"))
    assert len(lines) == 2
    assert lines[1].split()[0] == "Orders"


def test_query_by_message_id(small: Small) -> None:
    message, _ = small.of("Orders", 1)[3]
    assert len(message.message_id) == 32
    (row,) = tiered("query", "--archive", small.url, "--msg-id", message.message_id, "--json").json
    assert (row["topic"], row["queue_id"], row["queue_offset"]) == ("Orders", 1, 3)
    (v6, _), *_ = small.of("Binary")
    assert len(v6.message_id) == 56
    for spelled in (v6.message_id, v6.message_id.lower()):
        (row,) = tiered("query", "--archive", small.url, "--msg-id", spelled, "--json").json
        assert (row["topic"], row["msg_id"]) == ("Binary", v6.message_id)
    elsewhere = encode_message_id("10.9.9.9:10911", message.physical_offset)
    done = tiered("query", "--archive", small.url, "--msg-id", elsewhere, "--json")
    assert (done.code, done.error["kind"]) == (5, "NotFound"), "another broker's id is not ours"
    header, *rows = people(
        tiered("read", "--archive", small.url, "--topic", "Orders", "--queue", 1, "--count", 4)
    )
    assert header.index("unique key") < header.index("message id")
    shown = rows[3][header.index("message id") :].split()[0]
    assert shown == message.message_id, "what read shows is what query takes"
    assert "UK7" in rows[3]
    done = tiered("query", "--archive", small.url, "--msg-id", "xyz")
    assert done.code == 2
    assert "--unique-key" in done.err


def test_query_by_time(small: Small) -> None:
    place = ("query", "--archive", small.url, "--topic", "Orders", "--queue", 0)
    times = [m.store_timestamp for m, _ in small.of("Orders") if not m.sys_flag]
    told = tiered(*place, "--time", times[20], "--json").json
    assert (told["queue_offset"], told["at_end"]) == (20, False)
    assert tiered(*place, "--time", times[20] - 1, "--json").json["queue_offset"] == 20
    assert tiered(*place, "--time", times[20] + 1, "--json").json["queue_offset"] == 21
    end = tiered(*place, "--time", times[-1] + 1, "--json").json
    assert (end["queue_offset"], end["at_end"]) == (50, True)
    assert any("queue offset" in line for line in people(tiered(*place, "--time", 0)))
    for spelled in (moment(times[20]), moment(times[20]).replace("Z", "+00:00")):
        assert tiered(*place, "--time", spelled, "--json").json == told
    shown = tiered(*place, "--time", times[20]).text
    assert moment(times[20]) in shown, "what is shown can be given again"


def test_query_asks_for_one_thing(small: Small) -> None:
    for args in (
        (),
        ("--key", "a", "--unique-key", "b", "--topic", "T"),
        ("--key", "a"),
        ("--time", "5", "--topic", "Orders"),
        ("--time", "5", "--queue", "0"),
        ("--time", "yesterday", "--topic", "Orders", "--queue", "0"),
        ("--msg-id", "xyz"),
    ):
        assert tiered("query", "--archive", "file:///nowhere", *args).code == 2, "before anything is opened"
        done = tiered("query", "--archive", small.url, *args)
        assert (done.code, done.out) == (2, b""), args
        assert "→" in done.err


# ---- verify, doctor, config, gen


def test_verify(small: Small, tmp_path: Path) -> None:
    for options in ((), ("--deep",)):
        done = tiered("verify", "--archive", small.url, *options, "--json")
        assert (done.code, done.json["verdict"], done.json["damage"]) == (0, "sound but for gaps", [])
        assert done.json["deep"] is bool(options)
        assert any(
            line.split()[:2] == ["verdict", "sound"]
            for line in people(tiered("verify", "--archive", small.url, *options))
        )
    assert tiered("verify", "--archive", small.url, "--deep", "--json").json["messages"] == 109
    copy = tmp_path / "copy"
    subprocess.run(["cp", "-r", small.url.removeprefix("file://"), copy], check=True)
    commits = sorted((copy / "DefaultCluster/broker-a/commit").rglob("0*"))
    commit = next(p for p in commits if p.is_file() and p.stat().st_size > 4000)
    damaged = bytearray(commit.read_bytes())
    damaged[100] ^= 1  # inside the inline data, which folding does not read
    commit.write_bytes(damaged)
    assert tiered("verify", "--archive", f"file://{copy}").code == 0, "a look at the fold does not see it"
    done = tiered("verify", "--archive", f"file://{copy}", "--deep", "--json")
    assert (done.code, done.json["verdict"]) == (1, "DAMAGED")
    assert commit.name in done.json["damage"][0]["key"]
    shown = tiered("verify", "--archive", f"file://{copy}", "--deep")
    assert shown.code == 1
    assert "DAMAGED" in shown.text
    assert commit.name in shown.text
    damaged[-30] ^= 1  # the footer
    commit.write_bytes(damaged)
    done = tiered("verify", "--archive", f"file://{copy}", "--json")
    assert (done.code, done.json["verdict"]) == (1, "DAMAGED"), "a log that cannot be folded is damage, too"
    assert commit.name in done.json["damage"][0]["key"]


def test_doctor(small: Small, tmp_path: Path) -> None:
    options = (
        "--store",
        small.broker.store,
        "--archive",
        f"file://{tmp_path}/new",
        "--set",
        "hold.max_disk_percent=99",
    )
    done = tiered("doctor", *options, "--json")
    rows = {row["check"]: row for row in done.json}
    assert done.code == 0, rows
    assert {
        "broker's store",
        "broker's restarts",
        "hard links",
        "disk budget",
        "state directory",
        "store",
        "clock",
        "archive",
    } <= set(rows)
    assert all(row["result"] == "good" and not row["fix"] for row in rows.values())
    assert "none yet" in rows["archive"]["found"]
    lines = people(tiered("doctor", *options))
    assert len(lines) == 1 + len(rows)
    assert (
        tiered("doctor", *options[:2], "--archive", small.url, "--set", "hold.max_disk_percent=99").code == 0
    )
    weak = tiered("doctor", *options[:4], "--set", "hold.max_disk_percent=1", "--json")
    assert weak.code == 1
    (row,) = [r for r in weak.json if r["result"] != "good"]
    assert (row["check"], row["result"]) == ("disk budget", "WEAK")
    assert "hold.max_disk_percent" in row["fix"]


def test_doctor_names_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "store" / "commitlog").mkdir(parents=True)
    done = tiered(
        "doctor", "--store", tmp_path / "nowhere", "--archive", f"file://{tmp_path}/file/below", "--json",
        "--set", "hold.max_disk_percent=99", "--set", f"state.directory={tmp_path}/absent/below",
    )  # fmt: skip
    assert done.code == 1
    bad = {row["check"]: row for row in done.json if row["result"] == "BAD"}
    assert {"broker's store", "hard links", "disk budget", "store"} <= set(bad)
    assert all(row["fix"] for row in bad.values()), "each with its fix"
    foreign = f"file://{tmp_path}/foreign"
    archive_once(tmp_path / "store", foreign)
    data = tmp_path / "foreign/DefaultCluster/broker-a/archive.json"
    data.write_bytes(replace(decode_identity(data.read_bytes(), "k"), broker="broker-z").encode())
    done = tiered(
        "doctor",
        "--store",
        tmp_path / "store",
        "--archive",
        foreign,
        "--json",
        "--set",
        "hold.max_disk_percent=99",
    )
    (row,) = [r for r in done.json if r["result"] == "BAD"]
    assert row["check"] == "archive"
    assert "broker-z" in row["found"]


def test_a_commitlog_without_its_store_is_warned_of(small: Small, tmp_path: Path) -> None:
    """Restarts of the broker are seen by files of the store directory: without it they are not, and three verbs say so."""
    sets = (
        "--set", f"source.commitlog_dirs={small.broker.directory}", "--set", "hold.max_disk_percent=99",
        "--set", f"hold.directory={tmp_path}/hold", "--set", f"state.directory={tmp_path}/state",
        "--archive", f"file://{tmp_path}/new",
    )  # fmt: skip
    named = ("source.commitlog_dirs is set without source.store_dir", "restart", "set source.store_dir")
    done = tiered("doctor", *sets, "--json")
    assert done.code == 1
    (row,) = [row for row in done.json if row["result"] != "good"]
    assert (row["check"], row["result"]) == ("broker's restarts", "WEAK")
    (checked,) = tiered("config", "check", *sets, "--json").json["warnings"]
    ran = tiered("run", "--once", *sets, "--set", "web.port=-1", "--set", "log.level=warning")
    assert ran.code == 0, ran.err
    for text in (f"{row['found']}; {row['fix']}", checked, ran.err):
        assert all(words in text for words in named), text
    both = (*sets, "--store", small.broker.store)
    assert tiered("config", "check", *both, "--json").json["warnings"] == []
    assert tiered("doctor", *both).code == 0
    quiet = tiered("run", "--once", *both, "--set", "web.port=-1", "--set", "log.level=warning")
    assert (quiet.code, quiet.err) == (0, "")


def test_config(tmp_path: Path) -> None:
    code = tiered("config", "check", "--store", "/data/store", "--archive", "file:///archive")
    assert code.code == 0
    assert "good" in code.text
    printed = tiered(
        "config",
        "print",
        "--json",
        "--set",
        "store.secret_access_key=tiger",
        "--set",
        "store.access_key_id=x",
    )
    assert b"tiger" not in printed.out
    assert printed.json["source.broker"]["value"] == "broker-a"
    file = tmp_path / "c.toml"
    file.write_bytes(tiered("config", "default").out)
    assert tiered("config", "print", "--config", file).code == 0
    assert tiered("config", "check", "--config", file, "--store", "/s", "--archive", "file:///a").code == 0


def test_gen_and_run_and_read_as_processes(tmp_path: Path) -> None:
    """The README's way, once with real processes."""
    store, url = tmp_path / "store", f"file://{tmp_path}/archive"
    done = tiered_process("gen", "--store", store, "--messages", 500, "--queues", 2, "--topics", 2, "--json",
                          "--body-bytes", "100")  # fmt: skip
    assert (done.code, done.json["messages"]) == (0, 500)
    done = archive_once(store, url, process=True)
    assert (done.code, done.out, done.err) == (0, b"", "")
    rows = tiered_process("queues", "--archive", url, "--json").json
    assert sum(r["messages"] for r in rows) == 500
    assert len(rows) == 4


def test_the_help_of_every_verb() -> None:
    for verb in ("run", "status", "topics", "queues", "read", "query", "verify", "doctor", "gen"):
        done = tiered(verb, "--help")
        assert done.code == 0
        assert "--help" in done.text
        if verb not in ("run",):
            assert "--json" in done.text, verb


# ---- with a daemon


def test_status_and_signals_of_a_running_daemon(small: Small, tmp_path: Path) -> None:
    url, state = f"file://{tmp_path}/archive", tmp_path / "state"
    command = [
        sys.executable, "-m", "tiered.cli.main", "run", "--store", str(small.broker.store), "--archive", url, "--state",
        str(state), "--set", "web.port=0", "--set", "log.format=json", "--set", "hold.max_disk_percent=99",
        "--set", f"hold.directory={tmp_path}/hold",
    ]  # fmt: skip
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TIERED_")}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as daemon:
        try:
            deadline = time.monotonic() + 60 * PATIENCE
            while time.monotonic() < deadline:
                done = tiered(
                    "status", "--archive", url, "--state", state, "--store", small.broker.store, "--json"
                )
                said = done.json["daemon"] if done.code == 0 else None
                if (
                    isinstance(said, dict)
                    and said.get("lag", {}).get("bytes") == 0
                    and said["messages"] == 112
                ):
                    break
                time.sleep(0.2)
            told = done.json["daemon"]
            assert told["ready"] is True
            assert told["since_start"]["messages"] == 109
            assert told["messages"] == 112, "as everywhere: readable queue offsets"
            assert told["proven_offset"] == told["local_end"] == small.broker.position
            assert "lag" not in done.json, "the daemon's own word counts"
            fold = tiered("status", "--archive", url, "--state", state, "--json").json["local_fold"]
            assert (fold["behind"], fold["seq"] >= done.json["seq"]) == (0, True), (
                "looked up beside the daemon"
            )
            second = tiered("run", "--once", "--store", small.broker.store, "--archive", url, "--state", state,
                            "--set", "web.port=-1", "--set", "log.level=error")  # fmt: skip
            assert second.code == 3, "one daemon per state directory"
            assert "another" in second.err
            rows = tiered("queues", "--archive", url, "--state", state, "--json").json
            assert all(r["dispatch_offset"] == r["commit_offset"] for r in rows)
        finally:
            daemon.send_signal(signal.SIGTERM)
            _, err = daemon.communicate(timeout=30)
    assert daemon.returncode == 0
    events = [json.loads(line) for line in err.splitlines()]
    assert any(e["message"].startswith("stopping") for e in events)
    assert not (state / "web-port").exists()
    assert tiered("status", "--archive", url, "--state", state, "--json").json["daemon"] == "not running here"
