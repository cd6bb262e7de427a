"""Which archives a scan reads: all that lie under its URLs, each of them once. No JVM."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit import assemble as assemble_module
from tests.kit.archiveedits import DISPATCH
from tests.kit.assemble import assemble, memory
from tests.kit.fetchscene import SETTLED_SECONDS, Scene, scene
from tests.kit.pipeline import Crafted
from tests.kit.sparkedits import MEMORY, Following
from tests.kit.sparkscene import scan
from tiered.archive.keys import ArchiveKeys, Area, ObjectKey, build
from tiered.archive.log.identity import ensure_identity
from tiered.clock import ManualClock
from tiered.errors import Corrupt, NotFound, Refused
from tiered.provider.base import Provider
from tiered_spark import roots, snapshot
from tiered_spark.options import parse_options
from tiered_spark.snapshot import find_archives, open_snapshots

pytestmark = pytest.mark.spark


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> Provider:
    """103 brokers under one root."""
    made = memory(ManualClock())
    for number in range(103):
        ensure_identity(made, ArchiveKeys("C", f"broker-{number:03d}"), 1, lambda n: bytes(n))
    monkeypatch.setattr(snapshot, "shared_provider", lambda url: made)
    return made


@pytest.fixture
def one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    """An archive of five messages that every URL names."""
    with scene(tmp_path) as made:
        monkeypatch.setattr(snapshot, "shared_provider", lambda url: made.provider)
        made.send(5)
        yield made


def found(**options: str) -> list[str]:
    given = {"archive": "memory://x", **options}
    return [keys.broker for *_, keys in find_archives(parse_options(given))]


def test_however_many_there_are(many: Provider) -> None:
    assert found() == [f"broker-{number:03d}" for number in range(103)]
    assert found(broker="broker-102") == ["broker-102"]


def test_more_than_can_be_opened_are_refused(many: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "MAX_ARCHIVES", 100)
    with pytest.raises(Refused, match=r"at most 100.*found=103.*cluster and broker"):
        found()
    assert len(found(broker="broker-0*")) == 100


def test_an_error_names_some_of_many(many: Provider) -> None:
    with pytest.raises(NotFound, match=r"C/broker-000, .*C/broker-099, …") as caught:
        found(broker="other")
    assert "broker-100" not in str(caught.value)


@pytest.mark.parametrize("urls", ["memory://x,memory://x", "memory://x,memory://x/"])
def test_an_archive_that_is_named_twice_is_read_once(one: Scene, urls: str) -> None:
    assert [row["queue_offset"] for row in scan({"archive": urls})] == list(range(5))
    (opened,) = open_snapshots(parse_options({"archive": urls}))
    assert opened.place.url == "memory://x"
    past = {"archive": urls, "asOfCommit": str(opened.commit)}
    assert len(scan(past)) == 5


def test_a_folder_that_holds_several_roots(tmp_path: Path) -> None:
    """Whatever else lies in it; folders below a root that has archives itself are copies, or none of its business."""
    from tiered.clock import SystemClock
    from tiered.provider.open import open_provider
    from tiered.settings import Store

    url = f"file://{tmp_path}/all of it"
    (tmp_path / "all of it" / "deep").mkdir(parents=True)
    for number, folder in enumerate(("a b", "deep/er", "deep/est")):
        made = open_provider(f"{url}/{folder}".replace(" ", "%20"), Store(), SystemClock())
        ensure_identity(made, ArchiveKeys("C", f"b{number}"), 1, lambda n, number=number: bytes([number]) * n)
    (tmp_path / "all of it" / "deep" / "notes.txt").write_text("other")
    snapshot.shared_provider.cache_clear()
    given = parse_options({"archive": url.replace(" ", "%20")})
    listed = [(root.removeprefix(given.archives[0]), keys.broker) for _, root, keys in find_archives(given)]
    assert listed == [("/a%20b", "b0"), ("/deep/er", "b1"), ("/deep/est", "b2")]
    top = open_provider(given.archives[0], Store(), SystemClock())
    ensure_identity(top, ArchiveKeys("C", "top"), 1, bytes)
    assert [(root, keys.broker) for _, root, keys in find_archives(given)] == [(given.archives[0], "top")]


def test_a_copy_beside_its_archive_is_refused(tmp_path: Path) -> None:
    with scene(tmp_path) as made:
        made.send(5)
        for key in [item.key for item in made.provider.list("")]:
            for folder in ("live", "copy"):
                place = tmp_path / "roots" / folder / key
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(made.provider.get(key).data)
    with pytest.raises(Refused, match=r"two folders below one URL hold the same archive.*copy.*live"):
        scan({"archive": f"file://{tmp_path}/roots"})
    assert len(scan({"archive": f"file://{tmp_path}/roots/copy,file://{tmp_path}/roots/live"})) == 5


def test_a_broker_that_has_not_begun_holds_nobody_up(
    one: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It has no commit, so nothing of it is missing; that is said. A stream takes its messages when they come."""
    new = ArchiveKeys("C", "new")
    ensure_identity(one.provider, new, 1, lambda n: b"n" * n)
    assert len(scan(MEMORY)) == 5
    assert "no commit yet, nothing is read of: memory://x C/new" in caplog.text
    with pytest.raises(NotFound, match="archive=memory://x C/new"):
        scan({**MEMORY, "asOfCommit": "2"})
    assert len(scan({**MEMORY, "asOfCommit": "2", "broker": "broker-a"})) == 5
    with pytest.raises(NotFound, match=r"no commit yet \(archive=memory://x C/new\)"):
        scan({**MEMORY, "broker": "new"})
    query = Following()
    assert len(query.next()) == 5
    monkeypatch.setattr(assemble_module, "KEYS", new)
    broker = Crafted(tmp_path / "new")
    daemon = assemble(broker.store, one.provider, one.clock, dispatch=DISPATCH, seed=2)
    try:
        broker.send("Orders", 0, b"first")
        daemon.settle(SETTLED_SECONDS)
        assert [row["body"] for row in query.next()] == [b"first"]
    finally:
        daemon.close()
    assert len(scan(MEMORY)) == 6


def test_a_broker_whose_log_is_lost_is_damage(one: Scene) -> None:
    """Its objects are there: whatever its commits named would be no rows."""
    other = ArchiveKeys("C", "lost")
    ensure_identity(one.provider, other, 1, lambda n: b"l" * n)
    one.provider.put(other.key(build(ObjectKey(Area.SHARD, 1, b"s" * 16))), [b"shard"])
    with pytest.raises(Corrupt, match=r"its log is lost \(key=C/lost/shard/"):
        scan(MEMORY)
    assert len(scan({**MEMORY, "broker": "broker-a"})) == 5


def test_a_time_that_one_of_several_does_not_know_names_it(one: Scene) -> None:
    with pytest.raises(NotFound, match=r"no commit at this time.*archive=memory://x DefaultCluster/broker-a"):
        scan({**MEMORY, "asOfTimestamp": "1"})


def test_much_that_is_no_archive_is_refused(many: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roots, "MAX_OTHER_KEYS", 3)
    for number in range(4):
        many.put(f"0-other/{number}", [b"x"])
    with pytest.raises(Refused, match="too many other keys"):
        found()
