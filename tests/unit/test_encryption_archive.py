"""An archive that is encrypted: everybody reads it with its key, nobody without (DESIGN.md, "Encryption")."""

from __future__ import annotations

import hashlib
import random
import re
from collections import defaultdict
from collections.abc import Sequence
from datetime import date
from pathlib import Path

import pytest

from tests.kit.assemble import KEYS, Assembly, assemble, live_rows
from tests.kit.encryption import KEY, OTHER_KEY, encrypting, wrapping
from tests.kit.pipeline import Crafted
from tiered.archive.checkpoint.store import write_checkpoint
from tiered.archive.encryption.datakeys import DataKeys
from tiered.archive.encryption.wrapping import LocalKeys
from tiered.archive.keys import Area, build, segment_key
from tiered.archive.log.identity import ensure_identity, read_identity
from tiered.archive.log.reader import LogReader
from tiered.archive.read.find import find_identity
from tiered.archive.read.objects import ObjectReader
from tiered.archive.read.reader import ArchiveReader
from tiered.archive.read.verify import Report, Verifier
from tiered.archive.read.view import View
from tiered.archive.rewrite.seal import SealOptions
from tiered.archive.state.view import ArchiveState
from tiered.clock import ManualClock
from tiered.codec.format.encryption import CHUNK_BYTES, TAG_BYTES
from tiered.codec.types import Buffer
from tiered.errors import Corrupt, Refused, TieredError
from tiered.metadata.memory import MemoryStore
from tiered.provider.base import Provider
from tiered.provider.memory import MemoryProvider
from tiered.repair.mend import Mender
from tiered.settings import Encryption, Settings

SMALL = {"block_bytes": 4096, "object_bytes": 65_536}
OBJECTS = {**SMALL, "inline_bytes": 0}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_700_000_060_000)


@pytest.fixture
def stored(clock: ManualClock) -> MemoryProvider:
    """What lies in the bucket."""
    return MemoryProvider("", clock)


@pytest.fixture
def broker(tmp_path: Path) -> Crafted:
    return Crafted(tmp_path / "store", file_bytes=1 << 17)


def send(broker: Crafted, count: int = 40, *, said: bytes = b"plain words ") -> None:
    for number in range(count):
        properties = {"KEYS": f"customer-{number}", "TAGS": "confidential"}
        broker.send(queue_id=number % 3, body=said * 20, properties=properties)


def archive(
    broker: Crafted, provider: Provider, clock: ManualClock, *, seed: int = 1, **dispatch: int
) -> Assembly:
    """Start a daemon and archive whatever the broker has."""
    daemon = assemble(broker.store, provider, clock, seed=seed, dispatch={**SMALL, **dispatch})
    daemon.settle()
    return daemon


def verify(provider: Provider) -> Report:
    """A deep look by a process that has nothing but the bucket and the key."""
    reader = LogReader(provider, KEYS, read_identity(provider, KEYS))
    store = MemoryStore()
    head = reader.fold(store)
    objects = ObjectReader(provider, KEYS, reader.identity.archive_id, cache_bytes=1 << 20)
    return Verifier(View(head, ArchiveState(store), objects, reader)).run(deep=True)


def bytes_of(stored: MemoryProvider) -> dict[str, bytes]:
    return {s.key: bytes(stored.get(s.key).data) for s in stored.list("")}


@pytest.mark.parametrize("dispatch", [SMALL, OBJECTS], ids=["inside commits", "in objects"])
def test_nothing_that_was_sent_lies_in_the_bucket(
    broker: Crafted, stored: MemoryProvider, clock: ManualClock, dispatch: dict[str, int]
) -> None:
    send(broker)
    daemon = archive(broker, encrypting(stored), clock, **dispatch)
    keys = iter(KEYS.shard(1, bytes([n]) * 16) for n in range(9))
    write_checkpoint(encrypting(stored), KEYS, daemon.state.view, None, lambda: next(keys))
    report = verify(encrypting(stored))
    assert report.sound, report.damage
    assert report.messages == len(broker.sent) == sum(map(len, daemon.rows().values()))
    words = (b"plain words", b"Orders", b"customer-7", b"confidential", broker.sent[0][1][:40])
    for key, data in bytes_of(stored).items():
        assert not [word for word in words if word in data], key


