"""Records laid down field by field with ``struct``, sound or not, and Hypothesis strategies of them; no code of ``tiered``."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

from hypothesis import strategies as st

MAGICS = (0xDAA320A7, 0xDAA320AB)
_FIELDS = st.fixed_dictionaries(
    {
        "queue_id": st.integers(0, 7),
        "flag": st.integers(-(1 << 31), (1 << 31) - 1),
        "queue_offset": st.integers(0, 1 << 40),
        "physical_offset": st.integers(0, 1 << 40),
        "transaction": st.sampled_from((0, 0, 0x4, 0x8, 0xC)),
        "bits": st.sampled_from((0, 1, 2, 0x80, 0x201, 0x340)),
        "born_timestamp": st.one_of(st.integers(0, 1 << 44), st.integers(-(1 << 63), (1 << 63) - 1)),
        "store_timestamp": st.integers(0, 1 << 48),
        "reconsume_times": st.integers(0, 16),
        "prepared": st.integers(-(1 << 63), (1 << 63) - 1),
    }
)


@dataclass(frozen=True, slots=True)
class OddRecord:
    """The bytes of a record and the queue offset it is archived at."""

    raw: bytes
    queue_id: int
    queue_offset: int


def laid(
    fields: dict[str, int], *, topic: bytes, body: bytes, properties: bytes, born: bytes, store: bytes, v2: bool,
    trailing: bytes = b"", crc: int | None = None,
) -> bytes:  # fmt: skip
    """One record; hosts of 8 or 20 bytes."""
    flags = fields["transaction"] | fields["bits"] | 0x10 * (len(born) == 20) | 0x20 * (len(store) == 20)
    sum_ = zlib.crc32(body) & 0x7FFFFFFF if crc is None else crc
    rest = struct.pack(
        ">IIiiqqiq", MAGICS[v2], sum_, fields["queue_id"], fields["flag"], fields["queue_offset"],
        fields["physical_offset"], flags, fields["born_timestamp"],
    )  # fmt: skip
    rest += born + struct.pack(">q", fields["store_timestamp"]) + store
    rest += struct.pack(">iqi", fields["reconsume_times"], fields["prepared"], len(body)) + body
    rest += struct.pack(">H" if v2 else ">B", len(topic)) + topic
    rest += struct.pack(">H", len(properties)) + properties + trailing
    return struct.pack(">i", len(rest) + 4) + rest


hosts = st.one_of(
    st.sampled_from((bytes((10, 1, 2, 3, 0, 0, 195, 80)), bytes(20), bytes(8))),
    st.binary(min_size=8, max_size=8),
    st.binary(min_size=20, max_size=20),
)
_name = st.sampled_from(("TAGS", "KEYS", "UNIQ_KEY", "INNER_NUM", "é", "a b", "\x7f"))
_text = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1, max_size=9)
_entry = st.builds(
    lambda name, value: f"{name}\x01{value}\x02".encode(),
    st.one_of(_name, _text),
    st.one_of(_text, st.just(" a  b ")),
)
sound_properties = st.lists(_entry, max_size=5).map(b"".join)
odd_properties = st.one_of(
    sound_properties.map(lambda area: area[:-1]),  # the last separator is missing
    sound_properties.map(lambda area: area + b"\x02"),
    sound_properties.map(lambda area: area * 2),  # every name twice
    st.binary(max_size=24),
    st.sampled_from(
        (b"\x02", b"\x01\x02", b"a\x01\x02", b"\x01v\x02", b"TAGS\x01\xff\x02", b"K\x01v\x01w\x02", b"K\x01v")
    ),
)


@st.composite
def records(draw: st.DrawFn, topic: bytes = b"T") -> OddRecord:
    """A record archived in a queue of ``topic``: mostly sound, often odd, sometimes no record by its own lengths."""
    fields = draw(_FIELDS)
    raw = laid(
        fields,
        topic=draw(st.sampled_from((topic, topic, topic, b"other", b"", b"\xff", b"long" * 30))),
        body=draw(st.binary(max_size=40)),
        properties=draw(st.one_of(sound_properties, sound_properties, odd_properties)),
        born=draw(hosts), store=draw(hosts), v2=draw(st.booleans()),
        trailing=draw(st.sampled_from((b"",) * 8 + (b"x", bytes(9)))),
        crc=draw(st.sampled_from((None,) * 5 + (0xFFFFFFFF, 5))),
    )  # fmt: skip
    elsewhere = draw(st.sampled_from((0,) * 9 + (1,)))
    return OddRecord(raw, fields["queue_id"] + elsewhere, fields["queue_offset"] + elsewhere)
