"""Finding the broker, start points, and topics."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.brokerlog import BrokerLog
from tiered.clock import ManualClock
from tiered.errors import Invalid, NotFound, Refused, TieredError
from tiered.filter.topicpolicy import TopicPolicy, restore_loss
from tiered.settings import Hold, Source
from tiered.source.local import LocalCommitLog
from tiered.source.open import open_source
from tiered.source.start import parse_time_ms, resolve_start


def opened(**source: object) -> LocalCommitLog:
    return open_source(Source(**source), Hold(), ManualClock())  # type: ignore[arg-type]


def test_an_empty_store_is_fine(tmp_path: Path) -> None:
    log = BrokerLog(tmp_path / "store")
    source = opened(store_dir=str(log.store))
    assert resolve_start(source, "earliest") == 0
    assert resolve_start(source, "latest") == 0
    assert resolve_start(source, "0") == 0
    source.hold()
    source.close()


def test_every_wrong_path_has_its_own_sentence(tmp_path: Path) -> None:
    log = BrokerLog(tmp_path / "store")
    log.append(b"one")
    empty = tmp_path / "empty"
    empty.mkdir()
    file = tmp_path / "file"
    file.write_bytes(b"")
    dledger = tmp_path / "dledger"
    (dledger / "dledger-n0" / "data").mkdir(parents=True)
    (dledger / "commitlog").mkdir()
    cases: list[tuple[dict[str, object], type[TieredError], str]] = [
        ({}, Invalid, "source.store_dir is not set"),
        ({"store_dir": str(tmp_path / "no")}, NotFound, "does not exist"),
        ({"store_dir": str(file)}, Invalid, "is a file"),
        ({"store_dir": str(empty)}, NotFound, "no commitlog"),
        ({"store_dir": str(log.directory)}, NotFound, f"set source.store_dir to {log.store}"),
        ({"store_dir": str(dledger)}, Refused, "dledger-n0"),
        ({"store_dir": str(log.store), "kind": "ha"}, Invalid, "source.kind must be commitlog (value='ha')"),
        ({"store_dir": str(log.store), "kind": "dledger"}, Invalid, "value='dledger'"),
        (
            {"store_dir": str(log.store), "commitlog_dirs": f"{log.directory},{empty}/x"},
            NotFound,
            "source.commitlog_dirs",
        ),
    ]
    for source, kind, text in cases:
        with pytest.raises(TieredError) as raised:
            opened(**source)
        assert type(raised.value) is kind, source
        assert text in str(raised.value)
        assert raised.value.hint


def test_unreadable_files_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    log = BrokerLog(tmp_path / "store")
    log.append(b"one")

    def refuse(path: str, *_: object) -> int:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(os, "open", refuse)  # the tests may run as root, whom no mode bits stop
    with pytest.raises(Invalid, match="Permission denied") as raised:
        opened(store_dir=str(log.store))
    assert "broker's user" in str(raised.value)


@pytest.fixture
def timed(tmp_path: Path) -> tuple[LocalCommitLog, BrokerLog]:
    log = BrokerLog(tmp_path / "store", ahead=True, time_ms=1_000_000)
    for number in range(100):
        log.time_ms = 1_000_000 + number * 1000
        log.append(bytes(40))
    return opened(store_dir=str(log.store)), log


def test_start_by_time_is_the_first_record_not_older(timed: tuple[LocalCommitLog, BrokerLog]) -> None:
    source, log = timed
    offsets = list(log.records)
    assert resolve_start(source, "earliest") == 0
    assert resolve_start(source, "latest") == log.position
    for number in (0, 1, 29, 30, 31, 50, 98, 99):
        assert resolve_start(source, str(1_000_000 + number * 1000)) == offsets[number]
        if number:
            assert resolve_start(source, str(1_000_000 + number * 1000 - 999)) == offsets[number]
    assert resolve_start(source, "1") == 0
    assert resolve_start(source, "9999999999999") == log.position
    source.close()


def test_times_and_bad_start_points() -> None:
    assert parse_time_ms("1700000000000") == 1_700_000_000_000
    assert parse_time_ms("2023-11-14T22:13:20Z") == 1_700_000_000_000
    assert parse_time_ms("2023-11-14T22:13:20.5") == 1_700_000_000_500
    assert parse_time_ms("2023-11-15T00:13:20+02:00") == 1_700_000_000_000
    for bad in ("", "latst", "-5", "2023-13-01", "1e3", "yesterday"):
        with pytest.raises(Invalid) as raised:
            parse_time_ms(bad)
        assert raised.value.fields["key"] == "source.start"
        assert raised.value.fields["value"] == bad
        assert raised.value.hint


def test_system_topics_are_hidden_and_users_are_not() -> None:
    policy = TopicPolicy(cluster="DefaultCluster", broker="broker-a")
    for topic in (
        "",
        "TBW102",
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "rmq_sys_wheel_timer",
        "rmq_sys_REVIVE_LOG_DefaultCluster",
        "DefaultCluster",
        "broker-a",
        "!off-queue",
    ):
        assert policy.is_system(topic), topic
    for topic in ("orders", "%RETRY%group", "%DLQ%group", "broker-ab", "tbw102"):
        assert not policy.is_system(topic), topic


def test_exclusion_by_shell_patterns_with_a_bounded_cache() -> None:
    policy = TopicPolicy(("debug-*", "%RETRY%?", "[ab]-log"), cache_size=4)
    excluded = ["debug-", "debug-x", "%RETRY%1", "a-log"]
    kept = ["debug", "Debug-x", "x-debug-x", "%RETRY%12", "c-log", "a-log2", "debug-x\n"[:5]]
    for _ in range(2):
        assert all(policy.is_excluded(t) for t in excluded)
        assert not any(policy.is_excluded(t) for t in kept)
        assert policy._excluded.cache_info().currsize <= 4
    assert not TopicPolicy().is_excluded("debug-x")
    with pytest.raises(Invalid):
        TopicPolicy(("ok", " "))


def test_restore_loss_says_what_is_lost() -> None:
    assert restore_loss(()) == ""
    assert restore_loss(("logs-*",)) == (
        "Topics matching logs-* are not archived: restore lacks their messages."
    )
    text = restore_loss(("SCHEDULE_*", "%RETRY%*"))
    assert "delayed messages not yet delivered" in text
    assert "waiting to be retried" in text
    assert "dead letters" not in text
    assert "dead letters" in restore_loss(("*",))


@pytest.mark.parametrize(("cluster", "broker"), [("c1", "broker-b"), ("c2", "broker-a")])
def test_a_store_of_a_broker_of_another_name(tmp_path: Path, cluster: str, broker: str) -> None:
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "brokerIdentity").write_text(f"{cluster}#{broker}#2")
    with pytest.raises(Invalid, match=f"source.broker to {broker}") as caught:
        opened(store_dir=str(tmp_path), cluster="c1", broker="broker-a")
    assert caught.value.fields["expected"] == f"{cluster}/{broker}"
    opened(store_dir=str(tmp_path), cluster=cluster, broker=broker).close()