def test_an_archive_that_was_plain_once(broker: Crafted, stored: MemoryProvider, clock: ManualClock) -> None:
    """Turned on, it begins with the next epoch; what is older stays as it is, and everything is read."""
    send(broker, said=b"old and plain ")
    archive(broker, stored, clock, **OBJECTS).close()
    before = bytes_of(stored)
    send(broker, said=b"new and secret ")
    daemon = archive(broker, encrypting(stored), clock, seed=2, **OBJECTS)
    assert verify(encrypting(stored)).messages == len(broker.sent) == sum(map(len, daemon.rows().values()))
    after = bytes_of(stored)
    assert before.items() <= after.items()
    assert not any(b"new and secret" in data for data in after.values())
    assert any(b"old and plain" in data for data in after.values())
    daemon.close()

    for reader in (stored, encrypting(stored, OTHER_KEY)):
        with pytest.raises(Refused, match=r"no key is named|another key") as error:
            verify(reader)
        assert "encryption.key_file" in str(error.value)
        with pytest.raises(Refused):
            archive(broker, reader, clock, seed=3)
    assert bytes_of(stored) == after, "nothing was written by those without the key"


def test_a_writer_without_a_key_stops_at_the_claim(
    broker: Crafted, stored: MemoryProvider, clock: ManualClock
) -> None:
    """Also where nothing but the claim of the encrypted epoch was put: it asks for a writer that encrypts."""
    archive(broker, encrypting(stored), clock).close()
    claim = stored.get(KEYS.commit(0)).data
    for key in bytes_of(stored):
        if key not in (KEYS.identity, KEYS.commit(0)):
            stored.delete(key)
    with pytest.raises(Refused, match="no key is named"):
        archive(broker, stored, clock, seed=2)
    assert stored.get(KEYS.commit(0)).data == claim


