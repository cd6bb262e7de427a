"""The gateway and replay over archives that age: the same pulls are answered the same bytes, whatever is merged, sealed or
deleted, before, between and during them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.kit.aged import EVERY_STAGE, Stage, aged_cold
from tests.kit.collecting import GRACE_MS, Sweeping
from tests.kit.fetchscene import Ranges
from tests.kit.gatewaydesk import Desk, at_default_level, offsets_of, pull, too_small
from tests.kit.merging import merge_all
from tests.kit.readstore import Cold, cold
from tests.kit.replacing import replace
from tests.kit.replaying import bench
from tests.kit.sealing import seal_all
from tiered.codec.remoting.frame import Command
from tiered.replay.base import GroupQueue, NewDebt
from tiered.replay.drain import BATCH
from tiered.settings import ONE_DAY_MS
from tiered.store import MessageStore

TOPIC, ROWS, FLUSH = "Orders", 60, 20
RETRY = f"%RETRY%G_{TOPIC}"
PULLS = (
    pull(TOPIC, 0, 0, count=7),
    pull(TOPIC, 0, 13),
    pull(TOPIC, 0, 0, count=1000),
    pull(TOPIC, 0, ROWS - 1),
    pull(TOPIC, 0, 5, subscription="b"),
    pull(TOPIC, 0, 0, subscription="a || c"),
    pull(TOPIC, 0, 0, subscription="TAGS = 'b' AND KEYS = 'k1'", kind="SQL92"),
    pull(TOPIC, 0, 0, subscription="seq BETWEEN 8 AND 33", kind="SQL92"),
    pull(TOPIC, 0, 0, subscription="nothing"),
    pull(TOPIC, 0, 0, code=361),
)
Sent = tuple[dict[str, str], dict[str, str], bytes]
Answer = tuple[int, str | None, dict[str, str], bytes]
Step = Callable[[Cold], None]


def fill(made: Cold, messages: int = 2 * ROWS) -> None:
    """Messages, by turns of queue 0 and of another one, until there are so many; archived, ``FLUSH`` at a time."""
    for number in range(len(made.broker.sent), messages):
        properties = {"TAGS": "abc"[number % 3], "KEYS": f"k{number % 4}", "UNIQ_KEY": f"U{number}"}
        made.broker.time_ms += 10
        body = b"%d " % number * 20
        made.broker.send(TOPIC, number % 2, body, properties={**properties, "seq": str(number // 2)})
        if (number + 1) % FLUSH == 0:
            made.archive()


@contextmanager
def at_desk(store: MessageStore) -> Iterator[Desk]:
    desk = Desk(at_default_level(store))
    try:
        yield desk
    finally:
        desk.close()


def answers(store: MessageStore) -> list[list[Answer]]:
    """What a client behind the gateway is given for each of ``PULLS`` and those that follow it to the queue's end, of which the
    broker has deleted everything."""
    with at_desk(store) as desk:
        return [followed(desk, request) for request in PULLS]


def followed(desk: Desk, request: Command) -> list[Answer]:
    """A pull and what follows, until the end. How far behind its last message a filter has looked may depend on where blocks
    end: where it goes on is not of the answer, and is no further than the next message that it takes."""
    found, offset = list[Answer](), int(request.ext["queueOffset"])
    while offset < ROWS:
        made = desk.ask(
            replace(request, ext={**request.ext, "queueOffset": str(offset)}), too_small(ROWS, ROWS)
        )
        assert isinstance(made, Command), request
        ext = dict(made.ext)
        assert offset < int(ext["nextBeginOffset"]) <= ROWS
        offset = int(ext["nextBeginOffset"])
        if request.ext["subscription"] != "*":
            del ext["nextBeginOffset"]
            if found and not made.body:
                continue
        found.append((made.code, made.remark, ext, bytes(made.body)))
    return found


def replayed(work: Path, store: MessageStore, between: Callable[[], None] = lambda: None) -> list[Sent]:
    """What a group is given to which all of queue 0 was owed; ``between`` runs after each step of the drain."""
    with bench(work, store=store, window_messages=BATCH // 2) as b:
        b.ledger.look({}, [NewDebt(GroupQueue("G", TOPIC, 0), 0, ROWS)])
        while b.ledger.debts():
            assert b.drain.step() > 0
            between()
            b.broker.committed[f"{RETRY}@G"] = {0: b.broker.queues[RETRY][0].maximum}
            b.clock.advance(10)
        [debt] = b.ledger.books().debts.values()
        assert (debt.drained, debt.sent, debt.holes, debt.filtered, debt.refused) == (ROWS, ROWS, 0, 0, 0)
        return [(stored.properties, stored.ext, stored.body) for stored in b.broker.sent(RETRY)]


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[list[Answer]], list[Sent]]:
    """Answers, and what is replayed, of an archive as it was written."""
    work = tmp_path_factory.mktemp("fresh")
    with cold(work, open_now=False) as made:
        fill(made)
        store = made.open()
        found, sent = answers(store), replayed(work, store)
        assert found[0][0][3] == b"".join(made.raws(TOPIC)[:7])
        assert len({answer[0][3] for answer in found}) == len(PULLS) - 1, "they differ, but for two"
        assert [int(properties["seq"]) for properties, _, _ in sent] == list(range(ROWS))
        return found, sent


@pytest.mark.parametrize("stage", EVERY_STAGE[1:], ids=lambda stage: stage.value)
def test_the_same_bytes_at_every_stage(
    fresh: tuple[list[list[Answer]], list[Sent]], stage: Stage, tmp_path: Path
) -> None:
    with aged_cold(tmp_path, stage, open_now=False) as made:
        fill(made)
        levels = {item.level for item in made.daemon.state.objects()}
        assert levels >= {Stage.MERGED: {1}, Stage.SEALED: {2}, Stage.MIXED: {0, 1, 2}}[stage]
        store = made.open()
        assert (answers(store), replayed(tmp_path, store)) == fresh


# ---- under one reader


def more(made: Cold) -> None:
    fill(made, len(made.broker.sent) + FLUSH)


def merge(made: Cold) -> None:
    merge_all(made.daemon)


def seal(made: Cold) -> None:
    made.clock.set_wall(max(made.clock.now_ms(), made.broker.time_ms + 2 * ONE_DAY_MS))
    seal_all(made.daemon)


def collect(made: Cold) -> None:
    """What no view needs that is younger than the grace is deleted. The readers' views are older; for them no time passes."""
    sweeping = Sweeping.of(made)
    sweeping.count(sweeping.gc)
    made.clock.set_wall(made.clock.now_ms() + GRACE_MS)
    assert sweeping.count(sweeping.gc)["deleted_keys"] > 0


