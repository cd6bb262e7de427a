"""What a comparison found, told to people and programs in the same words whoever compared."""

from __future__ import annotations

from tiered.errors import EXIT_INCOMPLETE, TieredError
from tiered.sink.comparison.found import COUNTS, TOTALS, Compared, QueueFound, SinkVerdict
from tiered.text.human import Kind
from tiered.text.output import Column, Output

FOUND = (
    Column("topic", flexible=True),
    Column("queue_id", "queue"),
    *(Column(name, name.replace("_", " "), kind=Kind.COUNT) for name in COUNTS[:6]),
    *(Column(name, name.replace("_", " "), kind=Kind.COUNT, less=1) for name in COUNTS[6:]),
    Column("first", "first difference"),
    Column("first_offset", "at offset"),
)
EXIT_CODES = {
    SinkVerdict.SAME: 0,
    SinkVerdict.DIFFERENT: TieredError.exit_code,
    SinkVerdict.INCOMPLETE: EXIT_INCOMPLETE,
}


def tell(out: Output, sink: str, found: Compared, *, ordered: bool, pending: int, json: bool) -> None:
    """The answer. ``pending``: messages of the archive that the sink was not given yet."""
    told: dict[str, object] = {
        "sink": sink, "verdict": str(found.verdict), "queues": found.compared_queues,
        "different_queues": found.different_queues, **found.totals, "not_given_yet": pending, "order_compared": ordered,
    }  # fmt: skip
    if json:
        out.record(
            {
                **told,
                "not_compared": list(found.unread),
                "differences": [each._asdict() for each in found.queues],
            }
        )
        return
    out.record(told, kinds=dict.fromkeys((*TOTALS, "not_given_yet"), Kind.COUNT))
    if found.queues:
        out.table(FOUND, [_row(each) for each in found.queues], title="queues with anything but the same")
    for words in found.unread:
        out.note(f"not compared: {words}")
    if not ordered:
        out.note("this kind of destination keeps no order, so none is compared")
    if found.totals["not_comparable"]:
        out.note("not comparable: one side deleted them (retention), or the sink never was to have them")


def _row(each: QueueFound) -> list[object]:
    values = each._asdict()
    return [values[column.name] for column in FOUND]
