"""Writes ``tests/data/format/``: objects and commits whose bytes the format promises to read for ever.

Run ``python -m tests.kit.format_golden`` after a deliberate change of the format, look at the difference, and
say why in ``docs/FORMAT.md``. Everything is made from fixed numbers and ids, so that a second run
changes nothing. ``manifest.json`` holds what each file decodes to, and the zstd version that compressed it:
another version may compress differently, which changes bytes but not content.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import zstandard

from tests.kit import format_samples as samples
from tiered.codec.format import block
from tiered.codec.format.commit import COMMIT_FOOTER_BYTES, decode_commit, encode_commit, encode_stand_in
from tiered.codec.format.object import (
    FOOTER_BYTES,
    ColumnsReader,
    KeyFilter,
    Sections,
    decode_block_table,
    decode_directory,
    decode_footer,
    decode_keys,
)
from tiered.codec.format.training import decode_dictionary

DIRECTORY = Path(__file__).resolve().parent.parent / "data" / "format"
MANIFEST = DIRECTORY / "manifest.json"


def files() -> dict[str, bytes]:
    """Every golden file's bytes, encoded now."""
    inline = samples.tables([1, 6, 2]).encode(object_id=samples.COMMIT_ID)
    runs = samples.append_runs(samples.tables([1, 6, 2]))
    data = samples.commit(
        [samples.add_object(inline, object_id=samples.COMMIT_ID), runs], inline_length=inline.length
    )
    return {
        "object-level0.bin": b"".join(samples.tables([3, 1, 40, 8, 2]).encode().parts),
        "object-merged.bin": b"".join(samples.tables([9000, 200], merged=True).encode(level=1).parts),
        "object-dictionary.bin": b"".join(samples.with_dictionary(samples.tables([4] * 12)).encode().parts),
        "object-no-keys.bin": b"".join(samples.tables([1], keys=False, level=0).encode().parts),
        "commit-every-kind.bin": b"".join(encode_commit(samples.commit(samples.every_kind()))),
        "commit-inline.bin": b"".join(encode_commit(data, inline.parts)),
        "commit-aliases.bin": b"".join(encode_commit(samples.commit([samples.aliases()]))),
        "commit-aged-aliases.bin": b"".join(encode_commit(samples.commit([samples.aged_aliases()]))),
        "commit-forget.bin": b"".join(encode_commit(samples.commit([samples.forget()]))),
        "commit-sinks.bin": b"".join(encode_commit(samples.commit([samples.sink_progress()]))),
        "commit-sink-map.bin": b"".join(encode_commit(samples.commit([samples.sink_map()]))),
        "repair-loss.bin": b"".join(encode_stand_in(samples.commit([samples.loss()]))),
    }


def describe(name: str, data: bytes) -> dict[str, Any]:
    """What a golden file decodes to, as plain JSON values; large parts as their SHA-256."""
    if name.startswith("object"):
        return describe_object(data, name)
    decoded = decode_commit(data, key=name)
    told: dict[str, Any] = {
        "seq": decoded.seq,
        "epoch": decoded.epoch,
        "archive_id": decoded.archive_id.hex(),
        "commit_id": decoded.commit_id.hex(),
        "previous_id": decoded.previous_id.hex(),
        "writer_id": decoded.writer_id.hex(),
        "inline_length": decoded.inline_length,
        "footer": data[-COMMIT_FOOTER_BYTES:].hex(),
        "edits": [[b.kind.name, [_plain(b.row(i)) for i in range(len(b))]] for b in decoded.edits],
    }
    if decoded.inline_length:
        told["inline"] = describe_object(data[: decoded.inline_length], name)
    return told


def describe_object(data: bytes, key: str) -> dict[str, Any]:
    """As ``describe``, of an object."""
    footer = decode_footer(data, object_length=len(data), key=key)
    sections: Sections = footer.sections

    def of(number: int) -> bytes:
        return data[sections[number].range.start : sections[number].range.end]

    directory = decode_directory(of(1), sections[1], key=key)
    blocks = decode_block_table(of(2), sections[2], key=key)
    dictionary = decode_dictionary(of(10), sections[10], key=key) if 10 in sections else None
    raw = [
        block.decompress(
            data[b["position"] : b["position"] + b["stored_length"]],
            codec=int(b["codec"]), raw_length=int(b["raw_length"]), crc32c=int(b["crc32c"]), key=key,
            position=int(b["position"]), dictionary=dictionary,
        )
        for b in blocks
    ]  # fmt: skip
    reader = ColumnsReader(of(4), sections, key=key)
    pieces = [data[r.start : r.end] for r in reader.ranges(reader.names, 0, reader.rows)]
    columns = reader.decode(reader.names, 0, reader.rows, pieces)
    told: dict[str, Any] = {
        "footer": data[-FOOTER_BYTES:].rstrip(b"\0").hex(),
        "object_id": footer.object_id.hex(),
        "archive_id": footer.archive_id.hex(),
        "level": footer.level,
        "sections": {str(n): list(s) for n, s in sections.items()},
        "topics": list(directory.topics),
        "tags": [t.hex() for t in directory.tags],
        "runs": [[int(v) for v in run] for run in directory.runs.tolist()],
        "blocks": len(blocks),
        "block_table": _digest(blocks.tobytes()),
        "raw": _digest(b"".join(raw)),
        "columns": {n: [str(c.dtype), len(c), _digest(c.tobytes())] for n, c in columns.items()},
    }
    if dictionary is not None:
        told["dictionary"] = _digest(dictionary.content)
    if 5 in sections:
        keys = decode_keys(of(6), of(5), sections, key=key)
        sieve = KeyFilter(of(7), sections[7], key=key)
        told["keys"] = [len(keys), _digest(keys.tobytes())]
        told["candidates"] = [sieve.runs(h).tolist() for h in keys["hash"][:20].tolist()]
    return told


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _plain(value: Any) -> Any:
    """Bytes as hex, text that is not UTF-8 escaped, dict keys as text."""
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    return [_plain(v) for v in value] if isinstance(value, list) else value


def main() -> None:
    """Write the files and their manifest."""
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    made = files()
    for name, data in made.items():
        (DIRECTORY / name).write_bytes(data)
    manifest = {
        "zstd": list(zstandard.ZSTD_VERSION),
        "files": {
            name: {"sha256": _digest(data), "content": describe(name, data)} for name, data in made.items()
        },
    }
    MANIFEST.write_text(json.dumps(manifest, indent=1, sort_keys=True) + "\n")
    sizes = np.array([len(d) for d in made.values()])
    print(f"{len(made)} files, {sizes.sum()} bytes, in {DIRECTORY.name}/")


if __name__ == "__main__":
    main()
