"""Tables of messages from records that RocketMQ wrote, and from a log of everything that messages can differ in."""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pytest

from tests.kit import golden, variedlog
from tests.kit.oddrecords import OddRecord, laid
from tests.kit.storedrows import expected_row, rows_of, shown
from tiered.codec.arrow import proof
from tiered.codec.arrow.assemble import assemble
from tiered.codec.arrow.messagerows import StoredRows
from tiered.codec.arrow.proof import prove
from tiered.codec.record.message import encode_message
from tiered.errors import Corrupt, Refused

FIELDS = {
    "queue_id": 1, "flag": 0, "queue_offset": 5, "physical_offset": 99, "transaction": 0, "bits": 0,
    "born_timestamp": 1_700_000_000_000, "store_timestamp": 1_700_000_000_001, "reconsume_times": 0, "prepared": 0,
}  # fmt: skip
HOST = bytes((127, 0, 0, 1, 0, 0, 42, 159))


def plain(properties: bytes, body: bytes = b"body", **fields: int) -> OddRecord:
    made = {**FIELDS, **fields}
    raw = laid(made, topic=b"T", body=body, properties=properties, born=HOST, store=HOST, v2=False)
    return OddRecord(raw, made["queue_id"], made["queue_offset"])


def check(topic: str, found: list[OddRecord], verbatim: int = 0) -> pa.RecordBatch:
    """Proven, assembled and shown as the slow parser shows them."""
    found.sort(key=lambda r: (r.queue_id, r.queue_offset))
    proven = prove(rows_of(found, topic))
    assert proven.verbatim == verbatim
    assert assemble(proven.columns).to_pylist() == [r.raw for r in found]
    for row, record in zip(shown(proven.columns), found, strict=True):
        assert (row.pop("record") is not None) <= bool(verbatim)
        assert row == expected_row(record, topic)
    return proven.columns


@pytest.mark.parametrize("name", golden.STORES)
def test_what_rocketmq_wrote_needs_no_verbatim_copy(name: str, tmp_path: Path) -> None:
    root = golden.unpack(name, tmp_path)
    by_topic: dict[str, list[OddRecord]] = defaultdict(list)
    for store in golden.STORE_DIRS[name]:
        for record in islice(golden.records(root / store), 2000):
            by_topic[record.topic].append(OddRecord(record.raw, record.queue_id, record.queue_offset))
    assert len(by_topic) >= 2
    for topic, found in by_topic.items():
        check(topic, found)


def test_messages_that_differ_in_all_they_can() -> None:
    by_topic: dict[str, list[OddRecord]] = defaultdict(list)
    for message in variedlog.messages(2000):
        by_topic[message.topic].append(
            OddRecord(encode_message(message), message.queue_id, message.queue_offset)
        )
    assert set(by_topic) == set(variedlog.TOPICS)
    for topic, found in by_topic.items():
        check(topic, found)


def test_an_inner_batch_and_a_prepared_record_need_no_copy() -> None:
    batch = plain(b"INNER_NUM\x013\x02", bits=0x80)
    check("T", [batch, plain(b"TRAN_MSG\x01true\x02", queue_offset=8, transaction=0x4)])


@pytest.mark.parametrize(
    "properties",
    [b"A\x011\x02B\x012", b"A\x011\x02A\x012\x02B\x013\x02", b"A\x011\x02\x02", b"A\x01\xff\x02", b"A\x02", b"\x01v\x02"],
    ids=["no last separator", "twice", "a separator more", "not UTF-8", "no value", "no name"],
)  # fmt: skip
def test_properties_that_a_map_does_not_hold(properties: bytes) -> None:
    columns = check("T", [plain(b"K\x01v\x02"), plain(properties, queue_offset=6)], verbatim=1)
    assert [record is not None for record in columns.column("record").to_pylist()] == [False, True]


