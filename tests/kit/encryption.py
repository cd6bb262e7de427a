"""Stores that encrypt: the provider over one whose stored bytes a test can look at and change."""

from __future__ import annotations

import random
from collections.abc import Callable

from tiered.archive.encryption.provider import Encrypting
from tiered.archive.encryption.wrapping import LocalKeys
from tiered.provider.base import Provider

KEY = "3q2+7" + "A" * 38 + "="
OTHER_KEY = "0f" * 32


def wrapping(text: str = KEY, random_bytes: Callable[[int], bytes] | None = None) -> LocalKeys:
    """The wrapping key, or keys, of a text."""
    return LocalKeys("encryption.key_file", lambda: text, random_bytes or random.Random(6).randbytes)


def encrypting(
    stored: Provider, text: str = KEY, random_bytes: Callable[[int], bytes] | None = None
) -> Encrypting:
    """``stored``, encrypted. The same chance each time, unless told otherwise."""
    return Encrypting(stored, wrapping(text), random_bytes or random.Random(5).randbytes)