SCHEDULES: dict[str, tuple[Step, ...]] = {
    "merged": (merge,),
    "sealed": (seal,),
    "merged, sources deleted": (merge, collect),
    "sealed, sources deleted": (seal, collect),
    "merged, then sealed, all deleted": (merge, seal, collect),
    "one after the other": (merge, collect, seal, collect),
    "while it grows": (more, merge, more, collect, seal, more, collect),
    "sealed twice": (more, seal, collect, more, merge, more, seal, collect),
}


@pytest.fixture(params=SCHEDULES.values(), ids=list(SCHEDULES))
def steps(request: pytest.FixtureRequest) -> tuple[Step, ...]:
    """What happens to the archive, a step between any two reads of one reader."""
    found: tuple[Step, ...] = request.param
    return found


@pytest.fixture
def young(tmp_path: Path, steps: tuple[Step, ...]) -> Iterator[Cold]:
    """An archive of level 0 that has what is read before ``steps`` bring the rest."""
    with cold(tmp_path, open_now=False, dispatch={"inline_bytes": 0}) as made:
        fill(made, 2 * ROWS - steps.count(more) * FLUSH)
        made.open()
        yield made


def forget(made: Cold) -> None:
    """The reader's next read asks the store for its blocks."""
    made.store._puller._engine_of(made.store.view).cache.clear()


def looks(made: Cold) -> int:
    """Looks of the readers at the log so far."""
    outcomes = ("new", "same", "NotFound", "Corrupt", "Unavailable")
    return int(sum(made.metrics.value("tiered_follows_total", outcome=what) or 0 for what in outcomes))


def read_on(made: Cold, desk: Desk, got: list[int], count: int = 5) -> int:
    """One pull, right to the byte; looks at the log that it took."""
    before, offset = looks(made), len(got)
    answer = desk.ask(pull(TOPIC, 0, offset, count=count), too_small(ROWS, ROWS))
    assert isinstance(answer, Command), f"to be asked again at {offset}"
    assert bytes(answer.body) == b"".join(made.raws(TOPIC)[offset : offset + count])
    got += offsets_of(answer)
    assert int(answer.ext["nextBeginOffset"]) == len(got) == min(offset + count, ROWS)
    return looks(made) - before


def test_a_reader_under_whom_the_archive_ages(young: Cold, steps: tuple[Step, ...]) -> None:
    """It looks again where an object that its view names is gone, once, and where it does not know what it is asked for."""
    todo, got, looked = list(steps), list[int](), list[int]()
    with at_desk(young.store) as desk:
        while len(got) < ROWS:
            looked.append(read_on(young, desk, got))
            forget(young)
            if todo:
                todo.pop(0)(young)
    assert not todo
    assert got == list(range(ROWS))
    assert max(looked) <= 1
    assert (sum(looked) > 0) is (collect in steps or more in steps)


@pytest.mark.parametrize("change", [merge, seal], ids=lambda change: change.__name__)
@pytest.mark.parametrize("deleted", [False, True], ids=["sources left", "sources deleted"])
def test_a_change_during_a_pull(tmp_path: Path, change: Step, deleted: bool) -> None:
    """It lands between the choice of an object and the request for it. The reader has just looked: by itself it would not."""
    with cold(tmp_path, open_now=False, dispatch={"inline_bytes": 0}) as made:
        fill(made)
        seen = Ranges(made.provider)
        with at_desk(made.open(provider=seen)) as desk:
            got, asked = list[int](), list[str]()

            def gate(key: str, start: int, length: int) -> None:
                if not asked and any(area in key for area in ("/data/", "/segment/")):
                    asked.append(key)
                    change(made)
                    if deleted:
                        collect(made)

            seen.gate = gate
            assert read_on(made, desk, got, 25) == (1 if deleted else 0)
            assert asked
            forget(made)
            while len(got) < ROWS:
                assert read_on(made, desk, got, 25) == 0
                forget(made)


def test_replay_goes_on_while_the_archive_ages(
    fresh: tuple[list[list[Answer]], list[Sent]], young: Cold, steps: tuple[Step, ...], tmp_path: Path
) -> None:
    todo = list(steps)

    def between() -> None:
        forget(young)
        if todo:
            todo.pop(0)(young)

    while more in todo:  # what is owed was archived
        between()
    assert replayed(tmp_path, young.store, between) == fresh[1]
