"""What libraries behind fsspec are told, and what their errors say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tiered.errors import Invalid
from tiered.provider.s3errors import DENIED_STATUSES
from tiered.settings import Store


def s3_options(store: Store) -> dict[str, Any]:
    """s3fs' arguments for the store section; ``Invalid`` for what s3fs cannot do."""
    if store.role_arn:
        raise Invalid(
            "fsspec's s3 cannot assume a role", hint="use an s3:// URL, or a profile with role_arn in it"
        )
    client: dict[str, Any] = {"region_name": store.region or None, "verify": store.ca_bundle or None}
    placement = {
        "ServerSideEncryption": store.sse,
        "SSEKMSKeyId": store.sse_kms_key_id,
        "StorageClass": store.storage_class,
    }
    return {
        "key": store.access_key_id or None,
        "secret": store.secret_access_key or None,
        "token": store.session_token or None,
        "profile": store.profile or None,
        "endpoint_url": store.endpoint or None,
        "client_kwargs": {name: value for name, value in client.items() if value},
        "s3_additional_kwargs": {name: value for name, value in placement.items() if value},
        "config_kwargs": {
            "s3": {"addressing_style": "path" if store.path_style else "virtual"},
            "retries": {"total_max_attempts": 1},
            "connect_timeout": store.connect_timeout_ms / 1000,
            "read_timeout": store.read_timeout_ms / 1000,
            "max_pool_connections": store.max_connections,
        },
    }


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
