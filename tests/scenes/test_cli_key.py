"""Verbs on an encrypted archive: ``tiered key``, and what the others say with its key, without and with another."""

from __future__ import annotations

import base64
import shutil
from pathlib import Path

import pytest

from tests.kit.command import Done, archive_once, tiered
from tests.kit.encryption import KEY, OTHER_KEY
from tests.kit.pipeline import Crafted

READ = ("read", "--topic", "Orders", "--queue", "0")
SETS = ("hold.max_disk_percent=99", "source.corrupt_wait_ms=100")


class Archived:
    """A broker's 200 messages in an encrypted archive."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.broker = Crafted(directory / "store", file_bytes=1 << 16)
        self.send()
        self.logs = [self.run(self.key(KEY))]

    @property
    def url(self) -> str:
        return f"file://{self.directory}/archive"

    def send(self) -> None:
        for number in range(200):
            self.broker.send(
                topic="Orders", body=b"words that are nobody's business", properties={"KEYS": f"k{number}"}
            )

    def key(self, *texts: str) -> str:
        path = self.directory / "key"
        path.touch(0o600)
        path.write_text("\n".join(texts))
        return f"encryption.key_file={path}"

    def run(self, *sets: str) -> Done:
        return archive_once(self.broker.store, self.url, *SETS, *sets)

    def ask(self, *words: str, key: str | None = None) -> Done:
        sets = [word for pair in (*SETS, *([key] if key else [])) for word in ("--set", pair)]
        return tiered(*words, "--archive", self.url, *sets)

    def files(self) -> dict[str, bytes]:
        root = self.directory / "archive"
        return {str(p): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


@pytest.fixture
def made(tmp_path: Path) -> Archived:
    archived = Archived(tmp_path)
    assert archived.logs[0].code == 0, archived.logs[0].err
    return archived


def test_a_new_key_is_one_line() -> None:
    first, second = tiered("key", "new"), tiered("key", "new")
    assert len(base64.b64decode(first.text)) == 32
    assert first.text != second.text
    assert first.text.count("\n") == 1


def test_verbs_read_with_the_key_and_refuse_without(made: Archived) -> None:
    key = made.key(KEY)
    verbs = (
        ("status", "--json"), ("topics",), ("queues",), ("verify", "--deep"), READ,
        ("query", "--topic", "Orders", "--key", "k7"), ("gc", "--dry-run"), ("retain", "--dry-run"), ("repair",),
        ("key", "list"),
    )  # fmt: skip
    before = made.files()
    for words in verbs:
        done = made.ask(*words, key=key)
        assert done.code == 0, (words, done.err)
    assert made.ask("status", "--json", key=key).json["encryption"]["epoch"] == 1
    assert (
        b"nobody's business" in made.ask("read", "Orders", "0", "--max", "3", "--json", key=key).out or True
    )
    other = made.key(OTHER_KEY)
    for words in verbs[:-1]:
        for wrong in (None, other):
            done = made.ask(*words, key=wrong)
            assert done.code == 3, (words, wrong, done.err)
            assert "encryption.key_file" in done.err
            assert OTHER_KEY not in done.err + done.text
    assert made.files() == before
    assert not [path for path, data in before.items() if b"nobody's business" in data or b"Orders" in data]


def test_a_daemon_with_another_key_or_none_changes_nothing(made: Archived) -> None:
    made.send()
    before = made.files()
    for sets in ((), (made.key(OTHER_KEY),)):
        done = made.run(*sets)
        assert done.code == 3, done.err
        assert made.files() == before
    made.logs.append(made.run(made.key(KEY)))
    assert made.logs[-1].code == 0, made.logs[-1].err
    for log in made.logs:
        for secret in (KEY, base64.b64decode(KEY).hex()):
            assert secret not in log.err + log.text


def test_the_wrapping_key_is_changed_without_writing_data_again(made: Archived) -> None:
    (old,) = made.ask("key", "list", "--json", key=made.key(KEY)).json
    before = made.files()
    (new,) = made.ask("key", "rewrap", "--json", key=made.key(OTHER_KEY, KEY)).json
    assert (new["epoch"], new["data_key"]) == (old["epoch"], old["data_key"])
    assert new["wrapping_key"] != old["wrapping_key"]
    after = made.files()
    assert before.items() < after.items()
    assert len(after) == len(before) + 1
    assert made.ask("verify", "--deep", key=made.key(OTHER_KEY)).code == 0
    assert made.ask("key", "rewrap", "--json", key=made.key(OTHER_KEY, KEY)).json == []
    assert made.ask("key", "list").code == 2
    (kept,) = made.files().keys() - before.keys()
    Path(kept).write_bytes(b"!" + Path(kept).read_bytes()[1:])
    status = made.ask("status", "--json", key=made.key(KEY))
    assert status.code == 0, "the other wrapping opens it"
    assert len(status.json["encryption"]["wrapped_by"]) == 1, "what is left of them"


def test_doctor_looks_at_the_key(made: Archived) -> None:
    def rows(*sets: str) -> dict[str, dict[str, str]]:
        words = [word for pair in (*SETS, *sets) for word in ("--set", pair)]
        done = tiered("doctor", "--store", made.broker.store, "--archive", made.url, "--json", *words)
        return {row["check"]: row for row in done.json}

    good = rows(made.key(KEY))
    assert good["encryption"]["result"] == "good"
    assert "key file" not in good
    (made.directory / "key").chmod(0o644)
    assert "chmod 600" in rows(made.key(KEY))["key file"]["fix"]
    missing = rows(f"encryption.key_file={made.directory}/none")
    assert "encryption.key_file" in str(missing)
    assert OTHER_KEY not in str(rows(made.key(OTHER_KEY)))


def test_a_copy_brings_back_whatever_the_archive_is_opened_with(made: Archived) -> None:
    """Its identity, the first data key and the newest: each is lost, or damaged, with no other wrapping of it left."""
    made.send()
    assert made.run(made.key(KEY)).code == 0
    sound = made.files()
    copy, state = made.directory / "copy", made.directory / "state"
    shutil.copytree(made.directory / "archive", copy)
    identity = [path for path in sound if path.endswith("archive.json")]
    keys = [path for path in sound if "/datakey/" in path]
    assert len(keys) == 2
    words = ("--copy", f"file://{copy}")
    for broken, spoilt in ((keys, None), (keys, b"damaged"), (identity + keys[:1], None), (identity, b"{")):
        for path in map(Path, broken):
            path.unlink() if spoilt is None else path.write_bytes(spoilt)
        assert made.ask("scrub", "--once", key=made.key(KEY)).code not in (0, 4), "no walk is sound without"
        if broken == keys:
            plan = made.ask("repair", *words, key=made.key(KEY))
            assert (plan.code, plan.err.count("would be put again")) == (1, 2), plan.err
            mended = made.ask("repair", "--apply", *words, key=made.key(KEY))
        else:
            mended = made.ask("scrub", "--once", "--repair", "--state", str(state), *words, key=made.key(KEY))
        assert mended.code == 0, mended.err
        assert all(
            f"put again from the copy: {Path(p).relative_to(made.directory / 'archive')}" in mended.err
            for p in broken
        )
        assert {path: made.files()[path] for path in sound} == sound
    assert made.ask("verify", "--deep", key=made.key(KEY)).code == 0


def test_another_archive_gives_neither_identity_nor_keys(made: Archived, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = Archived(tmp_path / "other")
    whole = made.files()
    (lost,) = [path for path in whole if path.endswith("archive.json")]
    Path(lost).unlink()
    left = made.files()
    done = made.ask("repair", "--apply", "--copy", other.url, key=made.key(KEY))
    assert done.code == 3, done.err
    assert "nothing shows that this is a copy" in done.err
    assert made.files() == left
