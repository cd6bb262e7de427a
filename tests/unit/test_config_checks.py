"""Checks across sections."""

from __future__ import annotations

from pathlib import Path

import pytest

from tiered.daemon.checks import cautions, check, check_doors, inside, require, start_is_valid
from tiered.daemon.config import load
from tiered.errors import Invalid, Refused

REPO = Path(__file__).resolve().parents[2]
GOOD = {"source.store_dir": "/data/store", "archive.url": "file:///archive"}


def test_a_good_writer() -> None:
    check(load(flags=GOOD), writer=True)
    check(load())


@pytest.mark.parametrize("name", ["example-posix.toml", "example-s3.toml"])
def test_the_examples_hold(name: str) -> None:
    check(load(REPO / "config" / name), writer=True)


def test_what_a_writer_needs_and_where_to_set_it(tmp_path: Path) -> None:
    file = tmp_path / "my.toml"
    file.write_text('[source]\nstore_dir = "/data/store"\n')
    with pytest.raises(Invalid) as caught:
        check(load(file), writer=True)
    told = str(caught.value)
    assert "archive.url" in told
    assert "--archive" in told
    assert "TIERED_ARCHIVE_URL" in told
    assert str(file) in told
    with pytest.raises(Invalid, match=r"source\.store_dir is not set"):
        require(load(), "source.store_dir")
    require(load(flags={"source.commitlog_dirs": "/a/log"}), "source.store_dir")


def test_a_throttle_that_outlasts_the_watchdog_is_told() -> None:
    slow = {**GOOD, "store.max_bytes_per_second": "100kB", "dispatch.object_bytes": "64MiB"}
    (told,) = cautions(load(flags=slow).settings)
    assert "watchdog.fatal_ms" in told
    assert cautions(load(flags={**slow, "watchdog.fatal_ms": "2h"}).settings) == ()
    assert cautions(load(flags=GOOD).settings) == ()


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ({"maintenance.enabled": "false", "retain.keep_ms": "30d"}, "unless tiered maintain --once"),
        ({"maintenance.enabled": "false", "gc.enabled": "true"}, "unless tiered maintain --once"),
        ({"retain.topics": "Orders=30d", "retain.max_trim_percent": "0"}, "retain.max_trim_percent is 0"),
        ({"scrub.copy_url": "file:///archive/"}, "scrub.copy_url names the archive itself"),
    ],
)
def test_what_is_asked_for_and_will_not_be_done_is_told(flags: dict[str, object], told: str) -> None:
    (sentence,) = cautions(load(flags={**GOOD, **flags}).settings)
    assert told in sentence
    for key, value in flags.items():
        other = "file:///copy" if key == "scrub.copy_url" else "true" if value == "false" else 10
        if key in ("maintenance.enabled", "retain.max_trim_percent", "scrub.copy_url"):
            assert cautions(load(flags={**GOOD, **flags, key: other}).settings) == ()


def test_retention_below_the_sealing_age_is_refused_by_its_key() -> None:
    sealing = {"seal.enabled": "true", "seal.min_age_ms": "6h"}
    check(load(flags={**sealing, "retain.keep_ms": "30h", "retain.topics": "Trace=31h,Audit=forever"}))
    check(load(flags={**sealing, "seal.enabled": "false", "retain.keep_ms": "29h"}))
    for change, key, found in (
        ({"retain.keep_ms": "1d"}, "retain.keep_ms", "1 d"),
        ({"retain.topics": "Orders=9d,Trace=1d"}, "retain.topics", "Trace=1 d"),
    ):
        with pytest.raises(Invalid, match="shorter than the sealing age") as caught:
            check(load(flags={**sealing, **change}))
        assert (caught.value.fields["key"], caught.value.fields["found"]) == (key, found)
        assert "seal.min_age_ms" in str(caught.value)


def test_object_lock_needs_a_mode_a_time_a_checksum_and_s3() -> None:
    locked = {
        "archive.url": "s3://bucket/x",
        "store.object_lock": "COMPLIANCE",
        "store.object_lock_ms": "30d",
    }
    check(load(flags=locked))
    for change, named in (
        ({"store.object_lock_ms": 0}, "store.object_lock_ms"),
        ({"store.object_lock": ""}, "store.object_lock"),
        ({"store.checksum": ""}, "store.checksum"),
    ):
        with pytest.raises(Invalid) as caught:
            check(load(flags={**locked, **change}))
        assert caught.value.fields["missing"] == named
    with pytest.raises(Refused, match="for S3 only"):
        check(load(flags={**locked, "archive.url": "file:///archive"}))
    assert cautions(load(flags=locked).settings) == ()
    (told,) = cautions(load(flags={**locked, "retain.keep_ms": "7d"}).settings)
    assert "longer than retain.keep_ms" in told


@pytest.mark.parametrize("url", ["memory://somewhere", "fsspec+memory://somewhere/root"])
def test_an_archive_that_ends_with_the_process_is_refused(url: str) -> None:
    with pytest.raises(Refused, match="in memory"):
        check(load(flags={"archive.url": url}))


