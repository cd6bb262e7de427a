"""What an S3 error answer means: its code and status become one of our kinds, with the setting that fixes it.

Shared by the boto3 driver and by fsspec file systems that speak S3. The codes are those of the S3 API's error list; a server
that gives none (an answer to HEAD has no body) is judged by its HTTP status.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tiered.errors import Conflict, Denied, Invalid, NotFound, TieredError, Unavailable

WRITES = ("put", "delete")
"""Verbs that change the store."""

MAX_SAID = 300
"""Characters of the server's own words that go into an error."""

_CREDENTIALS = (
    "check store.access_key_id and store.secret_access_key, the profile or the role, for this endpoint"
)
_PERMISSION = (
    "allow s3:GetObject, s3:PutObject, s3:DeleteObject, s3:AbortMultipartUpload and s3:ListBucket for it"
)
_CLOCK = "set the clock, for example with NTP"
_CHECKSUM = 'set store.checksum = "", or to one that the store knows'
_CHECKSUM_HEADERS = ("x-amz-checksum", "x-amz-sdk-checksum")
_REGION = "set store.region (or ?region= in archive.url) to the bucket's region, or correct store.endpoint"

_HINTS: dict[str, tuple[str, str]] = {
    "NoSuchBucket": ("the bucket does not exist", "create the bucket, or correct archive.url and store.endpoint"),
    "InvalidBucketName": ("the bucket's name is not valid", "correct archive.url"),
    "AccessDenied": ("the store refuses access", _PERMISSION),
    "AllAccessDisabled": ("the store refuses access", _PERMISSION),
    "Forbidden": ("the store refuses access", _PERMISSION),
    "AccountProblem": ("the store refuses the account", "look into the account at the provider"),
    "InvalidAccessKeyId": ("the store does not know the access key", _CREDENTIALS),
    "SignatureDoesNotMatch": ("the store refuses the signature: the secret key is wrong", _CREDENTIALS),
    "InvalidToken": ("the session token is not valid", "renew the session token (store.session_token)"),
    "XAdminUserNotFound": ("the store does not know the access key", _CREDENTIALS),
    "InvalidClientTokenId": ("the store does not know the access key", _CREDENTIALS),
    "ExpiredToken": ("the session token has expired", "renew the session token (store.session_token), or use a role"),
    "ExpiredTokenException": ("the session token has expired", "renew the session token, or use a role"),
    "TokenRefreshRequired": ("the session token has expired", "renew the session token, or use a role"),
    "RequestTimeTooSkewed": ("this machine's clock is too far from the store's", _CLOCK),
    "RequestExpired": ("this machine's clock is too far from the store's", _CLOCK),
    "UnrecognizedClientException": ("the store does not know the access key", _CREDENTIALS),
    "PermanentRedirect": ("the bucket is in another region or behind another endpoint", _REGION),
    "AuthorizationHeaderMalformed": ("the request was signed for the wrong region", _REGION),
    "IllegalLocationConstraintException": ("the bucket is in another region", _REGION),
    "InvalidRegionName": ("the region is not valid", _REGION),
    "InvalidStorageClass": ("the store does not know the storage class", "correct store.storage_class"),
    "InvalidObjectState": ("the object is in a storage class that must be restored first", "restore it; do not use it here"),
    "InvalidEncryptionAlgorithmError": ("the store does not know the encryption", "correct store.sse"),
    "KMS.NotFoundException": ("the KMS key does not exist", "correct store.sse_kms_key_id"),
    "KMS.DisabledException": ("the KMS key is disabled", "enable the key, or correct store.sse_kms_key_id"),
    "EntityTooLarge": ("the body is too large for one request", "lower store.multipart_bytes"),
    "EntityTooSmall": ("a part of a multipart upload is too small", "raise store.multipart_bytes"),
    "NotImplemented": (
        "the store does not support something the request asks for",
        'try store.checksum = "", and no store.sse and store.storage_class; tiered doctor probes the rest',
    ),
    "MethodNotAllowed": ("the store does not allow this", "check store.endpoint: is it an S3 API?"),
}  # fmt: skip

DENIED = frozenset(
    {
        "AccessDenied",
        "AllAccessDisabled",
        "Forbidden",
        "AccountProblem",
        "InvalidAccessKeyId",
        "SignatureDoesNotMatch",
        "InvalidToken",
        "XAdminUserNotFound",
        "InvalidClientTokenId",
        "ExpiredToken",
        "ExpiredTokenException",
        "TokenRefreshRequired",
        "RequestTimeTooSkewed",
        "RequestExpired",
        "UnrecognizedClientException",
        "InvalidObjectState",
    }
)
"""Codes that refuse who asks, whatever the status that they come with; of an entry of an answer there is none."""

