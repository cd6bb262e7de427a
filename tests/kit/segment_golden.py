"""The golden segments under ``tests/data/format/segment``: files that every later program must read, and what is in them.

``python -m tests.kit.segment_golden NAME`` adds one, of what this program and the installed pyarrow write now. None is ever
written anew: other versions of pyarrow give other bytes, and a reader must take the old ones for ever.
"""

from __future__ import annotations

import json
import struct
import sys
from pathlib import Path

import pyarrow as pa

from tests.kit import variedlog
from tests.kit.oddrecords import OddRecord, laid
from tests.kit.segments import ARCHIVE, OBJECT, made, part, parts
from tiered.codec.record.message import encode_message

DIRECTORY = Path(__file__).parents[1] / "data" / "format" / "segment"
TOPIC = "Orders"


def records() -> list[OddRecord]:
    """Messages that differ in all they can, an inner batch, both kinds of topic length, and what columns cannot hold."""
    found = [
        OddRecord(encode_message(m), m.queue_id, m.queue_offset)
        for m in variedlog.messages(150) if m.topic == TOPIC
    ]  # fmt: skip
    fields = {
        "queue_id": 2, "flag": -1, "queue_offset": 0, "physical_offset": 1 << 40, "transaction": 0x8, "bits": 0,
        "born_timestamp": -1, "store_timestamp": 1_700_000_000_000, "reconsume_times": 3, "prepared": 77,
    }  # fmt: skip
    v4, v6 = bytes((10, 0, 0, 1, 0, 0, 42, 159)), bytes(range(20))
    forms = [
        (b"K\x01v\x02", v4, v6, False, b""), (b"K\x01v\x02", v6, v4, True, b""), (b"", v6, v6, True, b""),
        (b"K\x01v", v4, v4, False, b""), (b"K\x01v\x02K\x01w\x02", v4, v4, False, b""), (b"K\x01\xff\x02", v4, v4, True, b""),
        (b"INNER_NUM\x013\x02", v4, v4, False, b""), (b"", v4, v4, False, b"trailing"),
    ]  # fmt: skip
    for number, (properties, born, store, v2, trailing) in enumerate(forms):
        made_of = {**fields, "queue_offset": number, "bits": 0x80 * properties.startswith(b"INNER")}
        raw = laid(
            made_of, topic=TOPIC.encode(), body=b"\0\xff" * number, properties=properties, born=born, store=store,
            v2=v2, trailing=trailing,
        )  # fmt: skip
        found.append(OddRecord(raw, 2, number))
    return sorted(found, key=lambda r: (r.queue_id, r.queue_offset))


def write(name: str) -> None:
    """Add a golden segment: the file, its records (u4 length, bytes), and what its writer said."""
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    path = DIRECTORY / f"{name}.parquet"
    if path.exists():
        raise SystemExit(f"{path} is golden: it is never written anew")
    all_ = records()
    early, late = [r for r in all_ if r.queue_id < 2], [r for r in all_ if r.queue_id == 2]
    segment = made([*parts(early), part(late, generation=3, flat=1000)], TOPIC, 8000, 2000)
    path.write_bytes(segment.data)
    path.with_suffix(".records").write_bytes(b"".join(struct.pack("<I", len(r.raw)) + r.raw for r in all_))
    runs = segment.sealed.runs
    told = {
        "pyarrow": pa.__version__,
        "archive_id": ARCHIVE.hex(),
        "object_id": OBJECT.hex(),
        "topic": TOPIC,
        "row_groups": len(segment.open().directory.groups),
        "rows": segment.sealed.rows,
        "verbatim": segment.sealed.verbatim,
        "footer": list(segment.sealed.footer),
        "queue": [[r.queue_id, r.queue_offset] for r in all_],
        "runs": {field: runs[field].tolist() for field in runs.dtype.names or ()},
    }
    path.with_suffix(".json").write_text(json.dumps(told, indent=1) + "\n")


def golden_records(path: Path) -> list[bytes]:
    """The records of a golden segment."""
    data, at, found = path.with_suffix(".records").read_bytes(), 0, []
    while at < len(data):
        (size,) = struct.unpack_from("<I", data, at)
        found.append(data[at + 4 : at + 4 + size])
        at += 4 + size
    return found


if __name__ == "__main__":
    write(*sys.argv[1:])
