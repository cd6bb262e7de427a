"""Signed requests, as RocketMQ's ACL wants them."""

from __future__ import annotations

import base64
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Credentials:
    """A key pair of RocketMQ's ACL. Printing it shows neither."""

    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)


def signature(keys: Credentials, ext: Mapping[str, str], body: bytes | memoryview) -> dict[str, str]:
    """The fields that RocketMQ's ACL adds: HMAC-SHA1 over all values in the order of their names, and the body."""
    signed = {**ext, "AccessKey": keys.access_key}
    content = "".join(signed[name] for name in sorted(signed)).encode() + bytes(body)
    digest = hmac.digest(keys.secret_key.encode(), content, "sha1")
    return {"AccessKey": keys.access_key, "Signature": base64.b64encode(digest).decode()}
