"""``tiered sink``: orders in the bucket by verbs, dry runs that change nothing, and what is refused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.kit.command import Done, archive_once, tiered
from tiered.archive.keys import ArchiveKeys
from tiered.archive.read.find import find_identity
from tiered.clock import SystemClock
from tiered.provider.open import open_provider
from tiered.settings import Store
from tiered.sink.book import SinkBook


@pytest.fixture(scope="module")
def archived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("sinks")
    assert tiered("gen", "--store", directory / "store", "--messages", 20, "--topics", 1).code == 0
    assert archive_once(directory / "store", directory / "archive").code == 0
    return directory


def sink(archived: Path, *words: object) -> Done:
    return tiered("sink", *words, "--archive", f"file://{archived}/archive", "--json")


def listed(archived: Path) -> list[dict[str, Any]]:
    done = sink(archived, "list")
    assert done.code == 0, done.err
    return list(done.json)


def add(archived: Path, name: str, *words: object) -> Done:
    place = f"location=file://{archived}/out"
    return sink(archived, "add", name, "--kind", "file", "--option", place, *words)


def test_a_sink_through_its_life(archived: Path) -> None:
    done = add(archived, "copy", "--topic", "Order*", "--exclude", "*-test", "--required", "--dry-run")
    assert (done.code, listed(archived)) == (0, [])
    done = add(archived, "copy", "--topic", "Order*", "--exclude", "*-test", "--required")
    assert done.code == 0, done.err
    (row,) = listed(archived)
    assert (row["sink"], row["kind"], row["topics"], row["exclude"]) == ("copy", "file", "Order*", "*-test")
    assert (row["required"], row["from_start"], row["paused"], row["revision"]) == (True, True, False, 1)
    for words, paused, revision in (
        (("pause", "copy", "--dry-run"), False, 1),
        (("pause", "copy"), True, 2),
        (("resume", "copy"), False, 3),
        (("rewind-to", "copy", "2026-01-01T00:00:00Z", "--dry-run"), False, 3),
        (("rewind-to", "copy", "start"), False, 4),
    ):
        done = sink(archived, *words)
        assert done.code == 0, done.err
        (row,) = listed(archived)
        assert (row["paused"], row["revision"]) == (paused, revision), words
    assert sink(archived, "topics", "copy", "--topic", "*", "--exclude", "").code == 0
    (row,) = listed(archived)
    assert (row["topics"], row["exclude"]) == ("*", "")
    done = sink(archived, "status")
    assert done.code == 0, done.err
    (row,) = done.json
    assert (row["sink"], row["phase"], row["archived_position"]) == ("copy", "unknown here", None)
    assert sink(archived, "remove", "copy", "--dry-run").code == 0
    assert len(listed(archived)) == 1
    assert sink(archived, "remove", "copy").code == 0
    assert listed(archived) == []


def test_options_are_changed_while_it_goes_on(archived: Path) -> None:
    assert add(archived, "set", "--option", "file_bytes=1MiB").code == 0
    where = f"location=file://{archived}/out"
    for words, options, required, revision in (
        (("--option", "file_bytes=2MiB", "--dry-run"), f"file_bytes=1MiB {where}", False, 1),
        (("--option", "file_bytes=2MiB", "--required"), f"file_bytes=2MiB {where}", True, 2),
        (("--without", "file_bytes", "--not-required"), where, False, 3),
        (("--option", f"{where}"), where, False, 4),
    ):
        done = sink(archived, "set", "set", *words)
        assert done.code == 0, done.err
        (row,) = listed(archived)
        assert (row["options"], row["required"], row["revision"]) == (options, required, revision), words
    for words, said in (
        ((), "nothing is to be changed"),
        (("--option", f"location=file://{archived}/elsewhere"), "lasts as long as its sink"),
        (("--option", "format=parquet"), "lasts as long as its sink"),
        (("--option", "shape.rename=A=B"), "lasts as long as its sink"),
        (("--without", "format"), "has no such option"),
        (("--option", "file_byts=1MiB"), "file_bytes"),
        (("--option", "file_bytes=much"), "options.file_bytes"),
    ):
        done = sink(archived, "set", "set", *words)
        assert (done.code, said in done.err) == (2, True), (words, done.err)
    (row,) = listed(archived)
    assert row["revision"] == 4, "nothing was changed"
    assert sink(archived, "remove", "set").code == 0


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("add", "a", "--kind", "kafak"), 2, "no such kind of sink"),
        (("add", "A", "--kind", "file"), 2, "lower case letters"),
        (("add", "a", "--kind", "file", "--option", "location"), 2, "NAME=VALUE"),
        (
            ("add", "a", "--kind", "file", "--option", "secret_access_key=x"),
            2,
            "do not belong into the bucket",
        ),
        (("pause", "nobody"), 5, "no such sink"),
        (("status", "nobody"), 5, "no such sink"),
        (("topics", "nobody"), 2, "nothing is to be changed"),
        (("rewind-to", "nobody", "yesterdayish"), 2, "TIME"),
    ],
)
def test_what_is_refused(archived: Path, words: tuple[str, ...], code: int, said: str) -> None:
    done = sink(archived, *words)
    assert (done.code, said in done.err + done.text) == (code, True), done.err


def test_a_name_is_taken_once(archived: Path) -> None:
    assert add(archived, "twice").code == 0
    for words in ((), ("--dry-run",)):
        done = add(archived, "twice", *words)
        assert (done.code, "of this name already" in done.err) == (6, True)
    assert sink(archived, "remove", "twice").code == 0


def test_a_backfill_is_shown_and_ended(archived: Path) -> None:
    """One that was asked for and not planned: there is nothing to take up, and the sink goes on by itself."""
    assert add(archived, "filled").code == 0
    done = sink(archived, "backfill", "filled")
    assert (done.code, done.json[0]["state"]) == (0, "none")
    for words, code, said in (
        (("--end",), 6, "no backfill of this sink is under way"),
        (("--dry-run",), 2, "goes with --end"),
    ):
        done = sink(archived, "backfill", "filled", *words)
        assert (done.code, said in done.err) == (code, True), done.err
    provider = open_provider(f"file://{archived}/archive", Store(), SystemClock())
    keys = ArchiveKeys("DefaultCluster", "broker-a")
    book = SinkBook(provider, keys, find_identity(provider, keys).archive_id)
    book.change("filled", 1, os.urandom, backfill_id=os.urandom(16))
    provider.close()
    for words, state in (
        ((), "asked for"),
        (("--end", "--dry-run"), "asked for"),
        (("--end",), "none"),
        ((), "none"),
    ):
        done = sink(archived, "backfill", "filled", *words)
        assert (done.code, done.json[0]["state"]) == (0, state), done.err
    assert sink(archived, "remove", "filled").code == 0
