"""How boto3 is set up for the settings, and what its failures without an answer mean. The only module that imports boto3."""

from __future__ import annotations

import os.path
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

import boto3  # noqa: TID251 - this is its door
import botocore.exceptions as sdk
import botocore.parsers
import botocore.session
import urllib3.exceptions
from boto3.exceptions import Boto3Error  # noqa: TID251
from botocore.config import Config
from botocore.credentials import AssumeRoleCredentialFetcher, DeferredRefreshableCredentials
from botocore.utils import get_environ_proxies, parse_timestamp

from tiered.errors import Denied, Invalid, TieredError, Unavailable
from tiered.provider.s3answers import ForeignAnswer, StoreAnswers
from tiered.provider.s3errors import Context
from tiered.settings import Store

__all__ = [
    "Boto3Error",
    "Resolved",
    "from_transport",
    "hashes_bodies",
    "is_of_aws",
    "keys_of",
    "make_client",
    "make_session",
    "resolve",
    "sends_only_to",
    "time_of",
]

_NOT_YET = (sdk.NoCredentialsError, sdk.CredentialRetrievalError, sdk.TokenRetrievalError, sdk.SSOError)
"""Credentials that may still come: a metadata service that is late, a token file that is not written yet."""

_MISNAMED = (
    sdk.PartialCredentialsError,
    sdk.ProfileNotFound,
    sdk.ConfigNotFound,
    sdk.ConfigParseError,
    sdk.InvalidConfigError,
)


def make_session(store: Store) -> botocore.session.Session:
    """Where credentials come from: the standard chain, a profile, static keys, or a role on top of any."""
    session = botocore.session.Session(profile=store.profile or None)
    session.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=time_of)
    if store.region:
        session.set_config_variable("region", store.region)  # for STS too
    if store.access_key_id:
        session.set_credentials(store.access_key_id, store.secret_access_key, store.session_token or None)
    if store.role_arn:
        fetcher = AssumeRoleCredentialFetcher(
            session.create_client,
            session.get_credentials(),
            store.role_arn,
            extra_args={"RoleSessionName": "rocketmq-tiered"},
        )
        # botocore has no public way to hand a session credentials that renew themselves.
        session._credentials = DeferredRefreshableCredentials(fetcher.fetch_credentials, "assume-role")
    return session


def keys_of(session: botocore.session.Session) -> tuple[str, ...]:
    """What a session signs with now: access key, secret and token. Raises botocore's errors where there is nothing."""
    found = session.get_credentials()
    if found is None:
        raise sdk.NoCredentialsError
    return tuple(found.get_frozen_credentials())


def make_client(store: Store, session: botocore.session.Session, answers: StoreAnswers) -> Any:
    """A boto3 S3 client for the settings, which believes what ``answers`` takes for the store's. What the settings leave
    empty (endpoint, region, certificates, proxies) it takes from the SDK's environment and files, and ``meta`` tells it.
    """
    if store.ca_bundle and not os.path.isfile(store.ca_bundle):
        raise Invalid(
            "the file of CA certificates is missing", found=store.ca_bundle, hint="correct store.ca_bundle"
        )
    config = Config(
        s3={"addressing_style": "path" if store.path_style else "virtual"},
        retries={"total_max_attempts": 1, "mode": "standard"},
        connect_timeout=store.connect_timeout_ms / 1000,
        read_timeout=store.read_timeout_ms / 1000,
        max_pool_connections=store.max_connections,
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        tcp_keepalive=True,
    )
    client = boto3.session.Session(botocore_session=session).client(
        "s3",
        region_name=store.region or None,
        endpoint_url=store.endpoint or None,
        verify=store.ca_bundle or None,
        config=config,
    )
    if store.checksum and client.meta.endpoint_url.startswith("https:"):
        # Over TLS and with a checksum the body is protected twice already; hashing it a third time costs the most CPU.
        client.meta.config.s3 = {**client.meta.config.s3, "payload_signing_enabled": False}
    client.meta.events.register("before-parse.s3", answers.heard)
    client.meta.events.register("before-send.s3", sends_only_to(client.meta.endpoint_url))
    return client


_AWS = re.compile(r"(?:^|\.)amazonaws\.com(?:\.cn)?$")


def is_of_aws(endpoint: str) -> bool:
    """Whether an endpoint is AWS's own."""
    return bool(_AWS.search(urlsplit(endpoint).hostname or ""))


def sends_only_to(endpoint: str) -> Callable[..., None]:
    """For the event ``before-send.s3``: ``ValueError`` for a request that is for another host than the endpoint's or a bucket's
    below it. AWS names a host for each region, and may send a client to another of them."""
    host = urlsplit(endpoint).hostname or ""
    aws = is_of_aws(endpoint)

    def look(request: Any, **_: Any) -> None:
        asked = urlsplit(request.url).hostname or ""
        if asked != host and not asked.endswith(f".{host}") and not (aws and _AWS.search(asked)):
            raise ValueError(f"a request for {asked}, and the store is at {host}: it was not sent")

    return look


