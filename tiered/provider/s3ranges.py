"""Reading from S3 without boto3's share of the work: a request is signed here and goes out over the client's own connections.

Endpoint, region, certificates, proxies, time-outs and addressing are thereby those of the boto3 client, which alone resolves
them, and no redirect is followed. Measured on a local server, eight at once: it takes half of boto3's CPU at 16 KiB to 256 KiB
and at 7 MiB, two thirds at 1 MiB. What is answered with neither bytes nor S3's word that there is no such key is asked of boto3
again, so that errors have one source. Who follows a log asks for the commit behind its end all the time: that is one request.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.exceptions import ClientError
from botocore.session import Session

from tiered.provider.s3answers import StoreAnswers
from tiered.provider.s3client import time_of

_ERROR_BYTES = 16 * 1024
_NO_SUCH_KEY = b"<Code>NoSuchKey</Code>"


class S3Ranges:
    """Reads objects of one bucket. Thread-safe. ``client`` and ``session`` are boto3's; ``judge`` hears every answer."""

    def __init__(self, client: Any, session: Session, bucket: str, judge: StoreAnswers) -> None:
        self._session = session
        self._judge = judge
        # What boto3 makes of its settings is seen in an address that it signs.
        address: str = client.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": "k"})
        self._base = address.partition("?")[0].removesuffix("k")
        region = client.meta.region_name
        self._region = "us-east-1" if region in (None, "", "aws-global") else region
        self._http = client._endpoint.http_session  # no public way to its connections

    def get(self, name: str, asked: Mapping[str, str]) -> tuple[Mapping[str, Any], bytes] | None:
        """What boto3's ``get_object`` answers, and the bytes; ``asked``: the header Range, if any. ``None``: not answered with
        bytes.

        Raises ``ForeignAnswer`` and botocore's and urllib3's errors; ``ClientError`` where the store says that there is no such
        key.
        """
        credentials = self._session.get_credentials()
        if credentials is None:
            return None
        request = AWSRequest("GET", self._base + quote(name, safe="/-._~"), dict(asked), stream_output=True)
        S3SigV4Auth(credentials.get_frozen_credentials(), "s3", self._region).add_auth(request)
        response = self._http.send(request.prepare())
        raw = response.raw
        try:
            if response.status_code == 404 and _NO_SUCH_KEY in (body := raw.read(_ERROR_BYTES)):
                self._judge.judge("GetObject", 404, response.headers, body)
                said = {"HTTPStatusCode": 404, "HTTPHeaders": {}}
                raise ClientError({"Error": {"Code": "NoSuchKey"}, "ResponseMetadata": said}, "GetObject")
            if response.status_code not in (200, 206):
                return None
            self._judge.judge("GetObject", response.status_code, response.headers, None)
            data: bytes = raw.read()
        finally:
            if not raw.isclosed():
                raw.close()
        headers = {header.lower(): text for header, text in response.headers.items()}
        modified = headers.get("last-modified")
        answer = {
            "ContentRange": headers.get("content-range"),
            "LastModified": time_of(modified) if modified else None,
            "ResponseMetadata": {"HTTPHeaders": headers},
        }
        return answer, data
