"""Every byte returned was checked (S7), and the bucket alone is enough (S9).

Bits are flipped, objects cut short, swapped, replaced and removed, in random places of every kind of section. A reader then
gets exactly what the broker wrote, or an error that names the key; ``verify --deep`` finds every single one.
"""

from __future__ import annotations

import json
import random
import shutil
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.kit import realdaemon
from tests.kit.command import Done, tiered
from tests.kit.daemonproc import SMALL_FLUSHES, Daemon
from tests.kit.faultbroker import FaultBroker
from tests.kit.oracle import Oracle, archived_queues, compare, opened
from tests.kit.process import HURRIED
from tiered.archive.read.flatfile import FlatMessageFile
from tiered.archive.read.objects import ObjectReader
from tiered.archive.read.verify import Verifier
from tiered.archive.read.view import View
from tiered.clock import ManualClock
from tiered.codec.format.object import FOOTER_BYTES
from tiered.codec.format.sections import SectionKind
from tiered.errors import Corrupt, NotFound, Refused, TieredError
from tiered.model import MessageQueue

ROOT = "DefaultCluster/broker-a"
FLIPS_A_KIND = 4


class Made:
    """A sound archive, made once; tests work on copies."""

    def __init__(self, directory: Path, oracle: Oracle) -> None:
        self.directory = directory
        self.oracle = oracle
        self.url = f"file://{directory}"
        self.model = {q: [r.data for r in records] for q, records in oracle.queues().items()}

    def copy(self, to: Path) -> Made:
        shutil.copytree(self.directory, to)
        return Made(to, self.oracle)

    def path(self, key: str) -> Path:
        return self.directory / key

    def keys(self, area: str) -> list[str]:
        base = self.directory / ROOT / area
        return sorted(str(p.relative_to(self.directory)) for p in base.rglob("*") if p.is_file())


MESSAGES = 450
"""In the archive of :func:`made`: three times 150."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Some commits with inline data, some with objects, of these some with a dictionary, checkpoints, three epochs."""
    work = tmp_path_factory.mktemp("made")
    broker = FaultBroker.started(work / "store", 150, topics=("Orders",), queues=2)
    url = f"file://{work / 'archive'}"
    settings = {**SMALL_FLUSHES, "dispatch.block_bytes": 4096, "archive.checkpoint_commits": 2}
    assert Daemon(work, work / "store", url, **settings).once() == 0
    broker.write(150)
    objects = {**settings, "dispatch.inline_bytes": 0, "dispatch.object_bytes": 65_536}
    assert Daemon(work, work / "store", url, **objects).once() == 0
    broker.options = replace(broker.options, queues=40)
    broker.write(150)
    small = {**objects, "dispatch.dictionary_bytes": 1024}
    assert Daemon(work, work / "store", url, **small).once() == 0
    broker.close()
    made = Made(work / "archive", broker.oracle)
    assert compare(made.url, made.oracle).good
    assert len(made.keys("data")) >= 2
    assert len(made.keys("checkpoint")) >= 2
    return made


def serve_nothing_wrong(archive: Made) -> TieredError | None:
    """Read everything, queue by queue; what is served must be right. The error met, if one was."""
    try:
        read = opened(archive.url)
    except TieredError as error:
        return error
    met: TieredError | None = None
    try:
        found = archived_queues(read, 1)
    except TieredError as error:
        found, met = {}, error
    assert met is not None or {q: [data for _, data in r] for q, r in found.items()} == archive.model
    return met


def damage_found(archive: Made) -> list[tuple[str, str]]:
    """(key, text) of each damage that ``verify --deep`` reports; an archive that cannot be opened is one, too."""
    try:
        report = Verifier(opened(archive.url)).run(deep=True)
    except (Corrupt, Refused, NotFound) as error:
        return [(str(error.fields.get("key", "")), str(error))]
    return [(d.key, f"{d.what} {d.detail}") for d in report.damage]


