"""The s3 driver against real servers at their edges: credentials, buckets, regions, multipart, a server that dies."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.s3server import ACCESS, REGION, SECRET, S3Server, moto_server, versitygw
from tiered.archive.rewrite.spool import Spool
from tiered.clock import SystemClock
from tiered.errors import Conflict, Invalid, Unavailable
from tiered.provider.open import open_driver, open_provider
from tiered.provider.resolve import put_own
from tiered.provider.s3 import S3Provider
from tiered.provider.s3answers import StoreAnswers
from tiered.provider.s3client import make_client, make_session
from tiered.settings import MIB

pytestmark = pytest.mark.s3server
CLOCK = SystemClock()
BIG = [bytes([number]) * MIB for number in range(12)]


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with versitygw() as running:
        yield running


def provider(server: S3Server, bucket: str, **store: object) -> S3Provider:
    return S3Provider(bucket, "root", server.store(**store), CLOCK)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"secret_access_key": "wrong-secret"}, "secret key is wrong"),
        ({"access_key_id": "nobody"}, "store.access_key_id"),
        ({"endpoint": "http://127.0.0.1:9"}, "store.endpoint"),
    ],
)
def test_wrong_settings_are_told(server: S3Server, change: dict[str, str], told: str) -> None:
    with pytest.raises((Invalid, Unavailable)) as caught:
        provider(server, server.bucket(), **change).put("k", [b"x"])
    assert told in str(caught.value)
    assert SECRET not in str(caught.value)
    assert "wrong-secret" not in str(caught.value)


def test_a_missing_bucket_is_told(server: S3Server) -> None:
    absent = provider(server, "no-such-bucket")
    for verb in (lambda: absent.put("k", [b"x"]), lambda: absent.get("k"), lambda: list(absent.list(""))):
        with pytest.raises(Invalid) as caught:
            verb()
        assert "create the bucket" in str(caught.value)


@pytest.mark.parametrize("checksum", ["", "CRC32", "CRC32C", "SHA1", "SHA256"])
@pytest.mark.parametrize("multipart_mib", [5, 64])
def test_every_checksum_passes_a_server_that_verifies(
    server: S3Server, checksum: str, multipart_mib: int
) -> None:
    s3 = provider(server, server.bucket(), checksum=checksum, multipart_bytes=multipart_mib * MIB)
    s3.put("k", BIG)
    assert s3.get("k").data == b"".join(BIG)
    s3.close()


def test_a_damaged_body_is_refused_by_the_server(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    s3 = provider(server, server.bucket())
    monkeypatch.setattr("tiered.provider.s3.digest", lambda algorithm, parts: "AAAAAA==")
    with pytest.raises(Unavailable):
        s3.put("k", [b"some bytes"])
    assert list(s3.list("")) == []
    s3.close()


def test_a_lost_multipart_race_leaves_no_upload_behind(server: S3Server) -> None:
    bucket = server.bucket()
    s3 = provider(server, bucket, multipart_bytes=5 * MIB)
    s3.put("k", [b"theirs"])
    with pytest.raises(Conflict):
        s3.put("k", BIG)
    assert s3.get("k").data == b"theirs"
    client = server.client()
    assert client.list_multipart_uploads(Bucket=bucket).get("Uploads", []) == []
    client.close()
    s3.close()


def test_a_file_that_lies_on_the_local_disk_goes_up_in_parts(server: S3Server, tmp_path: Path) -> None:
    s3 = provider(server, server.bucket(), multipart_bytes=5 * MIB)
    with Spool(str(tmp_path)) as spool:
        for part in BIG:
            spool.write(part)
        for _ in range(2):  # an answer may be lost
            put_own(s3, "k", spool.parts())
    assert s3.get("k").data == b"".join(BIG)
    assert list(tmp_path.iterdir()) == [], "it has no name"
    s3.close()


def test_an_upload_that_nobody_completes_is_found_and_given_up(server: S3Server) -> None:
    bucket, client = server.bucket(), server.client()
    for key in ("root/c/b/segment/x", "root/c/b/shard/x", "other/c/b/segment/x"):
        client.create_multipart_upload(Bucket=bucket, Key=key)
    s3 = provider(server, bucket)
    uploads = s3.capabilities.uploads
    assert uploads is not None
    (found,) = uploads.unfinished("c/b/segment/")
    assert found.key == "c/b/segment/x"
    uploads.give_up(found)
    uploads.give_up(found)
    left = [each["Key"] for each in client.list_multipart_uploads(Bucket=bucket)["Uploads"]]
    assert sorted(left) == ["other/c/b/segment/x", "root/c/b/shard/x"]
    client.close()
    s3.close()


def test_a_server_killed_and_restarted_is_unavailable_then_there(server: S3Server) -> None:
    bucket = server.bucket()
    stop = threading.Event()
    store = server.store(attempts=100, retry_base_ms=20, retry_max_ms=50)
    s3 = open_provider(server.url(bucket, "p"), store, CLOCK, stop=stop)
    s3.put("before", [b"x"])
    server.kill()
    try:
        with pytest.raises(Unavailable):
            open_driver(server.url(bucket, "p"), server.store(), CLOCK).head("before")
    finally:
        back = threading.Timer(0.3, server.start)
        back.start()
    assert put_own(s3, "after", BIG[:2]).length == 2 * MIB
    back.join()
    assert [stored.key for stored in s3.list("")] == ["after", "before"]
    s3.close()


def test_credentials_come_from_the_environment(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    s3 = open_driver(
        f"s3://{server.bucket()}/p?endpoint={server.endpoint}",
        server.store(access_key_id="", secret_access_key="", region=""),
        CLOCK,
    )
    s3.put("k", [b"x"])
    assert s3.get("k").data == b"x"
    s3.close()


def test_an_assumed_role_signs_the_requests(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with moto_server(tmp_path) as moto:
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", moto.endpoint)
        role = "arn:aws:iam::123456789012:role/archiver"
        client = make_client(moto.store(), make_session(moto.store(role_arn=role)), StoreAnswers())
        credentials = client._request_signer._credentials.get_frozen_credentials()
        assert credentials.token
        assert credentials.access_key not in (ACCESS, "")
        client.close()
        s3 = open_driver(
            f"s3://{moto.bucket()}/p?endpoint={moto.endpoint}&region={REGION}&role_arn={role}",
            moto.store(),
            CLOCK,
        )
        s3.put("k", [b"x"])
        assert s3.get("k").data == b"x"
        s3.close()


def test_threads_share_one_client(server: S3Server) -> None:
    s3 = provider(server, server.bucket(), max_connections=4)
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for count in range(10):
                body = f"{number}-{count}".encode()
                s3.put(f"t/{number}/{count}", [body])
                assert s3.get(f"t/{number}/{count}").data == body
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(list(s3.list("t/"))) == 80
    s3.close()
