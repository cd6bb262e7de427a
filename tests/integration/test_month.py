"""An archive through a simulated week with everything that ages it: what is left is compared with what was sent."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.assemble import KEYS, read_queue
from tests.kit.command import tiered
from tests.kit.contents import by_duckdb
from tests.kit.years import DAY_SECONDS, TOPICS, Month, Traffic, ageing, month
from tiered.archive.read.objects import ObjectReader
from tiered.model import MessageQueue
from tiered.settings import MIB

DAYS = 6
KEPT_DAYS = 2


@pytest.fixture(scope="module")
def aged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Month, Path]]:
    """The week, and the bucket as it is at its end, as files."""
    work = tmp_path_factory.mktemp("month")
    start_ms = int(time.time() * 1000) - DAYS * DAY_SECONDS * 1000
    settings, traffic = ageing(KEPT_DAYS, commit_days=2), Traffic(flushes_a_day=12, messages_a_flush=40)
    with month(work, settings, start_ms=start_ms, traffic=traffic, file_bytes=1 << 18) as made:
        for _ in range(DAYS):
            made.day()
            made.expire(3)
        made.sweep(2 * DAY_SECONDS)
        made.write(work / "archive")
        yield made, work / "archive"


def test_everything_that_ages_an_archive_took_part(aged: tuple[Month, Path]) -> None:
    done = aged[0].done
    assert done["merge"]["merged_runs"] > done["merge"]["made_runs"] > 0
    assert done["seal"]["written_files"] > 0
    assert done["retain"]["trimmed_queues"] > 0
    assert done["gc"]["removed_commits"] > 0
    assert done["gc"]["deleted_keys"] > 0
    assert done["gc"]["failed_deletes"] == 0


def test_every_message_from_the_first_that_is_kept_is_there_and_nothing_in_range_went(
    aged: tuple[Month, Path],
) -> None:
    made, _ = aged
    archive_id = made.daemon.log.reader.identity.archive_id
    objects = ObjectReader(made.provider, KEYS, archive_id, cache_bytes=4 * MIB)
    minimums, oldest_ms = made.minimums(), made.clock.now_ms() - KEPT_DAYS * DAY_SECONDS * 1000
    assert set(minimums) == {(topic, i) for topic, queues in TOPICS.items() for i in range(queues)}
    for (topic, queue_id), begin in minimums.items():
        rows = [(m, raw) for m, raw in made.broker.sent if (m.topic, m.queue_id) == (topic, queue_id)]
        kept = b"".join(raw for m, raw in rows if m.queue_offset >= begin)
        assert kept
        assert read_queue(made.daemon.state, objects, MessageQueue(topic, queue_id)) == kept
        assert (begin > 0) == (topic == "Clicks")
        assert all(m.store_timestamp < oldest_ms for m, _ in rows if m.queue_offset < begin)


def test_duckdb_reads_what_is_sealed_and_nothing_else(aged: tuple[Month, Path]) -> None:
    made, directory = aged
    wanted = made.in_files()
    assert len(wanted.queues) == sum(TOPICS.values())
    assert by_duckdb(directory) == wanted


def test_the_bucket_alone_is_enough(aged: tuple[Month, Path]) -> None:
    made, directory = aged
    url = f"file://{directory}"
    verified = tiered("verify", "--archive", url, "--deep", "--json")
    assert verified.code == 0, verified.err
    topics = tiered("topics", "--archive", url, "--json")
    assert topics.code == 0, topics.err
    wanted = Counter[str]()
    for (topic, _), (_, messages, _) in made.live().queues.items():
        wanted[topic] += messages
    assert {row["topic"]: row["messages"] for row in topics.json} == wanted
    # What is stored, and was verified, is more: objects that wait for their grace, and commits.
    assert verified.json["messages"] >= wanted.total()
