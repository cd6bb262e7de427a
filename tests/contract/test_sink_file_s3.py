"""The destination *file* on a real S3 server: the contract, opened as an order says, and read with an S3 client alone."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest

from tests.kit.s3server import S3Server
from tests.kit.sinkscene import PLACE
from tiered.errors import Conflict
from tiered.sink.base import Sink
from tiered.sink.contract.checks import SinkContract
from tiered.sink.contract.feeding import TestedSink
from tiered.sink.contract.samples import MIB, Received
from tiered.sink.deadletters import dead_letters_of
from tiered.sink.file.kind import FileKind
from tiered.sink.order import SinkOrder

pytestmark = pytest.mark.s3server


class TestedFileOnS3(TestedSink):
    """In a bucket of its own."""

    huge = 2_000
    largest_body = MIB

    def __init__(self, server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bucket = server.bucket()
        self.client = server.client()
        store = server.store()
        monkeypatch.setenv("SINK_KEY", store.access_key_id)
        monkeypatch.setenv("SINK_SECRET", store.secret_access_key)
        options = {"location": server.url(self.bucket, "out"), "file_bytes": "64KiB"}
        keys = {"access_key_id": "env:SINK_KEY", "secret_access_key": "env:SINK_SECRET"}
        self.order = SinkOrder("orders", "file", {**options, **keys})

    def open(self) -> Sink:
        return FileKind().open(self.order, PLACE)

    def got(self, key: str) -> Any:
        return self.client.get_object(Bucket=self.bucket, Key=f"out/{key}")["Body"].read()

    def read(self) -> Iterable[Received]:
        listed = self.client.list_objects_v2(Bucket=self.bucket, Prefix="out/orders/manifests/")
        for found in listed.get("Contents", []):
            for file in json.loads(self.got(found["Key"].removeprefix("out/")))["files"]:
                for m in map(json.loads, self.got(file["key"]).splitlines()):
                    yield Received(m["topic"], m["queue_id"], m["queue_offset"], body_of(m), m["properties"])


def body_of(line: dict[str, Any]) -> bytes:
    import base64

    return line["body"].encode() if "body" in line else base64.b64decode(line["body_base64"])


class TestFileSinkOnS3(SinkContract):
    @pytest.fixture
    def tested(self, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> TestedFileOnS3:
        return TestedFileOnS3(s3_server, monkeypatch)


def test_dead_letters_of_other_kinds_lie_in_a_bucket_by_the_usual_credentials(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given again they are there once; others under the same name are refused, and nothing is written over."""
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    bucket, client = s3_server.bucket(), s3_server.client()
    order = SinkOrder("orders", "http", {"url": "http://x", "dead_letters": s3_server.url(bucket, "dead")})
    for _ in range(2):
        letters = dead_letters_of(order, make=True)
        assert letters is not None
        letters.bury("T-0-7", b'{"queue_offset": 7}\n', 1)
        assert letters.buried == 1
        with pytest.raises(Conflict):
            letters.bury("T-0-7", b'{"queue_offset": 8}\n', 1)
        letters.close()
    [there] = client.list_objects_v2(Bucket=bucket)["Contents"]
    assert there["Key"] == "dead/orders/dead-letters/T-0-7.ndjson"
    assert client.get_object(Bucket=bucket, Key=there["Key"])["Body"].read() == b'{"queue_offset": 7}\n'
    client.close()
