"""Small blocks compressed with a dictionary: they come back, never by the wrong one, and only where it saves something."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest

from tests.kit import format_samples as samples
from tiered.codec import dictionary as dictionaries
from tiered.codec.checksum import crc32c
from tiered.codec.dictionary import Dictionary
from tiered.codec.format import block, training
from tiered.codec.format.object import (
    MessageKeys,
    ObjectTables,
    decode_footer,
    encode_object,
)
from tiered.codec.format.sections import Section, SectionKind, wrap
from tiered.codec.format.training import decode_dictionary
from tiered.codec.types import Buffer, Ints
from tiered.errors import Corrupt, Invalid
from tiered.write import dictionaries as writing

KEY, SIZE = "data/x", 1024


def short(count: int, seed: int = 1) -> list[bytes]:
    chance = random.Random(seed)
    return [
        b'{"order":%d,"customer":"customer-%d","state":"created","amount":%d}'
        % (chance.getrandbits(30), chance.getrandbits(20), chance.getrandbits(16))
        for _ in range(count)
    ]


def joined(pieces: Sequence[bytes]) -> tuple[bytes, Ints]:
    return b"".join(pieces), np.append(0, np.cumsum([len(p) for p in pieces]))


def made(pieces: Sequence[bytes]) -> Dictionary:
    found = training.trained_on(*joined(pieces), SIZE)
    assert found is not None
    return found


def opened(stored: block.StoredBlocks, pieces: Sequence[bytes], with_it: Dictionary | None) -> list[Buffer]:
    return [
        block.opened(
            b"".join(map(bytes, stored.between(number, number + 1))), codec=int(stored.codecs[number]),
            raw_length=len(piece), crc32c=int(stored.crcs[number]), key=KEY, position=number, dictionary=with_it,
        )
        for number, piece in enumerate(pieces)
    ]  # fmt: skip


def test_small_blocks_come_back_and_are_a_third_of_what_they_were() -> None:
    pieces = [*short(400), short(1)[0] * 400, random.Random(2).randbytes(300)]
    dictionary = made(pieces)
    stored = block.compress_pieces(*joined(pieces), level=1, plain_below=256, dictionary=dictionary)
    assert stored.codecs.tolist() == [2] * 400 + [1, 0], "a long block needs none, and noise is left as it is"
    assert stored.lengths[:400].sum() < 0.5 * sum(map(len, pieces[:400]))
    assert stored.dictionary is dictionary
    assert opened(stored, pieces, dictionary) == pieces


@pytest.mark.parametrize("without", ["multi_compress_to_buffer", ""])
def test_a_library_that_does_one_at_a_time_gives_the_same(
    monkeypatch: pytest.MonkeyPatch, without: str
) -> None:
    pieces = short(200)
    dictionary = made(pieces)
    stored = block.compress_pieces(*joined(pieces), level=1, dictionary=dictionary)
    monkeypatch.setattr("zstandard.backend_features", {"buffer_types"} if without else set())
    again = block.compress_pieces(*joined(pieces), level=1, dictionary=dictionary)
    assert (again.crcs == stored.crcs).all()


def test_a_block_without_its_dictionary_is_corrupt() -> None:
    pieces = short(200)
    stored = block.compress_pieces(*joined(pieces), level=1, dictionary=made(pieces))
    with pytest.raises(Corrupt, match="its object has none"):
        opened(stored, pieces, None)


def test_equal_dictionaries_are_one_and_few_decompressors_wait() -> None:
    pieces = short(200)
    first = made(pieces)
    assert Dictionary.of(bytes(first.content), key=KEY, position=0) is first
    for seed in range(2, 2 + 2 * dictionaries.IDLE):
        others = short(200, seed)
        other = made(others)
        assert opened(block.compress_pieces(*joined(others), level=1, dictionary=other), others, other)
    assert len(dictionaries._idle) <= dictionaries.IDLE


@pytest.mark.parametrize("content", [b"", b"no dictionary at all", b"\x37\xa4\x30\xec", bytes(200_000)])
def test_what_is_no_dictionary_is_corrupt(content: bytes) -> None:
    stored = wrap(content)
    with pytest.raises(Corrupt, match="dictionary"):
        decode_dictionary(stored, Section(0, len(stored), crc32c(stored)), key=KEY)


def test_a_dictionary_with_the_right_magic_and_nonsense_behind_it_is_corrupt() -> None:
    pieces = short(200)
    dictionary = made(pieces)
    stored = block.compress_pieces(*joined(pieces), level=1, dictionary=dictionary)
    broken = Dictionary.of(dictionary.content[:8] + bytes(100), key=KEY, position=0)
    with pytest.raises(Corrupt, match="does not decompress"):
        opened(stored, pieces, broken)


def test_a_flipped_bit_of_a_dictionary_and_another_ones_bytes_are_found() -> None:
    """Frames do not name their dictionary: the section's checksum is what tells."""
    pieces, others = short(200), short(200, 2)
    stored = [wrap(made(each).content) for each in (pieces, others)]
    section = Section(0, len(stored[0]), crc32c(stored[0]))
    assert decode_dictionary(stored[0], section, key=KEY) is made(pieces)
    flipped = bytearray(stored[0])
    flipped[-1] ^= 1
    for wrong in (bytes(flipped), stored[1]):
        same_length = wrong[: section.length].ljust(section.length, b"\0")
        with pytest.raises(Corrupt, match="the dictionary fails its checksum"):
            decode_dictionary(same_length, section, key=KEY)


