"""Small documents that jobs and streams keep, damaged: each error names the file and what to do. No JVM."""

from __future__ import annotations

import pytest

from tiered.errors import Corrupt, Refused
from tiered_jobs.pipeline.table import keep, last_batch, taken
from tiered_spark.columns import message_schema
from tiered_spark.options import parse_options
from tiered_spark.stream import MessageStreamReader

pytestmark = pytest.mark.spark

STATE = "t/bronze/_checkpoint"


class Documents(dict[str, bytes]):
    """``Files`` in memory."""

    def read(self, url: str) -> bytes | None:
        return self.get(url)

    def names(self, url: str) -> list[str]:
        return [name.removeprefix(f"{url}/") for name in self if name.startswith(f"{url}/")]

    def create(self, url: str, data: bytes) -> None:
        self[url] = data


def kept(files: Documents, **wanted: object) -> None:
    keep(files, "t/_source.json", wanted, what="this table", hint="use the flags that it was made with")  # type: ignore[arg-type]


@pytest.mark.parametrize("damaged", [b"", b"{", b"[1]", b"\xff\xfe", b"null"])
def test_what_a_layer_was_made_from(damaged: bytes) -> None:
    files = Documents()
    kept(files, topics="A")
    kept(files, topics="A")
    with pytest.raises(Refused, match="another topics"):
        kept(files, topics="B")
    files["t/_source.json"] = damaged
    with pytest.raises(Corrupt, match=r"state is damaged \(key=t/_source.json.*makes it anew") as caught:
        kept(files, topics="A")
    assert caught.value.exit_code == Corrupt.exit_code


def test_how_far_a_layer_has_come() -> None:
    files = Documents(
        {
            f"{STATE}/commits/0": b'v1\n{"nextBatchWatermarkMs":7}',
            f"{STATE}/offsets/0": b'v1\n{}\n{"x c/b": 3}',
        }
    )
    assert taken(files, "t/bronze") == {"x c/b": 3}  # type: ignore[arg-type]
    assert last_batch(files, "t/bronze") == (None, 7)  # type: ignore[arg-type]
    files[f"{STATE}/offsets/1"] = b"v1\n{}\n"
    assert last_batch(files, "t/bronze") == (1, 7)  # type: ignore[arg-type]
    files[f"{STATE}/commits/1"] = b"v1"
    assert last_batch(files, "t/bronze") == (None, 0)  # type: ignore[arg-type]
    for damaged in (b"", b"v1\n{}\n", b"v1\n{}\n{", b'v1\n{}\n{"x c/b": "y"}', b'v1\n{}\n{"x c/b": null}'):
        files[f"{STATE}/offsets/1"] = damaged
        with pytest.raises(Corrupt, match=f"key={STATE}/offsets/1"):
            taken(files, "t/bronze")  # type: ignore[arg-type]


@pytest.mark.parametrize("offset", [{"x c/b": "7"}, {"x c/b": None}, [7], "7"], ids=str)
def test_offsets_of_a_damaged_checkpoint(offset: object) -> None:
    stream = MessageStreamReader(parse_options({"archive": "memory://x"}), message_schema())
    with pytest.raises(Corrupt, match=r"no offset of an archive.*restore the checkpoint location"):
        stream.partitions(offset, {"x c/b": 7})  # type: ignore[arg-type]
    with pytest.raises(Corrupt, match="no offset of an archive"):
        stream.partitions({"x c/b": 7}, offset)  # type: ignore[arg-type]
