"""The description of the archive's pages (OpenAPI 3.1, made from the routes)."""

from __future__ import annotations

from tiered.http.archive.table import ROUTES
from tiered.http.describing import described, listing, operation, record, ref
from tiered.http.routes import PageRoute


def openapi() -> dict[str, object]:
    """The OpenAPI document."""
    return described(
        "Archived RocketMQ messages, read only",
        "Every answer is JSON. A failure is an object error with status, message and fix. Where a failure"
        " comes after the beginning of a long answer, the object ends with a member error.",
        ((route, _operation(route)) for route in ROUTES),
        {"Error": _ERROR, "Message": _MESSAGE, "Topic": _TOPIC, "Queue": _QUEUE, "Sink": _SINK},
    )


def _operation(route: PageRoute) -> dict[str, object]:
    kind = "text/html" if route.name == "page" else "application/json"
    good: dict[str, object] = {
        "description": route.summary,
        "content": {kind: {"schema": _RESULTS[route.name]}},
    }
    bad = {"description": "what was wrong", "content": {"application/json": {"schema": ref("Error")}}}
    return operation(route, {"200": good, "default": bad})


def _next(kind: str) -> dict[str, object]:
    return {"type": kind, "description": "there is more behind this one: give it as after"}


_WHOLE: dict[str, object] = {"type": "integer"}
_STRING: dict[str, object] = {"type": "string"}
_FLAG: dict[str, object] = {"type": "boolean"}
_TIME: dict[str, object] = {"type": ["integer", "null"], "description": "ms since 1970"}
_MAYBE: dict[str, object] = {"type": ["string", "null"]}

_ERROR = record(
    "error",
    error=record("status message fix", status=_WHOLE, message=_STRING, fix=_STRING, parameter=_STRING),
)
_TOPIC = record(
    "topic queues messages bytes oldest newest",
    topic=_STRING, queues=_WHOLE, messages=_WHOLE, bytes=_WHOLE, oldest=_TIME, newest=_TIME,
)  # fmt: skip
_QUEUE = record(
    "queue_id min_offset max_offset messages bytes generation oldest newest",
    queue_id=_WHOLE, min_offset=_WHOLE, max_offset=_WHOLE, messages=_WHOLE, bytes=_WHOLE,
    generation={"type": ["integer", "null"]}, oldest=_TIME, newest=_TIME,
)  # fmt: skip
_SINK = record(
    "sink revision lineage physical_offset commit queues left",
    sink=_STRING, revision={**_WHOLE, "description": "of the order that it goes by"}, lineage=_WHOLE,
    physical_offset={"type": ["integer", "null"], "description": "below this place of the broker's log everything was given"},
    commit={**_WHOLE, "description": "the commit that says so"}, queues=_WHOLE,
    left={**_WHOLE, "description": "messages of these queues that are archived and were not given"},
)  # fmt: skip
_MESSAGE = record(
    "topic queue_id queue_offset store_timestamp born_timestamp tags keys unique_key msg_id properties body_size body_base64",
    topic=_STRING, queue_id=_WHOLE, queue_offset=_WHOLE, store_timestamp=_WHOLE, born_timestamp=_WHOLE, tags=_MAYBE,
    keys={"type": "array", "items": _STRING}, unique_key=_MAYBE, msg_id=_STRING,
    properties={"type": "object", "additionalProperties": _STRING}, born_host=_STRING, store_host=_STRING,
    sys_flag=_WHOLE, flag=_WHOLE, reconsume_times=_WHOLE, prepared_transaction_offset=_WHOLE, physical_offset=_WHOLE,
    body_crc=_WHOLE, body_size=_WHOLE, compressed={**_FLAG, "description": "the body is as the client compressed it"},
    body_base64=_STRING, body={**_STRING, "description": "the body as text; only where it is UTF-8"},
)  # fmt: skip
_STALE: dict[str, object] = {
    **_FLAG,
    "description": "the object store does not answer: this is what was known before",
}
_FAILURE = {
    **record("status message fix", status=_WHOLE, message=_STRING, fix=_STRING),
    "description": "why it ends early",
}
_RESULTS: dict[str, dict[str, object]] = {
    "page": _STRING,
    "openapi": {"type": "object"},
    "topics": record("stale topics", stale=_STALE, topics=listing("Topic"), next=_next("string")),
    "queues": record(
        "stale topic queues", stale=_STALE, topic=_STRING, queues=listing("Queue"), next=_next("integer")
    ),
    "sinks": record("stale sinks", stale=_STALE, sinks=listing("Sink")),
    "messages": record(
        "topic queue_id min_offset max_offset messages next_offset end",
        topic=_STRING, queue_id=_WHOLE, min_offset=_WHOLE, max_offset=_WHOLE, messages=listing("Message"),
        next_offset=_WHOLE, end={**_FLAG, "description": "nothing more is archived now"}, error=_FAILURE,
    ),
    "compacted": record(
        "stale topic queue_id commit min_offset messages next_offset end",
        stale=_STALE, topic=_STRING, queue_id=_WHOLE, min_offset=_WHOLE, messages=listing("Message"), next_offset=_WHOLE,
        commit={**_WHOLE, "description": "what is kept is decided by messages up to this one; pages may have different ones"},
        end={**_FLAG, "description": "nothing more is archived at this commit"}, error=_FAILURE,
    ),
    "query": record("topic key messages", topic=_STRING, key=_STRING, messages=listing("Message")),
}  # fmt: skip
