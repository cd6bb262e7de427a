"""The end of a segment: a Parquet footer that carries its own checksum, so that it can be proven before it is parsed.

Two values of the footer's metadata are filled in when all other bytes are known: ``tiered.index_crc32c``, of whatever is
neither a row group nor the footer, and ``tiered.crc32c``, of the footer itself up to the file's end, with ``00000000`` in its
place.
"""

from __future__ import annotations

from tiered.codec.checksum import crc32c
from tiered.codec.types import Buffer
from tiered.errors import Corrupt, Refused

MAGIC = b"PAR1"
"""What a Parquet file begins and ends with."""

_ENCRYPTED = b"PARE"
END_BYTES = 8
"""Length of the metadata (u4) and the magic."""

MAX_FOOTER_BYTES = 64 << 20

UNKNOWN_CRC = "00000000"

FOOTER_CRC, INDEX_CRC = "tiered.crc32c", "tiered.index_crc32c"
ARCHIVE_ID, OBJECT_ID, FORMAT, DIRECTORY = (
    "tiered.archive_id", "tiered.object_id", "tiered.format", "tiered.directory",
)  # fmt: skip


def footer_bytes(tail: Buffer, *, object_length: int, key: str) -> int:
    """How many bytes at a segment's end its footer takes; ``tail``: its last bytes, 8 at least.

    ``Corrupt`` if it does not end as Parquet does or claims more than there is; ``Refused`` if it is encrypted.
    """
    end = bytes(memoryview(tail)[-END_BYTES:])
    if end[4:] == _ENCRYPTED:
        raise Refused(
            "a segment is encrypted, which this program cannot read",
            hint="use the program version that wrote it or a later one",
            key=key,
        )
    length = int.from_bytes(end[:4], "little") + END_BYTES
    most = min(object_length - len(MAGIC), MAX_FOOTER_BYTES)
    if len(end) < END_BYTES or end[4:] != MAGIC or length > most:
        raise Corrupt(
            "a segment does not end as a Parquet file",
            key=key,
            position=max(0, object_length - END_BYTES),
            expected=f"a footer of at most {most} bytes",
            found=end.hex(" "),
        )
    return length


def sealed_footer(footer: bytes, index_crc: int) -> bytes:
    """A footer with both checksums filled in."""
    made = bytearray(footer)
    at = _place(made, INDEX_CRC)
    made[at : at + 8] = b"%08x" % index_crc
    at = _place(made, FOOTER_CRC)
    made[at : at + 8] = b"%08x" % crc32c(made)
    return bytes(made)


def check_footer(footer: Buffer, *, position: int, key: str) -> None:
    """``Corrupt`` unless the footer has the checksum that it carries."""
    made = bytearray(footer)
    try:
        at = _place(made, FOOTER_CRC)
    except ValueError as error:
        raise Corrupt(
            "a segment's footer has no checksum", key=key, position=position, expected=FOOTER_CRC
        ) from error
    stated = bytes(made[at : at + 8])
    made[at : at + 8] = UNKNOWN_CRC.encode()
    found = b"%08x" % crc32c(made)
    if found != stated:
        raise Corrupt(
            "a segment's footer is damaged",
            key=key,
            position=position,
            expected=stated.decode("latin-1"),
            found=found.decode(),
        )


def _place(footer: bytearray, name: str) -> int:
    """Where the eight digits of a checksum stand. Statistics may hold anything, but lie before the metadata's values, and no
    other of those can look so; hence the last place counts."""
    shape = b"\x18" + bytes([len(name)]) + name.encode() + b"\x18\x08"
    at = footer.rindex(shape) + len(shape)
    if at + 8 > len(footer):
        raise ValueError("cut off")
    return at
