"""A view that follows a broker's log and its archive: joined at an exact place, never less than all, again after a restart."""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.kit.command import tiered
from tests.kit.kvscene import NAMESPACE, KeyValueScene
from tiered.daemon.viewhealth import view_ready
from tiered.errors import Corrupt, Invalid, NotFound, Refused, Unavailable
from tiered.keyvalue import Condition, Freshness, ReadRule
from tiered.view.snapshot import list_snapshots
from tiered.view.sweeping import REST_SECONDS, SKEW_MS
from tiered.view.view import KeyValueView

LATEST = ReadRule(Freshness.LATEST)
SYS_FLAG_AT, PREPARED = 36, b"\0\0\0\x04"


@pytest.fixture
def scene(tmp_path: Path) -> KeyValueScene:
    return KeyValueScene(tmp_path)


def test_a_log_that_is_all_there_is_read_without_an_archive(tmp_path: Path) -> None:
    scene = KeyValueScene(tmp_path, with_archive=False)
    scene.puts(60)
    with ExitStack() as stack:
        view = scene.view(stack)
        assert scene.follow(view) is None
        scene.check(view)
        scene.puts(30, 60)
        scene.put(NAMESPACE, b"key-1", None)
        scene.follow(view)
        scene.check(view)
        assert view.get(NAMESPACE, b"key-1", LATEST) is None
        assert view.lag_bytes() == 0


def _damage(scene: KeyValueScene, place: int, body: bytes) -> None:
    """Change the first byte of the body of the record at a place."""
    record = scene.log.records[place]
    scene.log.write(place + record.index(body), b"#")


def test_where_only_ours_came_before_others_and_damage_are_told_apart_all_the_same(tmp_path: Path) -> None:
    """A log of nothing else is proven without asking whose a record is: the first other one ends that."""
    scene = KeyValueScene(tmp_path, file_bytes=1 << 20, with_archive=False)
    with ExitStack() as stack:
        view = scene.view(stack)
        for number in range(3):
            scene.put(NAMESPACE, b"k%d" % number, b"v")
            scene.follow(view)
        scene.put(NAMESPACE, b"a", b"w")
        scene.log.append(b"theirs", topic=b"Orders", queue_offset=0)
        scene.put(NAMESPACE, b"b", b"w")
        scene.follow(view)
        scene.check(view)
        scene.put(NAMESPACE, b"c", b"w")
        scene.follow(view)
        place = scene.log.position
        scene.log.append(b"half", topic=b"KV_orders", queue_offset=0)
        scene.log.write(place + SYS_FLAG_AT, PREPARED)
        scene.follow(view)
        scene.check(view)
        scene.put(NAMESPACE, b"c", b"x")
        scene.follow(view)
        place = scene.log.position
        scene.log.append(b"damaged", topic=b"Orders", queue_offset=1)
        _damage(scene, place, b"damaged")
        scene.put(NAMESPACE, b"d", b"w")
        scene.follow(view)
        scene.check(view)
        for number in range(3):
            scene.put(NAMESPACE, b"k%d" % number, b"x")
            scene.follow(view)
        place = scene.log.position
        scene.put(NAMESPACE, b"e", b"damaged")
        _damage(scene, place, b"damaged")
        scene.put(NAMESPACE, b"f", b"w")
        with pytest.raises(Corrupt, match="not what its checksum says"):
            scene.follow(view)


def test_what_the_broker_deleted_comes_from_the_archive(scene: KeyValueScene) -> None:
    scene.puts(60)
    scene.archive()
    scene.puts(30, 60)
    scene.expire(3)
    with ExitStack() as stack:
        view = scene.view(stack)
        assert scene.follow(view) is None
        scene.check(view)


def test_a_view_that_was_away_goes_on_in_the_archive_and_comes_back_to_the_log(scene: KeyValueScene) -> None:
    scene.puts(40)
    with ExitStack() as stack:
        scene.follow(scene.view(stack))
    scene.puts(80, 40)
    scene.archive()
    scene.puts(10, 120)
    scene.expire(4)
    with ExitStack() as stack:
        view = scene.view(stack)
        assert scene.follow(view) is None
        scene.check(view)
    with ExitStack() as stack:
        view = scene.view(stack)
        scene.check(view)  # it was closed in order: all of it is there at once