@dataclass(frozen=True, slots=True)
class Resolved:
    """Where S3 is, and how it is reached, as boto3 resolves it for the settings: for an engine that is not boto3.
    ``verify``: the file of certificates, if one is named; ``proxies``: by scheme."""

    endpoint: str
    region: str
    verify: str | None
    proxies: dict[str, str]


def resolve(store: Store, session: botocore.session.Session) -> Resolved:
    """Makes no request, and looks for no credentials."""
    client = make_client(store, session, StoreAnswers())
    try:
        endpoint, region = client.meta.endpoint_url, client.meta.region_name or ""
    finally:
        client.close()
    verify = store.ca_bundle or session.get_config_variable("ca_bundle") or None
    return Resolved(endpoint, region, verify, get_environ_proxies(endpoint))


def hashes_bodies(client: Any) -> bool:
    """Whether a client reads a body once before it sends it, for its hash."""
    return client.meta.config.s3.get("payload_signing_enabled") is not False


_LISTED = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z", re.ASCII)
_STATED = re.compile(r"[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT", re.ASCII)


def time_of(value: Any) -> datetime:
    """A time in an answer. As listings and headers have it, it is read here: botocore lets dateutil guess what is written:
    most of the time of a listing. Whatever looks otherwise is left to botocore; ``ValueError`` if it is no time."""
    try:
        if _LISTED.fullmatch(value):
            return datetime.fromisoformat(value)
        if _STATED.fullmatch(value):
            return parsedate_to_datetime(value)
    except (TypeError, ValueError):  # a number, perhaps; a day that no month has
        pass
    found: datetime = parse_timestamp(value)
    return found


_NO_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "UNKNOWN_PROTOCOL", "HTTP_REQUEST")
"""What TLS reports about bytes that are not its own."""


_OF_ITS_TIME = ("certificate is not yet valid", "certificate has expired")
"""What TLS reports about a certificate of another time, or in front of a wrong clock."""


def foreign(error: Exception, context: Context) -> Unavailable:
    """What an answer means that is not the store's."""
    unknown = f": it is unknown whether the {context.verb} happened" if context.writes else ""
    said = str(error) if isinstance(error, ForeignAnswer) else context.clean(str(error))
    hint = "is store.endpoint right (https, not http?), and is there a portal, a proxy or a maintenance page before the store?"
    return Unavailable(
        f"what answered is not the store{unknown}",
        key=context.key, url=context.url, found=said, hint=hint,
    )  # fmt: skip


def from_transport(error: Exception, context: Context, store: Store) -> TieredError:
    """The error of ours for whatever went wrong without an answer from the store."""
    where: dict[str, str] = {"key": context.key, "url": context.url, "found": type(error).__name__}
    said = context.clean(str(error))
    if isinstance(error, sdk.SSLError) and any(word in str(error) for word in _OF_ITS_TIME):
        hint = "set this machine's clock, or renew the store's certificate"
        return Unavailable("the store's certificate is not valid at this time", hint=hint, **where)
    if isinstance(error, sdk.SSLError) and "CERTIFICATE_VERIFY_FAILED" in str(error):
        hint = "set store.ca_bundle to the file of the certificate authority"
        return Invalid("the store's certificate is not trusted", hint=hint, **where)
    if isinstance(error, sdk.SSLError) and any(word in str(error) for word in _NO_TLS):
        hint = "write http:// instead of https:// in store.endpoint, or name the port that speaks TLS"
        return Unavailable("the store's port does not speak TLS", hint=hint, **where)
    if isinstance(error, (*_NOT_YET, *_MISNAMED)):
        hint = "set store.profile, store.role_arn, store.access_key_id or the SDK's environment variables"
        kind = Denied if isinstance(error, _NOT_YET) else Invalid
        return kind("no usable credentials for the store", hint=hint, said=said, **where)
    if isinstance(error, sdk.NoRegionError | sdk.InvalidRegionError):
        return Invalid("the region is missing or not valid", hint="set store.region", **where)
    if isinstance(error, sdk.EndpointConnectionError | sdk.ConnectTimeoutError | sdk.ProxyConnectionError):
        hint = "is the endpoint right (store.endpoint) and reachable from here?"
        return Unavailable("the store does not answer", hint=hint, **where)
    if isinstance(error, ForeignAnswer | botocore.parsers.ResponseParserError):
        return foreign(error, context)
    passing = (
        sdk.HTTPClientError,
        sdk.ResponseStreamingError,
        sdk.IncompleteReadError,
        sdk.FlexibleChecksumError,
    )
    if isinstance(error, (*passing, urllib3.exceptions.HTTPError, OSError)):
        unknown = f": it is unknown whether the {context.verb} happened" if context.writes else ""
        return Unavailable(f"the connection broke{unknown}", **where)
    return Invalid(
        "the store's settings do not work", hint="check archive.url and the store section", said=said, **where
    )
