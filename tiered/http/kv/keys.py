"""Keys as addresses and JSON write them: as text, or in base64url where they are not text."""

from __future__ import annotations

import json
from base64 import b64encode, urlsafe_b64decode, urlsafe_b64encode
from typing import cast

from tiered.http.kv.table import BASE64URL
from tiered.http.refusals import HttpRefusal, refused_parameter
from tiered.http.routes import Values
from tiered.keyvalue import MOST_KEYS, Entry, check_key


def token(key: bytes) -> str:
    """Base64url of ``key``, without padding."""
    return urlsafe_b64encode(key).rstrip(b"=").decode()


def from_token(name: str, text: str) -> bytes:
    """The bytes of base64url, with or without padding. ``HttpRefusal``, which names ``name``, of anything else."""
    try:
        bare = text.rstrip("=").encode("ascii")
        made = urlsafe_b64decode(bare + b"=" * (-len(bare) % 4))
        if token(made).encode() == bare and len(text) in (len(bare), len(bare) + -len(bare) % 4):
            return made
    except ValueError:
        pass
    raise refused_parameter(name, text, "base64url (RFC 4648, section 5)", "encode the key's bytes again")


def key_bytes(name: str, text: str, values: Values) -> bytes:
    """The bytes that ``text`` means in the encoding that a request asks for."""
    if values["key_encoding"] == BASE64URL:
        return from_token(name, text)
    try:
        return text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair, from JSON
        raise refused_parameter(
            name, ascii(text), "text", "give keys that are not text in base64url"
        ) from None


def listed_keys(body: bytes, values: Values) -> list[bytes]:
    """The keys of ``{"keys": [...]}``. ``HttpRefusal`` of anything else."""
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        said = None
    keys = said.get("keys") if isinstance(said, dict) and len(said) == 1 else None
    if not isinstance(keys, list) or not all(isinstance(key, str) for key in keys):
        raise HttpRefusal(
            400,
            "the body is not a JSON object with a list of keys",
            expected='{"keys": ["…", "…"]}',
            hint="name the keys as texts",
        )
    if not 0 < len(keys) <= MOST_KEYS:
        raise refused_parameter("keys", len(keys), f"1 to {MOST_KEYS} of them", "ask for fewer at once")
    return [check_key(key_bytes("keys", key, values)) for key in keys]


def entry_fields(entry: Entry, values: Values) -> dict[str, object]:
    """An entry as JSON shows it; a key that is not text is in ``key_base64url`` where text was asked for."""
    return {
        **_key_fields(entry.key, cast("str", values["key_encoding"])),
        "version": entry.version,
        "stored_ms": entry.stored_ms,
        "expires_ms": entry.expires_ms,
    } | ({} if values.get("keys_only") else {"value_base64": b64encode(entry.value).decode()})


def _key_fields(key: bytes, encoding: str) -> dict[str, object]:
    if encoding == BASE64URL:
        return {"key": token(key)}
    try:
        return {"key": key.decode()}
    except UnicodeDecodeError:
        return {"key": None, "key_base64url": token(key)}
