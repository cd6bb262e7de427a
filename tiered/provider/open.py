"""An archive URL becomes a provider: ``Retrying(Metered(Throttled(driver)))``.

    file:///absolute/path                                     a directory of a POSIX file system
    s3://bucket/prefix?endpoint=…&region=…&path_style=true     S3 and its relatives; any option of _S3_OPTIONS
    memory://name                                             in this process only; the same name is the same store
    fsspec+PROTO://path?option=value                          any file system fsspec knows (gs, abfs, hdfs, s3, …)

Options in the URL win over the ``store`` section. Secrets do not belong in an URL and are refused without being repeated.
Drivers are imported when their scheme is met, so that a POSIX archive never loads an SDK.
"""

from __future__ import annotations

import random  # noqa: TID251 - the type of the chance that is passed in
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from difflib import get_close_matches
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit

from tiered.clock import Clock
from tiered.errors import Invalid, did_you_mean
from tiered.provider.base import Provider
from tiered.provider.memory import MemoryProvider, named_objects
from tiered.provider.naming import check_root
from tiered.provider.wrap import Metered, RequestObserver, Retrying, Throttled, system_random
from tiered.settings import Store

FSSPEC = "fsspec+"
SCHEMES = ("file", "s3", "memory")
_EXAMPLES = "file:///path, s3://bucket/prefix?endpoint=… or fsspec+gs://bucket/prefix"
_ELSEWHERE = (
    "gs",
    "gcs",
    "az",
    "abfs",
    "abfss",
    "adl",
    "hdfs",
    "webhdfs",
    "sftp",
    "ssh",
    "smb",
    "oci",
    "oss",
    "dbfs",
)
_S3_OPTIONS = (
    "endpoint",
    "region",
    "engine",
    "path_style",
    "profile",
    "role_arn",
    "ca_bundle",
    "sse",
    "sse_kms_key_id",
    "storage_class",
    "checksum",
)
_SECRET_WORDS = (
    "secret",
    "password",
    "passwd",
    "token",
    "key",
    "credential",
    "sas",
    "connection_string",
    "username",
)
_NOT_SECRET = ("sse_kms_key_id",)


def open_provider(
    url: str,
    store: Store,
    clock: Clock,
    *,
    observer: RequestObserver | None = None,
    chance: random.Random | None = None,
    stop: threading.Event | None = None,
    each_try: Callable[[Provider], Provider] = lambda driver: driver,
) -> Provider:
    """The provider of an archive URL, wrapped. Makes no request.

    ``observer`` hears of every try; ``chance`` is the jitter's (default: seeded by the system); ``stop`` ends waits
    of retries and throttles early, with ``Unavailable``; ``each_try`` puts a wrapper around the driver.

    Raises ``Invalid`` for an URL it does not understand.
    """
    provider = each_try(open_driver(url, store, clock))
    if store.max_bytes_per_second or store.max_requests_per_second:
        provider = Throttled(
            provider,
            clock,
            bytes_per_second=store.max_bytes_per_second,
            requests_per_second=store.max_requests_per_second,
            stop=stop,
        )
    if observer is not None:
        provider = Metered(provider, observer, clock)
    return Retrying(
        provider,
        clock,
        chance or system_random(),
        attempts=store.attempts,
        base_ms=store.retry_base_ms,
        max_ms=store.retry_max_ms,
        stop=stop,
    )


def open_driver(url: str, store: Store, clock: Clock) -> Provider:
    """The bare driver of an archive URL."""
    parsed = _parse(url)
    scheme = parsed.scheme.lower()
    if scheme.startswith(FSSPEC):
        return _open_fsspec(scheme.removeprefix(FSSPEC), parsed, store, clock)
    if scheme == "memory":
        _options(parsed, ())
        name = "/".join(part for part in (parsed.netloc, parsed.path.strip("/")) if part)
        return MemoryProvider(name, clock, named_objects(name))
    if scheme == "file":
        return _open_posix(parsed, clock)
    if scheme == "s3":
        return _open_s3(parsed, store, clock)
    raise _unknown_scheme(scheme, parsed)


def _open_posix(parsed: SplitResult, clock: Clock) -> Provider:
    from tiered.provider.posix import PosixProvider

    _options(parsed, ())
    path = unquote(parsed.path).rstrip("/")
    if parsed.netloc not in ("", "localhost"):
        hint = f"write file:///{parsed.netloc}{parsed.path}"
        raise Invalid(
            "a file URL has three slashes and an absolute path", hint=hint, found=f"file://{parsed.netloc}…"
        )
    if not path or "\0" in path or any(part in (".", "..") for part in path.split("/")):
        raise Invalid(
            "a file URL needs an absolute path without dot segments",
            found=path[:300],
            hint="file:///path/to/archive",
        )
    return PosixProvider(path, clock)


def _open_s3(parsed: SplitResult, store: Store, clock: Clock) -> Provider:
    from tiered.provider.s3 import S3Provider

    bucket = parsed.netloc
    if not bucket:
        raise Invalid("an s3 URL needs a bucket", hint="s3://bucket/prefix")
    return S3Provider(bucket, check_root(unquote(parsed.path)), s3_settings(parsed, store), clock)


