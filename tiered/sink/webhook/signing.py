"""The signature of a request: by it a receiver knows who sent it, that it is whole, and that it is not an old one."""

from __future__ import annotations

import hashlib
import hmac

SIGNATURE, TIMESTAMP = "Tiered-Signature", "Tiered-Timestamp"


def signed(secret: str, seconds: int, body: bytes) -> dict[str, str]:
    """The two headers. ``v1=`` and HMAC-SHA256, in lower-case hex, of the timestamp (seconds since 1970), a dot and the
    body, by the secret's UTF-8 bytes."""
    mac = hmac.new(secret.encode(), b"%d." % seconds, hashlib.sha256)
    mac.update(body)
    return {TIMESTAMP: str(seconds), SIGNATURE: f"v1={mac.hexdigest()}"}