def test_cut_short_in_the_archive_it_begins_there_again(scene: KeyValueScene) -> None:
    scene.puts(60)
    scene.archive()
    scene.puts(10, 60)
    scene.expire(3)
    for steps in (1, 2, 3):
        with ExitStack() as stack:
            view = scene.view(stack)
            for _ in range(steps):
                view.step()
    with ExitStack() as stack:
        view = scene.view(stack)
        scene.follow(view)
        scene.check(view)


def test_an_archive_that_has_not_come_so_far_is_waited_for(scene: KeyValueScene) -> None:
    scene.puts(20)
    scene.archive()
    scene.puts(60, 20)
    scene.expire(4)
    with ExitStack() as stack:
        view = scene.view(stack)
        waiting = scene.follow(view)
        assert waiting is not None
        assert "the archive ends at" in waiting
        with pytest.raises(Unavailable, match="being made"):
            view.get(NAMESPACE, b"key-1")


def test_without_an_archive_what_is_missing_is_said_and_nothing_of_it_served(tmp_path: Path) -> None:
    scene = KeyValueScene(tmp_path, with_archive=False)
    scene.puts(60)
    scene.expire(2)
    scene.put("fresh", b"k", b"v")
    with ExitStack() as stack:
        view = scene.view(stack)
        scene.follow(view)
        for namespace in (NAMESPACE, "second"):
            with pytest.raises(Corrupt, match="messages of the namespace are missing"):
                view.get(namespace, b"key-1")
            with pytest.raises(Corrupt, match="missing"):
                view.page(namespace, b"", after=None, count=10)
        found = view.get("fresh", b"k")
        assert found is not None
        assert found.value == b"v"


class _Asked:
    """Who takes writes, asked for the version that comes next."""

    def __init__(self, **known: int) -> None:
        self.known = known

    def next_version(self, namespace: str) -> int | None:
        return self.known.get(namespace)


def test_a_namespace_that_lies_wholly_in_what_is_gone_is_not_taken_for_none(tmp_path: Path) -> None:
    scene = KeyValueScene(tmp_path, with_archive=False)
    for number in range(9):
        scene.put("old", b"k%d" % number, b"v")
    for number in range(200):
        scene.log.append(b"theirs", topic=b"Orders", queue_offset=number)
    scene.expire(2)
    scene.put("fresh", b"k", b"v")
    for asked in (None, _Asked(old=9, empty=0, fresh=1)):
        with ExitStack() as stack:
            view = scene.view(stack)
            scene.follow(view)
            view.putter = asked  # type: ignore[assignment]
            assert view.get("fresh", b"k") is not None
            for _ in range(2):
                with pytest.raises(Corrupt, match="messages of the namespace are missing"):
                    view.get("old", b"k0", LATEST)
                with pytest.raises(Corrupt if asked else Invalid):
                    view.put("old", b"k0", b"w", condition=Condition(absent=True))
            assert (list(view.broken()), view_ready(view)[0]) == (["old"], False)
            if asked:
                assert view.get("empty", b"k") is None
                with pytest.raises(NotFound):
                    view.get("nobody", b"k")
            else:
                with pytest.raises(Corrupt, match="nobody knows"):
                    view.get("nobody", b"k")


