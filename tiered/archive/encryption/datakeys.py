"""Data keys of one archive: one an epoch, each wrapped in an object of the bucket (FORMAT.md, "Data keys")."""

from __future__ import annotations

import base64
import hashlib
import threading
from collections.abc import Callable
from dataclasses import dataclass

from tiered.archive.encryption.wrapping import WrappingKey
from tiered.archive.keys import DATAKEY_PREFIX, Area, ObjectKey, build, parse
from tiered.codec.format.encryption import KEY_BYTES, KEY_ID_BYTES, DataKey
from tiered.codec.summedline import decode_line, encode_line
from tiered.errors import Corrupt, NotFound, Refused, TieredError
from tiered.provider.base import Provider
from tiered.provider.resolve import put_own
from tiered.version import FORMAT_VERSION

_MAX_BYTES = 64 * 1024
_PROOF_BYTES = 16
_FIELDS = {"format", "archive_id", "epoch", "key_id", "wrapping_key", "wrapped"}


@dataclass(frozen=True, slots=True)
class WrappedKey:
    """A data key as the bucket has it. ``wrapping_key``: id of the key that unwraps it; ``path``: under the broker's root."""

    path: str
    archive_id: bytes
    epoch: int
    key_id: bytes
    wrapping_key: str
    wrapped: bytes

    def encode(self) -> bytes:
        """The object's bytes: a line of JSON, and its checksum."""
        return encode_line({
            "format": FORMAT_VERSION, "archive_id": self.archive_id.hex(), "epoch": self.epoch, "key_id": self.key_id.hex(),
            "wrapping_key": self.wrapping_key, "wrapped": base64.b64encode(self.wrapped).decode(),
        })  # fmt: skip


