"""A line of JSON and its sum."""

import pytest

from tiered.codec.checksum import crc32c
from tiered.codec.summedline import decode_line, encode_line

LINE = encode_line({"b": 1, "a": "ä"})


def test_the_line_is_sorted_json_and_its_crc_32c():
    assert b'{"a": "\\u00e4", "b": 1}\n' + b"%s\n" % LINE[-9:-1] == LINE
    assert decode_line(LINE) == {"a": "ä", "b": 1}


@pytest.mark.parametrize("at", range(len(LINE)))
def test_every_flipped_bit_is_found(at):
    for bit in range(8):
        flipped = bytearray(LINE)
        flipped[at] ^= 1 << bit
        with pytest.raises(ValueError):
            decode_line(bytes(flipped))


@pytest.mark.parametrize("data", [b"", b"\n", LINE[:-1], LINE + b"\n", LINE[:-9], LINE.replace(b"1", b"2")])
def test_what_is_cut_or_longer_or_changed_is_refused_and_the_sum_is_named(data):
    with pytest.raises(ValueError, match="expected the sum"):
        decode_line(data)


def test_a_line_that_is_not_an_object_is_refused():
    with pytest.raises(ValueError, match="an object in JSON"):
        decode_line(b"3\n" + b"%08x\n" % crc32c(b"3\n"))