@pytest.mark.parametrize("dispatch", [SMALL, OBJECTS], ids=["inside commits", "in objects"])
def test_damage_is_named_and_never_read(
    broker: Crafted, stored: MemoryProvider, clock: ManualClock, dispatch: dict[str, int]
) -> None:
    send(broker)
    archive(broker, encrypting(stored), clock, **dispatch)
    good = bytes_of(stored)
    chance = random.Random(3)
    for key, data in good.items():
        if key == KEYS.identity or key == KEYS.commit(0):
            continue  # in the open; their own checksums are tested elsewhere
        ends = (0, len(data) - 1, len(data) - 250, len(data) - 400)
        for at in {max(0, end) for end in ends} | {chance.randrange(len(data)) for _ in range(12)}:
            changed = bytearray(data)
            changed[at] ^= 1 << chance.randrange(8)
            stored.put(key, [changed], create_only=False)
            assert damage(stored), f"{key}, byte {at} of {len(data)}"
        for length in (0, 100, len(data) - 1, len(data) // 2):
            stored.put(key, [data[:length]], create_only=False)
            assert damage(stored), f"{key} cut to {length} bytes"
        stored.put(key, [data], create_only=False)
    assert not damage(stored)


def damage(stored: MemoryProvider) -> bool:
    try:
        return not verify(encrypting(stored)).sound
    except (Corrupt, Refused):
        return True


def test_objects_that_changed_places_and_a_plain_one(
    broker: Crafted, stored: MemoryProvider, clock: ManualClock
) -> None:
    for _ in range(2):
        send(broker)
        daemon = archive(broker, encrypting(stored), clock, **OBJECTS)
        daemon.close()
    keys = [s.key for s in stored.list(KEYS.prefix(Area.DATA))][:2]
    first, second = (bytes(stored.get(key).data) for key in keys)
    plain = bytes(encrypting(stored).get(keys[0]).data)
    for instead in (second, plain):
        stored.put(keys[0], [instead], create_only=False)
        report = verify(encrypting(stored))
        assert {d.key for d in report.damage} >= {keys[0]}
    stored.put(keys[0], [first], create_only=False)
    assert verify(encrypting(stored)).sound

    commits = [KEYS.commit(seq) for seq in (1, 2)]
    plain = bytes(encrypting(stored).get(commits[0]).data)
    for instead in (bytes(stored.get(commits[1]).data), plain):
        kept = bytes(stored.get(commits[0]).data)
        stored.put(commits[0], [instead], create_only=False)
        with pytest.raises(Corrupt) as error:
            LogReader(encrypting(stored), KEYS, daemon.log.reader.identity).read(1)
        assert error.value.fields["key"] == commits[0]
        stored.put(commits[0], [kept], create_only=False)


def test_a_data_key_that_is_gone(broker: Crafted, stored: MemoryProvider, clock: ManualClock) -> None:
    for _ in range(2):
        send(broker)
        archive(broker, encrypting(stored), clock, **OBJECTS).close()
    for key in [s.key for s in stored.list(KEYS.prefix(Area.DATAKEY))]:
        data = stored.get(key).data
        stored.delete(key)
        with pytest.raises(Refused, match="data key of an epoch is gone"):
            verify(encrypting(stored))
        stored.put(key, [data])
    newer = KEYS.data(9, b"o" * 16)
    stored.put(newer, [b"of an epoch that can only be encrypted"])
    with pytest.raises(Refused, match="data key of an epoch is gone"):
        encrypting(stored).get(newer, 0, 10)
    stored.delete(newer)
    assert verify(encrypting(stored)).sound


def test_a_data_key_that_could_not_be_unwrapped_is_not_stored(stored: MemoryProvider) -> None:
    """The key file is replaced while a data key is wrapped: what names the one key was wrapped by the other."""
    texts = iter([KEY, OTHER_KEY])
    changing = LocalKeys("encryption.key_file", lambda: next(texts, f"{OTHER_KEY}\n{KEY}"))
    keys = DataKeys(stored, KEYS.root, changing)
    with pytest.raises(Refused):
        keys.make(1, b"a" * 16, random.Random(1).randbytes)
    assert bytes_of(stored) == {}
    keys.make(1, b"a" * 16, random.Random(1).randbytes)
    later = DataKeys(stored, KEYS.root, wrapping(OTHER_KEY))
    assert later.newest() == keys.newest()


def test_keys_are_changed_again_though_the_first_one_was_dropped(stored: MemoryProvider) -> None:
    """Each data key is wrapped by any of its wrappings that opens, whichever is listed first, and one that is damaged keeps no
    other from it."""
    third, chance = "1e" * 32, random.Random(8)
    for epoch in range(1, 9):
        DataKeys(stored, KEYS.root, wrapping(KEY)).make(epoch, b"a" * 16, chance.randbytes)
    secrets = [DataKeys(stored, KEYS.root, wrapping(KEY)).sole(epoch) for epoch in range(1, 9)]
    for text in (f"{OTHER_KEY}\n{KEY}", f"{third}\n{OTHER_KEY}"):
        assert len(DataKeys(stored, KEYS.root, wrapping(text)).wrap_again(chance.randbytes)) == 8
    assert [DataKeys(stored, KEYS.root, wrapping(third)).sole(epoch) for epoch in range(1, 9)] == secrets
    first = next(s.key for s in stored.list(KEYS.prefix(Area.DATAKEY)))
    stored.put(first, [b"damaged"], create_only=False)
    last = DataKeys(stored, KEYS.root, wrapping(f"{'2d' * 32}\n{third}\n{OTHER_KEY}\n{KEY}"))
    assert len(last.wrap_again(chance.randbytes)) == 8
    assert last.wrap_again(chance.randbytes) == []
    assert len(last.wrapped()) == 8 * 4 - 1


def test_a_damaged_wrapping_is_left_out_of_what_is_shown(stored: MemoryProvider) -> None:
    """As nothing is lost with it, neither the list of keys nor the status of the archive ends in an error."""
    keys, chance = DataKeys(stored, KEYS.root, wrapping(f"{OTHER_KEY}\n{KEY}")), random.Random(8)
    DataKeys(stored, KEYS.root, wrapping(KEY)).make(1, b"a" * 16, chance.randbytes)
    keys.wrap_again(chance.randbytes)
    damaged, other = [s.key for s in stored.list(KEYS.prefix(Area.DATAKEY))]
    stored.put(damaged, [b"damaged"], create_only=False)
    shown = DataKeys(stored, KEYS.root, wrapping(f"{OTHER_KEY}\n{KEY}"))
    assert [KEYS.key(each.path) for each in shown.wrapped()] == [other]
    assert shown.newest_wrapped() == shown.wrapped()
    stored.put(other, [b"damaged"], create_only=False)
    with pytest.raises(Corrupt):
        DataKeys(stored, KEYS.root, wrapping(KEY)).newest_wrapped()


def test_an_epoch_that_was_opened_twice(broker: Crafted, stored: MemoryProvider, clock: ManualClock) -> None:
    """A bucket that lost its newest commits: their numbers and their epoch are used again, by another data key."""
    send(broker)
    lasting = encrypting(stored)
    daemon = archive(broker, lasting, clock, **OBJECTS)
    rows = daemon.rows()
    head = daemon.state.head()
    assert head is not None
    daemon.close()
    for seq in range(head.seq + 1):
        stored.delete(KEYS.commit(seq))
    again = archive(
        broker, encrypting(stored, random_bytes=random.Random(9).randbytes), clock, seed=2, **OBJECTS
    )
    assert again.rows() == rows
    assert len(list(stored.list(KEYS.prefix(Area.DATAKEY)))) == 2
    for provider in (lasting, encrypting(stored)):
        objects = ObjectReader(provider, KEYS, again.log.reader.identity.archive_id, cache_bytes=1 << 20)
        assert all(len(objects.block_table(item)) for item in again.state.objects())


@pytest.mark.parametrize("how", ["flipped", "footer", "removed"])
def test_a_damaged_commit_is_repaired(
    broker: Crafted, stored: MemoryProvider, clock: ManualClock, how: str
) -> None:
    """What stands for it is encrypted like it; what was in objects is read, whatever became of the commit."""
    for _ in range(2):
        send(broker)
        daemon = archive(broker, encrypting(stored), clock, **OBJECTS)
        rows = daemon.rows()
        daemon.close()
    key = KEYS.commit(2)
    data = bytearray(stored.get(key).data)
    stored.delete(key)
    if how != "removed":
        data[0 if how == "flipped" else -100] ^= 1
        stored.put(key, [data])
    provider = encrypting(stored)
    mender = Mender(
        provider,
        KEYS,
        find_identity(provider, KEYS),
        None,
        random.Random(1).randbytes,
        table_cache_bytes=1 << 20,
    )
    steps = mender.plan()
    mender.mend(steps)
    assert len(steps) == 1
    assert steps[0].put is not None
    view = ArchiveReader(encrypting(stored), KEYS, MemoryStore(), table_cache_bytes=1 << 20).at()
    assert dict(live_rows(view.state, view.objects)) == rows
    assert b"Orders" not in bytes(stored.get(steps[0].put).data)
    assert provider.get(steps[0].put).data != stored.get(steps[0].put).data


class Nonces(MemoryProvider):
    """Hears what is put."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__("", clock)
        self.puts: list[tuple[str, bytes]] = []

    def put(self, key: str, parts: Sequence[Buffer], *, create_only: bool = True):  # type: ignore[no-untyped-def]
        self.puts.append((key, b"".join(parts)))
        return super().put(key, parts, create_only=create_only)


def test_no_nonce_comes_twice(broker: Crafted, clock: ManualClock) -> None:
    """Salt and path say the key of an object. Whatever was put under one such pair had one content, answers lost or not."""
    stored = Nonces(clock)
    for life in range(4):
        send(broker, 60)
        provider = encrypting(stored, random_bytes=random.Random(life).randbytes)
        daemon = archive(broker, provider, clock, seed=life, **(OBJECTS if life % 2 else SMALL))
        shards = (KEYS.shard(life + 1, random.Random(life).randbytes(16)) for _ in range(1))
        write_checkpoint(provider, KEYS, daemon.state.view, None, shards.__next__)
        commit = provider.get(KEYS.commit(2)).data
        for _ in range(2):  # what a repair would do: the same numbers and ids, another salt
            provider.put(KEYS.commit(2), [commit], create_only=False)
        daemon.close()
    contents: dict[tuple[str, bytes], set[str]] = defaultdict(set)
    for key, data in stored.puts:
        footer = 256 if "/commit/" in key else 512
        field = data[-footer:][104 if footer == 256 else 44 :][:80]
        if any(field) and "/datakey/" not in key and not key.endswith(".json"):
            contents[(key, field[24:40])].add(hashlib.sha256(data).hexdigest())
    assert len(contents) > 20
    assert {len(found) for found in contents.values()} == {1}
    assert len({key for key, _ in contents}) < len(contents), (
        "some keys were put twice, each time with a salt of its own"
    )


def test_ranges_are_those_of_the_plain_object(stored: MemoryProvider) -> None:
    provider = encrypting(stored)
    provider.open_epoch(KEYS.root, b"a" * 16, 1)
    chance = random.Random(4)
    for number, length in enumerate(
        (1, 300, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 5 * CHUNK_BYTES + 9)
    ):
        data = chance.randbytes(length)
        key = KEYS.data(1, bytes([number]) * 16)
        assert provider.put(key, [data[: length // 3], data[length // 3 :]]).length == length
        assert stored.head(key).length == length + TAG_BYTES * -(-length // CHUNK_BYTES) + 512
        assert provider.head(key).length == length
        assert provider.get(key).data == data
        for _ in range(60):
            start, count = chance.randrange(length + 9), chance.choice([0, 1, 9, 600, 33_000, length])
            assert provider.get(key, start, count).data == data[start : start + count]
            assert provider.get(key, start).data == data[start:]
            last = chance.choice([1, 17, 256, 40_000, length])
            found = provider.get(key, -last)
            assert (found.data, found.object_length) == (data[-last:], length)
    assert [s.length for s in provider.list(KEYS.prefix(Area.DATA))][:3] == [1, 300, CHUNK_BYTES - 1]


def test_a_range_costs_one_request_and_no_more_than_a_chunk_at_each_end(stored: MemoryProvider) -> None:
    asked: list[tuple[int | None, int | None]] = []

    class Asked(MemoryProvider):
        def get(self, key: str, start: int | None = None, length: int | None = None):  # type: ignore[no-untyped-def]
            asked.append((start, length))
            return super().get(key, start, length)

    provider = encrypting(Asked("", ManualClock()))
    provider.open_epoch(KEYS.root, b"a" * 16, 1)
    key = KEYS.data(1, b"o" * 16)
    provider.put(key, [bytes(1 << 20)])
    asked.clear()
    provider.get(key, 500_000, 100_000)
    ((start, length),) = asked
    assert start is not None
    assert length is not None
    assert start >= 500_000 - CHUNK_BYTES
    assert length <= 100_000 + 2 * CHUNK_BYTES + 1024


def test_no_sealed_file_is_put_into_an_encrypted_epoch(
    broker: Crafted, stored: MemoryProvider, clock: ManualClock
) -> None:
    """Whoever makes it; the task says so beforehand."""
    provider = encrypting(stored)
    ensure_identity(provider, KEYS, clock.now_ms(), random.Random(1).randbytes)
    provider.open_epoch(KEYS.root, b"a" * 16, 2)
    plain, secret = (KEYS.key(build(segment_key("T", date(2026, 1, 1), n, b"o" * 16))) for n in (1, 2))
    provider.put(plain, [b"PAR1"])
    assert provider.get(plain).data == stored.get(plain).data == b"PAR1"
    with pytest.raises(Refused, match="Spark could not open"):
        provider.put(secret, [b"PAR1"])
    options = SealOptions.of(Settings(encryption=Encryption(key_env="KEY")))
    assert options.off == "off: the archive is encrypted, and Spark could not open sealed files with its key"


def test_secrets_are_in_no_error_and_no_repr(
    broker: Crafted, stored: MemoryProvider, clock: ManualClock
) -> None:
    send(broker)
    provider = encrypting(stored)
    archive(broker, provider, clock).close()
    secret = provider.data_keys(KEYS.root).newest()
    assert secret is not None
    said = [repr(provider), repr(secret), repr(provider.data_keys(KEYS.root)), provider.url]
    for text in (OTHER_KEY, "nonsense"):
        try:
            verify(encrypting(stored, text))
        except TieredError as error:
            said += [str(error), repr(error), repr(error.fields)]
    for hidden in (secret.secret.hex(), repr(secret.secret), OTHER_KEY):
        assert not [text for text in said if hidden in text]


def test_whoever_opens_an_archive_encrypts() -> None:
    """Every module that opens a store wraps it, but for those that touch only what is never encrypted, or another store."""
    root = Path(__file__).parents[2]
    openers = [
        path
        for part in ("tiered", "spark")
        for path in (root / part).rglob("*.py")
        if re.search(r"(?<!def )\bopen_provider\(", path.read_text())
    ]
    assert len(openers) > 7
    lax = [str(path) for path in openers if "encrypted(" not in path.read_text()]
    assert sorted(path.removeprefix(f"{root}/") for path in lax) == [
        "tiered/cli/key.py",
        "tiered/cli/placement.py",  # the table of placement; messages' history is opened by cli/access.py
        "tiered/daemon/gateway.py",  # the same table
        "tiered/membership/open.py",  # leases
        "tiered/sink/deadletters.py",  # a destination, which has its own readers
        "tiered/sink/file/kind.py",  # the same
    ]
