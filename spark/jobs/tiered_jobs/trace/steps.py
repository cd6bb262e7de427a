"""What each record of a life is: by its topic, its flags and its properties."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tiered.codec.record.layout import SYS_PREPARED, SYS_ROLLBACK, SYS_TRANSACTION

Row = dict[str, Any]

HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
GIVEN_UP_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
WAITING_TOPICS = ("SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer")
RETRY, DEAD = "%RETRY%", "%DLQ%"
COMMITTED = 0x8
DELAYED_BY = ("DELAY", "TIMER_DELIVER_MS", "TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_OUT_MS")


def place(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Where a record lies: no other has it."""
    return row["cluster"], row["broker"], row["topic"], row["queue_id"], row["queue_offset"]


def steps(found: Sequence[Row], decisions: Iterable[Row]) -> list[Row]:
    """Rows as they are shown, by time: ``step``, ``group``, ``message`` it belongs to, ``since_ms`` since its last step.

    ``found`` by time; ``decisions`` as ``Search.decisions`` gives them.
    """
    halves: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for row in open_halves(found):
        halves[row["cluster"], row["broker"], row["queue_id"], str(row["queue_offset"])].append(row)
    told = [_told(row, step_of(row), message_of(row, found)) for row in found]
    for end in decisions:
        for offset in end["ends"]:
            for half in halves.get((end["cluster"], end["broker"], end["queue_id"], offset), []):
                last = half is _halves_of(half, found)[-1]
                told.append(_told(end, "rolled back" if last else "asked again", message_of(half, found)))
    told.sort(key=lambda row: (row["store_timestamp"], row["physical_offset"]))
    before: dict[str, int] = {}
    for row in told:
        earlier = before.get(row["message"])
        row["since_ms"] = None if earlier is None else row["store_timestamp"] - earlier
        before[row["message"]] = row["store_timestamp"]
    return told


def open_halves(found: Sequence[Row]) -> list[Row]:
    """Half messages whose committed record is not among ``found``."""
    committed = [row for row in found if _is_commit(row)]
    keys = {row["unique_key"] for row in committed if row["unique_key"]}
    places = {row["prepared_transaction_offset"] for row in committed}
    return [
        row for row in found
        if row["topic"] == HALF_TOPIC and row["unique_key"] not in keys and row["physical_offset"] not in places
    ]  # fmt: skip


def step_of(row: Row) -> str:
    """What happened when this record was stored."""
    topic, transaction = row["topic"], row["sys_flag"] & SYS_TRANSACTION
    if topic == HALF_TOPIC or transaction == SYS_PREPARED:
        checks = row["TRANSACTION_CHECK_TIMES"]
        return f"half message, check {checks}" if checks else "half message"
    if transaction == SYS_ROLLBACK:
        return "rolled back"
    if topic == GIVEN_UP_TOPIC:
        return "given up after checks"
    if topic == TRACE_TOPIC:
        return "client's trace"
    if topic in WAITING_TOPICS:
        target = row["REAL_TOPIC"] or ""
        wait = f"delay level {row['DELAY']}" if row["DELAY"] else "delay"
        return f"{wait} before retry {row['reconsume_times']}" if target.startswith(RETRY) else wait
    if topic.startswith(DEAD):
        return "dead letter"
    if topic.startswith(RETRY):
        return f"retry {row['reconsume_times']}"
    if _is_commit(row):
        return "committed"
    if any(row[name] for name in DELAYED_BY):
        return "delivered after delay"
    return "sent"


def group_of(row: Row) -> str | None:
    """The consumer group of a retry or dead letter, the producer group of a transaction, if the record tells it."""
    topic = row["REAL_TOPIC"] if row["topic"] in WAITING_TOPICS and row["REAL_TOPIC"] else row["topic"]
    if topic.startswith((RETRY, DEAD)):
        name = str(topic).removeprefix(RETRY).removeprefix(DEAD)
        return row["ORIGIN_GROUP"] or name.partition("+")[0]  # POP: group+topic
    return row["PGROUP"] if row["topic"] == HALF_TOPIC or _is_commit(row) else None


def message_of(row: Row, found: Sequence[Row]) -> str:
    """What makes records one message: unique key, or the broker's id of the first copy."""
    if row["unique_key"]:
        return str(row["unique_key"])
    return str(row["ORIGIN_MESSAGE_ID"] or row["DLQ_ORIGIN_MESSAGE_ID"] or row["msg_id"])


def _is_commit(row: Row) -> bool:
    """Whether this is the record that a commit has made; copies of it in other topics keep its flag."""
    own = not row["topic"].startswith((RETRY, DEAD)) and row["topic"] not in WAITING_TOPICS
    return bool(own and row["sys_flag"] & SYS_TRANSACTION == COMMITTED)


def _halves_of(half: Row, found: Sequence[Row]) -> list[Row]:
    """All copies of a half message: a broker that asks its producer stores it anew."""
    if not half["unique_key"]:
        return [half]
    return [row for row in found if row["topic"] == HALF_TOPIC and row["unique_key"] == half["unique_key"]]


_SHOWN = (
    "store_timestamp", "cluster", "broker", "topic", "queue_id", "queue_offset", "physical_offset", "tags", "msg_id",
    "born_host", "body_size",
)  # fmt: skip


def _told(row: Row, step: str, message: str) -> Row:
    return {**{name: row[name] for name in _SHOWN}, "step": step, "group": group_of(row), "message": message}