def decode_wrapped_key(data: bytes, path: str, key: str) -> WrappedKey:
    """``Corrupt`` if it is not a data key or lies under another's key; ``Refused`` if a newer program made it."""
    try:
        fields = decode_line(data)
        if int(fields["format"]) > FORMAT_VERSION:
            raise Refused(
                "a data key of the archive was written by a newer program",
                hint="install that program's version or a later one",
                key=key, expected=f"format ≤ {FORMAT_VERSION}", found=fields["format"],
            )  # fmt: skip
        found = WrappedKey(
            path,
            bytes.fromhex(fields["archive_id"]),
            int(fields["epoch"]),
            bytes.fromhex(fields["key_id"]),
            str(fields["wrapping_key"]),
            base64.b64decode(fields["wrapped"], validate=True),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise Corrupt("a data key of the archive is not one", key=key, found=repr(data[:80])) from error
    place = parse(path)
    whole = set(fields) == _FIELDS and (len(found.archive_id), len(found.key_id)) == (16, KEY_ID_BYTES)
    if not whole or not isinstance(place, ObjectKey) or place.epoch != found.epoch:
        raise Corrupt(
            "a data key of the archive is stored under another's key", key=key, found=repr(data[:80])
        )
    return found


def read_wrapped_key(provider: Provider, path: str, key: str) -> WrappedKey:
    """A data key as it is stored under ``key``. See ``decode_wrapped_key``; ``NotFound``."""
    return decode_wrapped_key(bytes(provider.get(key, 0, _MAX_BYTES).data), path, key)


def wrap_key(data_key: DataKey, wrapping: WrappingKey, object_id: bytes) -> WrappedKey:
    """A data key wrapped, together with a proof of what it is for. ``Refused`` if it cannot be unwrapped again: the wrapping
    key was changed in between, or a command answered something else."""
    key_id = wrapping.key_id()
    wrapped = wrapping.wrap(data_key.secret + _proof(data_key.archive_id, data_key.epoch, data_key.key_id))
    path = build(ObjectKey(Area.DATAKEY, data_key.epoch, object_id))
    made = WrappedKey(path, data_key.archive_id, data_key.epoch, data_key.key_id, key_id, wrapped)
    unwrap_key(made, wrapping)
    return made


def unwrap_key(found: WrappedKey, wrapping: WrappingKey) -> DataKey:
    """``Refused`` for a wrong wrapping key, or a data key that was wrapped for something else."""
    opened = wrapping.unwrap(found.wrapped, found.wrapping_key)
    proof = _proof(found.archive_id, found.epoch, found.key_id)
    if len(opened) != KEY_BYTES + _PROOF_BYTES or opened[KEY_BYTES:] != proof:
        raise Refused(
            "a data key of this archive is not what was wrapped for it",
            hint="check that encryption.key_file, key_env or key_command give this archive's key",
            path=found.path,
            epoch=found.epoch,
        )
    return DataKey(found.key_id, found.epoch, found.archive_id, opened[:KEY_BYTES])


def _proof(archive_id: bytes, epoch: int, key_id: bytes) -> bytes:
    bound = b"rocketmq-tiered data key\0" + archive_id + epoch.to_bytes(8, "little") + key_id
    return hashlib.sha256(bound).digest()[:_PROOF_BYTES]


def wrapped_paths(provider: Provider, root: str) -> dict[int, list[str]]:
    """Paths of wrapped data keys below the root of a broker, by epoch."""
    paths: dict[int, list[str]] = {}
    for stored in provider.list(root + DATAKEY_PREFIX):
        path = stored.key.removeprefix(root)
        found = parse(path)
        if isinstance(found, ObjectKey):
            paths.setdefault(found.epoch, []).append(path)
    return paths


class DataKeys:
    """Data keys of the archive below ``root``. Thread-safe. What is listed and unwrapped is kept for the life of the process.

    An epoch's data key is stored before anything else of that epoch but its ``OpenEpoch``. So whoever knows of anything else
    finds the key by a listing made later, and an epoch without one is plain: if it lies before the first that has one. An epoch
    has more than one data key where a bucket lost its newest commits, and their numbers were used again.
    """

    def __init__(self, provider: Provider, root: str, wrapping: WrappingKey) -> None:
        self._provider, self._root, self._wrapping = provider, root, wrapping
        self._lock = threading.RLock()
        self._paths: dict[int, list[str]] | None = None
        self._heard = -1  # the highest epoch known to be when the keys were listed
        self._read_paths: dict[str, WrappedKey] = {}
        self._damaged: dict[str, Corrupt] = {}  # wrappings, by path
        self._keys: dict[tuple[int, bytes], DataKey] = {}
        self._sole: dict[int, DataKey] = {}
        self._made: tuple[DataKey, WrappedKey] | None = None
        self._own: DataKey | None = None

    def is_encrypted(self, epoch: int) -> bool:
        """Whether what was made in an epoch, but for its ``OpenEpoch``, is encrypted. ``Refused`` if its data key is gone."""
        if epoch in self._sole:
            return True
        with self._lock:
            paths = self._listed()
            if epoch not in paths and (epoch > self._heard or (paths and epoch > min(paths))):
                self._heard = max(self._heard, epoch)
                paths = self._listed(again=True)  # one that was gone may have been put again
            if epoch not in paths and paths and epoch > min(paths):
                raise self.missing(epoch)
            return epoch in paths

    def missing(self, epoch: int) -> Refused:
        """What to say where something is encrypted and the data key of its epoch is not in the archive."""
        return Refused(
            "the data key of an epoch is gone from the archive, and with it what was encrypted",
            hint="tiered scrub --once --repair --copy URL puts it again from a copy of the archive; or restore datakey/",
            key=f"{self._root}{DATAKEY_PREFIX}{epoch:010d}-…",
        )

    def for_put(self, epoch: int) -> DataKey | None:
        """A data key of an epoch, this process's own if it opened it; ``None`` if the epoch is plain."""
        if self._own is not None and self._own.epoch == epoch:
            return self._own
        if not self.is_encrypted(epoch):
            return None
        return self.sole(epoch) or self.of_footer(epoch, next(iter(self._wrappings(epoch))))

    def sole(self, epoch: int) -> DataKey | None:
        """The data key of an encrypted epoch, ``None`` if it has more than one. ``Refused`` for a wrong wrapping key."""
        found = self._sole.get(epoch)
        if found is not None:
            return found
        with self._lock:
            ids = list(self._wrappings(epoch))
            if len(ids) != 1 or self._damage(epoch) is not None:
                return None
            self._sole[epoch] = self.of_footer(epoch, ids[0])
            return self._sole[epoch]

    def of_footer(self, epoch: int, key_id: bytes) -> DataKey:
        """The data key that an open footer names. ``Refused`` for a wrong wrapping key, or if it is gone."""
        found = self._keys.get((epoch, key_id))
        if found is not None:
            return found
        with self._lock:
            wrappings = self._wrappings(epoch).get(key_id)
            if wrappings is None:
                self._listed(again=True)
                self._sole.pop(epoch, None)
                wrappings = self._wrappings(epoch).get(key_id)
            if wrappings is None:
                raise self._damage(epoch) or self.missing(epoch)
            self._keys[(epoch, key_id)] = self._unwrapped(wrappings)
            return self._keys[(epoch, key_id)]

    def known(self, epoch: int) -> bool:
        """Whether an epoch is known to be encrypted, without asking the store again."""
        return epoch in self._sole or epoch in self._listed()

    def newest(self) -> DataKey | None:
        """A data key for what belongs to no epoch: of the last that has one; ``None`` if all are plain."""
        if self._own is not None:
            return self._own
        epochs = self._listed()
        return self.for_put(max(epochs)) if epochs else None

    def check_wrapping(self, random_bytes: Callable[[int], bytes]) -> None:
        """Wrap and unwrap something, before anything depends on it; the newest data key too, if there is one."""
        secret, key_id = random_bytes(KEY_BYTES), self._wrapping.key_id()
        if self._wrapping.unwrap(self._wrapping.wrap(secret), key_id) != secret:
            raise Refused(
                "what the archive's key wraps it does not unwrap",
                hint="check the command of encryption.key_command",
                found=key_id,
            )
        with self._lock:
            self._listed(again=True)
        self.newest()

    def make(self, epoch: int, archive_id: bytes, random_bytes: Callable[[int], bytes]) -> None:
        """Make the data key of an epoch that this process has opened and store it wrapped: from now on it is encrypted.

        After ``Unavailable``, which says nothing of what was stored, another call stores the very same.
        """
        if self._made is None or self._made[0].epoch != epoch:
            made = DataKey(random_bytes(KEY_ID_BYTES), epoch, archive_id, random_bytes(KEY_BYTES))
            self._made = made, wrap_key(made, self._wrapping, random_bytes(16))
        made, wrapped = self._made
        put_own(self._provider, self._root + wrapped.path, [wrapped.encode()])
        with self._lock:
            self._own, self._made = made, None
            self._keys[(epoch, made.key_id)] = made
            self._read_paths[wrapped.path] = wrapped
            self._sole.pop(epoch, None)
            self._listed(again=True)

    def wrapped(self) -> list[WrappedKey]:
        """Every wrapping of every data key, by epoch; of damaged ones those of epochs that have no other are ``Corrupt``."""
        with self._lock:
            return [each for epoch in sorted(self._listed(again=True)) for each in self._sound(epoch)]

    def newest_wrapped(self) -> list[WrappedKey]:
        """The wrappings of the last epoch that has any."""
        with self._lock:
            paths = self._listed(again=True)
            return self._sound(max(paths)) if paths else []

    def wrap_again(self, random_bytes: Callable[[int], bytes]) -> list[WrappedKey]:
        """Wrap with the present wrapping key whatever that has not wrapped yet, by any wrapping that opens. Nothing is
        rewritten; those that are new. Where a data key does not open the error is raised once all others are wrapped."""
        present, made = self._wrapping.key_id(), []
        failure: TieredError | None = None
        for epoch in sorted(self._listed(again=True)):
            try:
                for wrappings in self._wrappings(epoch).values():
                    if all(old.wrapping_key != present for old in wrappings):
                        new = wrap_key(self._unwrapped(wrappings), self._wrapping, random_bytes(16))
                        put_own(self._provider, self._root + new.path, [new.encode()])
                        made.append(new)
            except (Corrupt, Refused) as error:
                failure = failure or error
        if failure is not None:
            raise failure
        return made

    def _listed(self, *, again: bool = False) -> dict[int, list[str]]:
        with self._lock:
            if self._paths is None or again:
                self._paths = wrapped_paths(self._provider, self._root)
                self._damaged.clear()
            return self._paths

    def _wrappings(self, epoch: int) -> dict[bytes, list[WrappedKey]]:
        """Wrappings of an epoch's data keys, by their ids. ``Corrupt`` if none of them is sound."""
        found: dict[bytes, list[WrappedKey]] = {}
        for path in self._listed().get(epoch, ()):
            if path in self._damaged:
                continue
            try:
                wrapped = self._read(path)
            except Corrupt as error:
                self._damaged[path] = error
                continue
            found.setdefault(wrapped.key_id, []).append(wrapped)
        damage = self._damage(epoch)
        if not found and damage is not None:
            self._damaged.clear()  # read again when it is asked for again
            raise damage
        return found

    def _sound(self, epoch: int) -> list[WrappedKey]:
        return [each for wrappings in self._wrappings(epoch).values() for each in wrappings]

    def _damage(self, epoch: int) -> Corrupt | None:
        """What is wrong with a wrapping of an epoch, if one is damaged."""
        return next((self._damaged[p] for p in self._listed().get(epoch, ()) if p in self._damaged), None)

    def _unwrapped(self, wrappings: list[WrappedKey]) -> DataKey:
        """The key by any of its wrappings; the last error if none opens."""
        failure: Refused | None = None
        for wrapped in wrappings:
            try:
                return unwrap_key(wrapped, self._wrapping)
            except Refused as error:
                failure = error
        assert failure is not None  # a key has at least one wrapping
        raise failure

    def _read(self, path: str) -> WrappedKey:
        found = self._read_paths.get(path)
        if found is None:
            key = self._root + path
            try:
                found = read_wrapped_key(self._provider, path, key)
            except NotFound:
                place = parse(path)
                raise self.missing(place.epoch if isinstance(place, ObjectKey) else 0) from None
            self._read_paths[path] = found
        return found
