"""The examples of deploy/sealing.md, as they are printed, and sealed files of a topic whose name is a number for them."""

from __future__ import annotations

import json
import re
import zlib
from pathlib import Path

from tests.kit.oddrecords import OddRecord, laid
from tests.kit.segments import made, part

PAGE = Path(__file__).parents[2] / "deploy" / "sealing.md"
TOPIC = "1234"


def examples(archive: Path) -> list[str]:
    """Code of the page, in its order, about an archive in a directory."""
    found = re.findall(r"^```(?:sql|python)\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    names = (("s3a://my-bucket/rocketmq", archive), ("s3://my-bucket/rocketmq", archive), ("Orders", TOPIC))
    for name, here in names:
        found = [code.replace(name, str(here)) for code in found]
    return found


def sealed(archive: Path, *, packed: int) -> list[tuple[str, int, int]]:
    """Sealed files of two days with JSON in their bodies, some of them compressed; (id, queue id, queue offset) of each."""
    rows = []
    for day in (1, 2):
        records = []
        for number in range(10 * day, 10 * day + 10):
            plain = json.dumps({"id": f"order-{number}", "name": '\u00e4"'}, ensure_ascii=False).encode()
            body = zlib.compress(plain) if number % 10 < packed else plain
            fields = {
                "queue_id": 3, "flag": 0, "queue_offset": number, "physical_offset": number << 10, "transaction": 0,
                "bits": int(body is not plain), "born_timestamp": 1_700_000_000_000, "store_timestamp": 1_700_000_000_000,
                "reconsume_times": 0, "prepared": 0,
            }  # fmt: skip
            host = bytes((10, 0, 0, 1, 0, 0, 42, 159))
            raw = laid(
                fields, topic=TOPIC.encode(), body=body, properties=b"", born=host, store=host, v2=False
            )
            records.append(OddRecord(raw, 3, number))
            rows.append((f"order-{number}", 3, number))
        folder = archive / f"DefaultCluster/broker-a/segment/topic={TOPIC}/day=2026-03-0{day}"
        folder.mkdir(parents=True)
        (folder / f"{day}.parquet").write_bytes(made([part(records)], TOPIC).data)
    return rows
