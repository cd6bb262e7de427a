"""The small pieces under the drivers: bodies, ranges, S3's error codes, fsspec's exceptions."""

from __future__ import annotations

import errno
import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiered.clock import ManualClock
from tiered.errors import Conflict, Denied, Invalid, NotFound, TieredError, Unavailable
from tiered.provider.body import CutStream, PartsStream, body_length, digest, joined, split
from tiered.provider.fsspec import FsspecProvider
from tiered.provider.naming import check_prefix, slice_range
from tiered.provider.s3client import from_transport
from tiered.provider.s3errors import Context, from_response
from tiered.settings import Store

PARTS = st.lists(st.binary(max_size=50), max_size=8)


@given(PARTS, st.integers(1, 40))
def test_split_cuts_at_exact_sizes(parts: list[bytes], size: int) -> None:
    pieces = [b"".join(piece) for piece in split(parts, size)]
    assert b"".join(pieces) == b"".join(parts)
    assert all(len(piece) == size for piece in pieces[:-1])
    assert all(pieces)


@given(
    PARTS, st.lists(st.tuples(st.sampled_from(["read", "rest", "seek"]), st.integers(0, 450)), max_size=10)
)
def test_the_stream_reads_what_the_joined_bytes_hold(
    parts: list[bytes], steps: list[tuple[str, int]]
) -> None:
    whole = b"".join(parts)
    stream = PartsStream(parts)
    position = 0
    assert len(stream) == body_length(parts) == len(whole)
    for verb, number in steps:
        if verb == "seek":
            position = min(number, len(whole))
            assert stream.seek(number) == position
        elif verb == "rest":
            assert stream.read() == whole[position:]
            position = len(whole)
        else:
            piece = bytes(stream.read(number))
            assert whole[position:].startswith(piece)
            assert piece or not number or position == len(whole)
            position += len(piece)
        assert stream.tell() == position
    assert stream.seek(0, io.SEEK_END) == len(whole)
    assert stream.read(10) == b""


def test_buffers_of_other_item_sizes_count_in_bytes() -> None:
    wide = memoryview(b"12345678").cast("Q")
    assert body_length([wide]) == 8
    assert PartsStream([wide]).read() == b"12345678"
    assert joined([wide, b"9"]) == b"123456789"
    assert digest("CRC32C", [wide, b"9"]) == digest("CRC32C", [b"123456789"]) == "4waSgw=="


def test_a_cut_stream_breaks_near_the_middle_of_the_pass_it_should() -> None:
    for whole_passes in (0, 1):
        stream = CutStream([b"x" * 800], whole_passes=whole_passes)
        for _ in range(whole_passes):
            assert sum(len(piece) for piece in iter(lambda s=stream: s.read(16), b"")) == 800
            stream.seek(0)
        sent = 0
        with pytest.raises(ConnectionAbortedError):
            while True:
                sent += len(stream.read(16))
        assert 300 <= sent <= 500


@given(st.integers(-30, 30), st.one_of(st.none(), st.integers(0, 30)), st.integers(0, 20))
def test_ranges_are_pythons_slices(start: int, length: int | None, size: int) -> None:
    data = bytes(range(size))
    if start < 0:
        length = None
    begin, end = slice_range(start, length, size)
    wanted = data[start:] if length is None else data[start : start + length]
    assert data[begin:end] == wanted
    assert 0 <= begin <= end <= size


@pytest.mark.parametrize("prefix", ["", "a", "a/", "a/b", "a/b/", ".", "a/."])
def test_prefixes_that_are(prefix: str) -> None:
    assert check_prefix(prefix) == prefix


@pytest.mark.parametrize("prefix", ["/", "/a", "a//", "a/../b", "a//b"])
def test_prefixes_that_are_not(prefix: str) -> None:
    with pytest.raises(Invalid):
        check_prefix(prefix)


def mapped(status: int, code: str, **headers: str) -> TieredError:
    response = {
        "Error": {"Code": code, "Message": "told with hush-secret\nin it"},
        "ResponseMetadata": {"HTTPStatusCode": status, "HTTPHeaders": headers},
    }
    return from_response(response, Context("put", "some/key", "s3://b", ("hush-secret",)))


@pytest.mark.parametrize("verb", ["put", "delete", "get", "head", "list"])
def test_only_a_write_may_have_happened_when_the_connection_breaks(verb: str) -> None:
    error = from_transport(ConnectionResetError("reset by peer"), Context(verb, "k", "s3://b"), Store())
    assert isinstance(error, Unavailable)
    assert error.message == "the connection broke" + (
        f": it is unknown whether the {verb} happened" if verb in ("put", "delete") else ""
    )


