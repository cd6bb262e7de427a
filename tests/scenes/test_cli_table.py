"""``tiered table``: what is kept, how far it is, and what happens when a catalog is away or secrets are given."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from textwrap import dedent
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import NoSuchTableError

from tests.kit.command import archive_once, tiered
from tests.kit.encryption import KEY
from tests.kit.pipeline import Crafted
from tests.kit.tables import SealedPlace
from tiered.archive.keys import ArchiveKeys
from tiered.archive.read.find import find_identity
from tiered.archive.standing import TABLE, put_order
from tiered.clock import SystemClock
from tiered.provider.open import open_provider
from tiered.settings import Source, Store
from tiered.table.catalog import open_catalog
from tiered.table.orders import EMBEDDED, KeptTables


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> SealedPlace:
    return SealedPlace(tmp_path_factory.mktemp("table"))


def test_enabled_followed_and_disabled(place: SealedPlace) -> None:
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
    assert [(r["topic"], r["files_to_add"], r["lag_commits"] > 0) for r in dry] == [
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
        (
            ["iceberg", "--catalog", "postgresql://h/db?user=me&password=hush-hush"],
            2,
            "must not hold a password",
        ),
        (
            ["iceberg", "--property", "uri=postgresql://me:hush-hush@h/db"],
            2,
            "secrets do not belong into the bucket",
        ),
        (
            ["iceberg", "--property", "uri=postgresql://me:hush/hush@h/db"],
            2,
            "secrets do not belong into the bucket",
        ),
        (
            ["iceberg", "--property", "header.Authorization=Basic hush"],
            2,
            "secrets do not belong into the bucket",
        ),
        (["iceberg", "--property", "adls.account-key=hush"], 2, "secrets do not belong into the bucket"),
        (["iceberg", "--catalog", "no-such-name"], 4, "catalog of a table cannot do its work now"),
        (["iceberg", "--property", "warehouse"], 2, "needs NAME=VALUE"),
        (["iceberg", "--namespace", "a..b"], 2, "a namespace has a name"),
        (["iceberg", "--one-table", "../../../../esc"], 2, "a table's name has no dots, slashes"),
        (["iceberg", "--topic", " "], 2, "a pattern of topics is empty"),
    ],
)
def test_what_cannot_be_kept_is_said_and_nothing_is(
    place: SealedPlace, words: list[str], code: int, said: str
) -> None:
    done = place.table("enable", *words)
    assert (done.code, said in done.error["message"]) == (code, True), done.err
    assert "hush" not in done.err
    assert "next round" not in done.err, "there is none of what is not kept"
    assert ("run it again" in (done.error["hint"] or "")) == (code == 4)
    assert place.table("list").json == []


@pytest.mark.parametrize("names", [[], ["--one-table", "all"]])
def test_an_order_that_no_topic_fits_is_shown_though_it_has_no_table(
    place: SealedPlace, names: list[str]
) -> None:
    words = ("iceberg", "--topic", "Nope", "--topic", "Nor*", "--namespace", "none", *names)
    made = place.table("enable", *words)
    assert made.code == 0, made.err
    for done in (made, place.table("list"), place.table("sync", "--dry-run")):
        (row,) = done.json
        assert [row[name] for name in ("namespace", "patterns", "catalog", "state")] == [
            "none", ["Nope", "Nor*"], EMBEDDED, "no topic fits",
        ]  # fmt: skip
        assert row["table"] == ("none.all" if names else None)
    shown = tiered("table", "list", "--archive", place.archive, "--state", place.state)
    assert all(word in shown.text for word in ("none", "Nope", "Nor*", "no topic fits"))
    assert "embedded:none: no topic of the archive fits Nope Nor*" in shown.err
    assert place.table("enable", *words).code == 6
    assert place.table("disable", "none").code == 0
    assert place.table("list").json == []


def test_an_order_whose_topics_have_no_sealed_day_is_shown(tmp_path: Path) -> None:
    broker = Crafted(tmp_path / "store", file_bytes=1 << 17)
    broker.send("Orders", 0, b"x")
    where = ("--archive", f"file://{tmp_path}/archive", "--state", tmp_path / "state", "--json")
    assert archive_once(broker.store, f"file://{tmp_path}/archive").code == 0
    for verb in ("enable iceberg", "list"):
        (row,) = tiered("table", *verb.split(), *where).json
        assert (row["table"], row["namespace"], row["state"]) == (None, "rocketmq", "no day is sealed")


def test_an_order_whose_catalog_is_away_is_shown(place: SealedPlace) -> None:
    kept = KeptTables("http://127.0.0.1:9", {}, "away")
    put(place, kept)
    done = place.table("list")
    assert (done.code, [(r["namespace"], r["state"], r["files"]) for r in done.json]) == (
        1, [("away", "not known", None)],
    )  # fmt: skip
    assert place.table("disable", "away").code == 0


def test_a_table_that_is_left_as_it_is_is_shown(place: SealedPlace) -> None:
    catalog = open_catalog(KeptTables(EMBEDDED, {}, "left"), {}, str(place.state))
    catalog.create_namespace("left")
    catalog.create_table(("left", "Orders"), pa.schema([("a", pa.int64())]))
    words = ("iceberg", "--namespace", "left", "--topic", "Orders")
    for done in (place.table("enable", *words), place.table("list")):
        assert done.code == 1
        assert [(r["table"], r["state"], r["lag_commits"]) for r in done.json] == [
            ("left.Orders", "left as it is", None)
        ]
    assert place.table("disable", "left").code == 0


@pytest.mark.parametrize("named", [True, False])
def test_tables_of_an_encrypted_archive_are_refused(tmp_path: Path, named: bool) -> None:
    """Its days are not sealed. Also if the archive is plain so far, and a key is named for what comes."""
    key = tmp_path / "key"
    key.touch(0o600)
    key.write_text(KEY)
    broker, url, encryption = (
        Crafted(tmp_path / "store"),
        f"file://{tmp_path}/archive",
        f"encryption.key_file={key}",
    )
    broker.send("Orders", 0, b"x")
    assert archive_once(broker.store, url, *([encryption] if named else [])).code == 0
    where = ("--archive", url, "--state", tmp_path / "state", "--set", encryption, "--json")
    done = tiered("table", "enable", "iceberg", *where)
    assert (done.code, done.error["message"], "deploy/encryption.md" in done.error["hint"]) == (
        3, "tables are made of sealed days, and an encrypted archive seals none", True,
    )  # fmt: skip
    assert tiered("table", "list", *where).json == [], "nothing is kept"
    if named:
        done = tiered("table", "enable", "iceberg", *where[:4], "--json")
        assert (done.code, "no key is named" in done.error["message"]) == (3, True), done.err


def put(place: SealedPlace, kept: KeptTables) -> None:
    """An order, as another program may have put it into the bucket."""
    provider = open_provider(place.archive, Store(), SystemClock())
    keys = ArchiveKeys(Source().cluster, Source().broker)
    archive_id = find_identity(provider, keys).archive_id
    order_id = kept.namespace.encode().ljust(16, b"-")
    put_order(provider, keys, archive_id, TABLE, order_id, {"created_ms": 1, **asdict(kept)})


def test_an_order_with_a_name_that_leads_elsewhere_is_said_by_every_verb(place: SealedPlace) -> None:
    """It stands in the bucket, put by another program."""
    put(place, KeptTables(EMBEDDED, {}, "bad", "../../../../esc"))
    for verb in ("list", "sync --once"):
        done = place.table(*verb.split())
        assert (done.code, "'../../../../esc'" in done.error["fields"]["found"]) == (1, True), done.err
    assert not any(path.name == "esc" for path in place.state.parent.rglob("*"))
    assert place.table("disable", "bad").code == 0
    assert (place.table("list").code, place.table("list").json) == (0, [])


def test_what_was_done_and_what_is_to_come_have_names_of_their_own(place: SealedPlace) -> None:
    catalog = open_catalog(KeptTables(EMBEDDED, {}, "named"), {}, str(place.state))
    words = ("--archive", place.archive, "--state", place.state)
    came, done = {"files_to_add", "files_to_remove"}, {"added_files", "removed_files"}
    for verb, here, absent, number in (
        ("enable iceberg --namespace named --topic Orders", done, came, 1),
        ("list", came, done, 0),
        ("sync --dry-run", came, done, 1),
        ("sync --once", done, came, 1),
        ("sync --once", done, came, 0),
    ):
        if verb == "sync --dry-run":
            catalog.drop_table(("named", "Orders"))
        (row,) = place.table(*verb.split()).json
        assert here <= row.keys()
        assert absent.isdisjoint(row)
        assert sum(row[name] for name in here) == number
    assert place.table("disable", "named").code == 0
    enabled = tiered("table", "enable", "iceberg", "--namespace", "named", "--topic", "Orders", *words)
    assert ("added files" in enabled.text, "to add" in enabled.text) == (True, False)
    listed = tiered("table", "list", *words)
    assert ("added files" in listed.text, "to add" in listed.text) == (False, True)
    assert place.table("disable", "named").code == 0


def test_the_page_says_how_the_embedded_catalog_is_opened(
    place: SealedPlace, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).parents[2] / "deploy" / "tables.md").read_text()
    begin = page.index("    from pyiceberg.catalog import load_catalog\n")
    lines = dedent(page[begin : page.index("\n\nAnother name", begin)])
    assert place.table("enable", "iceberg").code == 0
    here = lines.replace('"/var/lib/tiered"', repr(str(place.state)))
    exec(here, found := dict[str, Any]())
    assert "queue_offset" in capsys.readouterr().out
    assert found["catalog"].load_table("rocketmq.Orders").scan().count() == 20
    with pytest.raises(NoSuchTableError):
        exec(here.replace('load_catalog("tiered"', 'load_catalog("other"'), {})
    assert place.table("disable", "rocketmq").code == 0
