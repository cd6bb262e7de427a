"""Blocks of a flush compressed together: small ones quickly, each as it would be found alone."""

from __future__ import annotations

import numpy as np
import pytest

from tiered.codec.format import block

SIZES = [300, 40, 511, 512, 4000, 1, 250, 9000, 200]
QUICK = 512


def raw_of(sizes: list[int]) -> tuple[bytes, list[bytes]]:
    text = b"the broker wrote what the producer sent, and the archive keeps it as it was; " * 200
    incompressible = np.random.default_rng(5).bytes(250)
    pieces = [incompressible if size == 250 else text[size % 7 :][:size] for size in sizes]
    return b"".join(pieces), pieces


def opened(stored: block.StoredBlocks, pieces: list[bytes]) -> list[bytes]:
    found = []
    for number, piece in enumerate(pieces):
        data = b"".join(bytes(part) for part in stored.between(number, number + 1))
        crc, codec = int(stored.crcs[number]), int(stored.codecs[number])
        found.append(
            block.decompress(data, codec=codec, raw_length=len(piece), crc32c=crc, key="data/x", position=0)
        )
    return found


@pytest.mark.parametrize("sizes", [SIZES, [100, 200, 300], [4000, 600]])
def test_each_block_is_read_as_it_was(sizes: list[int]) -> None:
    raw, pieces = raw_of(sizes)
    edges = np.cumsum([0, *sizes])
    for plain_below in (0, 256):
        stored = block.compress_pieces(raw, edges, level=1, quick_below=QUICK, plain_below=plain_below)
        assert opened(stored, pieces) == pieces


def test_the_smallest_blocks_are_stored_as_they_are() -> None:
    raw, _ = raw_of(SIZES)
    edges, sizes = np.cumsum([0, *SIZES]), np.array(SIZES)
    quick = block.compress_pieces(raw, edges, level=1, quick_below=QUICK)
    stored = block.compress_pieces(raw, edges, level=1, quick_below=QUICK, plain_below=256)
    tiny = sizes < 256
    assert (stored.codecs[tiny] == block.CODEC_NONE).all()
    assert (stored.lengths[tiny] == sizes[tiny]).all()
    assert (stored.crcs[~tiny] == quick.crcs[~tiny]).all()
    assert (quick.codecs[tiny] != block.CODEC_NONE).any(), "there is something to leave alone"
    high = block.compress_pieces(raw, edges, level=6, quick_below=QUICK, plain_below=256)
    assert (high.crcs == block.compress_pieces(raw, edges, level=6).crcs).all()


def test_large_blocks_and_higher_levels_are_compressed_as_ever() -> None:
    raw, pieces = raw_of(SIZES)
    edges = np.cumsum([0, *SIZES])
    quick = block.compress_pieces(raw, edges, level=1, quick_below=QUICK)
    plain = block.compress_pieces(raw, edges, level=1)
    large = np.array(SIZES) >= QUICK
    assert (quick.crcs[large] == plain.crcs[large]).all()
    assert (quick.crcs[~large] != plain.crcs[~large]).any(), "the small ones are not"
    high = block.compress_pieces(raw, edges, level=6, quick_below=QUICK)
    assert (high.crcs == block.compress_pieces(raw, edges, level=6).crcs).all()
    assert opened(high, pieces) == pieces