@pytest.mark.parametrize(
    ("status", "code", "kind", "told"),
    [
        (404, "NoSuchKey", NotFound, "some/key"),
        (404, "404", NotFound, ""),
        (404, "", NotFound, ""),
        (404, "XAdminUserNotFound", Denied, "access key"),
        (404, "NoSuchSomething", Invalid, "NoSuchSomething"),
        (404, "NoSuchBucket", Invalid, "create the bucket"),
        (404, "NoSuchUpload", Unavailable, ""),
        (412, "PreconditionFailed", Conflict, ""),
        (412, "412", Conflict, ""),
        (409, "ConditionalRequestConflict", Unavailable, "409"),
        (409, "OperationAborted", Unavailable, ""),
        (503, "SlowDown", Unavailable, "SlowDown"),
        (503, "503", Unavailable, ""),
        (500, "InternalError", Unavailable, ""),
        (502, "", Unavailable, "502"),
        (504, "", Unavailable, ""),
        (429, "TooManyRequests", Unavailable, ""),
        (400, "RequestTimeout", Unavailable, ""),
        (400, "SlowDown", Unavailable, ""),
        (400, "BadDigest", Unavailable, ""),
        (507, "XMinioStorageFull", Unavailable, "free space"),
        (403, "AccessDenied", Denied, "s3:PutObject"),
        (403, "403", Denied, "s3:PutObject"),
        (403, "SignatureDoesNotMatch", Denied, "secret key is wrong"),
        (403, "InvalidAccessKeyId", Denied, "store.access_key_id"),
        (400, "ExpiredToken", Denied, "session token"),
        (403, "RequestTimeTooSkewed", Denied, "NTP"),
        (403, "NobodyKnowsThisCode", Denied, "403"),
        (401, "", Denied, "401"),
        (400, "InvalidToken", Denied, "session token"),
        (403, "InvalidObjectState", Denied, "restored first"),
        (301, "PermanentRedirect", Invalid, "store.region"),
        (400, "AuthorizationHeaderMalformed", Invalid, "store.region"),
        (501, "NotImplemented", Invalid, "store.checksum"),
        (400, "InvalidStorageClass", Invalid, "store.storage_class"),
        (400, "KMS.NotFoundException", Invalid, "store.sse_kms_key_id"),
        (418, "Teapot", Invalid, "Teapot"),
    ],
)
def test_s3_codes(status: int, code: str, kind: type[TieredError], told: str) -> None:
    error = mapped(status, code)
    assert type(error) is kind
    assert told in str(error)
    assert "hush-secret" not in str(error)
    assert "\n" not in str(error)


def test_a_checksum_that_the_store_does_not_know_names_the_setting() -> None:
    said = "Unsupported header 'x-amz-checksum-crc32c' received for this API call."
    response = {
        "Error": {"Code": "InvalidArgument", "Message": said},
        "ResponseMetadata": {"HTTPStatusCode": 400},
    }
    error = from_response(response, Context("put", "k", "s3://b"))
    assert isinstance(error, Invalid)
    assert 'store.checksum = ""' in str(error)


def test_the_region_the_store_names_is_passed_on() -> None:
    assert "eu-west-3" in str(mapped(301, "PermanentRedirect", **{"x-amz-bucket-region": "eu-west-3"}))


class OddError(Exception):
    """An exception of nobody's."""


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (FileExistsError("x"), Conflict),
        (FileNotFoundError("x"), Invalid),
        (PermissionError("x"), Denied),
        (OSError("Forbidden: bucket/k\nno storage.objects.create"), Denied),
        (OSError(errno.EIO, "x"), Unavailable),
        (TimeoutError(), Unavailable),
        (ConnectionResetError(), Unavailable),
        (OSError(errno.EINVAL, "x"), Invalid),
        (OddError("x"), Invalid),
    ],
)
def test_fsspec_exceptions_of_a_put(
    raised: Exception, kind: type[TieredError], monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = FsspecProvider("memory", "fsspec-errors", {}, Store(), ManualClock())

    def fail(*_: Any, **__: Any) -> None:
        raise raised

    monkeypatch.setattr(provider._connected(), "pipe_file", fail, raising=False)
    with pytest.raises(kind) as caught:
        provider.put("k", [b"x"])
    assert type(caught.value) is kind
    if kind is Conflict:
        assert getattr(caught.value, "after_unknown", False), "the library may have retried inside"


def test_an_s3_answer_inside_an_fsspec_exception_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    provider = FsspecProvider("memory", "fsspec-errors", {}, Store(), ManualClock())

    class AnsweredError(Exception):
        def __init__(self, status: int, code: str) -> None:
            self.response = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}

    def failing(status: int, code: str) -> Any:
        def fail(*_: Any, **__: Any) -> None:
            raise OSError(errno.EINVAL, "translated") from AnsweredError(status, code)

        return fail

    for status, code, kind in (
        (412, "PreconditionFailed", Conflict),
        (503, "SlowDown", Unavailable),
        (403, "AccessDenied", Denied),
    ):
        monkeypatch.setattr(provider._connected(), "pipe_file", failing(status, code))
        with pytest.raises(kind):
            provider.put("k", [b"x"])
