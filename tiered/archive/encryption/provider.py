"""The provider that encrypts what is put and decrypts what is read (DESIGN.md, "Encryption").

It stands above the wrappers that retry, count and slow down, so that a request sent again carries the same bytes, and below
everything that knows what an object means. Lengths and ranges are those of the plain object.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from cachetools import LRUCache

from tiered.archive.encryption.datakeys import DataKeys
from tiered.archive.encryption.wrapping import WrappingKey, wrapping_key
from tiered.archive.keys import Area, CheckpointKey, CommitKey, KeyValueKey, ObjectKey, RepairKey, parse
from tiered.archive.names import decode_name
from tiered.codec.format.commit import decode_commit, decode_commit_footer
from tiered.codec.format.edits import EditKind
from tiered.codec.format.encryption import (
    CHUNK_BYTES,
    COMMIT_FOOTER_BYTES,
    OBJECT_FOOTER_BYTES,
    STORED_CHUNK_BYTES,
    TAG_BYTES,
    EncryptedFooter,
    ObjectCipher,
    encrypted_footer,
    plain_length,
)
from tiered.codec.types import Buffer
from tiered.errors import Corrupt, Refused
from tiered.provider.base import Capabilities, Fetched, Provider, Stored
from tiered.provider.body import joined
from tiered.provider.resolve import tail
from tiered.provider.wrap import Wrapped
from tiered.settings.keeping import Encryption

_FOOTERS_KEPT = 4096


@dataclass(frozen=True, slots=True)
class _Place:
    """A key that may be encrypted. ``epoch``: of one whose key names epoch and object id; else the footer says which."""

    key: str
    root: str
    path: str
    footer_bytes: int
    epoch: int | None = None
    object_id: bytes = b""


class Encrypting(Wrapped):
    """``inner``, with archives encrypted on their way to it. Thread-safe. Any number of archives may lie below it.

    An object is decrypted if its epoch has a data key, or its open footer says so: an archive that was plain once is read on.
    """

    def __init__(self, inner: Provider, wrapping: WrappingKey, random_bytes: Callable[[int], bytes]) -> None:
        super().__init__(inner)
        self._wrapping, self._random_bytes = wrapping, random_bytes
        self._lock = threading.Lock()
        self._archives: dict[str, DataKeys] = {}
        self._footers: LRUCache[str, EncryptedFooter | None] = LRUCache(_FOOTERS_KEPT)

    @property
    def capabilities(self) -> Capabilities:
        """The wrapped provider's, and that it encrypts."""
        return replace(self.inner.capabilities, encryptor=self)

    def data_keys(self, root: str) -> DataKeys:
        """The data keys of the archive below ``root`` (``<cluster>/<broker>/``)."""
        with self._lock:
            return self._archives.setdefault(root, DataKeys(self.inner, root, self._wrapping))

    def check(self, root: str) -> None:
        """See ``Encryptor.check``."""
        self.data_keys(root).check_wrapping(self._random_bytes)

    def open_epoch(self, root: str, archive_id: bytes, epoch: int) -> None:
        """See ``Encryptor.open_epoch``."""
        self.data_keys(root).make(epoch, archive_id, self._random_bytes)

    # ---- put

    def put(self, key: str, parts: Sequence[Buffer], *, create_only: bool = True) -> Stored:
        place = _place_of(key)
        cipher, footer = (None, None) if place is None else self._cipher_for_put(place, parts)
        if cipher is None:
            return self.inner.put(key, parts, create_only=create_only)
        stored = self.inner.put(key, cipher.encrypt(parts, commit_footer=footer), create_only=create_only)
        return replace(stored, length=sum(memoryview(part).nbytes for part in parts))

    def _cipher_for_put(
        self, place: _Place, parts: Sequence[Buffer]
    ) -> tuple[ObjectCipher | None, Buffer | None]:
        keys = self.data_keys(place.root)
        footer: bytes | None = None
        if place.epoch is not None:
            data_key, salt = keys.for_put(place.epoch), place.object_id
            if data_key is not None and place.path.startswith(f"{Area.SEGMENT.value}/"):
                raise Refused(
                    "the archive is encrypted, and Spark could not open a sealed file with its key",
                    hint="leave its days unsealed",
                    key=place.key,
                )
        elif place.footer_bytes == OBJECT_FOOTER_BYTES:
            data_key, salt = keys.newest(), self._random_bytes(16)
        else:
            footer = tail(parts, COMMIT_FOOTER_BYTES)
            epoch = decode_commit_footer(footer, key=place.key).epoch
            plain = not keys.known(epoch) and _opens_epoch(joined(parts), place.key)
            data_key, salt = (None if plain else keys.for_put(epoch)), self._random_bytes(16)
        return (None if data_key is None else ObjectCipher(data_key, place.path, salt)), footer

    # ---- read

    def get(self, key: str, start: int | None = None, length: int | None = None) -> Fetched:
        place = _place_of(key)
        if place is None or (place.epoch is not None and not self._is_encrypted(place)):
            return self.inner.get(key, start, length)
        if start is None or start < 0 or (start == 0 and length is None):
            return self._end(place, -start if start else None)
        cipher = self._sole_cipher(place) or self._cipher_of(place, self._footer(place))
        if cipher is None:
            return self.inner.get(key, start, length)
        try:
            return self._range(place, cipher, start, length)
        except (
            Corrupt
        ):  # damage, or another object than the one seen last: repaired, or of an epoch that was opened again
            found = self._cipher_of(place, self._footer(place, again=True))
            if found is None or found == cipher:
                raise
        return self._range(place, found, start, length)

    def head(self, key: str) -> Stored:
        return self._plain(self.inner.head(key))

    def list(
        self, prefix: str, *, start_after: str | None = None, limit: int | None = None
    ) -> Iterator[Stored]:
        """See ``Provider.list``. Lengths of commits and manifests are those that are stored: only they themselves say what they
        are."""
        return map(self._plain, self.inner.list(prefix, start_after=start_after, limit=limit))

    def _plain(self, stored: Stored) -> Stored:
        place = _place_of(stored.key)
        if place is None or place.epoch is None or not self._is_encrypted(place):
            return stored
        try:
            return replace(stored, length=plain_length(stored.length - place.footer_bytes))
        except Corrupt:  # cut off: said by who reads it
            return stored

    def _is_encrypted(self, place: _Place) -> bool:
        assert place.epoch is not None
        return self.data_keys(place.root).is_encrypted(place.epoch)

    def _end(self, place: _Place, count: int | None) -> Fetched:
        """The last ``count`` bytes, or all; the open footer comes along."""
        asked = None if count is None else _stored_tail(count) + place.footer_bytes
        fetched = self.inner.get(place.key, None if asked is None else -asked)
        footer = self._seen(place, fetched.data)
        if footer is None:
            return self._end_as_it_is(place, fetched, count, asked)
        whole = memoryview(fetched.data).cast("B")
        if len(whole) != footer.stored_length and (asked is None or len(whole) < asked):
            raise Corrupt(
                "an object is not as long as its footer says",
                key=place.key, expected=footer.stored_length, found=len(whole),
            )  # fmt: skip
        cipher = self._cipher_of(place, footer)
        assert cipher is not None
        cipher.check_footer(footer, key=place.key)
        length = plain_length(footer.cipher_length)
        begin = 0 if count is None else max(0, length - count)
        first = begin // CHUNK_BYTES
        at = first * STORED_CHUNK_BYTES - (footer.stored_length - len(whole))
        plain = cipher.decrypt(whole[at : len(whole) - place.footer_bytes], first, key=place.key)
        return replace(fetched, data=plain[begin - first * CHUNK_BYTES :], object_length=length)

    def _end_as_it_is(self, place: _Place, fetched: Fetched, count: int | None, asked: int | None) -> Fetched:
        data = fetched.data
        if place.epoch is not None:
            raise Corrupt(
                "an object of an encrypted epoch does not end as one",
                key=place.key,
                expected="an open footer",
            )
        if place.footer_bytes == COMMIT_FOOTER_BYTES:
            self._check_plain_commit(place, data)
        total = fetched.object_length
        if total is None and (asked is None or len(data) < asked):
            total = len(data)
        kept = data if count is None else memoryview(data)[max(0, len(data) - count) :]
        return replace(fetched, data=kept, object_length=total)

    def _check_plain_commit(self, place: _Place, data: Buffer) -> None:
        """Of an encrypted epoch only the commit that opened it is plain."""
        try:
            epoch = decode_commit_footer(data, key=place.key).epoch
            allowed = not self.data_keys(place.root).known(epoch) or _opens_epoch(data, place.key)
        except Corrupt:  # said by who decodes it
            return
        if not allowed:
            raise Corrupt(
                "a commit of an encrypted epoch is not encrypted", key=place.key, expected="an encrypted one"
            )

    def _range(self, place: _Place, cipher: ObjectCipher, start: int, length: int | None) -> Fetched:
        """Whole chunks are fetched, and as much more as a footer has: so where an object ends its footer is seen, and what lies
        before it is its last chunk."""
        first = start // CHUNK_BYTES
        at = first * STORED_CHUNK_BYTES
        asked: int | None = None
        if length is not None:
            end = max(first + 1, -(-(start + length) // CHUNK_BYTES))
            asked = end * STORED_CHUNK_BYTES - at + place.footer_bytes
        fetched = self.inner.get(place.key, at, asked)
        data = memoryview(fetched.data).cast("B")
        total = fetched.object_length
        if data and (asked is None or len(data) < asked):
            total = at + len(data)
            self._check_end(place, data, total, cipher)
        plain = cipher.decrypt(data[: max(0, len(data) - place.footer_bytes)], first, key=place.key)
        begin = start - first * CHUNK_BYTES
        return replace(
            fetched,
            data=plain[begin : None if length is None else begin + length],
            object_length=None if total is None else plain_length(total - place.footer_bytes),
        )

    def _check_end(self, place: _Place, data: memoryview, total: int, cipher: ObjectCipher) -> None:
        if len(data) < place.footer_bytes:  # a range that begins behind the ciphertext
            return
        found = encrypted_footer(data, footer_bytes=place.footer_bytes, key=place.key)
        if found is None or found.stored_length != total:
            raise Corrupt(
                "an encrypted object does not end as one", key=place.key,
                expected="an open footer" if found is None else f"{found.stored_length} bytes", found=f"{total} bytes",
            )  # fmt: skip
        cipher.check_footer(found, key=place.key)

    def _footer(self, place: _Place, *, again: bool = False) -> EncryptedFooter | None:
        """The open footer of an object; ``None`` if it is plain."""
        with self._lock:
            if not again and place.key in self._footers:
                return self._footers[place.key]
        return self._seen(place, self.inner.get(place.key, -place.footer_bytes).data)

    def _seen(self, place: _Place, data: Buffer) -> EncryptedFooter | None:
        footer = encrypted_footer(data, footer_bytes=place.footer_bytes, key=place.key)
        if footer is not None or _is_plain_commit(place, data):  # a damaged one may be mended
            with self._lock:
                self._footers[place.key] = footer
        return footer

    def _sole_cipher(self, place: _Place) -> ObjectCipher | None:
        """What decrypts an object whose key says how; ``None`` if its footer must be asked."""
        if place.epoch is None:
            return None
        data_key = self.data_keys(place.root).sole(place.epoch)
        return None if data_key is None else ObjectCipher(data_key, place.path, place.object_id)

    def _cipher_of(self, place: _Place, footer: EncryptedFooter | None) -> ObjectCipher | None:
        if footer is None:
            return None
        data_key = self.data_keys(place.root).of_footer(footer.epoch, footer.key_id)
        return ObjectCipher(data_key, place.path, footer.salt)


def _is_plain_commit(place: _Place, data: Buffer) -> bool:
    if place.footer_bytes != COMMIT_FOOTER_BYTES:
        return False
    try:
        decode_commit_footer(data, key=place.key)
    except (Corrupt, Refused):
        return False
    return True


def encrypted(provider: Provider, settings: Encryption) -> Provider:
    """``provider``, encrypting if the settings name a key. Makes no request, and does not ask for the key yet."""
    return Encrypting(provider, wrapping_key(settings), os.urandom) if settings.on else provider


@lru_cache(1024)
def _is_name(segment: str) -> bool:
    """Whether a part of a key can be a cluster's or broker's."""
    return decode_name(segment) is not None


def _place_of(key: str) -> _Place | None:
    """``None`` for what is never encrypted: the identity, holds, data keys, the probe's own, foreign keys."""
    cluster, _, rest = key.partition("/")
    broker, _, path = rest.partition("/")
    if not (_is_name(cluster) and _is_name(broker)):
        return None
    root = f"{cluster}/{broker}/"
    match parse(path):
        case ObjectKey(area, epoch, object_id) if area is not Area.DATAKEY:
            return _Place(key, root, path, OBJECT_FOOTER_BYTES, epoch, object_id)
        case CommitKey() | RepairKey():
            return _Place(key, root, path, COMMIT_FOOTER_BYTES)
        case CheckpointKey() | KeyValueKey():
            return _Place(key, root, path, OBJECT_FOOTER_BYTES)
        case _:
            return None


def _stored_tail(count: int) -> int:
    """Stored bytes at the end of the ciphertext that hold the chunks of the last ``count`` bytes."""
    return count + CHUNK_BYTES + TAG_BYTES * (count // CHUNK_BYTES + 3)


def _opens_epoch(data: Buffer, key: str) -> bool:
    """Whether a commit, at whose end ``data`` lies, is one with an ``OpenEpoch``, which holds nothing else."""
    footer = decode_commit_footer(data, key=key)
    if footer.inline_length or footer.tail_length > len(data):
        return False
    edits = decode_commit(memoryview(data)[len(data) - footer.tail_length :], key=key).edits
    return [edit.kind for edit in edits] == [EditKind.OPEN_EPOCH]