@pytest.mark.parametrize("kind", ["ha", "dledger"])
def test_kinds_of_sources_that_do_not_exist(kind: str) -> None:
    """No choice that is offered only to be refused: what exists is said, and why the others do not."""
    with pytest.raises(Invalid, match=rf"source\.kind must be commitlog \(value='{kind}'") as caught:
        check(load(flags={"source.kind": kind}))
    assert "HA port is not supported" in str(caught.value)
    assert "DLedger commitlogs" in str(caught.value)


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ({"hold.directory": "/data/store/hold"}, "hold.directory"),
        ({"hold.directory": "/data/store"}, "hold.directory"),
        ({"state.directory": "/data/store/commitlog/x"}, "state.directory"),
        ({"archive.url": "file:///data/store/archive"}, "archive.url"),
        ({"archive.url": "file:///data/x/../store/archive"}, "archive.url"),
        ({"source.commitlog_dirs": "/logs/a,/logs/b", "hold.directory": "/logs/b/h"}, "hold.directory"),
        ({"hold.directory": "/h", "state.directory": "/h"}, "own"),
        ({"hold.directory": "/archive/hold"}, "hold.directory"),
        ({"source.start": "yesterday"}, "source.start"),
        ({"source.cluster": ""}, "source.cluster"),
        ({"source.broker": "a\nb"}, "source.broker"),
        ({"store.access_key_id": "AKIA"}, "store.secret_access_key"),
        ({"store.session_token": "t"}, "store.access_key_id"),
        ({"store.sse_kms_key_id": "k"}, "aws:kms"),
        ({"dispatch.block_bytes": "1MiB", "dispatch.object_bytes": "64KiB"}, "dispatch.object_bytes"),
        ({"store.retry_base_ms": "20s"}, "store.retry_max_ms"),
        ({"source.exclude_topics": [""]}, "source.exclude_topics"),
        ({"fetch.topic_storage_levels": ["Orders"]}, "fetch.topic_storage_levels"),
        ({"fetch.topic_storage_levels": '["Orders=HOT"]'}, "HOT"),
        ({"replay.groups": [" "]}, "replay.groups"),
        ({"watchdog.fatal_ms": "2s"}, "watchdog.fatal_ms"),
        ({"archive.takeover_wait_ms": "1s"}, "archive.takeover_wait_ms"),
    ],
)
def test_contradictions(flags: dict[str, object], named: str) -> None:
    with pytest.raises(Invalid) as caught:
        check(load(flags=GOOD | flags), writer=True)
    assert named in str(caught.value)
    assert caught.value.hint


def test_a_sibling_with_the_same_beginning_is_not_inside() -> None:
    assert not inside("/data/store.tiered", "/data/store")
    assert inside("/data/store/", "/data/store")
    assert inside("/anything", "/")


@pytest.mark.parametrize(
    "text", ["earliest", "latest", "0", "1700000000000", "2026-01-31T10:00:00+00:00", "2026-01-31"]
)
def test_start_points(text: str) -> None:
    assert start_is_valid(text)
    check(load(flags=GOOD | {"source.start": text}), writer=True)


@pytest.mark.parametrize(
    ("flags", "key"),
    [
        ({"gc.snapshot_retention_ms": "2d"}, "gc.snapshot_retention_ms must not exceed gc.grace_ms"),
        ({"gc.grace_ms": "7d"}, "gc.commit_retention_ms must be longer than gc.grace_ms"),
        ({"gc.grace_ms": "3h", "gc.snapshot_retention_ms": "3h", "gc.commit_retention_ms": "3h"}, "commit_retention_ms"),
    ],
)  # fmt: skip
def test_what_is_kept_for_readers_outlives_them(flags: dict[str, str], key: str) -> None:
    with pytest.raises(Invalid, match=key):
        check(load(flags={**GOOD, **flags}))
    check(load(flags={**GOOD, "gc.grace_ms": "6d", "gc.snapshot_retention_ms": "6d"}))


@pytest.mark.parametrize(
    ("section", "listen", "token"),
    [
        ("gateway", "http_listen", "http_token"),
        ("serve", "listen", "token"),
        ("serve", "http_listen", "http_token"),
        ("kv", "http_listen", "http_token"),
    ],
)
def test_messages_are_not_given_to_other_machines_without_a_token(
    section: str, listen: str, token: str
) -> None:
    for host in ("0.0.0.0", "[::]", "10.0.0.7", "broker.example"):
        open_door = {f"{section}.{listen}": f"{host}:0"}
        with pytest.raises(Refused, match=rf"{section}\.{token} is not set.*web\.open") as caught:
            check_doors(load(flags=open_door).settings, section)
        assert caught.value.fields["found"] == f"{host}:0"
        check_doors(load(flags={**open_door, f"{section}.{token}": "secret"}).settings, section)
        check_doors(load(flags={**open_door, "web.open": True}).settings, section)
    for host in ("127.0.0.1", "127.9.9.9", "[::1]", "localhost"):
        check_doors(load(flags={f"{section}.{listen}": f"{host}:0"}).settings, section)
    check_doors(load().settings, "gateway", "serve", "kv")


@pytest.mark.parametrize(
    ("written", "read"),
    [("true", "true"), ("false", "false"), ('"new"', "new"), ('"yes"', "true"), ('"0"', "false")],
)
def test_a_flag_with_a_word_more_is_written_as_a_flag(tmp_path: Path, written: str, read: str) -> None:
    file = tmp_path / "tiered.toml"
    file.write_text(f"[gc]\nenabled = {written}\n")
    assert load(file).settings.gc.enabled == read
    file.write_text("[gc]\nenabled = 2\n")
    with pytest.raises(Invalid, match=r"gc\.enabled must be one of new, true, false"):
        load(file)
