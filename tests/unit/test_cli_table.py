"""``tiered table``: what is kept, how far it is, and what happens when a catalog is away or secrets are given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.kit.command import Done, archive_once, tiered
from tests.kit.pipeline import Crafted
from tiered.settings import State
from tiered.table.catalog import open_catalog
from tiered.table.orders import EMBEDDED, KeptTables

QUIET = [
    word for value in ("web.port=-1", "log.level=error", "seal.enabled=true") for word in ("--set", value)
]


class Place:
    """A broker's store of a day long ago, and its archive, sealed."""

    def __init__(self, directory: Path) -> None:
        self.broker = Crafted(directory / "store", file_bytes=1 << 17)
        self.archive, self.state = f"file://{directory}/archive", directory / "state"
        self.sealed("Orders")

    def sealed(self, topic: str, count: int = 20) -> None:
        for number in range(count):
            self.broker.send(topic, number % 2, b"%d" % number * 9)
        store, state = ("--store", self.broker.store), ("--set", f"state.directory={self.state}")
        assert archive_once(self.broker.store, self.archive, f"state.directory={self.state}").code == 0
        done = tiered("maintain", "--once", *store, "--archive", self.archive, *state, *QUIET)
        assert done.code == 0, done.err

    def table(self, verb: str, *words: object) -> Done:
        return tiered("table", verb, *words, "--archive", self.archive, "--state", self.state, "--json")

    def rows(self, name: str) -> list[dict[str, Any]]:
        catalog = open_catalog(
            KeptTables(EMBEDDED, {}, "rocketmq"), {}, State(directory=str(self.state)).directory
        )
        found: list[dict[str, Any]] = catalog.load_table(("rocketmq", name)).scan().to_arrow().to_pylist()
        return found


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("table"))


def test_enabled_followed_and_disabled(place: Place) -> None:
    assert place.table("list").json == []
    (made,) = place.table("enable", "iceberg").json
    assert (made["table"], made["topic"], made["files"], made["lag_commits"]) == (
        "rocketmq.Orders",
        "Orders",
        1,
        0,
    )
    assert len(place.rows("Orders")) == 20
    again = place.table("enable", "iceberg")
    assert (again.code, "kept already" in again.err) == (6, True)
    place.sealed("Late")  # the round of maintain shows it
    assert [(r["topic"], r["files"], r["lag_commits"]) for r in place.table("list").json] == [
        ("Late", 1, 0), ("Orders", 1, 0),
    ]  # fmt: skip
    assert len(place.rows("Late")) == 20
    catalog = open_catalog(KeptTables(EMBEDDED, {}, "rocketmq"), {}, str(place.state))
    catalog.drop_table(("rocketmq", "Late"))
    dry = place.table("sync", "--dry-run").json
    assert [(r["topic"], r["added_files"], r["lag_commits"] > 0) for r in dry] == [
        ("Late", 1, True), ("Orders", 0, False),
    ]  # fmt: skip
    assert not catalog.table_exists(("rocketmq", "Late"))
    assert [r["added_files"] for r in place.table("sync", "--once").json] == [1, 0]
    assert len(place.rows("Late")) == 20
    assert place.table("disable", "rocketmq").json == {"disabled": "embedded:rocketmq"}
    assert place.table("list").json == []
    assert place.table("disable", "rocketmq").code == 5


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["delta"], 2, "no such kind of table"),
        (["iceberg", "--catalog", "http://127.0.0.1:9"], 4, "catalog of a table cannot do its work now"),
        (["iceberg", "--property", "token=hush-hush"], 2, "secrets do not belong into the bucket"),
        (["iceberg", "--catalog", "postgresql://me:hush-hush@h/db"], 2, "must not hold a password"),
        (["iceberg", "--catalog", "no-such-name"], 4, "catalog of a table cannot do its work now"),
        (["iceberg", "--property", "warehouse"], 2, "needs NAME=VALUE"),
        (["iceberg", "--namespace", "a..b"], 2, "a namespace has a name"),
        (["iceberg", "--topic", " "], 2, "a pattern of topics is empty"),
    ],
)
def test_what_cannot_be_kept_is_said_and_nothing_is(
    place: Place, words: list[str], code: int, said: str
) -> None:
    done = place.table("enable", *words)
    assert (done.code, said in done.error["message"]) == (code, True), done.err
    assert "hush" not in done.err
    assert place.table("list").json == []