def places(archive: View) -> dict[str, list[tuple[str, int, int]]]:
    """Ranges [start, end) of stored bytes by kind of section: (key, start, end)."""
    found: dict[str, list[tuple[str, int, int]]] = defaultdict(list)
    objects: ObjectReader = archive.objects
    for item in archive.state.objects():
        key = objects.key_of(item)
        for number, (position, length, _) in item.sections.items():
            if length:
                found[f"section {SectionKind(number).name}"].append((key, position, position + length))
        table = objects.block_table(item)
        last = table[-1]
        found["blocks"].append((key, 0, int(last["position"]) + int(last["stored_length"])))
        found["object footer"].append((key, item.length - FOOTER_BYTES, item.length))
    head = archive.state.head()
    assert head is not None
    for seq in range(head.seq + 1):
        key = archive.keys.commit(seq)
        whole = archive.log.provider.head(key).length
        read = archive.log.read(seq)
        assert read is not None
        found["commit edits and footer"].append((key, read.inline_length, whole))
    found["identity"].append(
        (f"{ROOT}/archive.json", 0, archive.log.provider.head(f"{ROOT}/archive.json").length)
    )
    return found


def flip(path: Path, position: int, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1 << bit
    path.write_bytes(data)


def test_the_sound_archive_is_found_sound(made: Made) -> None:
    assert serve_nothing_wrong(made) is None
    assert damage_found(made) == []


def test_flipped_bits_in_every_kind_of_section(made: Made, tmp_path: Path) -> None:
    archive, chance = made.copy(tmp_path / "archive"), random.Random(11)
    kinds = places(opened(archive.url))
    names = {SectionKind(n).name for item in opened(archive.url).state.objects() for n in item.sections}
    assert {f"section {name}" for name in names} <= set(kinds)
    assert {"blocks", "object footer", "commit edits and footer", "section DICTIONARY"} <= set(kinds)
    missed: list[str] = []
    positions = 0
    for kind, ranges in sorted(kinds.items()):
        for _ in range(FLIPS_A_KIND):
            key, start, end = chance.choice(ranges)
            position, bit = chance.randrange(start, end), chance.randrange(8)
            path = archive.path(key)
            sound = path.read_bytes()
            flip(path, position, bit)
            error = serve_nothing_wrong(archive)
            damage = damage_found(archive)
            path.write_bytes(sound)
            assert damage or kind == "identity", f"{kind} {position} {key}"
            where = f"{kind}: bit {bit} of byte {position} of {key}"
            if kind == "identity":
                continue  # it has no checksum: its names and its id are compared with every commit, its date with nothing
            if not any(key in (named, *text.split()) or key in text for named, text in damage):
                missed.append(f"{where}: verify says {damage}")
            if error is not None and key not in str(error):
                missed.append(f"{where}: the reader's error does not name the key: {error}")
            if kind == "blocks":
                assert error is not None, where
                positions += "position=" in str(error)
                if not any("position=" in text for _, text in damage):
                    missed.append(f"{where}: no position in {damage}")
    assert missed == []
    assert positions == FLIPS_A_KIND


def test_cut_short_at_random_places(made: Made, tmp_path: Path) -> None:
    archive, chance = made.copy(tmp_path / "archive"), random.Random(12)
    for key in archive.keys("data") + archive.keys("commit"):
        path = archive.path(key)
        sound = path.read_bytes()
        path.write_bytes(sound[: chance.choice([0, 1, len(sound) - 1, chance.randrange(len(sound))])])
        serve_nothing_wrong(archive)
        damage = damage_found(archive)
        path.write_bytes(sound)
        assert any(key in named + text for named, text in damage), (key, damage)


@pytest.mark.parametrize("area", ["data", "commit"])
def test_two_swapped(made: Made, tmp_path: Path, area: str) -> None:
    archive, chance = made.copy(tmp_path / "archive"), random.Random(13)
    for _ in range(5):
        one, two = (archive.path(key) for key in chance.sample(archive.keys(area), 2))
        first, second = one.read_bytes(), two.read_bytes()
        one.write_bytes(second)
        two.write_bytes(first)
        error = serve_nothing_wrong(
            archive
        )  # commits that a checkpoint covers and that hold no data are not read
        damage = damage_found(archive)
        one.write_bytes(first)
        two.write_bytes(second)
        assert damage, "swapped objects were not found"
        assert error is not None or area == "commit"


@pytest.mark.parametrize("area", ["data", "commit"])
def test_one_removed(made: Made, tmp_path: Path, area: str) -> None:
    """Commits behind the newest checkpoint are spared: those tests are of one commit each, below."""
    archive, chance = made.copy(tmp_path / "archive"), random.Random(14)
    saved = int(archive.keys("checkpoint")[-1].rpartition("/")[2])
    keys = archive.keys(area)[: saved + 1 if area == "commit" else None]
    for key in chance.sample(keys, 2):
        sound = archive.path(key).read_bytes()
        archive.path(key).unlink()
        serve_nothing_wrong(archive)
        damage = damage_found(archive)
        archive.path(key).write_bytes(sound)
        assert any(key in named + text for named, text in damage), (key, damage)


def test_an_object_of_another_archive(made: Made, tmp_path: Path) -> None:
    """The same broker's data, of another archive: nothing fits by accident."""
    archive = made.copy(tmp_path / "archive")
    broker = FaultBroker.started(tmp_path / "store", 500)
    other = Daemon(tmp_path, tmp_path / "store", f"file://{tmp_path / 'other'}", **SMALL_FLUSHES)
    assert other.once() == 0
    broker.close()
    foreign = tmp_path / "other" / archive.keys("commit")[1]
    archive.path(archive.keys("commit")[1]).write_bytes(foreign.read_bytes())
    serve_nothing_wrong(archive)
    assert damage_found(archive)


def test_damaged_checkpoints_count_as_absent(made: Made, tmp_path: Path) -> None:
    """A fold is rebuilt from what verifies: the reader never notices, at worst it reads more commits."""
    archive, chance = made.copy(tmp_path / "archive"), random.Random(15)
    for key in archive.keys("checkpoint") + archive.keys("shard"):
        path = archive.path(key)
        sound = path.read_bytes()
        for cut in (True, False):
            if cut:
                path.write_bytes(sound[: chance.randrange(len(sound))])
            else:
                flip(path, chance.randrange(len(sound)), chance.randrange(8))
            assert serve_nothing_wrong(archive) is None
            assert any(key in named + text for named, text in damage_found(archive)), key
            path.write_bytes(sound)


def test_the_commands_tell_and_never_serve(made: Made, tmp_path: Path) -> None:
    archive, chance = made.copy(tmp_path / "archive"), random.Random(16)
    (topic, queue), wanted = next(iter(archive.model.items()))
    words = ("--topic", topic, "--queue", str(queue), "--count", "0", "--format", "raw")
    assert realdaemon.tiered("read", "--archive", archive.url, *words).out == b"".join(wanted)
    fine = realdaemon.tiered("verify", "--deep", "--archive", archive.url, "--json")
    assert fine.code == 0
    assert fine.rows()["messages"] == MESSAGES
    read = opened(archive.url)
    item = next(o for o in read.state.objects() if o.path)
    key = read.objects.key_of(item)
    row = chance.choice(read.objects.block_table(item))
    flip(archive.path(key), int(row["position"]) + chance.randrange(int(row["stored_length"])), 3)
    told = realdaemon.tiered("verify", "--deep", "--archive", archive.url, "--json")
    assert told.code == 1
    answer = told.rows()
    assert answer["verdict"] == "DAMAGED"
    assert [d["key"] for d in answer["damage"]] == [key]
    assert f"position={int(row['position'])}" in answer["damage"][0]["detail"]
    failed = 0
    for (topic, queue), wanted in archive.model.items():
        words = ("--topic", topic, "--queue", str(queue), "--count", "0", "--format", "raw")
        got = realdaemon.tiered("read", "--archive", archive.url, *words)
        assert b"".join(wanted).startswith(got.out)
        assert (got.code == 0) == (got.out == b"".join(wanted))
        if got.code:
            failed += 1
            assert got.code == Corrupt.exit_code
            assert key in got.err.replace("\n", "")
            assert "Traceback" not in got.err
    assert failed == 1


def told_by(archive: Made, *words: str) -> Done:
    return tiered(*words, "--archive", archive.url)


def said_by(done: Done) -> str:
    """Everything a person reads, however it was wrapped."""
    return " ".join((done.text + done.err).split())


def message_by_message(archive: Made) -> Iterator[TieredError | None]:
    """Of each message that was archived: the error that its read met, or ``None``, where what was served is right."""
    read = opened(archive.url)
    for (topic, queue), wanted in archive.model.items():
        file = FlatMessageFile(read.state, read.objects, MessageQueue(topic, queue))
        for offset, data in enumerate(wanted):
            try:
                found = next(iter(file.read(offset, 1)))
            except (Corrupt, NotFound) as error:
                yield error
                continue
            assert bytes(found.record(0)) == data
            yield None


def rest_is_readable(archive: Made, damaged: str) -> TieredError | None:
    """Read queue by queue, message by message: what is served is right, and errors name the damage. The last error."""
    met = [error for error in message_by_message(archive) if error is not None]
    assert not met or damaged in str(met[-1]), met
    return met[-1] if met else None


HOW = ("flipped", "cut", "removed")


def spoil(path: Path, how: str, position: int) -> None:
    if how == "flipped":
        flip(path, position, 2)
    elif how == "cut":
        path.write_bytes(path.read_bytes()[:position])
    else:
        path.unlink()


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("area", ["data", "checkpoint", "shard"])
def test_one_object_costs_no_more_than_itself(alone: Made, area: str, how: str) -> None:
    """S17: the rest stays readable, and the commands name what is damaged and what to do."""
    key = alone.keys(area)[-1]
    path = alone.path(key)
    # blocks come first; in the middle of a small object lie tables that no reader of records asks for
    spoil(path, how, path.stat().st_size // (8 if area == "data" else 2))
    met = rest_is_readable(alone, key)
    if area == "data":
        assert met is not None
        assert met.hint is not None
        assert "restore this key" in met.hint
        assert "all other objects stay readable" in met.hint
    else:
        assert met is None, "readers take an older checkpoint, or the log"
    told = told_by(alone, "verify", "--deep", "--json")
    lost = area == "checkpoint" and how == "removed"  # nothing names it, but what it named is there
    assert (told.code, told.json["verdict"]) == ((0, "sound") if lost else (1, "DAMAGED"))
    assert key in json.dumps(told.json["damage"]) or (lost and told.json["notes"])
    assert lost or "versions or a copy" in said_by(told_by(alone, "verify", "--deep"))


def test_the_identity_is_named_and_nothing_is_guessed(made: Made, tmp_path: Path) -> None:
    for number, how in enumerate(HOW):
        archive = made.copy(tmp_path / str(number))
        spoil(archive.path(f"{ROOT}/archive.json"), how, 20)
        told = told_by(archive, "topics")
        assert told.code == Corrupt.exit_code, told.err
        assert "restore this key" in said_by(told)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("which", ["first", "middle", "newest"])
def test_one_commit_is_named_read_around_and_repaired(
    alone: Made, tmp_path: Path, which: str, how: str
) -> None:
    """Without a checkpoint behind it the log cannot be folded past it: --as-of reads what was before, repair mends it."""
    shutil.rmtree(alone.directory / ROOT / "checkpoint")
    keys = alone.keys("commit")
    number = {"first": 1, "middle": len(keys) - 2, "newest": len(keys) - 1}[which]
    path = alone.path(keys[number])
    spoil(path, how, path.stat().st_size - 200)
    told = told_by(alone, "topics")
    assert told.code == Corrupt.exit_code
    for word in (keys[number], "tiered repair", f"--as-of {number - 1} "):
        assert word in said_by(told)
    for verb in ("topics", "queues", "status"):
        assert told_by(alone, verb, "--as-of", str(number - 1)).code == 0
    checked = told_by(alone, "verify", "--json")
    assert keys[number] in [d["key"] for d in checked.json["damage"]]
    before = {p: p.read_bytes() for p in alone.directory.rglob("*") if p.is_file()}
    assert told_by(alone, "repair").code == 1
    assert {p: p.read_bytes() for p in alone.directory.rglob("*") if p.is_file()} == before
    mended = told_by(alone, "repair", "--apply")
    assert mended.code == 0, said_by(mended)
    assert {p: p.read_bytes() for p in before} == before, "not a byte is changed"
    assert serve_nothing_wrong(alone) is None
    assert told_by(alone, "verify", "--deep").code == 0
    if (which, how) == ("middle", "flipped"):
        the_daemon_goes_on(alone, tmp_path)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("which", ["first", "middle"])
def test_a_commit_that_another_copy_has_loses_nothing(
    alone: Made, made: Made, tmp_path: Path, which: str, how: str
) -> None:
    """Without a checkpoint, a local state, or the objects that would tell what the commit held."""
    shutil.rmtree(alone.directory / ROOT / "checkpoint")
    keys = alone.keys("commit")
    key = keys[{"first": 1, "middle": len(keys) - 2}[which]]
    path = alone.path(key)
    spoil(path, how, path.stat().st_size - 200)
    damaged = path.read_bytes() if path.exists() else None
    copies = ("--copy", made.url)
    plan = told_by(alone, "repair", "--json", *copies)
    (row,) = plan.json
    assert (plan.code, row["mended_from"], row["exact"]) == (1, "the other copy", True)
    assert (path.read_bytes() if path.exists() else None) == damaged, "nothing was written"
    mended = told_by(alone, "repair", "--apply", *copies)
    assert mended.code == 0, said_by(mended)
    if how == "removed":
        assert path.read_bytes() == made.path(key).read_bytes()
    else:
        assert path.read_bytes() == damaged, "nothing is written over"
    whole = told_by(alone, "scrub", "--once", "--deep", "--repair", "--state", tmp_path / "state", *copies)
    assert whole.code == 0, said_by(whole)
    assert serve_nothing_wrong(alone) is None
    assert told_by(alone, "queues", "--json").json == told_by(made, "queues", "--json").json
    assert told_by(alone, "verify", "--deep").code == 0


def test_a_copy_whose_commit_is_another_one_is_not_believed(alone: Made, made: Made, tmp_path: Path) -> None:
    shutil.rmtree(alone.directory / ROOT / "checkpoint")
    other = made.copy(tmp_path / "other")
    keys = alone.keys("commit")
    lost = keys[len(keys) - 2]
    alone.path(lost).unlink()
    other.path(lost).write_bytes(other.path(keys[len(keys) - 1]).read_bytes())
    plan = told_by(alone, "repair", "--json", "--copy", other.url)
    assert [row["mended_from"] for row in plan.json] != ["the other copy"]
    other.path(f"{ROOT}/archive.json").unlink()
    for url, code in ((other.url, Corrupt.exit_code), (f"file://{tmp_path / 'none'}", NotFound.exit_code)):
        assert told_by(alone, "repair", "--copy", url).code == code
        unasked = told_by(alone, "repair", "--set", f"scrub.copy_url={url}")
        assert "scrub.copy_url is not looked at" in unasked.err, "what it has may lie elsewhere"
        assert unasked.code == 1


def the_daemon_goes_on(archive: Made, work: Path) -> None:
    shutil.copytree(archive.oracle.store, work / "store")
    broker = FaultBroker(work / "store", topics=("Orders",), queues=2)
    broker.open()
    broker.write(50)
    broker.oracle.look(broker.physical_offset)
    daemon = Daemon(work, work / "store", archive.url, **SMALL_FLUSHES)
    assert daemon.once() == 0, daemon.output()
    verdict = compare(archive.url, broker.oracle)
    assert verdict.good, verdict
    assert verdict.readable == MESSAGES + 50
    broker.close()


@pytest.fixture
def alone(made: Made, tmp_path: Path) -> Made:
    """A copy with nothing local beside it."""
    return made.copy(tmp_path / "archive")


@pytest.mark.parametrize("gone", [(), ("checkpoint",), ("shard",), ("checkpoint", "shard")])
def test_the_bucket_alone_is_enough(alone: Made, tmp_path: Path, gone: tuple[str, ...]) -> None:
    """No local file, no checkpoints: every message is there, and a daemon goes on from it."""
    for area in gone:
        shutil.rmtree(alone.directory / ROOT / area)
    assert serve_nothing_wrong(alone) is None
    left = {key for key, _ in damage_found(alone)}
    assert left == (set(alone.keys("checkpoint")) if gone == ("shard",) else set())
    the_daemon_goes_on(alone, tmp_path)


SEALED_DAYS, A_DAY = 7, 60
LATE_IN_A_DAY_MS = 1_700_006_400_000 - 30_000


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Days that are over, a file each."""
    work = tmp_path_factory.mktemp("sealed")
    broker = FaultBroker(work / "store", topics=("Orders",), queues=2)
    broker.clock = ManualClock(LATE_IN_A_DAY_MS)
    broker.open()
    for _ in range(SEALED_DAYS):
        broker.write(A_DAY)
        broker.clock.advance(86_400)
    url = f"file://{work / 'archive'}"
    settings = {**SMALL_FLUSHES, "dispatch.inline_bytes": 0, "dispatch.object_bytes": 65_536}
    daemon = Daemon(work, work / "store", url, **settings)
    assert daemon.once() == 0, daemon.output()
    for _ in range(2):  # runs reach over midnight
        assert daemon.maintain() == 0, daemon.output()
    broker.close()
    made = Made(work / "archive", broker.oracle)
    assert serve_nothing_wrong(made) is None
    assert damage_found(made) == []
    assert len(made.keys("segment")) == SEALED_DAYS
    assert {item.level for item in opened(url).state.objects() if item.references} == {2}
    return made


def damage_segments(archive: Made) -> set[str]:
    """Every kind of damage to a sealed file, each to another one; their keys. One file stays sound."""
    flipped, footer, cut, one, other, missing, _ = archive.keys("segment")
    for key, share in ((flipped, 0.4), (footer, 0.98)):
        whole = bytearray(archive.path(key).read_bytes())
        whole[int(len(whole) * share)] ^= 4
        archive.path(key).write_bytes(whole)
    archive.path(cut).write_bytes(archive.path(cut).read_bytes()[:-1000])
    data = archive.path(one).read_bytes()
    archive.path(one).write_bytes(archive.path(other).read_bytes())
    archive.path(other).write_bytes(data)
    archive.path(missing).unlink()
    return {flipped, footer, cut, one, other, missing}


def test_damaged_sealed_files_are_named_by_verify_and_never_served(sealed: Made, tmp_path: Path) -> None:
    copy = sealed.copy(tmp_path / "archive")
    damaged = damage_segments(copy)
    met = serve_nothing_wrong(copy)
    assert met is not None
    assert met.fields["key"] in damaged
    assert {key for key, _ in damage_found(copy)} == damaged
    errors = list(message_by_message(copy))
    named = {error.fields["key"] for error in errors if error is not None}
    served = errors.count(None)
    assert named <= damaged
    assert len(named) >= len(damaged) - 1, "a flipped bit may lie in a column that is not asked for"
    assert served >= A_DAY, "what lies in the sound file"


def test_a_daemon_finds_damaged_sealed_files_and_mends_them_from_the_brokers_log(
    sealed: Made, tmp_path: Path
) -> None:
    copy = sealed.copy(tmp_path / "archive")
    damaged = damage_segments(copy)
    settings = {**SMALL_FLUSHES, "scrub.list_interval_ms": 500, "scrub.read_interval_ms": 500}
    daemon = Daemon(tmp_path, sealed.directory.parent / "store", copy.url, command=HURRIED, **settings)

    def told(task: str, figure: str) -> list[int]:
        """What a task's lines of the log say, without its turns that found nothing."""
        lines = (json.loads(line) for line in daemon.output().splitlines() if f'"task": "{task}"' in line)
        return [line[figure] for line in lines if line.get(figure)]

    with daemon.running():
        daemon.wait_until(lambda: len(told("mend", "mended_runs")) == len(damaged), "a turn for each")
        assert daemon.ready(), "archiving goes on"
        daemon.wait_until(lambda: daemon.metric("tiered_scrub_damaged_keys") == 0, "the gauge says so")
        daemon.wait_until(
            lambda: daemon.metric("tiered_maintenance_problem", task="scrub") == 0, "and the task"
        )
    assert sum(told("scrub", "damage")) >= len(damaged)
    assert "keys are damaged or missing" in daemon.output()
    assert sum(told("mend", "messages")) == len(damaged) * A_DAY
    live = {f"{ROOT}/{item.path}" for item in opened(copy.url).state.objects() if item.references}
    assert not damaged & live
    assert serve_nothing_wrong(copy) is None
