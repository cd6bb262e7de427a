"""The examples of deploy/sealing.md run as printed, on files of a topic whose name is a number."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.kit.sealedexamples import TOPIC, examples, sealed


def test_examples_run_as_printed(tmp_path: Path) -> None:
    import duckdb  # late, as the other engines: a worker that does not run this module needs none

    rows = sealed(tmp_path, packed=4)
    counts, natural, both, by_pandas, _ = examples(tmp_path)
    assert duckdb.sql(counts).fetchall() == [(TOPIC, None, len(rows))]
    with pytest.raises(duckdb.Error, match="UTF"):
        duckdb.sql(natural).fetchall()
    left = duckdb.sql(natural.rstrip() + " where sys_flag & 1 = 0").fetchall()
    assert sorted(left) == [row for row in rows if row[2] % 10 >= 4]
    names: dict[str, Any] = {}
    exec(both, names)
    assert sorted(names["orders"]) == rows
    exec(by_pandas, names)
    frame = names["frame"]
    assert set(frame["topic"]) == {TOPIC}
    assert sorted(zip(frame["id"], frame["queue_id"], frame["queue_offset"], strict=True)) == rows