@pytest.mark.parametrize(
    ("each", "verbatim"),
    [
        ([b"A\x011\x02B\x012\x02"] * 3, 0), ([b"A\x011\x02A\x012\x02"] * 3, 3),
        ([b"A\x011\x02B\x012\x02", b"A\x011\x02C\x012\x02"], 0),
        ([b"AB\x011\x02C\x012\x02", b"A\x011\x02BC\x012\x02"], 0), ([b"A\x011\x02B\x012\x02", b"A\x011\x02"], 0),
        ([b"A\x011\x02B\x012\x02", b"A\x011\x02A\x012\x02"], 1), ([b"A\x011\x02", b"A\x011\x02B\x012\x02C\x013\x02"], 0),
    ],
    ids=["same", "twice in each", "another name", "cut elsewhere", "fewer", "twice in one", "more"],
)  # fmt: skip
def test_names_that_are_or_are_not_the_same_in_each_row(each: list[bytes], verbatim: int) -> None:
    check("T", [plain(properties, queue_offset=n) for n, properties in enumerate(each)], verbatim)


def test_a_record_in_a_queue_of_another_topic_or_number() -> None:
    """Such as prepared records, which the archive numbers itself."""
    check("!off-queue", [plain(b""), plain(b"", queue_offset=6)], verbatim=2)
    record = plain(b"")
    check("T", [OddRecord(record.raw, 0, 77)], verbatim=1)


def test_a_record_that_is_not_what_its_header_says_is_kept_whole() -> None:
    good = [plain(b"K\x01v\x02", queue_offset=n) for n in range(9)]
    torn = [OddRecord(good[n].raw[:-1], 1, 100 + n) for n in range(3)]
    order = [torn[0], *good[:4], torn[1], *good[4:], torn[2]]
    proven = prove(rows_of(order))
    assert proven.verbatim == 3
    assert assemble(proven.columns).to_pylist() == [r.raw for r in order]
    rows = shown(proven.columns)
    assert rows[0] == {
        "topic": "T", "queue_id": 1, "queue_offset": 100, "record": torn[0].raw,
        **dict.fromkeys(rows[0].keys() - {"topic", "queue_id", "queue_offset", "record"}),
    }  # fmt: skip
    assert [row["body"] for row in rows].count(b"body") == 9


def test_what_is_too_short_for_a_record_is_refused() -> None:
    with pytest.raises(Corrupt, match="boundary"):
        prove(rows_of([OddRecord(b"x" * 90, 0, 0)]))


def test_nothing_is_an_empty_table() -> None:
    proven = prove(rows_of([]))
    assert (len(proven.columns), proven.verbatim, len(assemble(proven.columns))) == (0, 0, 0)


def test_a_difference_is_never_let_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """Assembly that fails in verbatim rows too, as a program error would make it."""

    def wrong(columns: pa.RecordBatch) -> pa.Array:
        return pa.array([None if r is None else r[:-1] + b"!" for r in assemble(columns).to_pylist()])

    monkeypatch.setattr(proof, "assemble", wrong)
    with pytest.raises(Refused, match="are not the records"):
        prove(rows_of([plain(b"K\x01v\x02")]))


def test_nothing_runs_once_per_record() -> None:
    """Ten times the records take no more calls of Python."""

    def calls(count: int) -> int:
        rows = rows_of([plain(b"K\x01v\x02TAGS\x01x\x02", queue_offset=n) for n in range(count)])
        return _calls(lambda: prove(rows)) + _calls(lambda: assemble(prove(rows).columns))

    assert calls(2000) < 1.2 * calls(200)


def _calls(work: Callable[[], object]) -> int:
    seen = 0

    def count(frame: object, event: str, _: object) -> None:
        nonlocal seen
        seen += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return seen


@pytest.mark.parametrize("room", ["arrow.proof", "segment.writer", "segment.reader"])
def test_without_pyarrow_the_error_says_what_to_install(room: str) -> None:
    script = (
        "import sys; sys.modules['pyarrow'] = None\n"
        "from tiered.errors import Invalid\n"
        f"try:\n    import tiered.codec.{room}\n"
        "except Invalid as error:\n    print(error)"
    )
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    assert "requires the package pyarrow, which is not installed" in said
    assert "rocketmq-tiered[parquet]" in said


def test_slices_of_the_source_buffer() -> None:
    """``edges`` need not begin at 0."""
    records = [plain(b"K\x01v\x02", queue_offset=n) for n in range(5)]
    whole = rows_of(records)
    part = StoredRows(
        "T", whole.buffer, whole.edges[2:], whole.queue_id[2:], whole.queue_offset[2:], whole.commit_seq[2:]
    )
    assert assemble(prove(part).columns).to_pylist() == [r.raw for r in records[2:]]