def test_a_view_that_is_not_whole_says_not_now(scene: KeyValueScene, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an error of its store, until it is where it was; and from before it is emptied, until the log's end was seen."""
    scene.log.mark_started(scene.log.time_ms)
    scene.puts(30)
    kept = scene.log.position
    scene.put(NAMESPACE, b"key-1", b"lost")
    reads = Counter[str]()

    def read(view: KeyValueView, at: str) -> None:
        for rule in (ReadRule(), LATEST):
            with pytest.raises(Unavailable):
                view.get(NAMESPACE, b"key-1", rule)
        reads[at] += 1

    with ExitStack() as stack:
        view = scene.view(stack)
        scene.follow(view)
        store = view._store
        reopen, clear = store.reopen, store.clear
        monkeypatch.setattr(store, "reopen", lambda: (read(view, "before"), reopen(), read(view, "behind")))
        view.go_back()
        while view.progress.physical < scene.log.position:
            view.step()
        assert store.applied() is not None
        scene.check(view)  # the log's end was not seen again yet: it is where it was, and that is enough
        monkeypatch.setattr(store, "clear", lambda: (read(view, "empty"), clear()))
        scene.log.cut(kept)
        scene.log.append(b"in its place", topic=b"Orders", queue_offset=30)
        scene.log.mark_started(scene.log.time_ms + 3_600_000)
        view.step()
        assert reads == {"before": 1, "behind": 1, "empty": 1}
        read(view, "made anew")


def test_a_read_that_met_a_store_being_made_is_not_answered(
    scene: KeyValueScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.puts(30)
    with ExitStack() as stack:
        view = scene.view(stack)
        scene.follow(view)
        store, kept = view._store, view.frozen()

        def cleared(keys: Sequence[bytes]) -> list[bytes | None]:
            view.progress.begin_anew()
            return [None] * len(keys)

        monkeypatch.setattr(store, "get_many", cleared)
        with pytest.raises(Unavailable, match="during the read"):
            view.get(NAMESPACE, b"key-1")
        view.progress.at_end()
        monkeypatch.setattr(store, "snapshot", lambda: (view.progress.goes_back(), kept)[1])
        with pytest.raises(Unavailable, match="during the read"):
            view.page(NAMESPACE, b"", after=None, count=1)


def test_a_broker_that_lost_its_tail_has_the_view_made_anew(scene: KeyValueScene) -> None:
    scene.puts(30)
    scene.archive()
    kept = scene.log.position
    before = dict(scene.values[NAMESPACE]), dict(scene.values["second"]), dict(scene.next)
    scene.log.mark_started(1_700_000_000_000)
    scene.puts(10, 30)
    with ExitStack() as stack:
        view = scene.view(stack)
        scene.follow(view)
        scene.check(view)
        scene.log.cut(kept)
        scene.values = {NAMESPACE: before[0], "second": before[1]}
        scene.next = before[2]
        scene.log.time_ms += 3_600_000
        scene.log.mark_started(scene.log.time_ms)
        scene.clock.advance(3600)
        scene.put(NAMESPACE, b"key-1", b"of the new life")
        scene.puts(20, 31)
        scene.follow(view)
        assert view.rebuilt == 1
        scene.check(view)


def _loses_archived(scene: KeyValueScene, again: int, view: KeyValueView | None) -> None:
    """The log begins behind 0; its end, archived and applied, is lost, and ``again`` other writes take its place."""
    scene.log.mark_started(scene.log.time_ms)
    scene.puts(30)
    left = scene.what_is_there()
    scene.puts(12, 30)
    scene.archive()
    if view is not None:
        scene.follow(view)
    scene.expire(1)
    scene.lose_tail(left)
    end = scene.log.position
    # pages that never came to the disk
    scene.log.write(end, bytes(scene.log.file_bytes - end % scene.log.file_bytes))
    scene.log.time_ms += 3_600_000
    scene.log.mark_started(scene.log.time_ms)
    for number in range(again):
        scene.put(NAMESPACE, b"new-%d" % number, b"of the new life")


@pytest.mark.parametrize(("again", "why"), [(3, "lost a tail, or is behind"), (80, "has other bytes")])
@pytest.mark.parametrize("had", [True, False], ids=["made anew", "empty store"])
def test_nothing_is_taken_of_an_archived_tail_that_the_broker_lost(
    tmp_path: Path, again: int, why: str, *, had: bool
) -> None:
    """Not even by a view whose store is empty, nor where the log has grown beyond the end of what was lost."""
    scene = KeyValueScene(tmp_path)
    with ExitStack() as stack:
        view = scene.view(stack) if had else None
        _loses_archived(scene, again, view)
        view = view or scene.view(stack)
        assert why in str(scene.follow(view))
        with pytest.raises(Unavailable, match="not whole yet"):
            view.get(NAMESPACE, b"key-1")
        with pytest.raises(Refused, match="not whole yet"):
            view.frozen()
        scene.archive()  # takes back what was lost
        assert scene.follow(view) is None
        scene.check(view)


def test_a_tail_lost_while_the_archive_is_read_has_the_view_made_anew(scene: KeyValueScene) -> None:
    """What was read of it is held against the log once more where the two meet."""
    scene.puts(60)
    left = scene.what_is_there()
    scene.puts(5, 60)
    scene.archive()
    scene.expire(3)
    with ExitStack() as stack:
        view = scene.view(stack)
        view.step()  # in the archive
        scene.lose_tail(left)
        scene.log.mark_started(scene.log.time_ms + 3_600_000)
        scene.puts(9, 90)
        scene.follow(view)
        scene.archive()
        scene.follow(view)
        assert view.rebuilt == 1
        scene.check(view)


@pytest.mark.parametrize("again", [0, 40])
def test_a_topic_made_anew_while_the_view_was_away(scene: KeyValueScene, again: int) -> None:
    scene.puts(40)
    with ExitStack() as stack:
        scene.follow(scene.view(stack))
    scene.archive()
    scene.begin_topic_anew(NAMESPACE)
    scene.put(NAMESPACE, b"only", b"one", Condition(absent=True))
    scene.puts(again, 41)
    for number in range(80):
        scene.put("third", b"k%d" % number, b"v")
    scene.archive()
    scene.expire(6)
    with ExitStack() as stack:
        view = scene.view(stack)
        scene.follow(view)
        scene.check(view)


def test_names_that_nobody_wrote_to(scene: KeyValueScene) -> None:
    scene.puts(1)
    with ExitStack() as stack:
        view = scene.view(stack)
        scene.follow(view)
        with pytest.raises(NotFound, match="no such namespace"):
            view.get("never", b"k")
        assert view.namespaces() == [NAMESPACE, "second"]


def test_pages_by_prefix_go_through_everything_in_order(scene: KeyValueScene) -> None:
    keys = [b"a", b"a\x00", b"a\x00\xff", b"a\xff", b"a\xff\xff", b"b", b"\xff", b"\xff\xff"]
    for key in reversed(keys):
        scene.put(NAMESPACE, key, key)
    scene.put("ordersX", b"a", b"theirs")
    with ExitStack() as stack:
        view = scene.view(stack)
        scene.follow(view)
        for prefix in (b"", b"a", b"a\xff", b"\xff", b"c"):
            found, after = [], None
            while True:
                page = view.page(NAMESPACE, prefix, after=after, count=2)
                found += [entry.key for entry in page.entries]
                after = page.after
                if after is None:
                    break
            assert found == [key for key in keys if key.startswith(prefix)]


def test_what_expired_long_ago_is_removed_from_the_store(tmp_path: Path) -> None:
    scene = KeyValueScene(tmp_path, with_archive=False)
    scene.put(NAMESPACE, b"short", b"v", ttl_ms=1000)
    scene.put(NAMESPACE, b"long", b"v", ttl_ms=36_000_000)
    scene.put(NAMESPACE, b"for ever", b"v")
    scene.log.time_ms += SKEW_MS + 999
    scene.put(NAMESPACE, b"later", b"v")
    with ExitStack() as stack:
        view = scene.view(stack)
        scene.follow(view)
        scene.clock.advance(REST_SECONDS)
        scene.follow(view)
        assert scene.stored_keys(view) == [b"for ever", b"later", b"long", b"short"]
        scene.log.time_ms += 1
        scene.put(NAMESPACE, b"later", b"w")
        scene.follow(view)
        scene.clock.advance(REST_SECONDS)
        scene.follow(view)
        assert scene.stored_keys(view) == [b"for ever", b"later", b"long"]
    with ExitStack() as stack:
        assert scene.stored_keys(scene.view(stack)) == [b"for ever", b"later", b"long"]


def test_the_archive_alone_is_followed_as_it_grows(tmp_path: Path) -> None:
    scene = KeyValueScene(tmp_path)
    scene.puts(30)
    scene.archive()
    with ExitStack() as stack:
        view = scene.view(stack, with_log=False)
        assert scene.follow(view) is None
        scene.check(view)
        scene.puts(30, 30)
        scene.archive()
        scene.clock.advance(60.0)
        scene.follow(view)
        scene.check(view)
    scene.put(NAMESPACE, b"more", b"v")
    scene.archive()
    with ExitStack() as stack:
        view = scene.view(stack, with_log=False)
        scene.follow(view)
        scene.check(view)


def test_an_archive_that_is_not_there_yet_is_said(tmp_path: Path) -> None:
    scene = KeyValueScene(tmp_path)
    with ExitStack() as stack:
        waiting = scene.follow(scene.view(stack, with_log=False))
        assert waiting == "there is no archive of this broker yet"


def test_an_empty_view_begins_with_the_newest_snapshot_and_redoes_the_rest(scene: KeyValueScene) -> None:
    scene.puts(40)
    scene.archive()
    with ExitStack() as stack:
        view = scene.view(stack)
        scene.follow(view)
        scene.snapshot(view)
        scene.puts(20, 40)
        scene.follow(view)
        scene.snapshot(view)
        whole = list(view.frozen().iterate(b""))
    scene.lose_store()
    with ExitStack() as stack:
        view = scene.view(stack)
        scene.check(view)  # before anything was read of the log
        scene.puts(10, 60)
        scene.follow(view)
        scene.check(view)
    assert whole


def test_with_a_snapshot_nothing_before_it_is_needed(tmp_path: Path) -> None:
    scene = KeyValueScene(tmp_path)
    scene.puts(1)
    scene.archive()
    scene.puts(40, 1)
    with ExitStack() as stack:
        view = scene.view(stack)
        scene.follow(view)
        scene.snapshot(view)
    scene.lose_store()
    scene.expire(2)  # nobody archived it
    with ExitStack() as stack:
        view = scene.view(stack)
        scene.puts(5, 41)
        scene.follow(view)
        scene.check(view)


def _trimmed(scene: KeyValueScene) -> None:
    """Retention takes from the archive what is old, and the broker deletes its files but the newest."""
    back = time.time() - 9 * 86_400
    for commit in (scene.directory / "archive").glob("*/*/commit/*/*"):
        os.utime(commit, (back, back))
    scene.log.time_ms = time.time_ns() // 1_000_000
    scene.puts(8, 60)
    scene.archive()
    done = tiered(
        "retain", "--archive", scene.settings.archive.url, "--store", scene.log.store, "--max-trim-percent", 100, "--json",
        *("--take-over", "--set", "retain.keep_ms=9d", "--set", "retain.min_age_ms=1h", "--set", "log.level=error"),
    )  # fmt: skip
    assert done.code == 0, done.error
    assert done.json, "nothing was trimmed"
    scene.expire(len(scene.log.bases()) - 1)


def test_where_retention_trimmed_the_archive_a_snapshot_is_enough_and_without_one_it_is_said(
    scene: KeyValueScene,
) -> None:
    scene.puts(60)
    scene.archive()
    with ExitStack() as stack:
        view = scene.view(stack)
        scene.follow(view)
        scene.snapshot(view)
    every = (scene.directory / "archive").rglob("*")
    objects = [
        path for path in every if "beat" not in path.parts
    ]  # a writer's own, which the next one deletes
    _trimmed(scene)
    assert all(path.exists() for path in objects), "a snapshot changes nothing of the archive"
    scene.lose_store()
    with ExitStack() as stack:
        view = scene.view(stack)
        assert scene.follow(view) is None
        scene.check(view)
    shutil.rmtree(next((scene.directory / "archive").rglob("keyvalue")))
    scene.lose_store()
    with ExitStack() as stack:
        view = scene.view(stack)
        scene.follow(view)
        with pytest.raises(Corrupt, match="messages of the namespace are missing"):
            view.get(NAMESPACE, b"key-1")


def test_a_namespace_of_which_retention_took_what_is_missing_is_not_served_though_nothing_follows(
    scene: KeyValueScene,
) -> None:
    scene.put("quiet", b"k", b"older")
    scene.puts(20)
    scene.archive()
    with ExitStack() as stack:
        view = scene.view(stack)
        scene.follow(view)
        assert view.get("quiet", b"k")
    scene.put("quiet", b"k", b"newer")
    scene.puts(40, 20)
    scene.archive()
    _trimmed(scene)
    with ExitStack() as stack:
        view = scene.view(stack)
        scene.follow(view)
        with pytest.raises(Corrupt, match="messages of the namespace are missing"):
            view.get("quiet", b"k")


def test_a_damaged_snapshot_is_passed_over(scene: KeyValueScene, caplog: pytest.LogCaptureFixture) -> None:
    scene.puts(20)
    scene.archive()
    with ExitStack() as stack:
        view = scene.view(stack)
        scene.follow(view)
        scene.snapshot(view)
        scene.puts(20, 20)
        scene.follow(view)
        scene.snapshot(view)
    pieces = sorted(
        path
        for path in (scene.directory / "archive").rglob("*")
        if path.is_file() and "keyvalue" in path.parts
    )
    assert pieces
    for path in pieces:
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    scene.lose_store()
    with ExitStack() as stack:
        view = scene.view(stack)
        scene.follow(view)
        scene.check(view)
    assert "passed over" in caplog.text or "cannot be used" in caplog.text


def test_snapshots_are_taken_by_themselves_and_old_ones_go(scene: KeyValueScene) -> None:
    scene.puts(3)
    scene.archive()
    with ExitStack() as stack:
        view = scene.view(stack)
        keeper = scene.opened.keeper
        assert keeper is not None
        for number in range(4):
            scene.puts(1, 3 + number)
            scene.follow(view)
            scene.clock.advance(3600.0)
            keeper.step()
        taken = keeper.taken_ms
        scene.clock.advance(3600.0)
        keeper.step()
        assert (keeper.taken_ms, keeper.trouble) == (taken, None)  # nothing was applied since
        place = keeper.place
        assert len(list_snapshots(place.provider, place.keys)) == 2
