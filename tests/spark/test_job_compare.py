"""The job ``compare`` on crafted brokers whose differences are known message by message."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.kit.pipeline import Crafted
from tests.kit.pysparks import session
from tests.kit.sparkscene import archive
from tiered_jobs.main import main

pytestmark = [pytest.mark.spark, pytest.mark.slow]

RESENT_MS = 1_800_000_000_000

Compare = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture(scope="module", autouse=True)
def spark() -> Iterator[SparkSession]:
    with session() as made:
        yield made


@pytest.fixture
def compare(capsys: pytest.CaptureFixture[str]) -> Compare:
    """Run it; (exit code, summary)."""

    def run(*flags: str) -> tuple[int, dict[str, Any]]:
        capsys.readouterr()
        code = main(["compare", *flags, "--json"])
        return code, json.loads(capsys.readouterr().out)

    return run


def properties(number: int, **more: str) -> dict[str, str]:
    return {"UNIQ_KEY": f"U{number}", "KEYS": f"k{number}", "TAGS": "t", "colour": "red", **more}


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> str:
    """100 orders, each once; U7 also as a group's two retries; one message without a unique key."""
    directory = tmp_path_factory.mktemp("left")
    broker = Crafted(directory / "store", file_bytes=1 << 20)
    for number in range(100):
        broker.send("Orders", number % 4, b"body %d" % number, properties=properties(number, CLUSTER="left"))
    for times in (1, 2):
        broker.send("%RETRY%clerks", 0, b"body 7", properties=properties(7), reconsume_times=times)
    broker.send("Plain", 0, b"no key", properties={"TAGS": "p"})
    return archive(broker.store, directory)


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The same in another order on other queues, but: 3 and 4 missing, 200 extra, 10 with another body, 11 another tag, 12
    another property, 13 twice, 14 twice with different bodies; no retry; two messages without a unique key.
    """
    directory = tmp_path_factory.mktemp("right")
    broker = Crafted(directory / "store", file_bytes=1 << 20)
    changed: dict[int, tuple[bytes, dict[str, str]]] = {
        10: (b"another body", {}), 11: (b"body 11", {"TAGS": "u"}), 12: (b"body 12", {"colour": "blue"}),
    }  # fmt: skip
    for number in [200, *reversed(range(100)), 13, 14]:
        if number in (3, 4):
            continue
        body, more = changed.get(number, (b"body %d" % number, {}))
        if number == 14 and broker.following.get(("Orders", 3), 0) > 24:
            body = b"second body"
        broker.send("Orders", number % 3, body, properties=properties(number, CLUSTER="right", **more))
    broker.send("Orders", 3, b"second body", properties=properties(14))
    broker.send("Plain", 0, b"no key", properties={"TAGS": "p"})
    broker.send("Plain", 0, b"no key", properties={"TAGS": "p"})
    return archive(broker.store, directory)


def topic(told: dict[str, Any], name: str) -> dict[str, int]:
    (found,) = (dict(t) for t in told["topics"] if t["topic"] == name)
    return {k: v for k, v in found.items() if k != "topic" and v}


def examples(told: dict[str, Any], what: str) -> set[str]:
    return {e["message"] for e in told["examples"] if e["what"] == what}


def test_by_unique_key(left: str, right: str, compare: Compare) -> None:
    code, told = compare("--archive", left, "--other", right)
    assert (code, told["verdict"]) == (1, "DIFFERENT")
    assert topic(told, "Orders") == {
        "left": 100, "right": 102, "same": 94, "missing": 2, "extra": 1, "different": 4, "repeated_right": 3,
    }  # fmt: skip
    assert topic(told, "%RETRY%clerks") == {"left": 2, "missing": 2}
    assert topic(told, "Plain") == {"left": 1, "right": 2, "unmatched_left": 1, "unmatched_right": 2}
    assert examples(told, "missing") >= {"U3", "U4"}
    assert examples(told, "extra") == {"U200"}
    assert examples(told, "different") == {"U10", "U11", "U12", "U14"}
    where = next(e for e in told["examples"] if e["message"] == "U12")
    assert (where["left"], where["right"]) == ("broker-a/0/3", "broker-a/0/29")
    code, told = compare("--archive", right, "--other", left, "--topics", "Orders", "--limit", "1")
    assert (told["missing"], told["extra"], told["different"]) == (1, 2, 4)
    assert len(told["examples"]) == 3


def test_what_is_ignored(left: str, right: str, compare: Compare) -> None:
    both = ("--archive", left, "--other", right, "--topics", "Orders")
    code, told = compare(*both, "--ignore", "tags,properties.colour")
    assert (code, examples(told, "different")) == (1, {"U10", "U14"})
    code, told = compare(*both, "--ignore", "body")
    assert examples(told, "different") == {"U11", "U12"}
    code, told = compare(*both, "--ignore", "body,properties")
    assert examples(told, "different") == {"U11"}


def test_by_keys_and_body(left: str, right: str, compare: Compare) -> None:
    code, told = compare("--archive", left, "--other", right, "--by", "keys_body", "--topics", "Orders,Plain")
    assert code == 1
    assert topic(told, "Plain") == {"left": 1, "right": 2, "same": 1, "repeated_right": 1}
    # 10 is missing with its body and extra with the other one; of 14 the second body is extra.
    assert topic(told, "Orders") == {
        "left": 100, "right": 102, "same": 95, "missing": 3, "extra": 3, "different": 2, "repeated_right": 2,
    }  # fmt: skip


def test_by_place(left: str, right: str, compare: Compare, tmp_path: Path) -> None:
    code, told = compare("--archive", left, "--other", left, "--by", "place")
    assert (code, told["verdict"], told["same"], told["unmatched_left"]) == (0, "same", 103, 0)
    code, told = compare(
        "--archive", left, "--other", right, "--by", "place", "--topics", "Plain", "--ignore", "properties"
    )
    assert (code, told["same"], told["extra"]) == (1, 1, 1)
    assert examples(told, "extra") == {"0/1"}


def test_another_topic_and_another_time(compare: Compare, tmp_path: Path) -> None:
    broker = Crafted(tmp_path / "store", file_bytes=1 << 20)
    for number in range(20):
        broker.send("Orders", body=b"%d" % number, properties=properties(number))
    for number in range(1, 20):
        broker.send("Copied", number % 2, b"%d" % number, properties=properties(number))
    broker.time_ms = RESENT_MS
    for number in range(15):
        broker.send("Orders", body=b"%d" % number, properties=properties(number))
    url = archive(broker.store, tmp_path)
    code, told = compare(
        "--archive", url, "--topics", "Orders", "--to", str(RESENT_MS), "--other-topics", "Copied"
    )
    assert (code, told["same"], told["missing"], told["extra"]) == (1, 19, 1, 0)
    assert examples(told, "missing") == {"U0"}
    times = ("--to", str(RESENT_MS), "--other-from", str(RESENT_MS), "--other-to", str(RESENT_MS + 1))
    code, told = compare("--archive", url, "--topics", "Orders", *times)
    assert (code, told["same"], told["missing"], told["extra"]) == (1, 15, 5, 0)
    code, told = compare(
        "--archive", url, "--topics", "Orders,Copied", "--other-topics", "Orders", "--ignore", "topic"
    )
    assert (code, told["same"], told["repeated_left"], told["repeated_right"]) == (0, 20, 34, 15)


@pytest.mark.parametrize(
    ("flags", "code", "says"),
    [
        ((), 2, "there is nothing to compare with"),
        (("--other", "file:///nowhere/at/all"), 5, "no archive is here"),
        (("--other-from", "yesterday"), 2, "startingTimestamp is wrong"),
        (("--other-topics", "x", "--ignore", "bodies"), 2, "--ignore is wrong"),
        (
            ("--other-topics", "x", "--by", "keys_body", "--ignore", "body"),
            2,
            "--by keys_body cannot ignore the body",
        ),
        (("--other-topics", "x", "--by", "name"), 2, "--by is wrong (found=name"),
        (("--other-topics", "x", "--limit", "0"), 2, "--limit is wrong"),
    ],
)
def test_bad_input(
    left: str, flags: tuple[str, ...], code: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", "--archive", left, *flags]) == code
    assert says in capsys.readouterr().err


def test_what_was_lost_is_said(
    left: str, compare: Compare, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two sides that are the same may both be less than all."""
    broker = Crafted(tmp_path / "store", file_bytes=1 << 20)
    broker.send("Plain", 0, b"no key", properties={"TAGS": "p"})
    broker.send("Plain", 0, b"one", properties=properties(1), queue_offset=41)
    url = archive(broker.store, tmp_path)
    code, told = compare("--archive", left, "--topics", "Plain", "--other", url)
    assert (code, told["gap_messages_left"], told["gap_messages_right"]) == (1, 0, 40)
    assert main(["compare", "--archive", url, "--other", url]) == 0
    assert "is compared with nothing: see table=gaps" in capsys.readouterr().err


def test_a_dry_run_and_what_people_see(left: str, right: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "--archive", left, "--dry-run"]) == 2
    assert main(["compare", "--archive", left, "--other", right, "--dry-run"]) == 0
    assert "would write" in capsys.readouterr().out
    assert main(["compare", "--archive", left, "--other", right, "--topics", "Plain"]) == 1
    said = capsys.readouterr()
    assert "DIFFERENT" in said.out
    assert "--by keys_body" in said.err
