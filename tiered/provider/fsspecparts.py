"""What libraries behind fsspec are told, and what their errors say."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from tiered.provider.s3errors import DENIED_STATUSES, Context
from tiered.settings import Store


def s3_options(store: Store, url: str) -> dict[str, Any]:
    """s3fs' arguments for the store section. Where S3 is, how it is reached and who asks is resolved by boto3 alone, as for an
    ``s3://`` URL: s3fs is handed the outcome, and credentials that boto3's session renews. Errors as of the S3 driver."""
    from botocore.exceptions import BotoCoreError

    from tiered.provider import s3client

    try:
        session = s3client.make_session(store)
        found = s3client.resolve(store, session)
        keys = s3client.keys_of(session)
    except (BotoCoreError, OSError, ValueError) as error:
        raise s3client.from_transport(error, Context("open", "", url), store) from None
    placement = {
        "ServerSideEncryption": store.sse,
        "SSEKMSKeyId": store.sse_kms_key_id,
        "StorageClass": store.storage_class,
    }
    client = {"region_name": found.region, "verify": found.verify}
    return {
        "session": _lent(session, keys, store.profile, s3client.sends_only_to(found.endpoint)),
        "endpoint_url": found.endpoint,
        "client_kwargs": {name: value for name, value in client.items() if value},
        "s3_additional_kwargs": {name: value for name, value in placement.items() if value},
        "config_kwargs": {
            "s3": {"addressing_style": "path" if store.path_style else "virtual"},
            "proxies": found.proxies,
            "retries": {"total_max_attempts": 1},
            "connect_timeout": store.connect_timeout_ms / 1000,
            "read_timeout": store.read_timeout_ms / 1000,
            "max_pool_connections": store.max_connections,
        },
    }


def _lent(session: Any, keys: tuple[str, ...], profile: str, guard: Callable[..., None]) -> Any:
    """A session of aiobotocore's that signs with what boto3's session has, and sends nothing that ``guard`` raises for."""
    from aiobotocore.credentials import AioCredentials
    from aiobotocore.session import AioSession

    class Lent(AioCredentials):  # type: ignore[misc]
        async def get_frozen_credentials(self) -> Any:
            return await asyncio.to_thread(session.get_credentials().get_frozen_credentials)

    lent = AioSession(profile=profile or None)
    lent._credentials = Lent(*keys)  # no public way to hand over credentials that renew themselves
    lent.get_component("event_emitter").register("before-send.s3", guard)
    return lent


def response_of(error: BaseException | None) -> Mapping[str, Any] | None:
    """botocore's parsed answer, somewhere in the chain of causes."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        response = getattr(error, "response", None)
        if isinstance(response, dict) and "Error" in response:
            return response
        error = error.__cause__ or error.__context__
    return None


def is_refusal(error: Exception) -> bool:
    """Whether an HTTP status says that asking again will not help."""
    status = _status(error)
    return 400 <= status < 500 and status not in (408, 409, 429)


def is_denial(error: Exception) -> bool:
    """Whether who asks is refused: by the operating system, by an HTTP status, by gcsfs (which keeps no status then), or by a
    library that finds no credentials."""
    return (
        isinstance(error, PermissionError)
        or _status(error) in DENIED_STATUSES
        or (isinstance(error, OSError) and str(error).startswith("Forbidden"))
        or type(error).__module__.startswith("google.auth")
    )


def _status(error: Exception) -> int:
    """The HTTP status of an error, 0 if it has none; the libraries keep it under different names."""
    told = (getattr(error, name, None) for name in ("status_code", "status", "code"))
    return next((found for found in told if isinstance(found, int)), 0)
