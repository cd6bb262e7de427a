"""What an operator types wrongly is answered with what was found and what to do; an empty answer says that it is one."""

from __future__ import annotations

import pytest

from tests.kit.command import archive_once, tiered
from tests.kit.pipeline import Crafted
from tests.kit.ports import free_port
from tiered.sink.kafka import topics as kafka_topics

WRONG = (
    ("gen --store /proc/x --messages 1", 2, "cannot write the store", "--store names a directory"),
    ("gen --store {home}/s --body-bytes 99999999999", 2, "larger than a commitlog file", "--body-bytes smaller"),
    ("run --once --store {store} --archive file:///proc/x --state {home}/x", 4, "file:///proc/x", "archive.url names"),
    ("table enable icberg --archive {archive}", 2, "found=icberg", "did you mean iceberg?"),
    ("hold remove x --archive {archive}", 2, "tiered hold has no verb 'remove'", "its verbs: list, add, drop"),
    ("hold add bad! --topic x --archive {archive}", 2, "found='bad!'", "tiered hold add case-7"),
    ("hold --archive {archive} remove", 2, "No such option: --archive", "tiered hold --help"),
    ("config nope", 2, "tiered config has no verb 'nope'", "its verbs: print, check, default"),
    ("confg print", 2, "tiered has no verb 'confg'", "did you mean config?"),
    ("kv cas ns key value", 2, "what the entry must be now", "--version N, or --expected VALUE"),
    ("sink add w --kind http --option url=x --archive {archive}", 2, "not a URL that can be posted to", "url=https://host"),
    (
        "read --archive {archive} --topic Orders --from-time 2026-05-01T08:00:00Z --to-time 2026-04-01T08:00:00Z",
        2, "2026-05-01T08:00:00.000Z > 2026-04-01T08:00:00.000Z", "swap them",
    ),
)  # fmt: skip
"""A line, its exit code, a part of the error and a part of the remedy."""


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    home = tmp_path_factory.mktemp("wrong")
    broker = Crafted(home / "store", file_bytes=1 << 16)
    broker.send()
    assert archive_once(broker.store, home / "archive").code == 0
    return {"home": home, "store": broker.store, "archive": f"file://{home}/archive"}


def test_each_wrong_line_says_what_was_found_and_the_fix(names: dict[str, object]) -> None:
    answers = []
    for line, code, said, remedy in WRONG:
        done = tiered(*line.format(**names).split())
        error, _, fix = done.err.partition("\n  → ")
        if (done.code, done.out) != (code, b"") or said not in error or remedy not in fix:
            answers.append((line, done))
    assert answers == []


@pytest.mark.parametrize(
    "line",
    [
        "read --archive {archive} --topic Orders --queue 0 --from-time 2040-01-01",
        "topics --archive {archive} --prefix zzz",
    ],
)
def test_an_empty_answer_says_so(names: dict[str, object], line: str) -> None:
    done = tiered(*line.format(**names).split())
    assert (done.code, done.err) == (0, "nothing found\n")


def test_a_kafka_that_is_not_there_is_said_once_and_soon(
    names: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_topics, "_DOWN_SECONDS", 0.2)
    brokers = f"127.0.0.1:{free_port()}"
    done = tiered(
        "sink", "add", "k", "--kind", "kafka", "--option", f"brokers={brokers}", "--archive", names["archive"]
    )
    error, remedy = done.err.splitlines()
    assert done.code == 4
    assert "Kafka does not answer" in error
    assert brokers in error
    assert "check the sink's option brokers" in remedy
