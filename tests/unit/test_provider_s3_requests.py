"""What the s3 driver asks of the SDK, where servers at hand would forgive it."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.awsrequest import AWSResponse
from botocore.exceptions import ClientError
from botocore.utils import parse_timestamp

from tiered.clock import ManualClock
from tiered.errors import Unavailable
from tiered.provider import s3client
from tiered.provider.base import UnfinishedUpload
from tiered.provider.s3 import S3Provider
from tiered.provider.s3answers import StoreAnswers
from tiered.settings import MIB, Store

META = {"HTTPHeaders": {"date": "Sun, 06 Nov 1994 08:49:37 GMT"}, "HTTPStatusCode": 200}


class Recorded:
    """An SDK client that remembers its calls and answers each with what is needed to go on."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.refusal: ClientError | None = None
        self.answers: list[dict[str, Any]] = []

    def __getattr__(self, operation: str) -> Any:
        def call(**arguments: Any) -> dict[str, Any]:
            self.calls.append((operation, arguments))
            if self.refusal is not None:
                raise self.refusal
            if self.answers:
                return {**self.answers.pop(0), "ResponseMetadata": META}
            return {"UploadId": "u", "ETag": f"e{len(self.calls)}", "ResponseMetadata": META}

        return call


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    made = Recorded()
    monkeypatch.setattr(S3Provider, "_connected", lambda _: made)
    return made


def provider() -> S3Provider:
    return S3Provider("bucket", "root", Store(multipart_bytes=5 * MIB), ManualClock())


def test_an_upload_in_parts_is_create_only_at_its_completion(client: Recorded) -> None:
    provider().put("k", [bytes(6 * MIB)])
    operations = [operation for operation, _ in client.calls]
    assert operations == [
        "create_multipart_upload",
        "upload_part",
        "upload_part",
        "complete_multipart_upload",
    ]
    completion = client.calls[-1][1]
    assert completion["IfNoneMatch"] == "*"
    assert [part["PartNumber"] for part in completion["MultipartUpload"]["Parts"]] == [1, 2]


def test_unfinished_uploads_are_listed_page_by_page_and_given_up(client: Recorded) -> None:
    more = {"IsTruncated": True, "NextKeyMarker": "root/a", "NextUploadIdMarker": "1"}
    client.answers = [
        {"Uploads": [{"Key": "root/a", "UploadId": "1"}], **more},
        {"Uploads": [{"Key": "root/a", "UploadId": "2"}, {"Key": "root/ab", "UploadId": "3"}]},
    ]
    uploads = provider().capabilities.uploads
    assert uploads is not None
    found = list(uploads.unfinished("a"))
    assert found == [UnfinishedUpload(*each) for each in (("a", "1"), ("a", "2"), ("ab", "3"))]
    assert [arguments.get("UploadIdMarker") for _, arguments in client.calls] == [None, "1"]
    client.refusal = ClientError(
        {"Error": {"Code": "NoSuchUpload"}, "ResponseMetadata": {**META, "HTTPStatusCode": 404}}, "x"
    )
    provider().give_up(found[0])
    name, arguments = client.calls[-1]
    assert (name, arguments["Key"], arguments["UploadId"]) == ("abort_multipart_upload", "root/a", "1")
    client.refusal = ClientError(
        {"Error": {"Code": "SlowDown"}, "ResponseMetadata": {**META, "HTTPStatusCode": 503}}, "x"
    )
    with pytest.raises(Unavailable):
        provider().give_up(found[0])


def test_a_range_behind_the_end_is_an_answer(client: Recorded) -> None:
    headers = {**META["HTTPHeaders"], "content-range": "bytes */10"}
    client.refusal = ClientError(
        {
            "Error": {"Code": "InvalidRange", "Message": ""},
            "ResponseMetadata": {"HTTPStatusCode": 416, "HTTPHeaders": headers},  # type: ignore[typeddict-item]
        },
        "GetObject",
    )
    fetched = provider().get("k", 10, 5)
    assert (fetched.data, fetched.object_length) == (b"", 10)


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-23T21:00:05Z",
        "2026-11-23T21:00:05.123Z",
        "1969-12-31T23:59:59.000001Z",
        "Sun, 06 Nov 1994 08:49:37 GMT",
        # left to the SDK
        "2026-11-23T21:00:05.123456789Z",
        "2026-11-23T21:00:05+02:00",
        "20261123T210005Z",
        "2026-11-23 21:00:05",
        "Sunday, 06-Nov-94 08:49:37 GMT",
        "Sun, 06 Nov 1994 08:49:37 +0100",
        "Sun Nov  6 08:49:37 1994",
        "1732395605",
        1732395605,
        1732395605.5,
    ],
)
def test_times_in_answers_are_what_the_sdk_makes_of_them(text: str | float) -> None:
    found, wanted = s3client.time_of(text), parse_timestamp(text)
    assert found == wanted
    assert found.utcoffset() == wanted.utcoffset()


@pytest.mark.parametrize("text", ["2026-02-30T00:00:00Z", "Mon, 31 Feb 2026 00:00:00 GMT", "soon", ""])
def test_what_is_no_time_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match="timestamp"):
        s3client.time_of(text)


def test_a_listing_is_read_without_the_sdks_own_parser_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(value: object) -> None:
        raise AssertionError(value)

    monkeypatch.setattr(s3client, "parse_timestamp", never)
    monkeypatch.setattr("botocore.parsers.DEFAULT_TIMESTAMP_PARSER", never)
    session = s3client.make_session(Store(access_key_id="a", secret_access_key="b", region="us-east-1"))
    client = s3client.make_client(
        Store(region="us-east-1", endpoint="http://localhost:1"), session, StoreAnswers()
    )
    body = (
        b"<ListBucketResult><Contents><Key>k</Key><Size>3</Size>"
        b"<LastModified>2026-11-23T21:00:05.500Z</LastModified></Contents></ListBucketResult>"
    )

    class Answer(AWSResponse):  # type: ignore[misc]
        content = body

    client.meta.events.register("before-send", lambda **_: Answer("http://localhost:1", 200, {}, None))
    entries = client.list_objects_v2(Bucket="b")["Contents"]
    assert [entry["LastModified"].isoformat() for entry in entries] == ["2026-11-23T21:00:05.500000+00:00"]