def _open_fsspec(protocol: str, parsed: SplitResult, store: Store, clock: Clock) -> Provider:
    from tiered.provider.fsspec import FsspecProvider

    location = unquote(parsed.netloc + parsed.path).rstrip("/")
    if protocol in ("s3", "s3a"):
        return FsspecProvider(protocol, location, {}, s3_settings(parsed, store), clock)
    return FsspecProvider(
        protocol, location, {name: _typed(text) for name, text in _options(parsed, None)}, store, clock
    )


def s3_settings(parsed: SplitResult, store: Store) -> Store:
    """The store section with the URL's options put over it."""
    changes: dict[str, Any] = {}
    for name, text in _options(parsed, _S3_OPTIONS):
        changes[name] = _boolean(name, text) if name == "path_style" else text
    changed = replace(store, **changes)
    endpoint = urlsplit(changed.endpoint)
    if changed.endpoint and (endpoint.scheme not in ("http", "https") or not endpoint.netloc):
        raise Invalid(
            "the endpoint must be an http or https URL",
            hint="for example https://s3.example.com:9000",
            found=_shown(changed.endpoint),
        )
    if endpoint.username or endpoint.password:
        raise Invalid(
            "the endpoint must not hold credentials",
            hint="set store.access_key_id and store.secret_access_key",
        )
    return changed


def located(url: str, store: Store) -> str:
    """An ``s3`` URL with the endpoint and region that this machine's SDK settings give it where it names none, so that another
    machine asks the same store; where that is AWS, and any other URL, as it is. No secret is in it."""
    parsed = urlsplit(url)
    if parsed.scheme.lower().removeprefix(FSSPEC) not in ("s3", "s3a"):
        return url
    told = s3_settings(parsed, store)
    if told.endpoint:
        return url
    from tiered.provider import s3client

    found = s3client.resolve(told, s3client.make_session(told))
    if s3client.is_of_aws(found.endpoint):
        return url
    more = {"endpoint": found.endpoint} | ({"region": found.region} if not told.region else {})
    query = urlencode([*parse_qsl(parsed.query), *more.items()], safe=":/")
    return parsed._replace(query=query).geturl()


def _parse(url: str) -> SplitResult:
    if "://" not in url:
        hint = f"write file://{url}" if url.startswith("/") else f"write {_EXAMPLES}"
        raise Invalid(
            "archive.url is not a URL" if url else "archive.url is not set",
            hint=hint,
            found=_shown(url) or None,
        )
    try:
        parsed = urlsplit(url)
        _ = parsed.port if parsed.netloc.rpartition(":")[2].isdigit() else None
    except ValueError:
        raise Invalid(
            "archive.url is not a valid URL", hint=f"write {_EXAMPLES}", found=_shown(url)
        ) from None
    if parsed.fragment:
        raise Invalid("archive.url must not have a fragment (#…)", hint="write # as %23")
    # A secret may have a slash, which ends what is before the path.
    split = ":" in parsed.netloc and "@" in parsed.path
    if (parsed.scheme == "s3" and ("@" in parsed.netloc or split)) or parsed.password:
        raise Invalid(
            "credentials do not belong in archive.url",
            hint="set store.access_key_id and store.secret_access_key, a profile, or the SDK's environment variables",
        )
    return parsed


def _options(parsed: SplitResult, known: Iterable[str] | None) -> list[tuple[str, str]]:
    """The query's options; ``known`` ``None`` lets the file system judge them."""
    allowed = None if known is None else tuple(known)
    options = parse_qsl(parsed.query, keep_blank_values=True)
    for name, _ in options:
        if name not in _NOT_SECRET and any(word in name.lower() for word in _SECRET_WORDS):
            raise Invalid(
                "secrets do not belong in archive.url",
                option=name,
                hint="use the store section, or the environment variables of the store's own SDK",
            )
        if allowed is not None and name not in allowed:
            hint = did_you_mean(name, allowed, "it takes ") if allowed else "it takes no options"
            raise Invalid(f"unknown option in a {parsed.scheme} URL", option=name, hint=hint)
    return options


def _unknown_scheme(scheme: str, parsed: SplitResult) -> Invalid:
    if scheme in _ELSEWHERE:
        hint = f"write {FSSPEC}{scheme}://{parsed.hostname or ''}…"
    else:
        near = get_close_matches(scheme, (*SCHEMES, *(FSSPEC + name for name in _ELSEWHERE)), n=1, cutoff=0.5)
        hint = f"did you mean {near[0]}://?" if near else f"write {_EXAMPLES}"
    return Invalid("archive.url has an unknown scheme", found=scheme, hint=hint)


def _boolean(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false", "1", "0", "yes", "no"):
        raise Invalid(f"the option {name} must be true or false", found=text[:50])
    return text.lower() in ("true", "1", "yes")


def _typed(text: str) -> str | int | bool:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    return int(text) if text.isascii() and text.isdigit() else text


def _shown(url: str) -> str:
    """An URL's beginning, without what may hold a secret."""
    head = url.split("?", 1)[0]
    return head.rpartition("@")[2][:200]
