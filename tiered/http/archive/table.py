"""Which pages the archive has, and their parameters: declared once, checked and described from the same declaration."""

from __future__ import annotations

from tiered.http.routes import PageRoute, Parameter, ParameterKind

_TOPIC = Parameter("topic", ParameterKind.TEXT, "name of the topic", in_path=True, required=True)
_QUEUE = Parameter("queue", ParameterKind.WHOLE, "queue id", in_path=True, required=True, high=(1 << 31) - 1)
_COUNT = Parameter("count", ParameterKind.WHOLE, "most rows; absent: all", low=1, high=100_000)

ROUTES = (
    PageRoute("page", "/", "A page for people that reads the others."),
    PageRoute("openapi", "/openapi.json", "This description."),
    PageRoute(
        "topics",
        "/v1/topics",
        "Archived topics, in order of their names.",
        (
            Parameter("system", ParameterKind.FLAG, "RocketMQ's own topics too", default=False),
            Parameter("prefix", ParameterKind.TEXT, "only topics whose names begin with this"),
            Parameter(
                "after", ParameterKind.TEXT, "only topics behind this one: the next of the page before"
            ),
            _COUNT,
        ),
    ),
    PageRoute(
        "queues",
        "/v1/topics/{topic}/queues",
        "Archived queues of a topic, with their offsets.",
        (
            _TOPIC,
            Parameter(
                "after",
                ParameterKind.WHOLE,
                "only queues behind this one: the next of the page before",
                high=(1 << 31) - 1,
            ),
            _COUNT,
        ),
    ),
    PageRoute(
        "sinks",
        "/v1/sinks",
        "Destinations that the log is replicated to, and how far each is by the archive's word.",
    ),
    PageRoute(
        "messages",
        "/v1/topics/{topic}/queues/{queue}/messages",
        "Messages of a queue in order. A long search ends early: go on at next_offset until end is true.",
        (
            _TOPIC,
            _QUEUE,
            Parameter(
                "offset", ParameterKind.WHOLE, "where to begin; absent: at the first message, or at time"
            ),
            Parameter(
                "time",
                ParameterKind.WHOLE,
                "begin at the first message stored at or after this, ms since 1970",
            ),
            Parameter("count", ParameterKind.WHOLE, "most messages", default=32, low=1, high=100_000),
            Parameter("tag", ParameterKind.TEXT, "only messages with this tag; several: a || b"),
            Parameter(
                "sql", ParameterKind.TEXT, "only messages whose properties satisfy this SQL92 expression"
            ),
        ),
    ),
    PageRoute(
        "compacted",
        "/v1/topics/{topic}/queues/{queue}/compacted",
        "The newest message of each key (all of KEYS) of a queue, in order, as a compaction topic keeps them. Only for queues"
        " of at most 256 MiB of records: all of them are read for the first page.",
        (
            _TOPIC,
            _QUEUE,
            Parameter("offset", ParameterKind.WHOLE, "where to begin: the next_offset of the page before"),
            Parameter("count", ParameterKind.WHOLE, "most messages", default=32, low=1, high=10_000),
        ),
    ),
    PageRoute(
        "query",
        "/v1/query",
        "The newest messages of a topic that have a key, in the order in which they were stored.",
        (
            Parameter("topic", ParameterKind.TEXT, "name of the topic", required=True),
            Parameter("key", ParameterKind.TEXT, "one of the KEYS of the messages", required=True),
            Parameter(
                "unique", ParameterKind.FLAG, "key is the id made by the client (UNIQ_KEY)", default=False
            ),
            Parameter(
                "count",
                ParameterKind.WHOLE,
                "most messages; fewer if they are more than 64 MiB",
                default=32,
                low=1,
                high=256,
            ),
            Parameter("begin", ParameterKind.WHOLE, "stored at or after this, ms since 1970"),
            Parameter("end", ParameterKind.WHOLE, "stored at or before this, ms since 1970"),
        ),
    ),
)