def test_an_object_has_the_section_only_where_a_block_needs_it() -> None:
    plain, with_it = samples.tables([4] * 12), samples.with_dictionary(samples.tables([4] * 12))
    assert SectionKind.DICTIONARY not in plain.encode().sections
    encoded = with_it.encode()
    assert SectionKind.DICTIONARY in encoded.sections
    data = b"".join(encoded.parts)
    assert decode_footer(data, object_length=len(data), key=KEY).sections == encoded.sections
    section = encoded.sections[SectionKind.DICTIONARY]
    found = decode_dictionary(data[section.range.start : section.range.end], section, key=KEY)
    assert found is with_it.dictionary
    assert section.range.end == encoded.sections[SectionKind.BLOCK_TABLE].position, "one request for both"


def test_an_object_that_could_not_be_read_is_not_made() -> None:
    made = samples.with_dictionary(samples.tables([4] * 12))
    tables = ObjectTables(
        made.topics, made.runs, made.blocks, made.stored, made.rows, made.tags,
        MessageKeys(made.key_hash, made.key_run, made.key_queue_offset),
    )  # fmt: skip
    with pytest.raises(Invalid, match="contradict") as caught:
        encode_object(tables, object_id=samples.OBJECT_ID, archive_id=samples.ARCHIVE_ID, level=0)
    assert caught.value.fields["found"] == "a block of codec 2 and no dictionary"


def test_few_small_blocks_get_none() -> None:
    few = short(training.LEAST_RAW * SIZE // len(short(1)[0]) - 10)
    assert training.trained_on(*joined(few), SIZE) is None
    assert training.trained_on(*joined(short(1000)), 0) is None
    assert training.trained_on(*joined([b"x" * 40_000] * 4), SIZE) is None, "none of them is small"
    assert training.trained_on(*joined([random.Random(1).randbytes(9000)] * 2), SIZE) is None, "too few"


def test_a_writer_makes_another_one_after_many_flushes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "USES", 3)
    ours = writing.Dictionaries(SIZE)
    first, later = joined(short(300)), joined(short(300, 9))
    assert ours.for_blocks(*joined(short(3))) is None, "not worth it, and not counted"
    made = [ours.for_blocks(*blocks) for blocks in (first, later, later, later)]
    assert made[0] is made[1] is made[2] is not made[3] is not None