RENEWABLE = DENIED - {"AllAccessDisabled", "AccountProblem", "RequestTimeTooSkewed", "InvalidObjectState"}
"""Codes that other credentials may cure. A bare 403 is among them: an answer to HEAD tells no code."""

DENIED_STATUSES = (401, 402, 403)
"""Statuses that refuse who asks, whatever the code."""

_ABSENT = frozenset({"NoSuchKey", "NotFound"})
# The server saw a damaged or incomplete body, a racing writer or too much load: the same request may work next time.
_PASSING = frozenset(
    {
        "SlowDown",
        "SlowDownRead",
        "SlowDownWrite",
        "ServiceUnavailable",
        "InternalError",
        "InternalFailure",
        "RequestTimeout",
        "RequestTimeoutException",
        "RequestThrottled",
        "RequestLimitExceeded",
        "BandwidthLimitExceeded",
        "Throttling",
        "ThrottlingException",
        "TooManyRequests",
        "ConditionalRequestConflict",
        "OperationAborted",
        "IncompleteBody",
        "BadDigest",
        "XAmzContentSHA256Mismatch",
        "XAmzContentChecksumMismatch",
        "NoSuchUpload",
        "ServerNotInitialized",
        "XMinioServerNotInitialized",
        "XMinioStorageFull",
        "QuotaExceeded",
        "InsufficientStorage",
    }
)
_FULL = frozenset({"XMinioStorageFull", "QuotaExceeded", "InsufficientStorage"})
_BY_STATUS = {
    301: "PermanentRedirect",
    401: "Forbidden",
    307: "PermanentRedirect",
    403: "Forbidden",
    405: "MethodNotAllowed",
    501: "NotImplemented",
}


@dataclass(frozen=True, slots=True)
class Context:
    """What was asked of whom: for the error's fields. ``secrets`` are values that must never be shown."""

    verb: str
    key: str
    url: str
    secrets: Sequence[str] = ()

    @property
    def writes(self) -> bool:
        """Whether the request changes the store, so that a lost answer leaves something unknown."""
        return self.verb in WRITES

    def clean(self, text: str) -> str:
        """``text`` shortened, one line, secrets starred."""
        for secret in self.secrets:
            if secret:
                text = text.replace(secret, "***")
        return " ".join(text.split())[:MAX_SAID]


def status_of(response: Mapping[str, Any]) -> int:
    """HTTP status of a botocore answer; 0 if it has none."""
    return int(response.get("ResponseMetadata", {}).get("HTTPStatusCode") or 0)


def headers_of(response: Mapping[str, Any]) -> Mapping[str, str]:
    """HTTP headers (lower case) of a botocore answer."""
    headers: Mapping[str, str] = response.get("ResponseMetadata", {}).get("HTTPHeaders") or {}
    return headers


def from_response(response: Mapping[str, Any], context: Context) -> TieredError:
    """The error of ours that an error answer (botocore's parsed form) means."""
    said = response.get("Error", {})
    status = status_of(response)
    code = str(said.get("Code") or "")
    if not code or code.isdigit():
        status = status or int(code or 0)
        code = _BY_STATUS.get(status, code)
    where = {"key": context.key, "url": context.url, "found": f"{status} {code}".strip()}
    # Other codes come with 404, too (a missing bucket, an unknown user): those must not pass for a missing object.
    if code in _ABSENT or (status == 404 and (not code or code.isdigit())):
        return NotFound("no such object", **where)
    if code == "PreconditionFailed" or status == 412:
        return Conflict("the key exists", **where)
    if code in _FULL or status == 507:
        return Unavailable("the store is full", hint="free space or raise the quota", **where)
    if code in _PASSING or (status >= 500 and code not in _HINTS) or status in (408, 409, 429):
        return Unavailable(f"the store cannot {context.verb} now", **where)
    message, hint = _HINTS.get(
        code, (f"the store refuses to {context.verb}", "check archive.url and the store section")
    )
    if any(header in str(said.get("Message")).lower() for header in _CHECKSUM_HEADERS):
        message, hint = "the store does not know the checksum that is sent with each upload", _CHECKSUM
    region = headers_of(response).get("x-amz-bucket-region") or said.get("Region")
    if region and hint is _REGION:
        where["expected"] = f"region {context.clean(str(region))}"
    kind = Denied if code in DENIED or status in DENIED_STATUSES else Invalid
    return kind(message, hint=hint, said=context.clean(str(said.get("Message") or "")) or None, **where)
