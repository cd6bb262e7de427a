"""Encrypted objects and commits: ciphertext in chunks, and a footer that is not encrypted (FORMAT.md, "Encryption").

::

    ciphertext of the whole object, its own footer included, in chunks | footer

A chunk is ``CHUNK_BYTES`` of the object, encrypted by AES-256-GCM and followed by its tag, so that any range of the object
is decrypted and proven without the rest. Every object has a key of its own, derived from a data key; a chunk's nonce is its
number. Pure; the package ``cryptography`` is imported where a key is first used.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tiered.codec.checksum import crc32c
from tiered.codec.format.sections import TRAILER_BYTES, close_footer, open_footer
from tiered.codec.types import Buffer
from tiered.errors import Corrupt, Refused, not_installed

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

CHUNK_BYTES = 32 * 1024
TAG_BYTES = 16
STORED_CHUNK_BYTES = CHUNK_BYTES + TAG_BYTES
KEY_BYTES = 32
KEY_ID_BYTES = 15

ALGORITHM = 1
"""AES-256-GCM in chunks, keys of objects derived by HKDF-SHA256."""

_OBJECT_MAGIC, _COMMIT_MAGIC = b"RMQTOBJ\n", b"RMQTCMT\n"
_FIELD = struct.Struct("<B15sQ16s16s24s")  # algorithm, key id, epoch, salt, tag of the footer, zero
_OBJECT = struct.Struct("<16s16sQBBxx80sIIIQQ")  # as an object's footer with one section, the ciphertext
_COMMIT = struct.Struct("<64sQQQIIII80s")  # as a commit's footer: ids, seq, epoch, lengths, CRCs
_CIPHERTEXT_SECTION = 9
_OBJECT_FIELD_AT, _COMMIT_FIELD_AT = 44, 104
_TAG_AT = 40  # in the field
_FOOTER_NONCE = b"\xff" * 12  # no chunk has this number

COMMIT_FOOTER_BYTES, OBJECT_FOOTER_BYTES = 256, 512


@dataclass(frozen=True, slots=True)
class DataKey:
    """The key of an epoch, 32 secret bytes, and its public id. Neither is ever shown whole."""

    key_id: bytes
    epoch: int
    archive_id: bytes
    secret: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class EncryptedFooter:
    """What an encrypted object says of itself in the open. ``raw``: its bytes, which ``tag`` proves."""

    key_id: bytes
    epoch: int
    salt: bytes
    tag: bytes
    cipher_length: int
    cipher_crc32c: int
    raw: bytes = field(repr=False)

    @property
    def stored_length(self) -> int:
        """Bytes of the object as it is stored."""
        return self.cipher_length + len(self.raw)


def plain_length(cipher_length: int) -> int:
    """Bytes of an object whose ciphertext is so long; ``Corrupt`` if none is."""
    chunks, rest = divmod(cipher_length, STORED_CHUNK_BYTES)
    if cipher_length < 1 or 0 < rest <= TAG_BYTES:
        raise Corrupt(
            "no ciphertext is of this length", expected="chunks and their tags", found=cipher_length
        )
    return chunks * CHUNK_BYTES + max(0, rest - TAG_BYTES)


def cipher_length(length: int) -> int:
    """Bytes of the ciphertext of an object of ``length`` bytes."""
    return length + TAG_BYTES * -(-length // CHUNK_BYTES)


def encrypted_footer(tail: Buffer, *, footer_bytes: int, key: str) -> EncryptedFooter | None:
    """The open footer at the end of ``tail``, of a commit or of another object by its length; ``None`` if what ends there is
    not encrypted, or no footer. ``Refused`` for an algorithm that a newer program brought."""
    commit = footer_bytes == COMMIT_FOOTER_BYTES
    magic = _COMMIT_MAGIC if commit else _OBJECT_MAGIC
    if len(tail) < footer_bytes or bytes(memoryview(tail)[-8:]) != magic:
        return None
    try:
        body, _ = open_footer(tail, magic, footer_bytes, what="an object", key=key, position=None)
    except Corrupt:
        return None
    at = _COMMIT_FIELD_AT if commit else _OBJECT_FIELD_AT
    algorithm, key_id, epoch, salt, tag, zero = _FIELD.unpack_from(body, at)
    if not any(body[at : at + _FIELD.size]):
        return None
    if algorithm != ALGORITHM or any(zero):
        raise Refused(
            "an object is encrypted in a way that this program does not know",
            hint="use the program version that wrote it or a later one",
            key=key,
            expected=f"algorithm {ALGORITHM}",
            found=algorithm,
        )
    if commit:
        _, _, _, _, length, _, _, crc, _ = _COMMIT.unpack_from(body)
    else:
        _, crc, _, length = _OBJECT.unpack_from(body)[-4:]
    return EncryptedFooter(key_id, epoch, salt, tag, length, crc, bytes(memoryview(tail)[-footer_bytes:]))


class ObjectCipher:
    """Encrypts and decrypts one object. ``path``: its place under the broker's root; ``salt``: 16 bytes that no other content
    under this path ever had."""

    def __init__(self, data_key: DataKey, path: str, salt: bytes) -> None:
        self._data_key, self._salt = data_key, salt
        self._bound = data_key.archive_id + path.encode("utf-8", "surrogateescape")
        self._cipher = _derived(data_key, self._bound, salt)

    def encrypt(self, parts: Sequence[Buffer], *, commit_footer: Buffer | None = None) -> list[Buffer]:
        """The stored bytes of the object ``parts``. ``commit_footer``: that of a commit, whose ids and numbers stay open."""
        views = [memoryview(part).cast("B") for part in parts if len(part)]
        ciphertext = memoryview(bytearray(cipher_length(sum(map(len, views)))))
        at = 0
        for number, chunk in enumerate(_chunks(views)):
            end = at + len(chunk) + TAG_BYTES
            self._cipher.encrypt_into(_nonce(number), chunk, self._bound, ciphertext[at:end])
            at = end
        crc = crc32c(ciphertext)
        return [ciphertext, self._footer(len(ciphertext), crc, commit_footer)]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectCipher) and self._names() == other._names()

    def __hash__(self) -> int:
        return hash(self._names())

    def _names(self) -> tuple[bytes, bytes, bytes]:
        return self._data_key.key_id, self._bound, self._salt

    def decrypt(self, stored: Buffer, first_chunk: int, *, key: str) -> memoryview:
        """Chunks from ``first_chunk`` on, whole; the last of an object may be short. ``Corrupt`` unless each is what was
        encrypted there."""
        view = memoryview(stored)
        at = first_chunk * STORED_CHUNK_BYTES
        plain = memoryview(bytearray(plain_length(len(view)) if len(view) else 0))
        for number in range(-(-len(view) // STORED_CHUNK_BYTES)):
            piece = view[number * STORED_CHUNK_BYTES : (number + 1) * STORED_CHUNK_BYTES]
            begin = number * CHUNK_BYTES
            target = plain[begin : begin + len(piece) - TAG_BYTES]
            self._open(_nonce(first_chunk + number), piece, target, key, at + number * STORED_CHUNK_BYTES)
        return plain.toreadonly()

    def check_footer(self, footer: EncryptedFooter, *, key: str) -> None:
        """``Corrupt`` unless the open footer is the one that was written with this object."""
        position = footer.stored_length - len(footer.raw)
        if footer.key_id != self._data_key.key_id or footer.epoch != self._data_key.epoch:
            raise Corrupt(
                "an object is encrypted with the key of another epoch", key=key, position=position,
                expected=self._data_key.epoch, found=footer.epoch,
            )  # fmt: skip
        bound = self._bound + _without_tag(footer.raw)
        self._open(_FOOTER_NONCE, footer.tag, memoryview(bytearray(0)), key, position, bound)

    def _open(
        self, nonce: bytes, stored: Buffer, into: memoryview, key: str, at: int, bound: bytes | None = None
    ) -> None:
        from cryptography.exceptions import InvalidTag

        try:
            self._cipher.decrypt_into(nonce, stored, self._bound if bound is None else bound, into)
        except InvalidTag:
            raise Corrupt(
                "encrypted bytes are not what was written here", key=key, position=at,
                expected="the tag of this place in this object", found="another",
            ) from None  # fmt: skip

    def _footer(self, length: int, crc: int, commit_footer: Buffer | None) -> bytes:
        key_id, epoch, archive_id = self._data_key.key_id, self._data_key.epoch, self._data_key.archive_id
        encryption = _FIELD.pack(ALGORITHM, key_id, epoch, self._salt, bytes(16), bytes(24))
        if commit_footer is None:
            stored = length + OBJECT_FOOTER_BYTES
            section = (_CIPHERTEXT_SECTION, crc, 0, length)
            body = _OBJECT.pack(self._salt, archive_id, stored, 0, 1, encryption, 0, *section)
            size, at, magic = OBJECT_FOOTER_BYTES, _OBJECT_FIELD_AT, _OBJECT_MAGIC
        else:
            ids, seq, commit_epoch, *_ = _COMMIT.unpack_from(commit_footer)
            body = _COMMIT.pack(ids, seq, commit_epoch, 0, length, 0, 0, crc, encryption)
            size, at, magic = COMMIT_FOOTER_BYTES, _COMMIT_FIELD_AT, _COMMIT_MAGIC
        body = body.ljust(size - TRAILER_BYTES, b"\0")
        tag = self._cipher.encrypt(_FOOTER_NONCE, b"", self._bound + body)
        at += _TAG_AT
        return close_footer(body[:at] + tag + body[at + TAG_BYTES :], magic)


def require_cryptography() -> None:
    """Raises ``Invalid`` where the package that encrypts is not installed."""
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise not_installed("encryption", "cryptography", "encryption") from None


def derived_key(secret: bytes, *, salt: bytes, purpose: bytes) -> bytes:
    """32 bytes that follow from a secret by HKDF-SHA256 and say nothing of it."""
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    made: bytes = HKDF(SHA256(), KEY_BYTES, salt, purpose).derive(secret)
    return made


def _derived(data_key: DataKey, bound: bytes, salt: bytes) -> AESGCM:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(derived_key(data_key.secret, salt=salt, purpose=b"rocketmq-tiered object\0" + bound))


def _nonce(number: int) -> bytes:
    return number.to_bytes(12, "little")


def _without_tag(footer: bytes) -> bytes:
    at = (_COMMIT_FIELD_AT if len(footer) == COMMIT_FOOTER_BYTES else _OBJECT_FIELD_AT) + _TAG_AT
    return footer[:at] + bytes(TAG_BYTES) + footer[at + TAG_BYTES : -TRAILER_BYTES]


def _chunks(views: Sequence[memoryview]) -> Iterator[Buffer]:
    """The concatenation in pieces of ``CHUNK_BYTES``, the last one shorter; copied only where one crosses two parts."""
    waiting = b""
    for view in views:
        at = 0
        if waiting:
            at = CHUNK_BYTES - len(waiting)
            waiting += view[:at]
            if len(waiting) < CHUNK_BYTES:
                continue
            yield waiting
        whole = at + (len(view) - at) // CHUNK_BYTES * CHUNK_BYTES if len(view) > at else len(view)
        for begin in range(at, whole, CHUNK_BYTES):
            yield view[begin : begin + CHUNK_BYTES]
        waiting = bytes(view[whole:])
    if waiting:
        yield waiting
