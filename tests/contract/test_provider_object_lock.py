"""S3 Object Lock: what is put stays until its date, is told to be locked, and goes for good afterwards."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass

import pytest

from tests.kit.s3server import REGION, S3Server, versitygw
from tiered.clock import SystemClock
from tiered.errors import NotFound, Refused
from tiered.provider.base import Provider
from tiered.provider.open import open_provider

LOCKED_MS = 1000
LONG_LOCKED_MS = 3_600_000
"""However little time the machine has, it is not over before somebody tries to delete."""


@dataclass
class Bucket:
    """A bucket that locks, and one that does not."""

    server: S3Server
    locking: str
    plain: str

    def provider(self, bucket: str, mode: str = "GOVERNANCE", locked_ms: int = LONG_LOCKED_MS) -> Provider:
        store = self.server.store(object_lock=mode, object_lock_ms=locked_ms if mode else 0)
        return open_provider(
            f"s3://{bucket}/root?endpoint={self.server.endpoint}&region={REGION}", store, SystemClock()
        )


MOTO = pytest.param("moto", marks=pytest.mark.moto)


@pytest.fixture(scope="module", params=[MOTO, pytest.param("versitygw", marks=pytest.mark.s3server)])
def bucket(request: pytest.FixtureRequest) -> Iterator[Bucket]:
    with nullcontext(request.getfixturevalue("moto")) if request.param == "moto" else versitygw() as server:
        client = server.client()
        client.create_bucket(Bucket="locks", ObjectLockEnabledForBucket=True)
        yield Bucket(server, "locks", server.bucket())


def test_a_bucket_that_does_not_lock_is_refused_before_anything_is_put(bucket: Bucket) -> None:
    plain = bucket.provider(bucket.plain)
    locker = plain.capabilities.locker
    assert locker is not None
    with pytest.raises(Refused, match=r"store\.object_lock") as found:
        locker.check_lock()
    assert "Object Lock" in str(found.value.hint)
    for provider in (bucket.provider(bucket.locking), bucket.provider(bucket.plain, "")):
        assert provider.capabilities.locker is not None
        provider.capabilities.locker.check_lock()


def test_what_is_locked_stays_until_its_date_and_then_goes_with_its_bytes(bucket: Bucket) -> None:
    provider = bucket.provider(bucket.locking)
    key, derived = "c/b/data/0000000001-x", "c/b/checkpoint/00000000000000000001"
    for name in (key, derived):
        provider.put(name, [b"bytes"])
    head = bucket.server.client().head_object(Bucket=bucket.locking, Key=f"root/{key}")
    assert head["ObjectLockMode"] == "GOVERNANCE"
    provider.delete(derived)
    with pytest.raises(NotFound):
        provider.head(derived)
    with pytest.raises(Refused, match="Object Lock") as found:
        provider.delete(key)
    assert isinstance(found.value.fields["until_ms"], int)
    assert provider.get(key).data == b"bytes"
    short = bucket.provider(bucket.locking, locked_ms=LOCKED_MS)
    short.put(f"{key}-short", [b"bytes"])
    time.sleep(LOCKED_MS / 1000 + 1.1)
    provider.delete(f"{key}-short")
    with pytest.raises(NotFound):
        provider.head(f"{key}-short")
    provider.delete(f"{key}-short")
