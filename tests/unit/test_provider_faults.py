"""Lost answers, early closes, 409, 412 and 503 on the wire: what the s3 driver and the wrappers make of each."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.kit.fakes3 import FakeS3
from tests.kit.storefakes import Scripted
from tiered.clock import Clock, ManualClock, SystemClock
from tiered.errors import Conflict, Denied, Invalid, NotFound, Unavailable
from tiered.provider.base import Provider
from tiered.provider.memory import MemoryProvider
from tiered.provider.resolve import put_own, tail
from tiered.provider.s3 import S3Provider
from tiered.provider.wrap import Retrying, Wrapped, is_after_unknown

LARGE = [b"a" * 3_000_000, b"b" * 3_000_001]  # streamed, so it asks before it sends


@pytest.fixture
def toy() -> Iterator[FakeS3]:
    with FakeS3(SystemClock()).running() as server:
        yield server


@pytest.fixture
def s3(toy: FakeS3) -> Iterator[S3Provider]:
    provider = S3Provider("bucket", "root", toy.store(), SystemClock())
    yield provider
    provider.close()


def test_https_on_a_port_without_tls_is_named(toy: FakeS3) -> None:
    store = replace(toy.store(), endpoint=toy.store().endpoint.replace("http://", "https://"))
    provider = S3Provider("bucket", "root", store, SystemClock())
    with pytest.raises(Unavailable, match="does not speak TLS") as caught:
        provider.get("k")
    provider.close()
    assert "http://" in str(caught.value.hint)


def retrying(inner: Provider, clock: Clock | None = None, attempts: int = 4) -> Retrying:
    return Retrying(
        inner, clock or ManualClock(), random.Random(7), attempts=attempts, base_ms=100, max_ms=10_000
    )


def held(toy: FakeS3, key: str = "k") -> bytes:
    return toy.objects.get(f"root/{key}").data


@pytest.mark.parametrize("parts", [[b"small"], LARGE], ids=["small", "large"])
@pytest.mark.parametrize(
    ("word", "stored"),
    [("lost", True), ("early", False), ("409", False), ("503", False), ("500", False), ("503-stored", True)],
)
def test_an_unclear_outcome_is_unavailable_and_tried_once(
    toy: FakeS3, s3: S3Provider, word: str, stored: bool, parts: list[bytes]
) -> None:
    toy.script.append(word)
    with pytest.raises(Unavailable) as caught:
        s3.put("k", parts)
    assert len(toy.requests) == 1, "the SDK must not retry by itself"
    assert "toy-secret" not in str(caught.value)
    if stored:
        assert held(toy) == b"".join(parts)
    else:
        with pytest.raises(NotFound):
            held(toy)


@pytest.mark.parametrize("word", ["lost", "503-stored"])
def test_our_own_lost_answer_is_not_a_plain_conflict(toy: FakeS3, s3: S3Provider, word: str) -> None:
    toy.script.append(word)
    with pytest.raises(Conflict) as caught:
        retrying(s3).put("k", [b"mine"])
    assert is_after_unknown(caught.value)
    assert getattr(caught.value, "after_unknown", False) is True
    assert len(toy.requests) == 2


@pytest.mark.parametrize("word", ["early", "409", "503"])
def test_a_put_that_did_not_happen_is_sent_again(toy: FakeS3, s3: S3Provider, word: str) -> None:
    toy.script.extend([word, word])
    retrying(s3).put("k", LARGE)
    assert held(toy) == b"".join(LARGE)


def test_a_first_412_is_a_plain_conflict(toy: FakeS3, s3: S3Provider) -> None:
    toy.objects.put("root/k", [b"theirs"])
    with pytest.raises(Conflict) as caught:
        retrying(s3).put("k", [b"mine"])
    assert not is_after_unknown(caught.value)
    assert held(toy) == b"theirs"


def test_a_412_before_the_body_is_read_is_still_seen(toy: FakeS3, s3: S3Provider) -> None:
    toy.objects.put("root/k", [b"theirs"])
    toy.script.append("412-early")
    with pytest.raises(Conflict):
        s3.put("k", LARGE)
    assert toy.bodies_read == 0


@pytest.mark.parametrize(
    "script",
    [["lost"], ["early"], ["409"], ["409", "lost"], ["503-stored"], ["412"], ["early", "409", "503", "lost"]],
)
@pytest.mark.parametrize("parts", [[b"small"], LARGE], ids=["small", "large"])
def test_put_own_ends_with_our_bytes_there(
    toy: FakeS3, s3: S3Provider, script: list[str], parts: list[bytes]
) -> None:
    toy.script.extend(script)
    stored = put_own(retrying(s3), "k", parts)
    assert stored.length == sum(map(len, parts))
    assert held(toy) == b"".join(parts)


def test_put_own_refuses_what_is_not_ours(toy: FakeS3, s3: S3Provider) -> None:
    toy.objects.put("root/k", [b"theirs"])
    with pytest.raises(Conflict) as caught:
        put_own(retrying(s3), "k", [b"not it"])
    assert "ours alone" in caught.value.message
    toy.objects.put("root/k2", [b"same length, other id"])
    with pytest.raises(Conflict):
        put_own(s3, "k2", [b"same length, our   id"])
    assert (
        put_own(
            s3, "k2", [b"same length, our   id"], same=lambda found: found.data.startswith(b"same")
        ).length
        == 21
    )


def test_put_own_gives_up_after_its_rounds() -> None:
    fake = Scripted(MemoryProvider("", ManualClock()), ["dropped", "ok"] * 3)
    with pytest.raises(Unavailable):
        put_own(fake, "k", [b"x"], rounds=3)
    assert [verb for verb, _ in fake.calls] == ["put", "get"] * 3
    assert put_own(fake, "k", [b"x"], rounds=1).length == 1


def test_put_own_without_an_object_length_asks_for_it() -> None:
    class Lengthless(Wrapped):
        def get(self, key: str, start: int | None = None, length: int | None = None) -> object:
            fetched = self.inner.get(key, start, length)
            return type(fetched)(fetched.data, None, fetched.date_ms)

    memory = MemoryProvider("", ManualClock())
    memory.put("k", [b"0123456789"])
    assert put_own(Lengthless(memory), "k", [b"01234", b"56789"], tail_bytes=7).length == 10
    with pytest.raises(Conflict):
        put_own(Lengthless(memory), "k", [b"56789"], tail_bytes=3)


@pytest.mark.parametrize("count", [0, 1, 3, 5, 8, 9, 100])
def test_tail_is_the_end_of_the_concatenation(count: int) -> None:
    parts = [b"abc", b"", bytearray(b"de"), memoryview(b"fghi")]
    assert tail(parts, count) == (b"abcdefghi"[-count:] if count else b"")


def test_a_body_that_breaks_off_is_never_taken_for_whole(toy: FakeS3, s3: S3Provider) -> None:
    toy.objects.put("root/k", [b"0123456789" * 1000])
    toy.script_all.append("short")
    with pytest.raises(Unavailable):
        s3.get("k")
    assert retrying(s3).get("k", 5, 10).data == b"5678901234"


def test_nobody_listening_is_unavailable_with_a_hint(toy: FakeS3) -> None:
    dead = S3Provider("bucket", "", toy.store(endpoint="http://127.0.0.1:9"), SystemClock())
    with pytest.raises(Unavailable) as caught:
        dead.head("k")
    assert "store.endpoint" in str(caught.value)


@pytest.mark.parametrize(
    ("status", "expected"),
    [(301, "store.region"), (400, "store.region"), (403, "secret_access_key"), (404, "create the bucket")],
)
def test_what_a_moment_cannot_fix_is_asked_once_and_says_what_to_set(
    toy: FakeS3, s3: S3Provider, status: int, expected: str
) -> None:
    toy.script.append(str(status))
    with pytest.raises(Denied if status == 403 else Invalid) as caught:
        retrying(s3).put("k", [b"x"])
    assert not toy.script, "answered by the script's only word"
    assert expected in str(caught.value)
    assert "toy-secret" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_every_option_of_a_put_goes_over_the_wire(toy: FakeS3) -> None:
    store = toy.store(sse="aws:kms", sse_kms_key_id="key-1", storage_class="STANDARD_IA", checksum="CRC32C")
    provider = S3Provider("bucket", "", store, SystemClock())
    provider.put("k", [b"123456789"])
    provider.put("k", [b"x"], create_only=False)
    first, second = (headers for _, _, headers in toy.requests)
    assert first["if-none-match"] == "*"
    assert "if-none-match" not in second
    assert first["x-amz-checksum-crc32c"] == "4waSgw=="  # the check value E3069283 of CRC-32C
    assert first["x-amz-server-side-encryption"] == "aws:kms"
    assert first["x-amz-server-side-encryption-aws-kms-key-id"] == "key-1"
    assert first["x-amz-storage-class"] == "STANDARD_IA"
    provider.close()


@pytest.mark.parametrize(
    ("checksum", "header"), [("", None), ("CRC32", "y/Q5Jg=="), ("SHA1", "98O8HYCOBHMq32eZZczDTKeuNEE=")]
)
def test_checksums(toy: FakeS3, checksum: str, header: str | None) -> None:
    provider = S3Provider("bucket", "", toy.store(checksum=checksum), SystemClock())
    provider.put("k", [b"1234", b"56789"])
    (_, _, headers) = toy.requests[0]
    sent = {name: value for name, value in headers.items() if name.startswith("x-amz-checksum")}
    assert sent == ({f"x-amz-checksum-{checksum.lower()}": header} if header else {})
    provider.close()


def test_the_date_header_is_the_store_clock() -> None:
    with FakeS3(ManualClock(1_900_000_000_000)).running() as fake:
        provider = S3Provider("bucket", "", fake.store(), SystemClock())
        assert provider.put("k", [b"x"]).date_ms == 1_900_000_000_000
        assert provider.get("k").date_ms == 1_900_000_000_000
        assert provider.get("k").last_modified_ms == 1_900_000_000_000
        assert next(provider.list("")).date_ms == 1_900_000_000_000
        provider.close()
