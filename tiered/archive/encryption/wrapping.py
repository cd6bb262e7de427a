"""The key that wraps data keys: a port and three drivers, a file, an environment variable, a command of a key service."""

from __future__ import annotations

import base64
import binascii
import os
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from tiered.codec.format.encryption import KEY_BYTES, derived_key, require_cryptography
from tiered.errors import Invalid, Refused, Unavailable
from tiered.settings.keeping import Encryption

_NONCE_BYTES = 12
_NO_SALT = b""


class WrappingKey(Protocol):
    """Wraps data keys, and unwraps what it, or an older key that it still has, has wrapped. Thread-safe."""

    def key_id(self) -> str:
        """What the key that wraps now is called; it says nothing of the key. ``Invalid`` if there is none."""
        ...

    def wrap(self, secret: bytes) -> bytes:
        """``secret`` as it may be stored."""
        ...

    def unwrap(self, wrapped: bytes, key_id: str) -> bytes:
        """What was wrapped by the key of this id. ``Refused`` for a wrong key, ``Unavailable`` if that cannot be said now."""
        ...


class LocalKeys:
    """Wraps by AES-256-GCM with the first key of a text, which ``read`` gives each time anew; the others only unwrap."""

    def __init__(
        self, setting: str, read: Callable[[], str], random_bytes: Callable[[int], bytes] = os.urandom
    ) -> None:
        self._setting, self._read, self._random_bytes = setting, read, random_bytes

    def key_id(self) -> str:
        return _key_id(self._keys()[0])

    def wrap(self, secret: bytes) -> bytes:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        key, nonce = self._keys()[0], self._random_bytes(_NONCE_BYTES)
        sealed: bytes = AESGCM(key).encrypt(nonce, secret, _key_id(key).encode())
        return nonce + sealed

    def unwrap(self, wrapped: bytes, key_id: str) -> bytes:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        keys = {_key_id(key): key for key in self._keys()}
        if key_id not in keys:
            raise Refused(
                "this archive is encrypted with another key",
                hint=f"give the key {key_id} by {self._setting}; older keys stand there behind the newest",
                expected=key_id,
                found=", ".join(keys),
            )
        try:
            secret: bytes = AESGCM(keys[key_id]).decrypt(
                wrapped[:_NONCE_BYTES], wrapped[_NONCE_BYTES:], key_id.encode()
            )
        except (InvalidTag, ValueError):
            raise Refused(
                "a data key of this archive was changed after it was wrapped",
                hint="restore datakey/ of the archive from a copy, or from the bucket's versions",
                expected=f"what {key_id} wrapped",
            ) from None
        return secret

    def _keys(self) -> list[bytes]:
        words = [line.split("#")[0].split() for line in self._read().splitlines()]
        keys = [_decoded(word) for line in words for word in line]
        if not keys or None in keys:
            raise Invalid(
                f"{self._setting} does not hold keys",
                hint="`tiered key new` prints one: 32 bytes in base64, one a line, the newest first",
                expected=f"{KEY_BYTES} bytes each, base64 or hexadecimal",
                found=f"{len(keys)} words",
            )
        return [key for key in keys if key is not None]


class CommandKeys:
    """Has a command wrap and unwrap: it is run with ``wrap`` or ``unwrap`` as its last argument, takes base64 on its standard
    input and answers base64 on its standard output. What it says beside that is not shown: it may be the key."""

    def __init__(self, command: str, timeout_ms: int) -> None:
        self._timeout_seconds = timeout_ms / 1000
        try:
            self._command = shlex.split(command)
        except ValueError:
            self._command = []
        if not self._command:
            raise Invalid("encryption.key_command is not a command line", hint="check its quotes")

    def key_id(self) -> str:
        return "command"

    def wrap(self, secret: bytes) -> bytes:
        return self._run("wrap", secret)

    def unwrap(self, wrapped: bytes, key_id: str) -> bytes:
        if key_id != self.key_id():
            raise Refused(
                "this archive is encrypted with another key",
                hint=f"give the key {key_id} by encryption.key_file or encryption.key_env",
                expected=key_id,
                found=self.key_id(),
            )
        return self._run("unwrap", wrapped)

    def _run(self, verb: str, given: bytes) -> bytes:
        hint = f"run the command of encryption.key_command by hand, with {verb} as its last argument"
        try:
            done = subprocess.run(
                [*self._command, verb],
                input=base64.b64encode(given) + b"\n",
                capture_output=True,
                timeout=self._timeout_seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise Unavailable(
                "the command of encryption.key_command did not end in time",
                hint=hint, expected=f"{self._timeout_seconds:g} s",
            ) from None  # fmt: skip
        except OSError as error:
            raise Invalid(
                "the command of encryption.key_command cannot be run", hint=hint, cause=error.strerror
            ) from None
        if done.returncode != 0:
            raise Unavailable(
                "the command of encryption.key_command failed", hint=hint, exit_code=done.returncode
            )
        try:
            answer = base64.b64decode(b"".join(done.stdout.split()), validate=True)
        except binascii.Error:
            answer = b""
        if not answer:
            raise Invalid("the command of encryption.key_command did not answer base64", hint=hint)
        return answer


def wrapping_key(settings: Encryption) -> WrappingKey:
    """The driver that the settings, which are on, name. ``Invalid`` where the package that encrypts is not installed."""
    require_cryptography()
    if settings.key_command:
        return CommandKeys(settings.key_command, settings.command_timeout_ms)
    if settings.key_file:
        return LocalKeys("encryption.key_file", lambda: _file_text(settings.key_file))
    return LocalKeys("encryption.key_env", lambda: _environment_text(settings.key_env))


def new_key_text(random_bytes: Callable[[int], bytes]) -> str:
    """A fresh wrapping key as files and variables hold it."""
    return base64.b64encode(random_bytes(KEY_BYTES)).decode()


def _file_text(path: str) -> str:
    try:
        return Path(path).read_text("ascii", "replace")
    except OSError as error:
        raise Invalid(
            "the key file cannot be read", hint="check encryption.key_file, and who may read it",
            found=path, cause=error.strerror,
        ) from error  # fmt: skip


def _environment_text(name: str) -> str:
    text = os.getenv(name)  # the driver is the door: a key never becomes a setting
    if text is None:
        raise Invalid(
            "the environment variable that holds the key is not set",
            hint="set it, or name another one by encryption.key_env",
            found=name,
        )
    return text


def _decoded(word: str) -> bytes | None:
    for decode in (bytes.fromhex, lambda text: base64.b64decode(text, validate=True)):
        try:
            key = decode(word)
        except ValueError:  # binascii.Error too
            continue
        if len(key) == KEY_BYTES:
            return key
    return None


def _key_id(key: bytes) -> str:
    return derived_key(key, salt=_NO_SALT, purpose=b"rocketmq-tiered wrapping key id").hex()[:16]
